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
KINDS = "biufc"
"""Kinds of dtypes of which chains are."""
WHOLE, ROWS, CALL = range(3)
_STATES = frozenset(("warn", "ignore"))


class Shows(Protocol):
    """An array of the program whose value a call makes."""

    def show(self, value: Any) -> None:
        """The value is there."""


class Call:
    """A call of a chain.

    operands: by kind, arrays that are read whole (WHOLE; numbers too) or row by row (ROWS), and calls (CALL). rows: of
    what is read row by row, and of the result. sample: the result for the first row. combine: of the end of a chain,
    what makes its value of those of the blocks. value: once it is computed. shown: a reference to what shows the value.
    states: what `np.errstate` says. length: this call and those below, counted once for each reader. source: the line.
    """

    __slots__ = ("__weakref__", "combine", "function", "kinds", "length", "operands", "rows", "sample", "shown",
                 "source", "states", "value")  # fmt: skip

    def __init__(
        self, function: Callable[..., Any], kinds: tuple[int, ...], operands: tuple[Any, ...], rows: int, sample: Any,
        combine: Callable[[list[Any]], Any] | None, states: tuple[str, ...], source: str,
    ) -> None:  # fmt: skip
        self.function = function
        self.kinds = kinds
        self.operands = operands
        self.rows = rows
        self.sample = sample
        self.combine = combine
        self.states = states
        self.source = source
        self.value: Any = None
        self.shown: Callable[[], Shows | None] = _nothing
        self.length = 1
        for kind, item in zip(kinds, operands, strict=True):
            if kind == CALL:
                self.length += item.length

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sample.shape if self.combine else (self.rows, *self.sample.shape[1:])  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        return int(self.sample.size) * (1 if self.combine else self.rows)


def _nothing() -> None:
    return None


pending: dict[int, Call] = {}
"""Calls whose values somebody shows, and that are not computed, by identity."""

_turn = threading.RLock()
"""One thread of the program computes chains at a time: they may share calls."""

# ------------------------------------------------------------------------------------------- writing down


def record(
    function: Callable[..., Any], items: Sequence[Any], combine: Callable[[list[Any]], Any] | None = None
) -> Call | None:
    """A call as a part of a chain; None: it must be made at once, since it cannot be cut into rows, or is too small.

    function: a universal function, or another one that does the same with each row; with `combine` one of all rows.
    items: calls whose values are not there, arrays that nobody writes to before `settle`, and numbers.
    """
    keep_freed()
    rank, rows, most, grows = 0, 0, 0, False
    shapes = [item.shape for item in items if isinstance(item, (Call, np.ndarray))]
    for shape in shapes:
        if len(shape) > rank:
            rank, rows = len(shape), shape[0]
        elif len(shape) == rank and rank:
            rows = max(rows, shape[0])
    for item in items:
        if type(item) is Call:
            grows = True
        elif type(item) is np.ndarray:
            most = max(most, item.nbytes)
    if rows < 2 or not _pays(rows, most, shapes, grows):
        return None
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
    states: tuple[Any, ...] = tuple(np.geterr().values())
    if not _STATES.issuperset(states):
        return None
    try:
        with np.errstate(all="ignore"):
            result = function(*samples)
    except Exception:  # which NumPy will raise again, and name the shapes that the program gave
        return None
    if combine is not None:
        result = combine([result])
    elif not _is_row(result, rows, samples, kinds):
        return None
    for kind, item in zip(kinds, operands, strict=True):
        if kind == CALL and item.states != states:
            computed(item)
    call = Call(function, tuple(kinds), tuple(operands), rows, result, combine, states, find_source(sys._getframe(1)))
    if call.length > LONGEST:
        computed(call)
    return call


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


