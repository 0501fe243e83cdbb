"""Was anything changed in dictionaries, objects and tensors? It shows in a few words of each one's memory.

A dictionary counts its changes, an object names its class, a tensor says what it is, where its numbers lie and how
often PyTorch was told to write into them. A function of Python's or PyTorch's takes 30 to 100 ns to ask one of them one
of these, for which a model of 110 parts has 2,000 occasions. Here NumPy reads all of these words in one call, at 1 to 2
ns each: it takes them from an array that is laid over the whole memory.

In which word of an object something is differs between versions of Python and PyTorch, so none is assumed. A word is
looked for by its value, in objects made for that, and what is found is compared with what Python and PyTorch say of
each object that is watched. What is not found is None, and is to be asked for in another way: newer versions of Python
count the changes of dictionaries elsewhere.

A word that differs need not mean much: one looks closely then. Words are read only where there is memory: of objects
that are held here, and of what an object points to as long as it points there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch._C._dynamo.guards import dict_version

from girih.capture.torch.weights import sample

Tensor = Any
WORD = 8
"""Bytes."""
OF_A_TENSOR, OF_A_STORAGE, OF_A_COUNTER = 22, 6, 3
"""Of PyTorch's own objects so many words are looked at, which is no more than each has."""
BEFORE = 4
"""Words of Python's own that lie before an object which has attributes, or the memory's, as the object before it."""


class _Everything:
    """All memory but for the first word, at the address that is none."""

    def __init__(self) -> None:
        self.__array_interface__ = {"version": 3, "shape": (2**58,), "typestr": "=u8", "data": (WORD, True)}


take: Callable[[Any], Any] = np.asarray(_Everything()).take
"""The words at these places: a word's place is the number of words that come before it, without the first."""


def _places(addresses: Any) -> Any:
    return np.asarray(addresses, np.int64) // WORD - 1


def _words(address: int, count: int) -> list[int]:
    """So many words from an address on."""
    return take(_places(address) + np.arange(count)).tolist()  # type: ignore[no-any-return]


class Words:
    """Words of memory, as they were.

    fixed, counted, behind: their addresses. While all the fixed ones are as they were, the words behind them are there
    to be read. Counted ones may differ though nothing has changed. keep: the objects in which the words are.
    """

    def __init__(
        self, fixed: Sequence[Any] = (), counted: Sequence[Any] = (), behind: Sequence[Any] = (), keep: Any = None
    ) -> None:
        self._mark = np.zeros(1, np.uint64)  # a word of their own
        self.keep = keep
        every = [_in_order([*fixed, [self._mark.ctypes.data]]), _in_order(counted), _in_order(behind)]
        self._fixed, self.first = len(every[0]), len(every[0]) + len(every[1])
        self.places = np.concatenate(every)
        self._first, self._behind = self.places[: self.first], self.places[self.first :]
        self.were = take(self.places)  # written over in place, as `way.c` reads it

    @property
    def known(self) -> bytes:
        """What they were."""
        return self.were.tobytes()  # type: ignore[no-any-return]

    @known.setter
    def known(self, now: bytes) -> None:
        self.were[:] = np.frombuffer(now, np.uint64)

    def forget(self) -> None:
        """No words are as they were, from now on."""
        self._mark[0] = 1

    def doubt(self) -> None:
        """No counts are as they were until somebody has looked: Python begins with 1."""
        self.were[self._fixed : self.first] = 0

    def same(self) -> bool:
        first, behind = self.were[: self.first].tobytes(), self.were[self.first :].tobytes()
        return bool(take(self._first).tobytes() == first and take(self._behind).tobytes() == behind)

    def now(self) -> bytes | None:
        """What they are now; None where a fixed one is another."""
        first = take(self._first)
        if first[: self._fixed].tobytes() != self.were[: self._fixed].tobytes():
            return None
        return first.tobytes() + take(self._behind).tobytes()  # type: ignore[no-any-return]


def _in_order(addresses: Sequence[Any]) -> Any:
    """Their places, in the order of memory: a processor looks up once where a page of it is."""
    return _places(np.unique(np.concatenate(addresses)) if addresses else ())


def of_dictionaries(mappings: Sequence[dict[Any, Any]]) -> Any | None:
    """Addresses of the words in which Python counts their changes."""
    place = _place_in_dictionary()
    if place is None:
        return None
    found = _addresses(mappings) + place * WORD
    counts = [*map(dict_version, mappings)]
    return found if take(_places(found)).tolist() == counts else None


