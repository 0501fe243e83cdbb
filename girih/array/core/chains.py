"""Chains: NumPy's element-wise calls on arrays of some megabytes, written down, and computed together block by block.

Between what NumPy does at once and a graph over workers lie arrays that leave the processor's caches: each of NumPy's
calls on them takes new memory, writes it, and reads it again. So such a call is written down as a `Call`. When
something needs its value, the calls that lead to it are done for some rows at a time, in buffers that stay in the
cache, by NumPy's own functions in this process: there is nothing to plan, to compile or to send. Sums over all rows are
the end of a chain. A value in between is kept if a name of the program shows it, else it never exists whole.

A call can be in a chain if each row of its result (along the first axis) needs the same row of its operands alone, or
all of a smaller operand. Its dtype, the shape of a row and its errors are those of NumPy's call on the first row, which
is made when it is written down. Before anybody writes to an array, `settle` computes everything that is written down:
nobody sees that values come late. Warnings are NumPy's and name the line of the call; they come with the value.
"""

from __future__ import annotations

import math
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from sys import getrefcount
from types import CodeType, FrameType
from typing import Any, Protocol

import numpy as np

from girih.array.core.evaluation import BORDER
from girih.array.core.memory import keep_freed
from girih.capture.source import find_source

LONGEST = 100
"""A chain of more calls is computed, so that a loop that asks for no value neither grows nor is computed twice."""
WIDEST = 8
"""Rows of so many blocks' bytes are no blocks: NumPy computes such calls at once."""
SHORT_ROW = 256
"""Bytes of rows so short that NumPy's loops along them take longer than the work: blocks then lie column by column."""
LEAST_ITEM = 8
"""Bytes that an element of a result is taken to have."""
SURE = 127
"""Whole numbers up to this are numbers of every dtype."""
KINDS = "biufc"
"""Kinds of dtypes of which chains are."""
WHOLE, ROWS, CALL = range(3)
INTO: set[Callable[..., Any]] = set()
"""Functions that write their result where the last argument says, as universal functions do."""
_STATES = frozenset(("warn", "ignore"))
Place = tuple[int, CodeType]
"""A place in the program's code: its number, and the code."""


class Shows(Protocol):
    """An array of the program whose value a call makes."""

    def show(self, value: Any) -> None:
        """The value is there."""


class Call:
    """A call of a chain.

    operands: by kind, arrays that are read whole (WHOLE; numbers too) or row by row (ROWS), and calls (CALL). rows: of
    what is read row by row, and of the result. shape, dtype: of the value. sample: the result for the first row, made
    when it is asked for, unless it is given. combine: of the end of a chain, what makes its value of those of the
    blocks. value: once it is computed. shown: a reference to what shows the value. states: what `np.errstate` says.
    length: this call and those below, counted once for each reader. source: the line. place: of the program's code,
    as `stands_alone` says it, or None.
    """

    __slots__ = ("__weakref__", "_sample", "combine", "dtype", "function", "kinds", "length", "operands", "place",
                 "rows", "shape", "shown", "source", "states", "value")  # fmt: skip

    def __init__(
        self, function: Callable[..., Any], kinds: tuple[int, ...], operands: tuple[Any, ...], shape: tuple[int, ...],
        dtype: np.dtype, rows: int, states: tuple[str, ...], source: str, sample: Any = None,
        combine: Callable[[list[Any]], Any] | None = None,
    ) -> None:  # fmt: skip
        self.function = function
        self.kinds = kinds
        self.operands = operands
        self.shape = shape
        self.dtype = dtype
        self.rows = rows
        self._sample = sample
        self.combine = combine
        self.states = states
        self.source = source
        self.value: Any = None
        self.shown: Callable[[], Shows | None] = _nothing
        self.length = 1
        self.place: Place | None = None
        for kind, item in zip(kinds, operands, strict=True):
            if kind == CALL:
                self.length += item.length
                if item.place is not None:
                    _alone.pop(item.place[0], None)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def sample(self) -> Any:
        with _turn:  # in which nobody takes the operands away
            if self._sample is None and self.value is not None:
                self._sample = self.value[:1]
            if self._sample is None:
                pairs = zip(self.kinds, self.operands, strict=True)
                first = [item.sample if kind == CALL else item[:1] if kind == ROWS else item for kind, item in pairs]
                with np.errstate(all="ignore"):
                    self._sample = self.function(*first)
            return self._sample


