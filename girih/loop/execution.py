"""One execution of a prepared loop: what each worker gives to the compiled code, on threads or on other processes."""

from __future__ import annotations

import ast
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import count as counting
from itertools import zip_longest
from typing import Any

import numpy as np
from numba.core.errors import NumbaError

from girih.loop.arrays import Accumulator, add_up
from girih.loop.capture.body import Body, place_of_buffer
from girih.loop.capture.dependences import is_reduction, sum_dtype
from girih.loop.capture.errors import LoopError
from girih.loop.code.entries import Layout, Ragged
from girih.loop.code.kernel import Kernel, arguments_of, explained, read_only, reason
from girih.loop.code.streams import key_of
from girih.loop.distributed import Distributed, blocks_of
from girih.loop.progress import ThreadProgress
from girih.loop.remote import Prefetch, Served, prefetch_of
from girih.loop.run import buffers, threads
from girih.loop.run.buffers import OPERATIONS
from girih.loop.run.threads import Span
from girih.loop.schedules.schedule import Schedule, Task, rounds_of
from girih.loop.schedules.strategy import LoopStrategy
from girih.loop.spaces import Space
from girih.report.live import LiveView
from girih.run.engines import in_use
from girih.run.engines import loop_blocks as progress
from girih.run.engines.crew import AgreeingCrew, Crew
from girih.run.errors import WorkerError

REFUSALS = (NumbaError, AssertionError, AttributeError, TypeError, ValueError)
"""What Numba raises where it cannot compile: its own errors, and those that it trips over on the way."""
_shares = counting()


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
    appliers: dict[str, Any] = field(default_factory=dict)
    elsewhere: Distributed | None = None
    prefetch: Prefetch | None = None
    judged: bool = False
    """Has it been looked at whether users should hear how it is divided?"""
    here: str = ""
    """Why it runs on threads of this process although there are others."""


