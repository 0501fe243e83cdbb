"""Where arrays are evaluated: workers with tiles, and the plans of the graphs that they were asked for.

A graph is planned once (`girih.array.session.planning`): the next iteration of a loop has an equal graph, and costs a
look-up.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import torch

from girih.array.core import evaluation
from girih.array.session.at_hand import AtHand, results_of, small_work
from girih.array.session.limits import STREAMED_SHARE, MemoryBudget, MemoryLimitError, default_limit, fitted
from girih.array.session.materialised import Materialised, as_numpy, lost, named
from girih.array.session.monitor import LiveArray, live_arrays, table
from girih.array.session.planning import (
    WHOLE,
    Planned,
    Tiled,
    Unplanned,
    known_functions,
    machine_of,
    passes,
    plan_observed,
)
from girih.array.session.portions import Portions, bytes_of, portions
from girih.array.session.profile import Observations
from girih.capture.lazy.expressions import NUMBER, Expression, Needed, needed
from girih.capture.lazy.sources import Source
from girih.graph import Graph
from girih.layout import Sharding
from girih.machine import Machine, MachineError, presets
from girih.machine import machine as machine_by_name
from girih.machine.names import MOST_PROCESSES
from girih.machine.units import format_bytes, parse_bytes
from girih.partition.search import Search
from girih.partition.searches.plan_cache import PlanCache
from girih.partition.searches.tiled import TILING, Wanted
from girih.partition.strategy import SearchError
from girih.plans.plan import Plan
from girih.program import CACHE_BYTES, Blocks, Program
from girih.report.live import LiveView
from girih.rewrite import apply
from girih.run.engines import in_use
from girih.run.engines.crew import Crew
from girih.run.engines.engine import KEEPING_TILES, Connection, Engine, Ray, engine_of
from girih.run.engines.launcher import refusal_alone
from girih.run.engines.loop_blocks import LoopBlocks
from girih.run.engines.threads import ThreadCrew, quick
from girih.run.errors import SpoiltError, WorkerError
from girih.run.tiles.recovery import RecoveringRun
from girih.run.tiles.spill import in_memory
from girih.run.tiles.store import TileStore
from girih.run.tiles.tiles import Evaluation, TileRun
from girih.run.worker.parts import box_of, reporters
from girih.run.worker.service import Options
from girih.run.worker.whole import calls_of_graph, calls_of_worker
from girih.search.table import search_of

MOST_PROGRAMS = 512
Described: TypeAlias = str | os.PathLike[str] | Machine
"""A machine, or what names one."""
SEARCH_SECONDS = 10.0
READ_AT_ONCE = 1 << 26
"""Bytes of a source that the driver copies elsewhere in one go."""
PORTION = 32
"""A result that does not fit is computed in portions of one part in so many of the memory of all workers together."""
WIDEST_PORTION = 4
"""A portion may be so many times as large where chunks of a store are: to write a part of a chunk, the rest is read."""
ROOM = 1 << 32
"""Bytes of a single worker's limit from which on the program computes more by itself."""
BLOCKS_IN_LIMIT = 2
"""So many blocks fit into the memory that a worker may use."""


