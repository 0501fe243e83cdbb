"""A loop on the workers of a cluster: who is given what, and what comes back (`girih.loop.run.messages`)."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any
from weakref import WeakSet

import numpy as np

from girih.loop.arrays import Array, add_up
from girih.loop.capture.body import Body, place_of_buffer
from girih.loop.capture.dependences import sum_dtype
from girih.loop.capture.errors import LoopError
from girih.loop.code.entries import Column, Layout, Ragged
from girih.loop.code.kernel import Kernel, by_value
from girih.loop.run.messages import LoopShare, Reply, ShareCall, Travelling, hand_overs, packed
from girih.loop.schedules.schedule import Schedule
from girih.loop.schedules.strategy import LoopStrategy
from girih.ops.functions import pickled
from girih.run.engines.crew import AgreeingCrew, Crew
from girih.run.engines.loop_blocks import LoopBlocks


@dataclass(frozen=True)
class Place:
    """How an array lies: `stays` (rows along an axis), `travels`, `copied` or `added`."""

    how: str
    axis: int = 0
    low: int = 0
    high: int = 1


def places(body: Body, strategy: LoopStrategy) -> dict[str, Place]:
    """How each array lies among workers without common memory.

    Raises:
        LoopError: the loop is divided in a way that messages do not serve.
    """
    if strategy.kind not in ("1d", "2d"):
        raise _unserved(body, "it is divided along a skewed direction" if strategy.space else "it is serial")
    if strategy.kind == "2d" and body.buffered:
        raise _unserved(body, "it has buffers, and blocks that wait for each other")
    found: dict[str, Place] = {}
    for item in strategy.movements:
        if item.array in body.buffered:
            continue
        how = item.how
        references = body.of(item.array)
        if how in ("stays", "travels"):
            form = strategy.space if how == "stays" else strategy.time
            place = _along(references, form)
            written = any(reference.writes for reference in references)
            if place is None or (place[2] - place[1] > 1 and (written or how == "travels")):
                raise _unserved(body, f"{item.array} is written on both sides of a cut")
            found[item.array] = Place(how, *place)
        elif how in ("copied", "added"):
            found[item.array] = Place(how)
        else:
            raise _unserved(body, f"{item.array} is needed by all workers at any time")
    return found


def _unserved(body: Body, why: str) -> LoopError:
    return LoopError(
        f"{body.source.file}:{body.source.tree.lineno}: {body.source.tree.name} does not run on workers without common "
        f"memory ({why}), but on threads of this process"
    )


def _along(references: Any, form: Any) -> tuple[int, int, int] | None:
    """(axis, low, high): the rows of an array that index p touches along the axis are p + low to p + high."""
    dim = form.index(1)
    for axis in range(len(references[0].subscripts)):
        parts = [item.subscripts[axis] for item in references]
        if all(part.dim == dim and part.low is not None for part in parts):
            return axis, min(part.low for part in parts), max(part.high for part in parts)
    return None


_known: WeakSet[Distributed] = WeakSet()
"""The loops of which workers have shares: of others they need remember nothing."""


def blocks_of(body: Body, plan: Schedule) -> LoopBlocks:
    """A loop for those who watch it."""
    return LoopBlocks(
        body.source.tree.name, f"{body.source.file}:{body.source.tree.lineno}", max(len(tasks) for tasks in plan.tasks)
    )


class Distributed:
    """A prepared loop on a crew of workers."""

    def __init__(
        self, crew: Crew, number: int, body: Body, strategy: LoopStrategy, plan: Schedule, kernel: Kernel,
        layout: Layout | None, boxes: Any, values: np.ndarray | None,
    ) -> None:  # fmt: skip
        self.crew, self.number = crew, number
        self.body, self.plan, self.kernel, self.layout, self.boxes = body, plan, kernel, layout, boxes
        self.values = values
        self.places = places(body, strategy)
        self.cuts = self._cuts(strategy)
        self.senders, self.receivers = hand_overs(plan)
        self.told = False
        self.blocks = blocks_of(body, plan)
        _known.add(self)

    def _cuts(self, strategy: LoopStrategy) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The indices at which space and time parts begin."""
        if self.layout is not None:
            return self.layout.space_cuts, self.layout.time_cuts
        rows = [self.boxes[part][0] for part in range(self.plan.spaces)]
        columns = [self.boxes[0][part] for part in range(self.plan.times)]
        return _ends(rows, strategy.space), _ends(columns, strategy.time)

    def agree(self, crew: AgreeingCrew, given: Mapping[str, Any], seed: int, keys: Mapping[str, np.ndarray]) -> None:
        """Do all drivers of these workers give the same?

        Raises:
            LoopError: they do not, which would give each another result.
        """
        items = (item for _, item in sorted(given.items()))
        arrays = (item.values for item in items if isinstance(item, Array))
        sums = (zlib.crc32(np.ascontiguousarray(values).tobytes()) for values in arrays)
        drawn = [*map(str, keys.values())]
        mine = f"{self.blocks.source} {seed} {drawn} {self.plan.spaces} × {self.plan.times} {[*sums]}"
        other = next((rank for rank, word in enumerate(crew.agree(mine)) if word != mine), None)
        if other is not None:
            raise LoopError(
                f"{self.blocks.source}: rank {other} runs another loop than rank {crew.rank}, or has other values "
                f"in its arrays: every rank must do the same"
            )

    def run(
        self, given: Mapping[str, Any], ranges: Any, pieces: Any, seed: int, keys: Mapping[str, np.ndarray],
        accumulators: Mapping[str, Any],
    ) -> list[Reply]:  # fmt: skip
        """Run once, and write the results into the arrays. keys: of streams of random numbers, by the Generator's name.

        ranges(space, time): what the code runs for a block; pieces(worker): of a buffered loop.

        Raises:
            WorkerError: a worker failed or died; the arrays are as before.
        """
        shares = None if self.told else self._shares(given, ranges, pieces, accumulators)
        live = tuple(sorted(item.number for item in _known if item.crew is self.crew))
        calls = [
            self._call({**given, **keys}, rank, None if shares is None else shares[rank], live, seed)
            for rank in range(self.plan.workers)
        ]
        self.crew.program = self.blocks
        replies: list[Reply] = list(self.crew.command("loop", [{"call": call} for call in calls]))
        self.told = True
        for name, place in self.places.items():
            target = given[name].values
            for reply in replies:
                for where, part in reply.parts.get(name, ()):
                    if place.how == "added":
                        add_up(name, target[where], part)
                    else:
                        target[where] = part
        for name in self.body.buffered:
            target = given[name].target.values
            for where, part in replies[0].parts.get(self._target(given, name), ()):
                target[where] = part
        return replies

    def _target(self, given: Mapping[str, Any], name: str) -> str:
        """The name of the array behind a buffer; the body may not read it by a name of its own."""
        for other, item in given.items():
            if item is given[name].target:
                return other
        return f"{name}.target"

    def _shares(
        self, given: Mapping[str, Any], ranges: Any, pieces: Any, accumulators: Mapping[str, Any]
    ) -> list[LoopShare]:
        outside = tuple(
            (name, by_value(item) if isinstance(item, FunctionType) else item)
            for name, item in self.kernel.recipe.outside
        )
        recipe = pickled(replace(self.kernel.recipe, outside=outside))  # type: ignore[arg-type]
        arrays = {name: (item.shape, str(item.dtype)) for name, item in given.items() if isinstance(item, Array)}
        for name, place in self.places.items():
            if place.how == "added":
                arrays[name] = (arrays[name][0], sum_dtype(self.body, name))
        buffers = {}
        for name in self.body.buffered:
            target = self._target(given, name)
            arrays[target] = (given[name].target.shape, str(given[name].target.dtype))
            buffers[name] = (target, packed(given[name].apply), place_of_buffer(self.body, name))
        travelling = {
            name: Travelling(place.axis, self.cuts[1], place.low)
            for name, place in self.places.items()
            if place.how == "travels"
        }
        queues = [pieces(worker) if buffers else [ranges(task.space, task.time) for task in tasks]
                  for worker, tasks in enumerate(self.plan.tasks)]  # fmt: skip
        self.blocks = replace(self.blocks, blocks=max(map(len, queues)))
        shares = []
        for worker, tasks in enumerate(self.plan.tasks):
            columns, base = self._columns(worker)
            mine = [tuple(end - base if at < 2 else end for at, end in enumerate(what)) for what in queues[worker]]
            shares.append(
                LoopShare(
                    recipe, self.kernel.arguments, self.kernel.single, columns, tasks, tuple(mine),
                    tuple(self.senders[worker]), tuple(self.receivers[worker]), arrays, travelling, dict(accumulators),
                    buffers, max(map(len, queues)),
                )
            )  # fmt: skip
        return shares

    def _columns(self, worker: int) -> tuple[tuple[np.ndarray, ...], int]:
        """Keys and values of a worker's entries, and where they begin in the layout."""
        if self.layout is None:
            return (() if self.values is None else (self.values,)), 0
        spaces = sorted({task.space for task in self.plan.tasks[worker]})
        first = int(self.layout.offsets[spaces[0] * self.plan.times])
        last = int(self.layout.offsets[(spaces[-1] + 1) * self.plan.times])
        found: list[np.ndarray] = [keys[first:last] for keys in self.layout.entries.keys]
        for column in self.layout.entries.columns:
            found.extend(_cut(column, first, last))
        if self.layout.numbers is not None:
            found.append(self.layout.numbers[first:last])
        return tuple(found), first

    def _call(
        self, given: Mapping[str, Any], rank: int, share: LoopShare | None, live: tuple[int, ...], seed: int
    ) -> ShareCall:
        parts: dict[str, list[tuple[tuple[slice, ...], np.ndarray]]] = {}
        reported: dict[str, list[tuple[slice, ...]]] = {}
        zeroed = []
        written = set(self.body.written)
        for name, place in self.places.items():
            values = given[name].values
            if place.how == "added":
                zeroed.append(name)
                reported[name] = [(slice(None),)]
                continue
            begins, ends = self._where(place, rank, values.shape)
            parts[name] = [(where, values[where]) for where in begins]
            if name in written:
                reported[name] = ends
        for name in self.body.buffered:
            target = self._target(given, name)
            parts[target] = [((slice(None),), given[name].target.values)]
            reported[target] = [(slice(None),)] if rank == 0 else []
        inherited = {name: given[name] for kind, name in self.kernel.arguments if kind in ("inherited", "generator")}
        return ShareCall(self.number, live, share, parts, tuple(zeroed), reported, inherited, seed)

    def _where(self, place: Place, rank: int, shape: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
        """What a worker has of an array when it begins, and when it ends."""
        if place.how == "copied":
            return [(slice(None),)], [(slice(None),)] if rank == 0 else []
        tasks = self.plan.tasks[rank]
        if place.how == "stays":
            spaces = [task.space for task in tasks]
            low, high = self.cuts[0][min(spaces)] + place.low, self.cuts[0][max(spaces) + 1] + place.high - 1
            cut = slice(max(low, 0), min(high, shape[place.axis]))
            rows = (*(slice(None),) * place.axis, cut)
            return [rows], [rows]
        how = Travelling(place.axis, self.cuts[1], place.low)
        begins = [
            how.rows(task.time, shape[place.axis])
            for task, sender in zip(tasks, self.senders[rank], strict=True)
            if sender < 0
        ]
        ends = [
            how.rows(task.time, shape[place.axis])
            for task, goal in zip(tasks, self.receivers[rank], strict=True)
            if goal < 0
        ]
        return begins, ends


def _ends(boxes: list[Any], form: Any) -> tuple[int, ...]:
    """Where boxes that lie side by side in a form's dimension begin, and the end."""
    if form is None:
        return ()
    dim = form.index(1)
    return (*(box[dim][0] for box in boxes), boxes[-1][dim][1])


def _cut(column: Column, first: int, last: int) -> tuple[np.ndarray, ...]:
    if not isinstance(column, Ragged):
        return (column[first:last],)
    offsets = column.offsets[first : last + 1]
    return column.data[offsets[0] : offsets[-1]], offsets - offsets[0]