def _nothing() -> None:
    return None


pending: dict[int, Call] = {}
"""Calls whose values somebody shows, and that are not computed, by identity."""

_turn = threading.RLock()
"""One thread of the program computes chains at a time: they may share calls."""

# ------------------------------------------------------------------------------------------- calls that stand alone

_alone: dict[int, tuple[int, CodeType]] = {}
"""By place in the program's code, how often a call from there was computed by itself, one after another, with the code,
which a place has for itself as long as it is here."""
PLACES = 1 << 12
"""Of so many places it is known."""
TWICE, PROBED = 2, 32
"""A call from a place is made at once when so many of before stood alone; one in so many is written down all the
same, since the program may use it otherwise by now."""


def stands_alone(frame: FrameType) -> Place | None:
    """None, if the call at which a frame is will probably be computed by itself: it need not be written down, which
    takes longer than it seems, since a pass over some megabytes leaves nothing of the interpreter in the processor's
    caches. Else its place."""
    code = frame.f_code
    key = id(code) << 16 | frame.f_lasti
    times, _ = _alone.get(key, (0, None))
    if times < TWICE:
        return key, code
    _alone[key] = times + 1, code
    return None if times % PROBED else (key, code)


def _stood_alone(place: Place) -> None:
    if len(_alone) >= PLACES:
        _alone.clear()
    key, code = place
    _alone[key] = _alone.get(key, (0, code))[0] + 1, code


# ------------------------------------------------------------------------------------------- writing down


def record(
    function: Callable[..., Any], items: Sequence[Any], combine: Callable[[list[Any]], Any] | None = None
) -> Call | None:
    """A call as a part of a chain; None: it must be made at once, since it cannot be cut into rows, or is too small.

    function: a universal function, or another one that does the same with each row; with `combine` one of all rows.
    items: calls whose values are not there, arrays that nobody writes to before `settle`, and numbers.
    """
    keep_freed()
    arrays = [item for item in items if type(item) is Call or type(item) is np.ndarray]
    if not arrays:
        return None
    shapes = [item.shape for item in arrays]
    shape = max(shapes, key=len)
    rank = len(shape)
    rows = max(item[0] for item in shapes if len(item) == rank) if rank else 0
    if rows < 2 or not _pays(rows, arrays, shapes):
        return None
    states: tuple[Any, ...] = tuple(np.geterr().values())
    if not _STATES.issuperset(states):
        return None
    source = find_source(sys._getframe(1))
    call = None
    if combine is None and type(function) is np.ufunc and shapes.count(shape) == len(shapes):
        call = _alike(function, items, shape, states, source)
    if call is None:
        call = _by_sample(function, items, rank, rows, states, source, combine)
    if call is None:
        return None
    for kind, item in zip(call.kinds, call.operands, strict=True):
        if kind == CALL and item.states != states:
            computed(item)
    if call.length > LONGEST:
        computed(call)
    return call


def _alike(
    ufunc: np.ufunc, items: Sequence[Any], shape: tuple[int, ...], states: tuple[str, ...], source: str
) -> Call | None:
    """The call, of arrays of one shape and numbers: what it makes is known without trying it on a row. None: it has to
    be tried."""
    kinds: list[int] = []
    types: list[Any] = []
    for item in items:
        kind = type(item)
        if kind is Call or kind is np.ndarray:
            kinds.append(CALL if kind is Call else ROWS)
            types.append(item.dtype)
        elif isinstance(item, np.generic):
            kinds.append(WHOLE)
            types.append(item.dtype)
        elif kind is float or (kind is int and 0 <= item <= SURE):
            kinds.append(WHOLE)
            types.append(kind)
        else:
            return None
    try:
        inner = _loop(ufunc, tuple(types))
    except TypeError:
        return None
    strong = [item for item in (*inner, *types) if isinstance(item, np.dtype)]
    row, dtype = math.prod(shape[1:]), inner[-1]
    if not all(item.kind in KINDS for item in strong) or shape[0] * row * dtype.itemsize >= BORDER.bytes:
        return None
    if row * max(item.itemsize for item in strong) > WIDEST * BORDER.block:
        return None
    operands = [
        np.array(item, kind_of) if kind == WHOLE else item
        for kind, item, kind_of in zip(kinds, items, inner, strict=False)
    ]
    return Call(ufunc, tuple(kinds), tuple(operands), shape, dtype, shape[0], states, source)


