"""Loops of every kind, and an oracle for their dependences that runs them in plain Python.

`PAPER` has the loops of Orion's thesis with its judgement of each, `OURS` loops of many kinds with what holds of them,
`generated` writes loops at random. `touched` runs each iteration of a loop on arrays that note which elements are read
and written; from that, `conflicts` says which iterations depend on each other, whatever the analysis believes.
"""

from __future__ import annotations

import inspect
import linecache
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

import girih.loop as gl
from girih.loop.capture.dependences import is_reduction
from girih.loop.schedules.schedule import Schedule, finished_before

_NUMBERS = count()


@dataclass(frozen=True)
class Case:
    """A loop. kinds: what it may be judged as; arrays: makers of its arguments, NumPy arrays being shared."""

    name: str
    body: Callable[..., Any]
    space: gl.Space
    arguments: Mapping[str, Any]
    ordered: bool = False
    kinds: tuple[str, ...] = ()
    refused: str = ""
    shared: tuple[str, ...] = field(default=())

    def loop(self, **options: Any) -> gl.ParallelLoop:
        return gl.parallel_for(self.space, ordered=self.ordered, **options)(self.body)

    def given(self) -> dict[str, Any]:
        """Fresh arguments: NumPy arrays become arrays of loops."""
        found: dict[str, Any] = {}
        for name, item in self.arguments.items():
            found[name] = gl.array(item) if isinstance(item, np.ndarray) and name not in self.shared else item
        return found


# ---------------------------------------------------------------------------------------------------- tracing


class Trace(np.lib.mixins.NDArrayOperatorsMixin):
    """A part of an array that notes which elements are read and written."""

    def __init__(self, values: np.ndarray, places: np.ndarray, log: Log) -> None:
        self.values, self.places, self.log = values, places, log

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def T(self) -> Trace:
        return Trace(self.values.T, self.places.T, self.log)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, at: Any) -> Any:
        at = _plain(at)
        value, places = self.values[at], self.places[at]
        if isinstance(value, np.ndarray):
            if np.shares_memory(value, self.values):
                return Trace(value, places, self.log)
            self.log.read(places)
            return value
        self.log.read(np.atleast_1d(places))
        return value

    def __setitem__(self, at: Any, value: Any) -> None:
        at = _plain(at)
        if isinstance(value, Trace):
            self.log.read(value.places)
            value = value.values
        self.log.write(np.atleast_1d(self.places[at]))
        self.values[at] = value

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        self.log.read(self.places)
        return np.array(self.values, dtype=dtype)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        given = [item.__array__() if isinstance(item, Trace) else item for item in inputs]
        if out is not None:
            for item in out:
                if isinstance(item, Trace):
                    item.log.write(item.places)
            targets = tuple(item.values if isinstance(item, Trace) else item for item in out)
            getattr(function, method)(*given, out=targets, **options)
            return out[0]
        return getattr(function, method)(*given, **options)

    def __array_function__(self, function: Any, types: Any, arguments: Any, named: Any) -> Any:
        given = [item.__array__() if isinstance(item, Trace) else item for item in arguments]
        return function(*given, **named)

    def sum(self) -> Any:
        return self.__array__().sum()

    def dot(self, other: Any) -> Any:
        return np.dot(self.__array__(), np.asarray(other))


def _plain(at: Any) -> Any:
    return tuple(np.asarray(item) if isinstance(item, Trace) else item for item in at) if isinstance(at, tuple) else (
        np.asarray(at) if isinstance(at, Trace) else at
    )  # fmt: skip


class Log:
    """What one iteration touches: elements of all arrays, numbered through."""

    def __init__(self) -> None:
        self.reads: set[int] = set()
        self.writes: set[int] = set()

    def read(self, places: np.ndarray) -> None:
        self.reads.update(np.ravel(places).tolist())

    def write(self, places: np.ndarray) -> None:
        self.writes.update(np.ravel(places).tolist())


def iterations(space: gl.Space) -> list[tuple[Any, tuple[Any, ...]]]:
    """(key, (value,) or ()) of each, in the order of the entries."""
    entries = space.listed()
    keys = list(zip(*(item.tolist() for item in entries.keys), strict=True))
    found = []
    for at, key in enumerate(keys):
        columns = [
            item.data[item.offsets[at] : item.offsets[at + 1]] if hasattr(item, "offsets") else item[at]
            for item in entries.columns
        ]
        value = (tuple(columns),) if entries.tuple_value else tuple(columns[:1])
        found.append((key[0] if len(key) == 1 else key, value))
    return found


def touched(case: Case) -> list[tuple[Any, Log]]:
    """(key, what it touches) of each iteration, run one after another in plain Python."""
    logs: list[tuple[Any, Log]] = []
    arrays: dict[str, Any] = {}
    base = 0
    for name, item in case.arguments.items():
        if isinstance(item, np.ndarray) and name not in case.shared:
            arrays[name] = (item.copy(), base + np.arange(item.size).reshape(item.shape))
            base += item.size
    for key, value in iterations(case.space):
        log = Log()
        given = {name: Trace(*arrays[name], log) if name in arrays else item for name, item in case.arguments.items()}
        case.body(key, *value, **given)
        logs.append((key, log))
    return logs