def of_references(pairs: Sequence[tuple[Any, Any]]) -> Any | None:
    """Addresses of the words by which objects refer to others: of pairs of both, such as an object and its class."""
    found = []
    for one, other in pairs:
        place = _place_of(id(other), id(one), type(one).__basicsize__ // WORD)
        if place is None:
            return None
        found.append(id(one) + place * WORD)
    return np.array(found, np.int64)


def of_attributes(objects: Sequence[Any]) -> Any | None:
    """Addresses of the words by which objects refer to their attributes (`__dict__`)."""
    found = []
    for one in objects:
        place = _place_of(id(vars(one)), id(one) - BEFORE * WORD, BEFORE + type(one).__basicsize__ // WORD)
        if place is None:
            return None
        found.append(id(one) + (place - BEFORE) * WORD)
    return np.array(found, np.int64)


def of_lists(lists: Sequence[list[Any]]) -> tuple[Any, Any] | None:
    """Addresses of the words that say where the items of lists are and how many, and of items."""
    fixed: list[int] = []
    behind: list[int] = []
    for items in lists:
        places = _places_in_list()
        if places is None:
            return None
        size, where = (id(items) + place * WORD for place in places)
        (first,) = _words(where, 1)
        if _words(size, 1) != [len(items)] or (items and _words(first, len(items)) != [*map(id, items)]):
            return None
        fixed += [size, where]
        behind += range(first, first + len(items) * WORD, WORD)
    return np.array(fixed, np.int64), np.array(behind, np.int64)


def of_sets(sets: Sequence[set[Any]]) -> Any | None:
    """Addresses of all words of sets behind those that count references and name the class, of sets that are so small
    that their items are among these."""
    inside = np.arange(2, set.__basicsize__ // WORD)
    for items in sets:
        words = _words(id(items), set.__basicsize__ // WORD)
        if words[1] != id(set) or not any(0 < word - id(items) < set.__basicsize__ for word in words):
            return None
    return (_addresses(sets)[:, None] + inside * WORD).ravel()


def of_tensors(tensors: Sequence[Tensor]) -> tuple[Any, Any, Any] | None:
    """Of ordinary tensors: addresses of fixed words, of those behind them, and what is to be kept meanwhile.

    Fixed are where PyTorch's own object of each tensor is, where its numbers are, and the count of writes into them.
    Behind them are what PyTorch's object says of dtype, sizes, strides and memory, and a sample of the numbers. What is
    kept has the same memory and the same count.
    """
    places, forms = _places_in_tensor(), [_forms(tensor.dim()) for tensor in tensors]
    if places is None or None in forms:
        return None
    storages = [tensor.untyped_storage() for tensor in tensors]
    in_objects = _addresses(tensors) + places.own * WORD
    own = _read(in_objects)
    if own.tolist() != [tensor._cdata for tensor in tensors]:
        return None
    in_storage = _read(own + places.storage * WORD)
    if in_storage.tolist() != [storage._cdata for storage in storages]:
        return None
    numbers = in_storage + places.numbers * WORD
    if _read(numbers).tolist() != [storage.data_ptr() for storage in storages]:
        return None
    counters = _read(own + places.counter * WORD)
    if [not counter for counter in counters] != [tensor.is_inference() for tensor in tensors]:
        return None  # only in inference mode nobody counts
    counts = counters[counters != 0] + places.count * WORD
    versions = [tensor._version for tensor in tensors if not tensor.is_inference()]
    if not all(map(_has_half, _read(counts).tolist(), versions)):
        return None
    described = [address + np.array(form) * WORD for address, form in zip(own, forms, strict=True)]
    samples = [_sampled(tensor) for tensor in tensors if tensor.numel() and tensor.device.type == "cpu"]
    behind = np.concatenate((own + places.counter * WORD, *described, *samples))
    return np.concatenate((in_objects, numbers, counts)), behind, [tensor.detach() for tensor in tensors]


def form_of(tensor: Tensor) -> bytes | None:
    """Words that an ordinary tensor of the processor's shares with those of its dtype, sizes and strides alone: its
    class, in which word of it the address of PyTorch's own object is, how many words of that follow, and which these
    are, each with the bits that count and what they are. What it shares with few may be among these, such as its place
    in the memory that it lies in."""
    places, form, (dtype, bits) = _places_in_tensor(), _forms(tensor.dim()), _bits_of_dtype()
    if places is None or form is None or not bits or type(tensor) is not torch.Tensor:
        return None
    (own,) = _words(id(tensor) + places.own * WORD, 1)
    if own != tensor._cdata or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return None
    words, every = _words(own, OF_A_TENSOR), 2 ** (8 * WORD) - 1
    masks = {place: bits if place == dtype else every for place in form if place != places.storage}
    triples = [number for place, mask in masks.items() for number in (place, mask, words[place] & mask)]
    return np.array([id(torch.Tensor), places.own, len(masks), *triples], np.uint64).tobytes()  # type: ignore[no-any-return]


@cache
def _bits_of_dtype() -> tuple[int, int]:
    """Which word of PyTorch's object of a tensor says its dtype, and which bits of it; none where more of it differs.
    What is left are flags that follow from sizes and strides, and bits that nobody has set."""
    tensor = torch.zeros(1)
    before = _words(tensor._cdata, OF_A_TENSOR)
    tensor.data = tensor.data.view(torch.int32)
    after = _words(tensor._cdata, OF_A_TENSOR)
    place = _the_only(place for place in range(OF_A_TENSOR) if before[place] != after[place])
    if place is None:
        return 0, 0
    changed = (before[place] ^ after[place]).to_bytes(WORD, "little")
    return place, int.from_bytes(bytes(255 if byte else 0 for byte in changed), "little")


def _sampled(tensor: Tensor) -> Any:
    """The addresses of the words in which the sample of a tensor lies."""
    view = sample(tensor)
    first = view.data_ptr()
    return np.arange(first // WORD * WORD, first + view.nbytes, WORD)


def _addresses(objects: Sequence[Any]) -> Any:
    return np.fromiter(map(id, objects), np.int64, len(objects))


def _read(addresses: Any) -> Any:
    return take(_places(addresses)).astype(np.int64)


def _has_half(word: int, number: int) -> bool:
    """Is one half of a word, of 32 bits, this number?"""
    return number in (word & 0xFFFFFFFF, word >> 32)


def _the_only(places: Iterable[int]) -> int | None:
    found = [*places]
    return found[0] if len(found) == 1 else None


@cache
def _places_in_list() -> tuple[int, int] | None:
    """Which of a list's words say how many items it has, and where they are."""
    some = [object() for _ in range(5)]
    words = _words(id(some), list.__basicsize__ // WORD)
    size = _the_only(place for place, word in enumerate(words) if word == len(some))
    where = _the_only(
        place
        for place, word in enumerate(words)
        if word > 1 << 16 and word != id(list) and word % WORD == 0 and _words(word, 5) == [*map(id, some)]
    )
    return None if size is None or where is None else (size, where)


@cache
def _place_in_dictionary() -> int | None:
    """Which of a dictionary's words counts its changes."""
    some: dict[int, object] = {0: None}
    places = {*range(dict.__basicsize__ // WORD)}
    for _ in range(4):
        some[0] = object()  # only the count becomes another
        words = _words(id(some), dict.__basicsize__ // WORD)
        places = {place for place in places if words[place] == dict_version(some)}
    return _the_only(places)


@dataclass(frozen=True)
class _Places:
    """Which word of a tensor's object in Python is the address of PyTorch's own; which of that, those of the storage
    and of the counter of writes; which of a storage, that of the numbers; which of a counter counts."""

    own: int
    storage: int
    numbers: int
    counter: int
    count: int


@cache
def _places_in_tensor() -> _Places | None:
    if ctypes.sizeof(ctypes.c_void_p) != WORD:
        return None
    tensor = torch.from_numpy(np.zeros(4, np.float32))  # memory that is not PyTorch's: it points to an owner beside
    shared, apart = [tensor.detach() for _ in range(3)], [tensor.data for _ in range(3)]  # all of them in the same
    # memory, those that are shared with the same counter, too
    storage = tensor.untyped_storage()
    own = [_words(item._cdata, OF_A_TENSOR) for item in (tensor, *shared, *apart)]
    counter = _the_only(
        place
        for place, words in enumerate(zip(*own, strict=True))
        if len(set(words[:4])) == 1 and len(set(words[3:])) == 4 and all(words)
    )
    if counter is None or own[0][counter] % WORD:
        return None
    places = {*range(OF_A_COUNTER)}
    for _ in range(4):
        tensor.zero_()
        words = _words(own[0][counter], OF_A_COUNTER)
        places = {place for place in places if _has_half(words[place], tensor._version)}
    found = (
        _place_of(tensor._cdata, id(tensor), type(tensor).__basicsize__ // WORD),
        _place_of(storage._cdata, tensor._cdata, OF_A_TENSOR),
        _place_of(storage.data_ptr(), storage._cdata, OF_A_STORAGE),
        counter,
        _the_only(places),
    )
    return None if None in found else _Places(*found)  # type: ignore[arg-type]


def _place_of(value: int, address: int, count: int) -> int | None:
    """Which of the words from an address on is this."""
    return _the_only(place for place, word in enumerate(_words(address, count)) if word == value)


@cache
def _forms(dimensions: int) -> tuple[int, ...] | None:
    """Which words of PyTorch's object of a tensor become others when `tensor.data` becomes another: in other memory, at
    another place there, of another dtype, negated, or with other sizes or strides. None where one of these is not seen:
    of many dimensions PyTorch keeps sizes elsewhere."""
    memory, size, steps = torch.zeros(64), [2] * dimensions, [3] * dimensions
    tensor = memory.as_strided(size, steps)
    found: set[int] = set()
    others = [
        (1, torch.zeros(64).as_strided(size, steps)),
        (1, memory.as_strided(size, steps, 1)),
        (1, memory.double().as_strided(size, steps)),
        (1, torch._neg_view(memory).as_strided(size, steps)),
        (1, memory.as_strided([*size, 2], [*steps, 3])),
    ]
    for place in range(dimensions):
        larger, longer = size.copy(), steps.copy()
        larger[place] += 1
        longer[place] += 1
        others += [
            (2, memory.as_strided(larger, steps)),
            (1, memory.as_strided(size, longer)),
        ]  # 2: and how many numbers
    for least, other in others:
        tensor.data = memory.as_strided(size, steps)
        before = _words(tensor._cdata, OF_A_TENSOR)
        tensor.data = other
        after = _words(tensor._cdata, OF_A_TENSOR)
        changed = {place for place, (then, now) in enumerate(zip(before, after, strict=True)) if now != then}
        if len(changed) < least:
            return None
        found |= changed
    return tuple(sorted(found))