def _by_sample(
    function: Callable[..., Any], items: Sequence[Any], rank: int, rows: int, states: tuple[str, ...], source: str,
    combine: Callable[[list[Any]], Any] | None,
) -> Call | None:  # fmt: skip
    """The call, tried on the first row. None: it can be none of a chain."""
    kinds, operands, samples = [], [], []
    for item in items:
        kind, operand, sample = WHOLE, item, item
        if isinstance(item, (Call, np.ndarray)):
            shape = item.shape
            aligned = len(shape) == rank and shape[0] == rows
            if not aligned and len(shape) == rank and shape[0] != 1:
                return None
            if type(item) is Call:
                if aligned:
                    kind, sample = CALL, item.sample
                else:
                    operand = sample = computed(item)
            else:
                array: Any = item
                if array.dtype.kind not in KINDS:
                    return None
                if aligned:
                    kind, sample = ROWS, array[:1]
        kinds.append(kind)
        operands.append(operand)
        samples.append(sample)
    if type(function) is np.ufunc:
        operands = _typed(function, operands, samples)
    try:
        with np.errstate(all="ignore"):
            result = function(*samples)
    except Exception:  # which NumPy will raise again, and name the shapes that the program gave
        return None
    if combine is not None:
        result = combine([result])
        shape = result.shape
    elif _is_row(result, rows, samples, kinds):
        shape = (rows, *result.shape[1:])
    else:
        return None
    return Call(function, tuple(kinds), tuple(operands), shape, result.dtype, rows, states, source, result, combine)


def _typed(ufunc: np.ufunc, operands: list[Any], samples: list[Any]) -> list[Any]:
    """Numbers as arrays of the dtype in which they are computed with: NumPy would make them for each block."""
    if all(isinstance(item, (Call, np.ndarray)) for item in operands):
        return operands
    types = tuple(item.dtype if hasattr(item, "dtype") else type(item) for item in samples)
    try:
        inner = _loop(ufunc, types)
        return [
            item if isinstance(item, (Call, np.ndarray)) else np.array(item, dtype)
            for item, dtype in zip(operands, inner, strict=False)
        ]
    except (TypeError, ValueError, OverflowError):
        return operands


@lru_cache(maxsize=1024)
def _loop(ufunc: np.ufunc, types: tuple[Any, ...]) -> tuple[np.dtype, ...]:
    plain = tuple(np.dtype(bool) if item is bool else item for item in types)
    return ufunc.resolve_dtypes((*plain, *(None,) * ufunc.nout))