class Cluster:
    """Workers that evaluate arrays; a context manager in which they evaluate all, and that ends them.

    The arguments are those of `cluster`; backend: an engine that keeps tiles, or its name.
    """

    def __init__(
        self,
        workers: int | None = None,
        backend: str | Engine = "threads",
        timeout: float = 3600.0,
        *,
        machine: Described | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: float = 30.0,
        search: str | Search = "exact",
        copies: int | str = 0,
        memory: int | str | None = None,
        progress: bool | None = None,
        small: float | str | None = None,
    ) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"workers={workers}: expected a positive number")
        self.engine = engine_of(backend, KEEPING_TILES)
        if not (every >= 0 and timeout > 0):
            raise ValueError(f"every={every}, timeout={timeout}: expected positive numbers")
        if not self.engine.keeps_tiles:
            raise ValueError(f"backend {self.engine.name} keeps no arrays: expected one of {', '.join(KEEPING_TILES)}")
        described = None if machine is None else described_by(machine)
        if described is not None and workers not in (None, described.devices):
            raise ValueError(
                f"workers={workers}, but {described.name} has {described.devices} devices: give one of both"
            )
        self.search = _tiling(search)
        self.copies = parse_bytes(copies)
        self.small = parse_bytes(small) if isinstance(small, str) else small
        self.timeout = timeout
        self.checkpoint = None if checkpoint is None else os.fspath(checkpoint)
        self.every = every
        self._hosts: Connection | None = self.engine.connect()
        most = self.engine.most_workers(self._hosts.processors)
        self.machine = described or machine_of(most if workers is None else workers)
        self.workers = self.machine.devices
        limit = default_limit(self.workers)
        if described is not None:
            limit = min(limit, described.device.memory_bytes)
        self.budget = MemoryBudget(limit if memory is None else parse_bytes(memory))
        self.blocks = Blocks(cache=max(1, min(CACHE_BYTES, self.budget.limit // BLOCKS_IN_LIMIT)))
        self.view = LiveView(progress)
        self.evaluations = 0
        self.planned = 0
        self._run: TileRun | None = None
        self._plans: OrderedDict[Hashable, Planned] = OrderedDict()
        self._at_hand: OrderedDict[Hashable, AtHand | None] = OrderedDict()
        """By structure what the only worker computes in the thread that asks; None: a plan is to be made first."""
        self._undivided = not (self.machine.mesh.sizes or self.copies or self.checkpoint) and self.engine.one_process
        self._choices = PlanCache()
        self._observed = Observations()
        self._keys = count()
        self._dropped: deque[int] = deque()
        self._seconds: dict[int, int] = {}
        """Bytes of the second copies that are there, by key."""

    @property
    def alone(self) -> bool:
        """Is it one worker, beside which the program has room for larger arrays of its own?"""
        return self.workers == 1 and self.budget.limit >= ROOM

    @evaluation.in_turn
    def value(self, expression: Expression) -> np.ndarray:
        """The value as a NumPy array of its own."""
        content = expression.content
        if isinstance(content, np.ndarray):
            return np.array(content)
        place: Materialised | None = expression.kept
        if place is None:
            return self._values([expression])[0] if content is None else content.read_all()
        if place.cluster is not self:
            return place.cluster.value(expression)
        if not place.alive:
            raise lost(expression)
        if (crew := self._only_worker()) is not None:
            key = place.key
            return as_numpy(in_memory(crew.at_hand(lambda store: store.held[key])))
        return as_numpy(place.run.fetch(place.plan.program, place.name, place.key))

    @evaluation.in_turn
    def evaluate(self, wanted: Sequence[Expression], report: bool = True) -> list[np.ndarray]:
        """Evaluate what is needed for the wanted expressions, all at once; it stays with the workers.

        report: also return the values, which are then expected not to be there yet.

        Raises:
            EvaluationError: a worker failed. If it failed while it computed, nothing was made, and all that was there
                before is still there; if it died, hung or lost its peers, all tiles are gone.
            MemoryLimitError: it takes more memory than there may be used; nothing was started.
        """
        return self._values(wanted, report)

    def _values(self, wanted: Sequence[Expression], report: bool = True) -> list[np.ndarray]:
        work = needed(wanted, self.streams)
        values: dict[Expression, Any] = {}
        if work.nodes:
            asked = {item for item in wanted if not item.is_leaf}  # a slice of a source needs no computing
            self._come_over(work)
            values = self._computed_at_hand(work) or self._computed(work, asked, report)
        if not report:
            return []
        return [as_numpy(values[item]) if item in values else self.value(item) for item in wanted]

    def _computed(self, work: Needed, asked: set[Expression], report: bool) -> dict[Expression, Any]:
        """What the workers compute by a plan; the values of what is asked for, if they are to be reported."""
        structure, reported = work.structure, None
        while reported is None:
            work, planned = self._fitting(work, asked)
            reported = self._command(work, planned, {work.names[item] for item in asked} if report else set())
        if work.structure == structure and self._at_hand.get(structure, 0) is None:
            self._at_hand[structure] = self._instructions(work, planned)
        return {item: reported[work.names[item]] for item in asked} if report else {}

    # ------------------------------------------------------------------------------------------- in this thread

    def _only_worker(self) -> ThreadCrew | None:
        """The crew of one worker that is a thread of this process, where nothing is saved or lies in two layouts."""
        if not self._undivided:
            return None
        crew = self.run.crew
        return crew if isinstance(crew, ThreadCrew) else None

    def _computed_at_hand(self, work: Needed) -> dict[Expression, Any] | None:
        """The values of all results, computed in this thread; None where that is not to be, or fails: the worker then
        computes by a plan, and its error names the line."""
        crew = self._only_worker()
        if crew is None:
            return None
        structure = work.structure
        known = self._at_hand.get(structure)
        if known is None and structure not in self._at_hand:
            known = self._at_hand[structure] = self._unplanned(work)
            if len(self._at_hand) > MOST_PROGRAMS:
                self._at_hand.popitem(last=False)
        if known is None or known.peak + self.budget.held > self.budget.limit:
            return None
        self._at_hand.move_to_end(structure)
        held: list[int] = []
        for item in work.inputs:
            if item.kept is not None:
                held.append(item.kept.key)
            elif not isinstance(item.content, np.ndarray):  # a Source, of which workers read a part
                return None
        if not self.budget.files.isdisjoint(held):
            return None
        free, run, budget = self._free(), self.run, self.budget
        keys = [next(self._keys) for _ in known.results]
        budget.free(free)
        budget.use(held)
        run.let_go(free)

        def compute(store: TileStore) -> list[Any]:
            store.drop(free)
            inputs = [
                torch.from_numpy(item.content) if item.kept is None else store.held[item.kept.key]
                for item in work.inputs
            ]
            tensors = known.calls.run(inputs, store.times)
            store.held.update(zip(keys, tensors, strict=True))
            return tensors

        try:
            tensors = crew.at_hand(compute)
        except Exception:  # which is met again in the worker
            return None
        self.evaluations += 1
        for key, item, (name, size) in zip(keys, work.results, known.results, strict=True):
            run.hold(key, known.planned.graph, name)
            budget.keep(key, size, False)
            item.keep(Materialised(self, run, key, known.planned, name))
        return dict(zip(work.results, tensors, strict=True))

    def _unplanned(self, work: Needed) -> AtHand | None:
        """A program without a plan, whose calls are those that its plan would have; None where that has blocks, or
        functions of users are called."""
        graph = work.graph()
        rewritten = apply(known_functions(graph, work.ones), passes(self.workers, self._whole))
        size = small_work(rewritten, self.blocks.cache)
        if size is None or 2 * size > self.budget.limit // STREAMED_SHARE:
            return None
        try:
            calls = calls_of_graph(rewritten)
        except Exception:  # of an operator that cannot be called so: a plan says which line it is of
            return None
        results = results_of(work, graph)
        structure, ones = work.structure, work.ones
        lying = tuple([() if item.kept is None else (WHOLE,) for item in work.inputs])
        held = {work.names[item]: (WHOLE,) for item in work.inputs if item.kept is not None}
        key: Hashable = (structure, lying, 0, frozenset(), frozenset(), False, ())

        def make() -> Planned:
            return self._plans.get(key) or self._planned_as(key, graph, ones, held)

        return AtHand(calls, Unplanned(graph, make), results, 2 * size)

    def _instructions(self, work: Needed, planned: Planned) -> AtHand | None:
        """What the only worker does by a plan that is known to it; None where more is to be done for it each time."""
        program, crew = planned.plan.program, self._only_worker()
        elsewhere = program.streamed or program.files or planned.tiled.looks or planned.tiled.staying
        if crew is None or elsewhere or not quick(program.graph):
            return None
        inputs = [work.names[item] for item in work.inputs]
        results = results_of(work, program.graph)
        worker = crew.at_hand(lambda store: store.workers[planned.number])
        calls = calls_of_worker(worker, inputs, [name for name, _ in results])
        return AtHand(calls, planned, results, planned.peak)

    def tiles(self, expression: Expression, rows: int = 1) -> Iterator[tuple[tuple[slice, ...], np.ndarray]]:
        """As `girih.array.core.evaluation.Evaluator`."""
        if not expression.is_leaf:
            parts = self._portions(expression, rows)
            if parts is not None:
                yield from self._in_portions(expression, parts, rows)
                return
            self.evaluate([expression], report=False)
        place: Materialised | None = expression.kept
        if place is None:
            yield from _portions(expression.content)
            return
        if not place.alive:
            raise lost(expression)
        program = place.plan.program
        for rank in reporters(program, place.name):
            box = box_of(program, place.name, rank)
            tile = self._fetch_tile(place, rank)
            yield tuple(slice(start, stop) for start, stop in box), tile.numpy()

    @evaluation.in_turn
    def _portions(self, wanted: Expression, rows: int) -> Portions | None:
        """How to compute some rows at a time of what does not fit into memory; what all of them need is computed now.
        None: it fits, or is not made row by row, or so many rows are too large."""
        most = self._whole
        if not wanted.shape or bytes_of(wanted) <= most:
            return None
        if rows * bytes_of(wanted) // wanted.shape[0] > WIDEST_PORTION * self._portion:
            return None
        work = needed([wanted], self.streams)
        self._come_over(work)
        if not self._plan(work, False).refused:
            return None
        parts = portions(wanted, work, most / self.workers)
        if parts is not None and parts.whole:
            self._values(parts.whole, report=False)
        return parts

    @property
    def _portion(self) -> int:
        """Bytes of what is computed at a time."""
        return min(READ_AT_ONCE, self.workers * self.budget.limit // PORTION)

    def _in_portions(
        self, wanted: Expression, parts: Portions, rows: int
    ) -> Iterator[tuple[tuple[slice, ...], np.ndarray]]:
        """A value in portions of a multiple of `rows`, all in the same memory."""
        count, row = wanted.shape[0], max(1, bytes_of(wanted) // wanted.shape[0])
        each = max(1, self._portion // row)
        each = max(1, each // rows) * rows
        memory = np.empty((min(each, count), *wanted.shape[1:]), np.dtype(wanted.dtype))
        for start in range(0, count, each):
            stop = min(start + each, count)
            for box, tile in self.tiles(parts.rows(start, stop)):
                memory[box] = tile
            yield (slice(start, stop),), memory[: stop - start]

    @evaluation.in_turn
    def _fetch_tile(self, place: Materialised, rank: int) -> Any:
        return place.run.fetch_tile(place.name, place.key, rank)

    @evaluation.in_turn
    def arrays(self) -> list[LiveArray]:
        """The arrays that the workers hold, with the bytes of each worker's tile."""
        return live_arrays(self.started)

    def __repr__(self) -> str:
        held = self.arrays()
        size = format_bytes(sum(item.bytes for item in held))
        mesh = f", mesh {self.machine.mesh}" if len(self.machine.mesh.sizes) > 1 else ""
        where = f"{self.engine.name}{mesh}"
        return f"<girih cluster: {self.workers} workers ({where}), {len(held)} arrays in tiles of {size}>"

    def close(self) -> None:
        """End the workers; arrays that were evaluated here are lost. The cluster of before is in use again."""
        self._end()
        evaluation.leave(self)
        in_use.end(self)

    @evaluation.in_turn
    def _end(self) -> None:
        self.view.close()
        if self._run is not None:
            self._run.close()
            self._run = None
        self._seconds.clear()
        self.budget = MemoryBudget(self.budget.limit)
        if self._hosts is not None:
            self._hosts.close()
            self._hosts = None

    def __enter__(self) -> Cluster:
        evaluation.use(self)
        in_use.begin(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @evaluation.in_turn
    def crew(self) -> Crew:
        """The workers for other work than arrays; started when they are first needed, and anew if they are gone."""
        run = self.run
        if _broken(run):
            run.tiles()  # who is asked for is replaced, and what it held is brought back
        return run.crew

    def watched(self, program: Program | LoopBlocks) -> AbstractContextManager[None]:
        """In which the live view shows how far the workers are in a program."""
        run = self.run
        return self.view(lambda began: table(run, program, began))

    @property
    def started(self) -> TileRun | None:
        """The workers, if there are any now."""
        run = self._run
        return None if run is not None and _broken(run) and not run.outlives else run

    @property
    def run(self) -> TileRun:
        """The workers, started when they are first needed, and anew where Ctrl-C has stopped them."""
        if self._run is not None and self.started is None:
            self._end()
        if self._run is None:
            mesh, options = self.machine.mesh, self._options()
            if self.checkpoint is None:
                self._run = TileRun(mesh, self.engine, options)
            else:
                self._run = RecoveringRun(mesh, self.engine, options, self.checkpoint, self.every)
        return self._run

    def _options(self) -> Options:
        self._hosts = self._hosts or self.engine.connect()
        return Options(self.timeout, threads=self.engine.threads(self.workers), keeps=False)

    def _come_over(self, work: Needed) -> None:
        """Take over what other clusters hold, as arrays in memory."""
        for item in work.inputs:
            place: Materialised | None = item.kept
            if place is None or (place.cluster is self and place.alive):
                continue
            if item.content is None:
                item.content = place.cluster.value(item)
            item.kept = None
            place.let_go()

    @evaluation.in_turn
    def plan_of(self, work: Needed) -> Plan:
        """The plan for what is needed, found or made; live arrays stay where they lie."""
        self._come_over(work)
        planned = self._plan(work, False)
        return (self._plan(work, True) if planned.refused else planned).plan

    def tiled_of(self, plan: Plan) -> Tiled | None:
        """How one of the plans came about, as long as it is remembered."""
        return next((item.tiled for item in self._plans.values() if item.plan is plan), None)

    def _fitting(self, work: Needed, asked: set[Expression]) -> tuple[Needed, Planned]:
        """What is asked for alone is kept, where all that live arrays show takes too much memory."""
        planned = self._plan(work, False)
        if planned.refused:
            work = replace(work, results=tuple(item for item in work.results if item in asked))
            planned = self._plan(work, True)
        if planned.refused:
            raise MemoryLimitError(planned.refused)
        return work, planned

    def _plan(self, work: Needed, files: bool) -> Planned:
        """A plan for what is needed. files: may results go to files?"""
        lying = tuple(() if item.kept is None else item.kept.layouts for item in work.inputs)
        budget = max(0, self.copies - sum(tuple(self._seconds.values()))) if self.copies else 0
        streamed, on_files = self._elsewhere(work)
        key = (work.structure, lying, budget, streamed, on_files, files, self._observed.state(work.nodes))
        planned = self._plans.get(key)
        if planned is None:
            held = {work.names[item]: layouts for item, layouts in zip(work.inputs, lying, strict=True) if layouts}
            return self._planned_as(key, work.graph(), work.ones, held, budget, streamed, on_files, files)
        self._plans.move_to_end(key)
        return planned

    def _planned_as(
        self,
        key: Hashable,
        graph: Graph,
        ones: frozenset[str],
        held: Mapping[str, tuple[Sharding, ...]],
        budget: int = 0,
        streamed: frozenset[str] = frozenset(),
        on_files: frozenset[str] = frozenset(),
        files: bool = False,
    ) -> Planned:
        """A plan that is made now, and known by its key from now on."""
        wanted, graph = Wanted(self.search, budget, held), known_functions(graph, ones)
        tiled = plan_observed(graph, self.machine, wanted, self._choices, self.blocks, self._observed, self._whole)
        fits = fitted(tiled.plan, self.budget.limit, streamed, on_files, files, self.engine.one_process)
        planned = self._plans[key] = Planned(self.planned, fits.plan, tiled, fits.peak, fits.refused)
        self.planned += 1
        if len(self._plans) > MOST_PROGRAMS:
            oldest = self._plans.popitem(last=False)[1]
            if self.started is not None:
                self.started.forget(oldest.number)
        return planned

    @property
    def _whole(self) -> float:
        """Bytes of an array that the workers hold whole."""
        return self.workers * self.budget.limit / STREAMED_SHARE

    def _elsewhere(self, work: Needed) -> tuple[frozenset[str], frozenset[str]]:
        """The inputs that are read where they are, and those whose tiles lie in files."""
        streamed, files = set(), set()
        for item in work.inputs:
            key = item.kept.key if item.kept is not None else None
            if key in self.budget.files:
                files.add(work.names[item])
            elif item.kept is None and self.streams(item.content):
                streamed.add(work.names[item])
        return frozenset(streamed), frozenset(files)

    def streams(self, content: Any) -> bool:
        """Is a source too large to be held? With checkpoints, which save its tiles, it is held, too."""
        return self.checkpoint is None and self.budget.streams(content, self.workers)

    def _command(self, work: Needed, planned: Planned, report: set[str]) -> dict[str, Any] | None:
        """What is to be reported; None: a user's function updated more than was planned for, and nothing was made."""
        names = work.names
        items = {names[item]: item for item in (*work.inputs, *work.results) if item.operator != NUMBER}
        entering = {item.name for item in planned.plan.graph.inputs}
        held: dict[str, int] = {}
        placed: dict[str, tuple[int, Any]] = {}
        keep: dict[str, int] = {}
        for name in (*items, *planned.tiled.staying):  # a copy behind what it is a copy of
            item = items[planned.tiled.staying.get(name, name)]
            if name not in entering:
                keep[name] = next(self._keys)
            elif item.kept is None:
                placed[name] = (next(self._keys), _placed_content(item.content))
            else:
                held[name] = (item.kept.second if name in planned.tiled.staying else item.kept).key
        free = self._free()
        self.budget.free(free)
        self.budget.use(held.values())
        moved = [held[name] for name in planned.plan.program.files if name in held]
        spilled = self.budget.to_files(planned.peak, set(held.values()), moved)
        what = Evaluation(
            planned.number,
            held,
            {names[item]: torch.from_numpy(item.content) for item in work.inputs if item.operator == NUMBER},
            placed,
            keep,
            (*report, *planned.tiled.looks),
            free,
            max(0, self.budget.limit - self.budget.held - planned.peak),
        )
        try:
            if spilled:
                self.run.spill(spilled)
            with self.watched(planned.plan.program):
                reported = self.run.evaluate(planned.plan.program, what)
        except SpoiltError as error:
            self._dropped.extend((*keep.values(), *(key for key, _ in placed.values())))
            raise named(error, work, self.checkpoint is not None) from error
        except WorkerError as error:
            self._after_failure()
            raise named(error, work, self.checkpoint is not None) from error
        self.evaluations += 1
        if not self._observed.learn(planned.tiled.looks, reported):
            self._dropped.extend((*keep.values(), *(key for key, _ in placed.values())))
            return None
        for name in (*items, *planned.tiled.staying):
            if name in planned.plan.program.streamed:
                self._dropped.append(placed[name][0])  # it lies nowhere, and may be divided otherwise the next time
            elif name not in held:
                key = keep[name] if name in keep else placed[name][0]
                place = Materialised(self, self.run, key, planned, name)
                file = name in planned.plan.program.files
                self._keep(items[planned.tiled.staying.get(name, name)], place, file, name in items)
        return reported

    def _keep(self, item: Expression, place: Materialised, file: bool, first: bool) -> None:
        """Note that a result lies with the workers, in its first layout or in its second, until nobody refers to it.
        file: does it lie in a file?"""
        self.budget.keep(place.key, place.tile_bytes, file)
        if first:
            item.keep(place)
        else:
            item.keep(item.kept._replace(second=place))
            self._seconds[place.key] = place.bytes

    def let_go(self, key: int) -> None:
        """Nobody refers to an array that lies with the workers any more; they are told with the next evaluation."""
        self._dropped.append(key)
        self._seconds.pop(key, None)

    def _after_failure(self) -> None:
        """Workers that have lost their tiles end; others come with the next evaluation."""
        if not self.run.outlives:
            self._end()

    def _free(self) -> tuple[int, ...]:
        """Keys of arrays that nobody refers to any more."""
        return tuple([self._dropped.popleft() for _ in range(len(self._dropped))])


def _placed_content(content: np.ndarray | Source) -> Any:
    """What the workers are sent of an array that they do not have yet."""
    if isinstance(content, Source):
        content.check()
        return content
    return torch.from_numpy(content)


def _portions(content: np.ndarray | Source) -> Iterator[tuple[tuple[slice, ...], np.ndarray]]:
    """An array that the workers do not have, some rows at a time where it is a source."""
    if isinstance(content, np.ndarray):
        yield (...,), content  # type: ignore[misc]
        return
    rows = max(1, READ_AT_ONCE * content.shape[0] // max(content.nbytes, 1))
    for start in range(0, content.shape[0], rows):
        stop = min(start + rows, content.shape[0])
        rest = content.shape[1:]
        yield (slice(start, stop),), content.read((start, *(0 for _ in rest)), (stop, *rest))


def _broken(run: TileRun) -> bool:
    """Are a run's workers gone, or to be mended?"""
    return getattr(run.crew, "broken", None) is not None


def current() -> Cluster:
    """The cluster in use: the last that `cluster` made or a `with` block began, else threads of this process."""
    evaluator = evaluation.current()
    assert isinstance(evaluator, Cluster)
    return evaluator


def described_by(described: Described) -> Machine:
    """The machine whose devices are workers.

    Raises:
        MachineError: there is no such machine, or it has more devices than a host has processes.
    """
    item = machine_by_name(described if isinstance(described, Machine) else os.fspath(described))
    if item.devices > MOST_PROCESSES:
        raise MachineError(f"{item.name} has {item.devices} devices: at most {MOST_PROCESSES} workers are started")
    return item


def _is_machine(text: str) -> bool:
    """Is it the name of a machine, and no address of Ray?"""
    base = text.partition(":")[0]
    return text.endswith((".yaml", ".yml")) or base in ("local", *presets()) or bool(re.fullmatch(r"[\dx]+", base))


def _tiling(search: str | Search) -> Search:
    """A search that tiles arrays; one that is only named may take SEARCH_SECONDS for each evaluation."""
    known = ", ".join(able.name for able in TILING)
    try:
        tiling = search_of(search, SEARCH_SECONDS)
    except SearchError as error:
        raise ValueError(f"search={search!r}: expected one of {known}") from error
    if not isinstance(tiling, TILING):
        raise ValueError(f"search={search!r}: expected one of {known}")
    return tiling


def cluster(
    workers: int | str | os.PathLike[str] | Machine | None = None,
    *,
    machine: Described | None = None,
    backend: str | Engine = "processes",
    ray: bool | str = False,
    cpus: float = 1.0,
    timeout: float = 3600.0,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 30.0,
    search: str | Search = "exact",
    copies: int | str = 0,
    memory: int | str | None = None,
    progress: bool | None = None,
    small: float | str | None = None,
) -> Cluster:
    """Evaluate arrays on these workers from now on; also a context manager, after which it is as before.

    workers: by default one for each core; or a machine; or the address of a Ray cluster, `ray://host:port`. machine: a
    Machine, or what `girih.machine.machine` takes (`2x2`, `local:4`, a machine file): a worker for each of its devices,
    on its mesh; where its links differ, arrays are tiled for the least time instead of the fewest bytes. backend:
    `processes` of this host or `threads` of this process, or an Engine (docs/add-an-engine.md). ray: actors of Ray;
    True for the cluster that this process is connected to, else a new one of this host, or an address. cpus: processors
    for each actor. timeout: seconds that an evaluation may take. checkpoint: a directory or fsspec URL; the loss of
    workers is then recovered from. every: seconds from one checkpoint to the next. search: how arrays are tiled:
    `exact`, or `spartan` (greedy). copies: bytes (or "1 GB") that second copies of arrays, in another layout, may take
    on all workers together. memory: bytes (or "2 GB") that each worker may use, by default four fifths of this host's
    divided among them, and what the machine's devices have: what does not fit goes to files in the directory of
    temporary files, and what cannot be computed so is refused before it starts. progress: show the workers during
    evaluations that last over a second; by default on terminals only. small: bytes (or "64 KB"); arrays of fewer are
    computed by NumPy in this process, as the program is written, and by no worker; 0: none are. By default 32 MiB,
    and 128 MiB where there is one worker, which can share no work.

    Raises:
        RayUnavailableError: Ray is not installed, or nothing answers at the address. MachineError: there is no such
            machine. ValueError: an argument is out of its range, or does not fit another one.
    """
    if isinstance(workers, os.PathLike | Machine) or (isinstance(workers, str) and _is_machine(workers)):
        if machine is not None:
            raise ValueError(f"two machines, {workers} and {machine}: give one")
        workers, machine = None, workers
    address = workers if isinstance(workers, str) else ray if isinstance(ray, str) else ""
    if not cpus > 0:
        raise ValueError(f"cpus={cpus}: expected a positive number")
    engine = Ray(address, cpus) if ray or isinstance(workers, str) else backend
    number = None if isinstance(workers, str) else workers
    more: dict[str, Any] = {"machine": machine}
    more |= {"search": search, "copies": copies, "memory": memory, "progress": progress, "small": small}
    more |= {"checkpoint": checkpoint, "every": every}
    if why := refusal_alone("girih.cluster"):
        raise ValueError(f"{why}; plans and loops (girih.loop.ranks) take the ranks for workers")
    begun = Cluster(number, engine, timeout, **more)
    evaluation.use(begun)
    in_use.begin(begun)
    return begun