class Execution:
    """One execution of a loop: what each worker gives to the compiled code."""

    def __init__(
        self, prepared: Prepared, given: Mapping[str, Any], space: Space, ordered: bool, seed: np.uint64
    ) -> None:
        self.prepared = prepared
        self.given = given
        self.space = space
        self.seed = seed
        self.workers = prepared.plan.workers
        self.columns: list[Any] = []
        if prepared.layout is not None:
            self.columns.extend(prepared.layout.entries.keys)
            for column in prepared.layout.entries.columns:
                self.columns.extend((column.data, column.offsets) if isinstance(column, Ragged) else (column,))
            if prepared.layout.numbers is not None:
                self.columns.append(prepared.layout.numbers)
        elif space.values is not None:
            self.columns.append(space.values)
        self.columns = [read_only(column) for column in self.columns]
        body = prepared.body
        self.sums = [
            name
            for name in body.reductions
            if is_reduction(body, name, ordered) and (self.workers > 1 or sum_dtype(body, name) != given[name].dtype)
        ]
        self.copies = {
            name: [np.zeros(given[name].shape, sum_dtype(body, name)) for _ in range(self.workers)]
            for name in self.sums
        }
        self.partial: dict[str, dict[tuple[int, int], Any]] = {name: {} for name in body.accumulated}
        for name in body.buffered:
            if name not in prepared.buffers:
                target = given[name].target.values
                prepared.buffers[name] = [
                    buffers.WorkerBuffer.of(target.shape, target.dtype) for _ in range(self.workers)
                ]
                compiled = buffers.applier if given[name].further is None else buffers.reviser
                prepared.appliers[name] = compiled(given[name].apply, place_of_buffer(body, name))
        self.served = [name for name in (item.array for item in body.references) if isinstance(given[name], Served)]
        if self.served and prepared.prefetch is None:
            prepared.prefetch = prefetch_of(body, tuple(dict.fromkeys(self.served)), prepared.kernel.boxes)
        self.check_served()
        self.keys = {name: key_of(given[name]) for name in body.generators}
        self.mixed = [self.arguments(worker) for worker in range(self.workers)]

    def arguments(self, worker: int) -> tuple[list[Any], dict[str, np.ndarray]]:
        """What the code takes after the range, keys and values; and the cells of this worker's accumulators."""
        prepared, given = self.prepared, self.given
        kinds = prepared.kernel.arguments
        arrays = {name: given[name].values for kind, name in kinds if kind == "array"}
        cells = {name: np.array([given[name].neutral]) for kind, name in kinds if kind == "accumulator"}
        found = arguments_of(
            kinds,
            prepared.kernel.single,
            arrays=arrays | {name: copies[worker] for name, copies in self.copies.items()},
            buffers={name: own[worker] for name, own in prepared.buffers.items()},
            cells=cells,
            keys=self.keys,
            seed=self.seed,
            others=given,
        )
        return found, cells

    def check_served(self) -> None:
        """Served arrays are read in bulk and written through buffers, or not at all.

        Raises:
            LoopError: the body does otherwise.
        """
        body, prefetch = self.prepared.body, self.prepared.prefetch
        place = f"{body.source.file}:{body.source.tree.lineno}"
        for name in dict.fromkeys(self.served):
            if body.draws:
                raise LoopError(
                    f"{place}: random numbers may say which rows of {name} are read, which cannot be known before; "
                    f"use gl.array in place of gl.served, or draw before the loop"
                )
            if name in body.written:
                raise LoopError(f"{place}: {name} is served, and written; write through gl.buffer({name})")
            if (
                prefetch is None
                or name not in prefetch.names
                or any(text == name or text.startswith(f"{name}[") for text in prefetch.left_out)
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

    def here(self, view: LiveView) -> tuple[Span, ...]:
        """On threads of this process; view: shows how far they are."""
        prepared = self.prepared
        buffered = bool(prepared.body.buffered or self.served)
        rounds = self.rounds() if buffered else []
        blocks = blocks_of(prepared.body, prepared.plan)
        watch = ThreadProgress(replace(blocks, blocks=len(rounds)) if buffered else blocks, self.workers)
        with view(watch.table):
            if not buffered:
                spans = threads.run(prepared.plan, self.block, watch.cells)
            else:
                try:
                    spans = self.buffered(rounds, watch.cells)
                except BaseException:
                    prepared.buffers.clear()  # what was written there belongs to this execution
                    raise
        for name in self.sums:
            for copy in self.copies[name]:
                add_up(name, self.given[name].values, copy)
        for name, parts in self.partial.items():
            accumulator: Accumulator = self.given[name]
            accumulator.add(self.by_worker(accumulator, parts))
        return spans

    def on(self, crew: Crew) -> tuple[Span, ...]:
        """Run it on the workers of a crew: other processes."""
        prepared = self.prepared
        if prepared.elsewhere is None or prepared.elsewhere.crew is not crew:
            prepared.elsewhere = Distributed(
                crew, next(_shares), prepared.body, prepared.strategy, prepared.plan, prepared.kernel, prepared.layout,
                prepared.boxes, self.space.values,
            )  # fmt: skip
        cluster = in_use.current()
        assert cluster is not None
        if isinstance(crew, AgreeingCrew) and not prepared.elsewhere.told:
            prepared.elsewhere.agree(crew, self.given, int(self.seed), self.keys)
        with cluster.watched(blocks_of(prepared.body, prepared.plan)):
            replies = prepared.elsewhere.run(
                self.given,
                self.range_of,
                lambda worker: [piece for task in prepared.plan.tasks[worker] for piece in self.pieces(task)],
                int(self.seed),
                self.keys,
                {name: (self.given[name].operation, self.given[name].neutral) for name in prepared.body.accumulated},
            )
        for name in prepared.body.accumulated:
            accumulator: Accumulator = self.given[name]
            combine = OPERATIONS[accumulator.operation]
            accumulator.add([reduce(combine, reply.accumulated[name], accumulator.neutral) for reply in replies])
        return tuple(
            Span(worker, task.space, task.time, *span)
            for worker, (tasks, reply) in enumerate(zip(prepared.plan.tasks, replies, strict=True))
            for task, span in zip(tasks, reply.spans, strict=False)
        )

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
        """Run nothing, which has Numba compile the code, and the functions of buffers, for these types.

        Raises:
            LoopError: it cannot; the user's line, or the buffer, is named.
        """
        dims = self.prepared.body.space.dims
        nothing = [0, 0] * dims if self.prepared.kernel.boxes else [0, 0]
        try:
            self.prepared.kernel.run(*nothing, *self.columns, *self.mixed[0][0])
        except REFUSALS as error:
            body = self.prepared.body
            names = [name for kind, name in self.prepared.kernel.arguments if kind == "inherited"]
            raise explained(body.source, error, {name: self.given[name] for name in names}) from error
        for name in self.prepared.body.buffered:
            try:
                self.apply_rows(name, 0, 0)
            except REFUSALS as error:
                raise LoopError(
                    f"{name}: Numba cannot compile the function of this buffer ({reason(error)})"
                ) from error

    def raised(self, error: WorkerError) -> Exception:
        """What a worker's failure is to the user: the same that threads of this process would have raised. Its cause is
        the worker's own error.

        Raises:
            LoopError: Numba cannot compile the body; the user's line is named.
        """
        self.compile()
        name, *arguments = error.raised
        source = self.prepared.body.source
        kind = source.nearby.get(name, source.function.__globals__.get(name))
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            module, _, name = error.kind.rpartition(".")
            kind = getattr(sys.modules.get(module), name, None)
        if kind is None:
            return error
        found: Exception = kind(*arguments)
        if line := self._raising_line(error.details):
            found.add_note(f"raised by worker {error.rank} at {source.file}:{line}")
        return found

    def _raising_line(self, details: str) -> int:
        """The user's line in which a worker raised something, by its traceback; 0: it is not there. A worker compiles
        the body's text, whose `raise` statements are the user's in the same order."""
        source = self.prepared.body.source
        file = re.escape(source.function.__code__.co_filename)
        places = re.findall(rf'File "(<loop>|{file})", line (\d+), in', details)
        if not places:
            return 0
        name, line = places[-1][0], int(places[-1][1])
        if name != "<loop>":
            return line
        text, own = ([node.lineno for node in ast.walk(tree) if isinstance(node, ast.Raise)]
                     for tree in (ast.parse(self.prepared.kernel.text), source.tree))  # fmt: skip
        alike = len(text) == len(own) and line in text
        return own[text.index(line)] if alike else source.tree.lineno

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

    @property
    def delay(self) -> int | None:
        """How many iterations of a worker may go by until its buffers are applied; None: as many as there are."""
        return min((delay for name in self.prepared.body.buffered if (delay := self.given[name].delay)), default=None)

    def buffered(self, rounds: list[list[tuple[int, ...] | None]], cells: list[list[int]]) -> tuple[Span, ...]:
        """All workers run up to `delay` iterations, then what they buffered is applied; and so on to the end."""
        began = time.perf_counter()
        spans: list[Span] = []
        totals: list[dict[str, Any]] = [{} for _ in range(self.workers)]
        for at in cells:
            progress.begin(at)
        for number, pieces in enumerate(rounds):

            def run(worker: int, number: int = number, pieces: list[tuple[int, ...] | None] = pieces) -> None:
                what = pieces[worker]
                if what is None:
                    return
                progress.run(cells[worker], number)
                found, sums = self.mixed[worker]
                for name, cell in sums.items():
                    cell[0] = self.given[name].neutral
                self.fetch(what)
                self.prepared.kernel.run(*what, *self.columns, *found)
                for name, cell in sums.items():
                    combine = OPERATIONS[self.given[name].operation]
                    value = cell[0].item()
                    totals[worker][name] = combine(totals[worker][name], value) if name in totals[worker] else value

            start = time.perf_counter() - began
            threads.together(self.workers, run)
            threads.together(self.workers, self.apply)
            for name in self.prepared.body.buffered:
                for own in self.prepared.buffers[name]:
                    buffers.empty(own)
            spans.append(Span(0, 0, number, start, time.perf_counter() - began))
        for at in cells:
            progress.end(at)
        for tasks, total in zip(self.prepared.plan.tasks, totals, strict=True):
            for name, value in total.items():
                self.partial[name][tasks[0].space, tasks[0].time] = value
        return tuple(spans)

    def rounds(self) -> list[list[tuple[int, ...] | None]]:
        """What each worker runs, or None, between one application of the buffers and the next.

        Blocks that wait for others come in a later round than those: pieces of both never run at once.
        """
        found: list[list[tuple[int, ...] | None]] = []
        tasks, numbers = self.prepared.plan.tasks, rounds_of(self.prepared.plan)
        for number in range(1 + max(map(max, numbers))):
            queues = [
                [piece for task, at in zip(*one, strict=True) if at == number for piece in self.pieces(task)]
                for one in zip(tasks, numbers, strict=True)
            ]
            found += map(list, zip_longest(*queues))
        return found

    def pieces(self, task: Task) -> list[tuple[int, ...]]:
        """The range of a block, in pieces of at most `delay` iterations."""
        whole = self.range_of(task.space, task.time)
        inner = int(np.prod([whole[at + 1] - whole[at] for at in range(2, len(whole), 2)])) if len(whole) > 2 else 1
        step = max(1, (self.delay or 1 << 62) // max(inner, 1))
        return [(first, min(first + step, whole[1]), *whole[2:]) for first in range(whole[0], whole[1], step)]

    def apply(self, worker: int) -> None:
        """Apply all workers' sums to this worker's share of the rows."""
        for name in self.prepared.body.buffered:
            if isinstance(self.given[name].target, Served):
                if worker == 0:
                    self.send(name)
                continue
            count = len(self.given[name].target)
            self.apply_rows(name, count * worker // self.workers, count * (worker + 1) // self.workers)

    def apply_rows(self, name: str, low: int, high: int) -> None:
        """Apply all workers' sums to the rows in [low, high)."""
        target, further = buffers.flat(self.given[name].target.values), self.given[name].further
        if further is not None:
            self.revise_rows(name, target, further.values, low, high)
            return
        for own in self.prepared.buffers[name]:
            self.prepared.appliers[name](target, buffers.flat(own.values), own.flags, own.touched, low, high)

    def revise_rows(self, name: str, target: np.ndarray, further: np.ndarray, low: int, high: int) -> None:
        """Apply the sum of all workers to the rows in [low, high), with the buffer's further numbers."""
        gather, apply = self.prepared.appliers[name]
        first, *others = self.prepared.buffers[name]
        sums, numbers = buffers.flat(first.values), further.reshape(*further.shape[:2], -1)
        for own in others:
            gather(sums, buffers.flat(own.values), own.touched, low, high)
        try:
            for own in (first, *others):
                apply(target, sums, own.flags, own.touched, low, high, numbers)
        except IndexError as error:
            raise IndexError(
                f"{name}: the buffer's function asks for more than {len(further)} further numbers"
            ) from error

    def send(self, name: str) -> None:
        """All workers' sums to the server of the buffer's array, in the workers' order."""
        for own in self.prepared.buffers[name]:
            rows = own.rows.copy()
            if len(rows):
                server = self.given[name].target.server
                if server.dtype.kind in "iu":  # which would wrap there; only this thread writes
                    add_up(place_of_buffer(self.prepared.body, name), server.get(rows), own.values[rows])
                server.add(rows, own.values[rows])
                own.values[rows] = 0
                own.flags[rows] = 0
