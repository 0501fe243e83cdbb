"""`@gl.parallel_for(space)`: an ordinary function of a key and a value becomes a loop that runs in parallel.

When it is called, its body is analysed for the arrays that it is given (once for arrays of these shapes), a strategy is
chosen, the entries are laid out, and the compiled body runs block by block. All of it is kept for the next call.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import count as counting
from typing import Any

import numpy as np
from numba.core.errors import NumbaError

from girih.capture.loops import analyse as roles_of
from girih.capture.loops.analyse import Body, Inherited, Role, analyse, key_and_value
from girih.capture.loops.dependences import is_reduction
from girih.capture.loops.errors import LoopError
from girih.capture.loops.source import Source, read_source
from girih.loop.arrays import Accumulator, Array, Buffer
from girih.loop.distributed import Distributed, places
from girih.loop.explain import Explanation, explanation
from girih.loop.remote import Prefetch, Served, prefetch_of
from girih.loop.spaces import Space
from girih.lower.loops.entries import Layout, Ragged, boxes, laid_out
from girih.lower.loops.kernel import Kernel, explained, kernel
from girih.partition.loops.schedule import ROUNDS, Schedule, schedule
from girih.partition.loops.strategy import LoopStrategy, choose
from girih.run.engines import in_use
from girih.run.engines.crew import Crew
from girih.run.errors import WorkerError
from girih.run.parallel import buffers, threads
from girih.run.parallel.buffers import OPERATIONS
from girih.run.parallel.threads import Span

LOSSES = 2
"""Of workers in one execution; with the next the loop gives up."""
MOST_KEPT = 8
"""Analysed bodies, and layouts of the entries, of a loop."""


@dataclass(frozen=True)
class Options:
    """What `parallel_for` takes besides the space."""

    ordered: bool = False
    workers: int | None = None
    kind: str | None = None
    dims: tuple[int, ...] | None = None
    pipelined: int | None = None
    rounds: int = ROUNDS
    seed: int = 0


@dataclass
class Prepared:
    """A loop for arrays of certain shapes, ready to run."""

    body: Body
    strategy: LoopStrategy
    plan: Schedule
    kernel: Kernel
    layout: Layout | None
    boxes: list[list[tuple[tuple[int, int], ...]]] | None
    buffers: dict[str, list[buffers.WorkerBuffer]] = field(default_factory=dict)
    applied: dict[str, Any] = field(default_factory=dict)
    appliers: dict[str, Any] = field(default_factory=dict)
    elsewhere: Distributed | None = None
    prefetch: Prefetch | None = None
    here: str = ""
    """Why it runs on threads of this process although there are others."""


class _Workers:
    """How many threads loops use where nothing else is said."""

    def __init__(self) -> None:
        self.count = 0


_workers = _Workers()
_shares = counting()


def workers(count: int | None = None) -> int:
    """How many workers loops have from now on; without a number, how many they have. At first: one for each core."""
    if count is not None:
        if count < 1:
            raise ValueError(f"workers={count}: expected a positive number")
        _workers.count = count
    return _workers.count or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


class ParallelLoop:
    """A loop over a space; call it with its arrays and whatever else its body takes.

    The first parameters of the body are the key and, where entries have values, the value; the caller gives the rest.
    """

    def __init__(self, function: Callable[..., Any], space: Space, options: Options, nearby: Mapping[str, Any]) -> None:
        self.function = function
        self.space = space
        self.options = options
        self.source: Source = read_source(function, nearby)
        key_and_value(self.source, space.known)
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.executions = 0
        self.spans: tuple[Span, ...] = ()
        self.seconds: list[float] = []
        self._prepared: dict[Hashable, Prepared] = {}
        self._last: Prepared | None = None

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Run all iterations.

        Raises:
            LoopError: the body cannot be followed, compiled, or run in the way that was asked for; nothing was run.
            IndexError: a subscript lay outside its array; iterations that had begun are done.
        """
        self.run(self.bound(arguments, named), None)

    def serial(self, *arguments: Any, **named: Any) -> None:
        """Run all iterations one after another, in the order of the entries (by key, of an ordered loop)."""
        self.run(self.bound(arguments, named), 1)

    def explain(self, *arguments: Any, **named: Any) -> Explanation:
        """What the loop does: its references and dependence vectors, how it is divided and why, what moves, how long
        it took. With arguments, for these; else for those of the last call.

        Raises:
            LoopError: it has not been called yet, and there are no arguments.
        """
        prepared = self._last
        if arguments or named or (prepared is None and not self._needed()):
            prepared = self.prepared(self.bound(arguments, named), self._count())
        if prepared is None:
            raise LoopError(
                f"{self.__name__} has not been called yet: give explain() the arguments that it is called with"
            )
        layout = prepared.layout
        work = None if layout is None else layout.work
        return explanation(self.space.known, len(self.space), prepared.body, prepared.strategy, prepared.plan, work,
                           self.spans, tuple(self.seconds), prepared.here)  # fmt: skip

    # ------------------------------------------------------------------------------------------- arguments

    def _needed(self) -> tuple[str, ...]:
        key, value = key_and_value(self.source, self.space.known)
        return tuple(
            name for name in self.source.parameters if name not in (key, value) and name not in self.source.defaults
        )

    def _count(self) -> int:
        cluster = in_use.current()
        return self.options.workers or (workers() if cluster is None else cluster.workers)

    def _unserved(self, prepared: Prepared, given: Mapping[str, Any]) -> str:
        """Why messages between workers cannot serve the loop; "": they can."""
        cluster = in_use.current()
        if cluster is None or cluster.engine.one_process:
            return ""
        if any(given[name].further is not None for name in prepared.body.buffered):
            return "a buffer has further numbers for each element, which lie in this process"
        try:
            places(prepared.body, prepared.strategy)
        except LoopError as error:
            return str(error)
        return ""

    def _crew(self) -> Crew | None:
        """The processes of the cluster in use; None: the loop runs on threads of this process."""
        cluster = in_use.current()
        if self.options.workers is not None or cluster is None or cluster.engine.one_process or cluster.workers == 1:
            return None
        return cluster.crew()

    def bound(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """The value of every name that the body takes from outside."""
        key, value = key_and_value(self.source, self.space.known)
        names = [name for name in self.source.parameters if name not in (key, value)]
        if len(arguments) > len(names):
            raise TypeError(
                f"{self.__name__} takes {len(names)} arguments ({', '.join(names)}), {len(arguments)} were given"
            )
        found: dict[str, Any] = dict(zip(names, arguments, strict=False))
        for name, item in named.items():
            if name not in names or name in found:
                raise TypeError(
                    f"{self.__name__} takes {', '.join(names)}: {name} was given {'twice' if name in found else ''}"
                )
            found[name] = item
        for name in names:
            if name not in found:
                if name not in self.source.defaults:
                    raise TypeError(f"{self.__name__} needs {name}")
                found[name] = self.source.defaults[name]
        for name in self.source.free:
            found[name] = self.source.outside(name)
        self._check_memory(found)
        return found

    def _check_memory(self, given: Mapping[str, Any]) -> None:
        """No two names for one memory: the analysis tells arrays apart by name."""
        arrays = {name: item.values for name, item in given.items() if isinstance(item, Array)}
        arrays |= {name: item for name, item in given.items() if isinstance(item, np.ndarray)}
        names = list(arrays)
        for at, name in enumerate(names):
            for other in names[at + 1 :]:
                if np.may_share_memory(arrays[name], arrays[other]):
                    raise LoopError(f"{self.__name__}: {name} and {other} share memory; give the array one name")

    # ----------------------------------------------------------------------------------------- preparation

    def prepared(self, given: Mapping[str, Any], count: int, serial: bool = False) -> Prepared:
        """The loop for arrays like these, made when it is first needed."""
        roles = {name: role_of(item) for name, item in given.items()}
        key = (count, serial, tuple((name, _identity(role)) for name, role in roles.items()))
        found = self._prepared.pop(key, None) or self._prepare(roles, count, serial)
        self._prepared[key] = found
        if len(self._prepared) > MOST_KEPT:
            self._prepared.pop(next(iter(self._prepared)))
        return found

    def _prepare(self, roles: Mapping[str, Role], count: int, serial: bool) -> Prepared:
        body = analyse(self.source, self.space.known, roles)
        options, ordered = self.options, self.options.ordered
        if serial or count == 1:
            strategy = choose(body, ordered, 1)
        else:
            strategy = choose(body, ordered, count, options.kind, options.dims)
        plan = schedule(strategy, options.pipelined, options.rounds)
        simple = all(form is None or sum(map(abs, form)) == 1 == max(form) for form in (strategy.space, strategy.time))
        if self.space.entries is None and simple:
            cut = boxes(self.space.starts, self.space.stops, plan, strategy.space, strategy.time)
            return Prepared(body, strategy, plan, kernel(body, True), None, cut)
        listed = body
        if self.space.entries is None:
            known = Space(self.space.stops, entries=self.space.listed()).known
            listed = analyse(self.source, known, roles)
        layout = self._layout(body, strategy, plan, ordered, serial)
        return Prepared(listed, strategy, plan, kernel(listed, False), layout, None)

    def _layout(self, body: Body, strategy: LoopStrategy, plan: Schedule, ordered: bool, serial: bool) -> Layout:
        entries = self.space.listed()
        for other in self._prepared.values():
            if other.layout is not None and (other.strategy, other.plan) == (strategy, plan):
                return other.layout
        rows, columns, width = (None, None, 0) if serial or ordered else turns(body)
        return laid_out(entries, plan, strategy.space, strategy.time, ordered, rows, columns, width)

    # ------------------------------------------------------------------------------------------- execution

    def run(self, given: dict[str, Any], count: int | None) -> None:
        """count: of workers; None: as many as there are."""
        prepared = self.prepared(given, count or self._count(), serial=count is not None)
        if count is None:
            self._last = prepared
        prepared.here = self._unserved(prepared, given)
        crew = self._crew() if count is None and not prepared.here else None
        execution = _Execution(self, prepared, given)
        if crew is None:
            execution.compile()
        began = time.perf_counter()
        spans = execution.all() if crew is None else self._on(execution, crew)
        self.executions += 1
        if count is None:
            self.spans = spans
            self.seconds.append(time.perf_counter() - began)

    def _on(self, execution: _Execution, crew: Crew) -> tuple[Span, ...]:
        """Workers that are lost are started anew, and the execution with them: the arrays are as before."""
        for _ in range(LOSSES):
            try:
                return execution.on(crew)
            except WorkerError as error:
                again = self._crew() if error.lost else None
                if again is None:
                    raise
                crew = again
        return execution.on(crew)

    def __repr__(self) -> str:
        return f"<girih parallel loop {self.__name__} over {self.space!r}>"


class _Execution:
    """One execution of a loop: what each worker gives to the compiled code."""

    def __init__(self, loop: ParallelLoop, prepared: Prepared, given: Mapping[str, Any]) -> None:
        self.loop = loop
        self.prepared = prepared
        self.given = given
        self.workers = prepared.plan.workers
        self.columns: list[Any] = []
        if prepared.layout is not None:
            self.columns.extend(prepared.layout.entries.keys)
            for column in prepared.layout.entries.columns:
                self.columns.extend((column.data, column.offsets) if isinstance(column, Ragged) else (column,))
        elif loop.space.values is not None:
            self.columns.append(loop.space.values)
        body, ordered = prepared.body, loop.options.ordered
        self.sums = [name for name in body.reductions if self.workers > 1 and is_reduction(body, name, ordered)]
        self.copies = {name: [np.zeros_like(given[name].values) for _ in range(self.workers)] for name in self.sums}
        self.partial: dict[str, dict[tuple[int, int], Any]] = {name: {} for name in body.accumulated}
        for name in body.buffered:
            if name not in prepared.buffers:
                target = given[name].target.values
                prepared.buffers[name] = [
                    buffers.WorkerBuffer.of(target.shape, target.dtype) for _ in range(self.workers)
                ]
            revises = given[name].further is not None
            if prepared.applied.get(name) != (given[name].apply, revises):
                prepared.applied[name] = (given[name].apply, revises)
                prepared.appliers[name] = (buffers.reviser if revises else buffers.applier)(given[name].apply)
        self.served = [name for name in (item.array for item in body.references) if isinstance(given[name], Served)]
        if self.served and prepared.prefetch is None:
            prepared.prefetch = prefetch_of(body, tuple(dict.fromkeys(self.served)), prepared.kernel.boxes)
        self.check_served()
        self.mixed = [self.arguments(worker) for worker in range(self.workers)]

    def arguments(self, worker: int) -> tuple[list[Any], dict[str, np.ndarray]]:
        """What the code takes after the range, keys and values; and the cells of this worker's accumulators."""
        found: list[Any] = []
        cells: dict[str, np.ndarray] = {}
        seed = self.seed()
        for kind, name in self.prepared.kernel.arguments:
            item = self.given.get(name)
            if kind == "array":
                found.append(self.copies[name][worker] if name in self.copies else item.values)  # type: ignore[union-attr]
            elif kind in ("buffer", "flags", "touched"):
                own = self.prepared.buffers[name][worker]
                found.append({"buffer": own.values, "flags": own.flags, "touched": own.touched}[kind])
            elif kind == "accumulator":
                cells[name] = np.array([item.neutral])  # type: ignore[union-attr]
                found.append(cells[name])
            elif kind == "random":
                found.append(np.array([seed, 0], np.uint64))
            else:
                found.append(np.float32(item) if isinstance(item, float) and self.prepared.kernel.single else item)
        return found, cells

    def check_served(self) -> None:
        """Served arrays are read in bulk and written through buffers, or not at all.

        Raises:
            LoopError: the body does otherwise.
        """
        body, prefetch = self.prepared.body, self.prepared.prefetch
        place = f"{body.source.file}:{body.source.tree.lineno}"
        for name in dict.fromkeys(self.served):
            if name in body.written:
                raise LoopError(f"{place}: {name} is served, and written; write through gl.buffer({name})")
            if (
                prefetch is None
                or name not in prefetch.names
                or any(text.startswith(f"{name}[") for text in prefetch.left_out)
            ):
                raise LoopError(
                    f"{place}: which rows of {name} are read depends on values of arrays, and cannot be known before; "
                    f"use gl.array in place of gl.served"
                )
        for name in body.buffered:
            if isinstance(self.given[name].target, Served) and self.given[name].apply is not buffers.add:
                raise LoopError(f"{place}: a buffer of a served array adds; give it no function")

    def fetch(self, what: tuple[int, ...]) -> None:
        """Fetch the rows of served arrays that a range reads."""
        prefetch = self.prepared.prefetch
        if prefetch is None:
            return
        keep = all(self.given[name].cached for name in prefetch.names)
        for name, rows in prefetch.rows(what, self.columns, self.given, keep).items():
            if len(rows):
                self.given[name].values[rows] = self.given[name].server.get(rows)

    def all(self) -> tuple[Span, ...]:
        if self.prepared.body.buffered or self.served:
            spans = self.buffered()
        else:
            spans = threads.run(self.prepared.plan, self.block)
        for name in self.sums:
            target = self.given[name].values
            for copy in self.copies[name]:
                target += copy
        for name, parts in self.partial.items():
            accumulator: Accumulator = self.given[name]
            accumulator.add(self.by_worker(accumulator, parts))
        return spans

    def on(self, crew: Crew) -> tuple[Span, ...]:
        """The same on processes."""
        prepared = self.prepared
        if prepared.elsewhere is None or prepared.elsewhere.crew is not crew:
            prepared.elsewhere = Distributed(
                crew, next(_shares), prepared.body, prepared.strategy, prepared.plan, prepared.kernel, prepared.layout,
                prepared.boxes, self.loop.space.values,
            )  # fmt: skip
        delays = [self.given[name].delay for name in prepared.body.buffered]
        bounded = [delay for delay in delays if delay is not None]
        replies = prepared.elsewhere.run(
            self.given,
            self.range_of,
            lambda worker: self.pieces(worker, min(bounded) if bounded else None),
            int(self.seed()),
            {name: (self.given[name].operation, self.given[name].neutral) for name in prepared.body.accumulated},
        )
        for name in prepared.body.accumulated:
            accumulator: Accumulator = self.given[name]
            combine = OPERATIONS[accumulator.operation]
            accumulator.add([reduce(combine, reply.accumulated[name], accumulator.neutral) for reply in replies])
        return ()

    def seed(self) -> np.uint64:
        entropy = np.random.SeedSequence([self.loop.options.seed, self.loop.executions])
        return np.uint64(entropy.generate_state(1, np.uint64)[0])

    def by_worker(self, accumulator: Accumulator, parts: Mapping[tuple[int, int], Any]) -> list[Any]:
        """Each worker's part, of its blocks in their order."""
        combine = OPERATIONS[accumulator.operation]
        return [
            reduce(
                combine,
                (parts[task.space, task.time] for task in tasks if (task.space, task.time) in parts),
                accumulator.neutral,
            )
            for tasks in self.prepared.plan.tasks
        ]

    def compile(self) -> None:
        """Run nothing, which has Numba compile the code for these types.

        Raises:
            LoopError: it cannot; the user's line is named.
        """
        dims = self.prepared.body.space.dims
        nothing = [0, 0] * dims if self.prepared.kernel.boxes else [0, 0]
        try:
            self.prepared.kernel.run(*nothing, *self.columns, *self.mixed[0][0])
        except NumbaError as error:
            raise explained(self.loop.source, error) from error

    def block(self, worker: int, space: int, time: int) -> None:
        """Run a block."""
        found, cells = self.mixed[worker]
        for name, cell in cells.items():
            cell[0] = self.given[name].neutral
        self.prepared.kernel.run(*self.range_of(space, time), *self.columns, *found)
        for name, cell in cells.items():
            self.partial[name][space, time] = cell[0].item()

    def range_of(self, space: int, time: int) -> tuple[int, ...]:
        if self.prepared.layout is not None:
            return self.prepared.layout.block(space, time)
        assert self.prepared.boxes is not None
        return tuple(end for pair in self.prepared.boxes[space][time] for end in pair)

    # ------------------------------------------------------------------------------------------- buffered

    def buffered(self) -> tuple[Span, ...]:
        """All workers run up to `delay` iterations, then what they buffered is applied; and so on to the end."""
        plan = self.prepared.plan
        delays = [self.given[name].delay for name in self.prepared.body.buffered]
        bounded = [delay for delay in delays if delay is not None]
        queues = [self.pieces(worker, min(bounded) if bounded else None) for worker in range(plan.workers)]
        began = time.perf_counter()
        spans: list[Span] = []
        totals: list[dict[str, Any]] = [{} for _ in range(plan.workers)]
        for number in range(max(map(len, queues), default=0)):

            def piece(worker: int, number: int = number) -> None:
                if number >= len(queues[worker]):
                    return
                found, cells = self.mixed[worker]
                for name, cell in cells.items():
                    cell[0] = self.given[name].neutral
                self.fetch(queues[worker][number])
                self.prepared.kernel.run(*queues[worker][number], *self.columns, *found)
                for name, cell in cells.items():
                    combine = OPERATIONS[self.given[name].operation]
                    value = cell[0].item()
                    totals[worker][name] = combine(totals[worker][name], value) if name in totals[worker] else value

            start = time.perf_counter() - began
            threads.together(plan.workers, piece)
            threads.together(plan.workers, self.apply)
            for name in self.prepared.body.buffered:
                for own in self.prepared.buffers[name]:
                    buffers.empty(own)
            spans.append(Span(0, 0, number, start, time.perf_counter() - began))
        for worker, total in enumerate(totals):
            for name, value in total.items():
                self.partial[name][worker, 0] = value
        return tuple(spans)

    def pieces(self, worker: int, delay: int | None) -> list[tuple[int, ...]]:
        """The ranges of a worker's blocks, in pieces of at most `delay` iterations."""
        found: list[tuple[int, ...]] = []
        for task in self.prepared.plan.tasks[worker]:
            whole = self.range_of(task.space, task.time)
            inner = int(np.prod([whole[at + 1] - whole[at] for at in range(2, len(whole), 2)])) if len(whole) > 2 else 1
            step = max(1, (delay or 1 << 62) // max(inner, 1))
            found += [(first, min(first + step, whole[1]), *whole[2:]) for first in range(whole[0], whole[1], step)]
        return found

    def apply(self, worker: int) -> None:
        """Apply all workers' sums to this worker's share of the rows."""
        for name in self.prepared.body.buffered:
            if isinstance(self.given[name].target, Served):
                if worker == 0:
                    self.send(name)
                continue
            target = self.given[name].target.values
            low, high = len(target) * worker // self.workers, len(target) * (worker + 1) // self.workers
            if self.given[name].further is not None:
                self.revise(name, target, low, high)
                continue
            for own in self.prepared.buffers[name]:
                self.prepared.appliers[name](
                    buffers.flat(target), buffers.flat(own.values), own.flags, own.touched, low, high
                )

    def revise(self, name: str, target: np.ndarray, low: int, high: int) -> None:
        """Apply the sum of all workers to rows low … high, with the buffer's further numbers."""
        gather, apply = self.prepared.appliers[name]
        first, *others = self.prepared.buffers[name]
        further = self.given[name].further.values
        for own in others:
            gather(buffers.flat(first.values), buffers.flat(own.values), own.touched, low, high)
        for own in (first, *others):
            apply(
                buffers.flat(target), buffers.flat(first.values), own.flags, own.touched, low, high,
                further.reshape(*further.shape[:2], -1),
            )  # fmt: skip

    def send(self, name: str) -> None:
        """All workers' sums to the server of the buffer's array, in the workers' order."""
        for own in self.prepared.buffers[name]:
            rows = own.rows.copy()
            if len(rows):
                self.given[name].target.server.add(rows, own.values[rows])
                own.values[rows] = 0
                own.flags[rows] = 0


def role_of(item: Any) -> Role:
    """What a value is to the analysis."""
    if isinstance(item, Array):
        return roles_of.Array(item.shape, str(item.dtype))
    if isinstance(item, Buffer):
        return roles_of.Buffer(item.shape, str(item.target.dtype))
    if isinstance(item, Accumulator):
        return roles_of.Accumulator(item.operation, str(np.asarray(item.initial).dtype))
    return Inherited(item)


def _identity(role: Role) -> Hashable:
    """What the analysis and the code depend on: of arrays their shape, of integers their value."""
    if not isinstance(role, Inherited):
        return role
    value = role.value
    if isinstance(value, np.ndarray):
        return ("ndarray", value.ndim, str(value.dtype))
    if isinstance(value, bool | float | np.floating):
        return type(value).__name__
    if isinstance(value, int | np.integer | str):
        return (type(value), value)
    return ("object", id(value))


def turns(body: Body) -> tuple[int | None, int | None, int]:
    """(the dimension whose rows take turns, the one that is cut in tiles, bytes of arrays for each of its indices)."""
    if body.space.dims < 2:
        return None, None, 0
    hint = choose(body, False, 2)
    forms = [form for form in (hint.space, hint.time) if form is not None and sum(map(abs, form)) == 1]
    if hint.kind != "2d" or len(forms) != 2:
        return None, None, 0
    rows, columns = (form.index(1) for form in forms)
    width = 0
    for name in dict.fromkeys(item.array for item in body.references):
        role = body.roles[name]
        assert isinstance(role, roles_of.Array)
        if all(any(part.dim == columns for part in item.subscripts) for item in body.of(name)):
            width += int(np.prod(role.shape[1:])) * np.dtype(role.dtype).itemsize
    return rows, columns, width


def parallel_for(
    space: Space,
    ordered: bool = False,
    *,
    workers: int | None = None,
    kind: str | None = None,
    dims: tuple[int, ...] | None = None,
    pipelined: int | None = None,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> Callable[[Callable[..., Any]], ParallelLoop]:
    """Run a function for every entry of a space, in parallel where its iterations do not depend on each other.

    ordered: iterations that depend on each other run in the order of their keys; without it in any order, one after
    another. workers: by default `gl.workers()`. kind, dims: overrule the strategy (`1d`, `2d`, `unimodular`, `serial`)
    and its space and time dimensions; pipelined, rounds: the time and space parts for each worker, in two dimensions.
    seed: of `gl.random()`.

    Raises:
        LoopError: the function's text cannot be read, or has what a loop body cannot have.
    """
    if not isinstance(space, Space):
        raise TypeError(f"parallel_for over {type(space).__name__}: expected gl.sparse(…), gl.dense(…) or gl.range(…)")
    options = Options(ordered, workers, kind, dims, pipelined, rounds, seed)
    frame = sys._getframe(1)
    nearby = {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)

    def decorate(function: Callable[..., Any]) -> ParallelLoop:
        if not inspect.isfunction(function):
            raise TypeError(f"{function!r} is no function: define the loop body with def")
        return ParallelLoop(function, space, options, nearby)

    return decorate