def conflict(first: Log, second: Log, ignored: set[int] = frozenset()) -> bool:  # type: ignore[assignment]
    """Do two iterations touch an element that one of them writes?"""
    shared = (first.writes & (second.reads | second.writes)) | (first.reads & second.writes)
    return bool(shared - ignored)


def serially(case: Case) -> dict[str, np.ndarray]:
    """The arrays after a serial run in plain Python, in the order of keys (ordered) or of the entries."""
    arrays = {name: item.copy() if isinstance(item, np.ndarray) else item for name, item in case.arguments.items()}
    whole = iterations(case.space)
    for key, value in sorted(whole, key=lambda item: item[0]) if case.ordered else whole:
        case.body(key, *value, **arrays)
    return {name: item for name, item in arrays.items() if isinstance(item, np.ndarray)}


def blocks_of(loop: gl.ParallelLoop, prepared: Any) -> dict[tuple[int, int], list[Any]]:
    """The keys of each block, in the order in which it runs them."""
    found: dict[tuple[int, int], list[Any]] = {}
    for space in range(prepared.plan.spaces):
        for time in range(prepared.plan.times):
            if prepared.layout is not None:
                first, last = prepared.layout.block(space, time)
                keys = list(zip(*(item[first:last].tolist() for item in prepared.layout.entries.keys), strict=True))
            else:
                box = prepared.boxes[space][time]
                keys = [tuple(key) for key in np.ndindex(*(max(0, high - low) for low, high in box))]
                keys = [tuple(a + low for a, (low, _) in zip(key, box, strict=True)) for key in keys]
            found[space, time] = [key[0] if len(key) == 1 else key for key in keys]
    return found


def at_once(plan: Schedule) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The pairs of blocks of which neither surely ends before the other begins."""
    before = finished_before(plan)
    places = [(worker, number, task) for worker, tasks in enumerate(plan.tasks) for number, task in enumerate(tasks)]
    for index, (worker, number, task) in enumerate(places):
        for other, position, item in places[index + 1 :]:
            if before[other, position][worker] <= number and before[worker, number][other] <= position:
                yield (task.space, task.time), (item.space, item.time)


# ---------------------------------------------------------------------------------------------------- generated


def written(text: str, name: str) -> Callable[..., Any]:
    """A function from its text, which `inspect` finds."""
    file = f"<generated {next(_NUMBERS)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {"np": np, "__name__": "generated"}
    exec(compile(text, file, "exec"), space)
    made: Callable[..., Any] = space[name]
    assert inspect.isfunction(made)
    return made


def generated(seed: int) -> Case:
    """A random loop: one to three dimensions, some arrays, some statements with subscripts of all kinds."""
    draw = np.random.default_rng(seed)
    dims = int(draw.integers(1, 4))
    size = {1: 10, 2: 5, 3: 3}[dims]
    margin = 2
    arrays = {f"a{number}": int(draw.integers(1, 3)) for number in range(int(draw.integers(1, 4)))}
    names = [f"p{dim}" for dim in range(dims)]
    lines = [f"    {', '.join(names)} = key" if dims > 1 else "    p0 = key"]
    if draw.random() < 0.3:
        offset = int(draw.integers(-1, 2))
        lines.append(f"    q = p{draw.integers(dims)} {'+' if offset >= 0 else '-'} {abs(offset)}")
        names.append("q")
    whole = size + 2 * margin

    homes = {name: draw.permutation(max(dims, 2))[:rank] % dims for name, rank in arrays.items()}
    steady = draw.random() < 0.7
    """Most subscripts of an array are its own loop dimensions', mostly without a constant."""

    def subscript(row: bool, home: int = 0) -> str:
        kind = draw.random()
        if steady and kind < 0.97:
            shift = int(draw.choice([0] * 12 + [1, -1])) + margin
            return ":" if row and kind < 0.1 else f"{names[home]} + {shift}"
        if kind < 0.62:
            shift = int(draw.choice([0, 0, 0, 1, -1, 2, -2])) + margin
            return f"{draw.choice(names[:dims])} + {shift}"
        if kind < 0.70:
            return str(int(draw.integers(0, whole)))
        if kind < 0.78 and "q" in names:
            return f"q + {margin}"
        if kind < 0.88 and row:
            return ":"
        if kind < 0.94:
            return f"z[{draw.choice(names[:dims])}]"
        return f"{draw.choice(names[:dims])} % 2"

    def element(name: str) -> str:
        return f"{name}[{', '.join(subscript(False, homes[name][at]) for at in range(arrays[name]))}]"

    def row(name: str) -> str:
        first = subscript(False, homes[name][0])
        return f"{name}[{first}]" if draw.random() < 0.5 else f"{name}[{first}, :]"

    two = [name for name, rank in arrays.items() if rank == 2]
    for number in range(int(draw.integers(1, 4))):
        indent = "    "
        if draw.random() < 0.2:
            lines.append(f"    if p0 % 3 == {int(draw.integers(3))}:")
            indent = "        "
        if two and draw.random() < 0.4:
            target, source = str(draw.choice(two)), str(draw.choice(two))
            if draw.random() < 0.3:
                lines.append(f"{indent}w{number} = {row(source)}")
                lines.append(f"{indent}{row(target)} = 0.5 * w{number} + 1")
                if draw.random() < 0.5:
                    lines.append(f"{indent}w{number}[{int(draw.integers(whole))}] += 2")
            else:
                op = str(draw.choice(["=", "+=", "-="]))
                lines.append(f"{indent}{row(target)} {op} {row(source)} * 0.25")
        else:
            target, source = str(draw.choice(list(arrays))), str(draw.choice(list(arrays)))
            op = str(draw.choice(["=", "=", "+="]))
            lines.append(f"{indent}{element(target)} {op} 0.5 * {element(source)} + {int(draw.integers(1, 5))}")
    text = f"def body(key, z, {', '.join(arrays)}):\n" + "\n".join(lines) + "\n"
    values = {name: draw.random((whole,) * rank) for name, rank in arrays.items()}
    table = draw.integers(0, whole, size)
    if draw.random() < 0.5:
        space = gl.range(*([size] * dims))
    else:
        keys = np.unique(draw.integers(0, size, (int(draw.integers(4, 40)), dims)), axis=0)
        draw.shuffle(keys)
        space = gl.sparse(tuple(keys.T), shape=(size,) * dims)
    ordered = bool(draw.random() < 0.5)
    return Case(f"generated {seed}", written(text, "body"), space, {"z": table, **values}, ordered, shared=("z",))