def may_begin(x: Any) -> bool:
    """May an operation on an array, and on smaller ones, begin a chain? `_pays` says whether it does."""
    if x.nbytes < BORDER.quick:
        return False
    return x.nbytes >= BORDER.chains or (x.ndim > 1 and x.nbytes // len(x) <= SHORT_ROW)


def _pays(rows: int, arrays: list[Any], shapes: list[tuple[int, ...]]) -> bool:
    """Is a call large enough to begin a chain, or to go on with one, and its row no larger than some blocks?"""
    most, grows = 0, False
    for item in arrays:
        if type(item) is Call:
            grows = True
        elif item.nbytes > most:
            most = item.nbytes
    row = shapes[0][1:]
    if any(shape[1:] != row for shape in shapes):
        rank = max(map(len, shapes))
        try:
            row = np.broadcast_shapes(*(shape[1:] if len(shape) == rank else shape for shape in shapes))
        except ValueError:
            return False
    made = math.prod(row) * LEAST_ITEM
    most = max(most, rows * made) if len(shapes) > 1 else most
    if max(made, most // rows) > WIDEST * BORDER.block:
        return False
    short = len(row) > 0 and most // rows <= SHORT_ROW
    return grows or most >= (BORDER.quick if short else BORDER.chains)


def _is_row(result: Any, rows: int, samples: list[Any], kinds: list[int]) -> bool:
    if type(result) is not np.ndarray or not result.ndim or len(result) != 1 or result.dtype.kind not in KINDS:
        return False
    widest = max(result.nbytes, *(item.nbytes for item, kind in zip(samples, kinds, strict=True) if kind))
    return rows * result.nbytes < BORDER.bytes and widest <= WIDEST * BORDER.block


def show(call: Call, shown: Callable[[], Shows | None]) -> None:
    """The value will be shown."""
    call.shown = shown
    pending[id(call)] = call


def forget(call: Call) -> None:
    """Nobody shows the value any more."""
    call.shown = _nothing
    pending.pop(id(call), None)


# ------------------------------------------------------------------------------------------- computing


def settle() -> None:
    """Compute everything that is written down and shown: somebody is about to write."""
    while pending:
        for call in list(pending.values()):
            computed(call)


def computed(call: Call) -> Any:
    """The value, which is shown from now on."""
    with _turn:
        if call.value is None:
            _run(call)
        return call.value


def computed_into(call: Call, goal: np.ndarray, over: bool = False) -> bool:
    """Compute a value where it is to be, if nothing that it needs lies there. The call itself stays as it is, and can
    be computed again. over: it may be written over its own operand."""
    if call.value is not None or call.combine or call.shape != goal.shape or call.dtype != goal.dtype:
        return False
    order = _order(call)
    if len(order) < 2 or type(call.function) is not np.ufunc:
        return False
    for one in order:
        for kind, item in zip(one.kinds, one.operands, strict=True):
            content = item.value if kind == CALL else item
            shares = isinstance(content, np.ndarray) and np.may_share_memory(content, goal)
            if shares and (not over or one is not call or kind == WHOLE or not same_place(content, goal)):
                return False
    with _turn:
        _run(call, goal)
    return True


def same_place(x: np.ndarray, y: np.ndarray) -> bool:
    """Do two arrays show the same elements, each at the same place?"""
    if x.shape != y.shape or x.strides != y.strides or x.dtype != y.dtype:
        return False
    return bool(x.ctypes.data == y.ctypes.data)


def _order(root: Call) -> list[Call]:
    """The calls that are needed and not computed, each behind its operands."""
    order: list[Call] = []
    seen: set[int] = set()
    stack: list[tuple[Call, bool]] = [(root, False)]
    while stack:
        call, ready = stack.pop()
        if ready:
            order.append(call)
        elif id(call) not in seen:
            seen.add(id(call))
            stack.append((call, True))
            for kind, item in zip(call.kinds, call.operands, strict=True):
                if kind == CALL and item.value is None and id(item) not in seen:
                    stack.append((item, False))
    return order


class _Step:
    """A call for one block. reads: the slots of its operands. slot: of its result. whole: the whole value, where it is
    kept. buffer: an array for the results of a function that writes `into` one; else the function makes its own. lent:
    it is that of the whole value of the last call, of which each block is free until that call writes it."""

    __slots__ = ("buffer", "call", "function", "into", "lent", "reads", "slot", "whole")

    def __init__(self, call: Call, reads: list[int], slot: int) -> None:
        self.call = call
        self.function = call.function
        self.into = type(call.function) is np.ufunc or call.function in INTO
        self.reads = reads
        self.slot = slot
        self.buffer: Any = None
        self.lent = False
        self.whole: Any = None


def _run(root: Call, into: np.ndarray | None = None) -> None:
    """Compute a call, and what is shown of the calls that it needs. into: where its value goes."""
    order = [root] if root.length == 1 else _order(root)
    over = _unneeded(order) if into is None else None
    try:
        _compute(order, root, into, over)
    except BaseException:
        if over is not None and root.value is None:  # Ctrl-C: what they are made of may be gone
            for call in order:
                call.function = _interrupted if call.value is None else call.function
        raise


def _compute(order: list[Call], root: Call, into: np.ndarray | None, over: np.ndarray | None) -> None:
    """As `_run`. over: an operand that the value may be written over."""
    with _Noted(order) as at_work:
        if len(order) == 1 and not root.combine:
            pairs = zip(root.kinds, root.operands, strict=True)
            arguments = [item.value if kind == CALL else item for kind, item in pairs]
            root.value = root.function(*arguments) if over is None else root.function(*arguments, out=over)
            if root.place is not None and over is None:
                _stood_alone(root.place)
        else:
            value = _run_blocks(order, over if into is None else into, at_work, into is None)
            if into is None:
                root.value = value
        for call in order[:-1] if into is not None else order:
            if call.value is not None:
                call.kinds, call.operands, call.length = (), (), 1
                shown = call.shown()
                forget(call)
                if shown is not None:
                    shown.show(call.value)


def _references(view: np.ndarray) -> int:
    base = view.base
    return getrefcount(base)


def _of_view() -> int:
    """How often an array is referred to that only a view has; 0 where that cannot be told."""
    named = np.empty(1)
    alone = _references(np.empty(1)[...])
    return alone if alone < _references(named[...]) else 0


def _readers(order: Sequence[Any], place: int) -> int:
    return getrefcount(order[place])


_ALONE = _of_view()
_READ_ONCE = _readers([object()], 0) + 2
"""How often a call of an order is referred to that one other call reads, with the name that a loop has for it."""


def _unneeded(order: Sequence[Call]) -> np.ndarray | None:
    """An operand as large as the value of the last call that nobody else has, nor will have: the value may be written
    over it, as NumPy does with what has no name in an expression. Calls that others may read again keep theirs."""
    root = order[-1]
    if type(root.function) is not np.ufunc:
        return None
    for place in range(len(order)):
        call = order[place]
        if call is not root and _readers(order, place) != _READ_ONCE:
            continue
        for kind, item in zip(call.kinds, call.operands, strict=True):
            if kind == ROWS and item.dtype == root.dtype and item.shape == root.shape and _references(item) == _ALONE:
                base: Any = item.base
                flags = base.flags if type(base) is np.ndarray else None
                if flags is not None and flags.owndata and flags.writeable and flags.c_contiguous:
                    return base if base.shape == item.shape and base.dtype == item.dtype else None
    return None


def _interrupted(*_: Any) -> Any:
    raise RuntimeError("this array was not computed: Ctrl-C came while it was written over what it is made of")


def _run_blocks(order: list[Call], goal: np.ndarray | None, at_work: list[Call], lends: bool) -> Any:
    """The value of the last call, block by block; what is shown of the others gets its value. goal: where it goes.
    lends: nobody looks at the goal, but for an operand that lies there and is not needed otherwise."""
    root = order[-1]
    slots: list[Any] = []
    places: dict[int, int] = {}
    row_by_row: list[tuple[int, np.ndarray]] = []
    row_bytes = 1
    steps: list[_Step] = []
    for call in order:
        reads = []
        for kind, item in zip(call.kinds, call.operands, strict=True):
            content = item.value if kind == CALL and item.value is not None else item
            at = places.get(id(content))
            if at is None:
                at = places[id(content)] = len(slots)
                slots.append(content)
                if kind != WHOLE:
                    row_by_row.append((at, content))
                    row_bytes = max(row_bytes, content.nbytes // len(content))
            reads.append(at)
        places[id(call)] = len(slots)
        steps.append(_Step(call, reads, len(slots)))
        slots.append(None)
        if not call.combine:
            row_bytes = max(row_bytes, call.row_bytes)
    length = min(root.rows, max(1, BORDER.block // row_bytes))
    short = row_bytes <= SHORT_ROW and any(x.ndim > 1 for _, x in row_by_row)
    turned = {at: _block(length, x.shape[1:], x.dtype, True) for at, x in row_by_row if short}
    own = next((at for at, content in row_by_row if goal is not None and content.base is goal), None)
    _place(steps, root, goal, length, short, own if lends else -1)
    partial: list[Any] = []
    for start in range(0, root.rows, length):
        stop = min(start + length, root.rows)
        for at, content in row_by_row:
            slots[at] = content[start:stop]
            if at in turned:
                copy = turned[at][: stop - start]
                copy[...] = slots[at]
                slots[at] = copy
        for step in steps:
            at_work[0] = step.call
            arguments = [slots[at] for at in step.reads]
            goal = step.buffer
            if step.whole is not None:
                goal = step.whole[start:stop]
                if not step.into:
                    goal[...] = step.function(*arguments)
                    slots[step.slot] = goal
                    continue
            elif step.lent:
                goal = goal[start:stop]
            elif goal is not None and stop - start < length:
                goal = goal[: stop - start]
            slots[step.slot] = step.function(*arguments) if goal is None else step.function(*arguments, goal)
        if root.combine:
            partial.append(slots[-1])
    for step in steps[:-1]:
        step.call.value = step.whole
    return root.combine(partial) if root.combine else steps[-1].whole


def _block(rows: int, row: tuple[int, ...], dtype: np.dtype, short: bool) -> np.ndarray:
    """Memory for a block. short: the elements of a column lie side by side instead of those of a row."""
    return np.moveaxis(np.empty((*row, rows), dtype), -1, 0) if short else np.empty((rows, *row), dtype)


def _place(
    steps: list[_Step], root: Call, goal: np.ndarray | None, length: int, short: bool, operand: int | None
) -> None:
    """Whole arrays for what is kept; for the results of other functions that write into arrays buffers of so many rows,
    one for several calls whose results are not needed at the same time. The first is the memory of the last call's
    value, which then comes into the cache once. operand: the slot of what lies there until it is read for the last
    time; None: nothing does; -1: that memory is not lent."""
    last: dict[int, int] = {}
    for number, step in enumerate(steps):
        last.update(dict.fromkeys(step.reads, number))
    used: dict[int, tuple[Any, np.ndarray]] = {}
    free: dict[Any, list[np.ndarray]] = {}
    lends = operand != -1 and not short and type(root.function) is np.ufunc
    whole = np.empty(root.shape, root.dtype) if goal is None and not root.combine else goal
    for number, step in enumerate(steps):
        for at in set(step.reads):
            if at in used and last[at] == number:
                key, buffer = used.pop(at)
                free.setdefault(key, []).append(buffer)
        if lends and whole is not None and number == (0 if operand is None else last[operand]):
            free.setdefault((root.shape[1:], root.dtype), []).append(whole)
        call = step.call
        if call.combine:
            continue
        if call is root or call.shown() is not None:
            step.whole = whole if call is root else np.empty(call.shape, call.dtype)
        elif step.into:
            key = call.shape[1:], call.dtype
            rest = free.get(key)
            step.buffer = rest.pop() if rest else _block(length, call.shape[1:], call.dtype, short)
            step.lent = step.buffer is whole
            used[step.slot] = key, step.buffer


class _Noted:
    """A context in which NumPy's floating-point warnings are gathered, and behind which each is given once, with the
    line of its call. Entered, it is a list of one: the call that is at work."""

    def __init__(self, calls: list[Call]) -> None:
        self.at_work = [calls[-1]]
        self.seen: dict[tuple[str, str, str], None] = {}
        names = ("divide", "over", "under", "invalid")
        states: Any = {
            name: "call" if state == "warn" else state for name, state in zip(names, calls[-1].states, strict=True)
        }
        self.state = np.errstate(**states, call=self._note)

    def _note(self, what: str, _flag: int) -> None:
        call = self.at_work[0]
        self.seen[what, getattr(call.function, "__name__", "reduce"), call.source] = None

    def __enter__(self) -> list[Call]:
        self.state.__enter__()
        return self.at_work

    def __exit__(self, *given: Any) -> None:
        self.state.__exit__(*given)
        del self.state  # which refers to this: a cycle would keep the values of calls
        for what, name, source in self.seen:
            file, _, line = source.rpartition(":")
            warnings.warn_explicit(f"{what} encountered in {name}", RuntimeWarning, file or "?", int(line or 1))