def _pays(rows: int, most: int, shapes: list[tuple[int, ...]], grows: bool) -> bool:
    """Is a call large enough to begin a chain, or to go on with one, and its row no larger than some blocks? most:
    bytes of its largest operand in memory."""
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
    if call.value is not None or call.combine or call.shape != goal.shape or call.sample.dtype != goal.dtype:
        return False
    order = _order(call)
    if len(order) < 2 or type(call.function) is not np.ufunc:
        return False
    for one in order:
        for kind, item in zip(one.kinds, one.operands, strict=True):
            content = item.value if kind == CALL else item
            shares = isinstance(content, np.ndarray) and np.may_share_memory(content, goal)
            if shares and (not over or one is not call or kind == WHOLE or not _same_place(content, goal)):
                return False
    with _turn:
        _run(call, goal)
    return True


def _same_place(x: np.ndarray, y: np.ndarray) -> bool:
    return x.ctypes.data == y.ctypes.data and x.strides == y.strides and x.shape == y.shape and x.dtype == y.dtype


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
    kept. buffer: an array for the results of a universal function; if there is neither, the function makes its own."""

    __slots__ = ("buffer", "call", "function", "reads", "slot", "whole")

    def __init__(self, call: Call, reads: list[int], slot: int) -> None:
        self.call = call
        self.function = call.function
        self.reads = reads
        self.slot = slot
        self.buffer: Any = None
        self.whole: Any = None


def _run(root: Call, into: np.ndarray | None = None) -> None:
    """Compute a call, and what is shown of the calls that it needs. into: where its value goes."""
    order = _order(root)
    with _Noted(order) as at_work:
        if len(order) == 1 and not root.combine:
            kinds = zip(root.kinds, root.operands, strict=True)
            root.value = root.function(*(item.value if kind == CALL else item for kind, item in kinds))
        else:
            _run_blocks(order, root, into, at_work)
        for call in order[:-1] if into is not None else order:
            if call.value is not None:
                call.kinds, call.operands, call.length = (), (), 1
                shown = call.shown()
                forget(call)
                if shown is not None:
                    shown.show(call.value)


def _run_blocks(order: list[Call], root: Call, into: np.ndarray | None, at_work: list[Call]) -> None:
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
            row_bytes = max(row_bytes, call.sample.nbytes)
    length = min(root.rows, max(1, BORDER.block // row_bytes))
    short = row_bytes <= SHORT_ROW
    turned = {at: _block(length, x.shape[1:], x.dtype, True) for at, x in row_by_row if short and x.ndim > 1}
    _place(steps, root, into, length, short)
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
                if type(step.function) is not np.ufunc:
                    goal[...] = step.function(*arguments)
                    slots[step.slot] = goal
                    continue
            elif goal is not None and stop - start < length:
                goal = goal[: stop - start]
            slots[step.slot] = step.function(*arguments) if goal is None else step.function(*arguments, goal)
        if root.combine:
            partial.append(slots[-1])
    for step in steps[:-1] if into is not None else steps:
        step.call.value = step.whole
    if root.combine:
        root.value = root.combine(partial)


def _block(rows: int, row: tuple[int, ...], dtype: np.dtype, short: bool) -> np.ndarray:
    """Memory for a block. short: the elements of a column lie side by side instead of those of a row."""
    return np.moveaxis(np.empty((*row, rows), dtype), -1, 0) if short else np.empty((rows, *row), dtype)


def _place(steps: list[_Step], root: Call, into: np.ndarray | None, length: int, short: bool) -> None:
    """Whole arrays for what is kept; for the results of other universal functions buffers of so many rows, one for
    several calls whose results are not needed at the same time."""
    last: dict[int, int] = {}
    for number, step in enumerate(steps):
        last.update(dict.fromkeys(step.reads, number))
    used: dict[int, tuple[Any, np.ndarray]] = {}
    free: dict[Any, list[np.ndarray]] = {}
    for number, step in enumerate(steps):
        for at in set(step.reads):
            if at in used and last[at] == number:
                key, buffer = used.pop(at)
                free.setdefault(key, []).append(buffer)
        call = step.call
        if call.combine:
            continue
        if call is root or call.shown() is not None:
            step.whole = into if call is root and into is not None else np.empty(call.shape, call.sample.dtype)
        elif type(call.function) is np.ufunc:
            key = call.sample.shape, call.sample.dtype
            rest = free.get(key)
            step.buffer = rest.pop() if rest else _block(length, call.sample.shape[1:], call.sample.dtype, short)
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