def text_of(case: Case) -> str:
    return inspect.getsource(case.body)


def problems(case: Case, workers: Sequence[int] = (2, 3)) -> list[str]:
    """What is wrong with a loop's analysis, schedule or results: nothing, one hopes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gl.LoopWarning)  # many are serial, as they are meant to be
        return list(_problems(case, workers))


def _problems(case: Case, workers: Sequence[int]) -> list[str]:
    found: list[str] = []
    logs = dict(touched(case))
    known = serially(case)
    for number in workers:
        loop = case.loop(workers=number)
        given = case.given()
        prepared = loop.prepared(loop.bound((), given), number)
        body = prepared.body
        blocks = blocks_of(loop, prepared)
        listed = [key for keys in blocks.values() for key in keys]
        if sorted(listed) != sorted(logs):
            found.append(f"{number} workers: blocks do not cover the iterations once")
        loose = _excused(case, loop, prepared)
        for first, second in at_once(prepared.plan):
            for a in blocks[first]:
                for b in blocks[second]:
                    if conflict(logs[a], logs[b], loose):
                        found.append(
                            f"{number} workers: iterations {a} and {b} may run at once ({prepared.strategy.kind})"
                        )
        loop(**given)
        results = {name: item.values for name, item in given.items() if isinstance(item, gl.Array)}
        if case.ordered:
            expected = known
        else:
            expected = _replayed(case, prepared, blocks)
        for name, value in results.items():
            if not np.allclose(value, expected[name], rtol=1e-9, atol=1e-12, equal_nan=True):
                found.append(f"{number} workers: {name} differs from the serial run ({prepared.strategy.kind})")
        again = case.given()
        other = case.loop(workers=number)
        other(**again)
        if any(not np.array_equal(item.values, again[name].values, equal_nan=True)
               for name, item in given.items() if isinstance(item, gl.Array)):  # fmt: skip
            found.append(f"{number} workers: a second run has other bits")
        if case.ordered:
            alone = case.given()
            case.loop(workers=1)(**alone)
            differing = [
                name for name, item in alone.items()
                if isinstance(item, gl.Array) and not np.array_equal(item.values, given[name].values, equal_nan=True)
            ]  # fmt: skip
            if differing:
                found.append(f"{number} workers: {differing} has other bits than one worker's")
        assert body is prepared.body
    return found


def _excused(case: Case, loop: gl.ParallelLoop, prepared: Any) -> set[int]:
    """Elements of sums over iterations: each worker has a copy of its own."""
    names = {name for name in prepared.body.reductions if is_reduction(prepared.body, name, case.ordered)}
    loose: set[int] = set()
    base = 0
    for name, item in case.arguments.items():
        if isinstance(item, np.ndarray) and name not in case.shared:
            if name in names:
                loose.update(range(base, base + item.size))
            base += item.size
    return loose


def _replayed(case: Case, prepared: Any, blocks: Mapping[tuple[int, int], list[Any]]) -> dict[str, np.ndarray]:
    """A serial run of the blocks in an order that the schedule allows."""
    arrays = {name: item.copy() if isinstance(item, np.ndarray) else item for name, item in case.arguments.items()}
    values = dict(iterations(case.space))
    before = finished_before(prepared.plan)
    order = sorted(before, key=lambda place: (sum(before[place]), place))
    for worker, number in order:
        task = prepared.plan.tasks[worker][number]
        for key in blocks[task.space, task.time]:
            case.body(key, *values[key], **arrays)
    return {name: item for name, item in arrays.items() if isinstance(item, np.ndarray)}
