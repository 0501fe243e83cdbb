"""The prices of a space's pieces: what `girih.published.optimum.lower_bounds` needs to bound any of its strategies.

Each node is priced under each configuration of its operator, each transfer under each pair of configurations of the
operator that makes or reads a value and of the one that decides where it lies; transfers that are alike once. Prices
are those of `girih.cost.pricing` by the machine's data sheet, with what depends on other operators left out: buffers
count as lying in one run of memory, and views as free. So no price is above the one that the simulator gets.
Cost: nodes × configurations, and for each different transfer its messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.cost.pricing import price
from girih.layout import Placement, Placements, reducer_of, route
from girih.ops import description_of
from girih.partition import Strategy
from girih.partition.space.problem import Objective
from girih.program import ComputeStep, Program, ReadPart, TransferStep
from girih.program.lower import combining, node_placements
from girih.published.optimum.configurations import Space
from girih.published.optimum.lower_bounds import IMPOSSIBLE, NOTHING, BoundTables
from girih.search.memory.limit import WINDOWS
from girih.simulate.patterns import Pattern
from girih.simulate.ports import ports_of
from girih.simulate.tasks import PatternStore, resolution_for
from girih.simulate.ticks import ticks


@dataclass(frozen=True)
class _Hop:
    step: TransferStep
    pattern: Pattern


class Pieces:
    """Prices all nodes and transfers of a space, for the lower bounds of `girih.published.optimum.lower_bounds`."""

    def __init__(self, space: Space, objective: Objective) -> None:
        self.space, self.graph, self.mesh = space, space.graph, space.mesh
        self.machine, self.transfers = objective.machine, objective.transfers
        self.store = PatternStore(self.mesh, ports_of(self.machine), resolution_for(self.mesh.devices))
        self.sizes = [len(item.codes) for item in space.operators]
        self.needs: dict[tuple[int, int], list[Placement]] = {}  # by node and configuration, of each input
        self.makes: dict[tuple[int, int], list[Placement]] = {}
        self.reducers: dict[int, str] = {}
        self.numbers: dict[object, int] = {}
        self.hops: list[list[_Hop]] = []
        self.lies: dict[tuple[str, int], Placement] = {}

    def tables(self) -> BoundTables:
        compute, part, rows = self.computes()
        edges, table = self.edges(part, rows)
        least, together = [], []
        for node, row in enumerate(rows):
            size = self.sizes[self.space.operator_of[node]]
            pieces = np.where(part[row : row + size] > 0, compute[row : row + size], np.iinfo(np.int64).max)
            smallest = int(pieces.min(initial=np.iinfo(np.int64).max))
            least.append(0 if smallest == np.iinfo(np.int64).max else smallest)
            together.append(int(compute[row : row + size].sum(axis=1).min()))
        return BoundTables(
            operator=np.asarray(self.space.operator_of, np.int64),
            rows=np.asarray(rows, np.int64),
            compute=compute,
            part=part,
            least=np.asarray(least, np.int64),
            together=np.asarray(together, np.int64),
            transfer=table,
            sizes=np.asarray(self.sizes, np.int64),
            values=len(self.graph.values),
            devices=self.mesh.devices,
            window=max(WINDOWS[0].fetch, 1),
            **edges,
            **self.messages(),
        )

    def lie(self, name: str, configuration: int) -> Placement:
        """Where a value lies under a configuration of the operator that decides it."""
        key = (name, configuration)
        if key not in self.lies:
            layout = self.space.operators[self.space.decides[name]].layouts[configuration][name]
            self.lies[key] = Placement.of(layout, self.graph.values[name].shape, self.mesh)
        return self.lies[key]

    def computes(self) -> tuple[NDArray[np.int64], NDArray[np.uint8], list[int]]:
        """(ticks, who takes part) by row and device, and each node's first row. Views are counted as free."""
        rows, count = [], 0
        for node in range(len(self.graph.nodes)):
            rows.append(count)
            count += self.sizes[self.space.operator_of[node]]
        compute = np.zeros((count, self.mesh.devices), np.int64)
        part = np.zeros((count, self.mesh.devices), np.uint8)
        for configuration in range(max(self.sizes)):
            strategy = self.space.strategy([min(configuration, size - 1) for size in self.sizes])
            nodes = [
                node
                for node in range(len(self.graph.nodes))
                if configuration < self.sizes[self.space.operator_of[node]]
            ]
            seconds = self.priced(strategy, nodes, configuration)
            for node, row in zip(nodes, seconds, strict=True):
                at = rows[node] + configuration
                places = self.makes[node, configuration]
                compute[at] = row
                part[at] = np.any([_filled(place) for place in places], axis=0) if places else 1
        return compute, part, rows

    def priced(self, strategy: Strategy, nodes: Sequence[int], configuration: int) -> NDArray[np.int64]:
        """Ticks of nodes by themselves, everything lying where it is read: [nodes, devices]."""
        places, value_of = self.inputs(strategy)
        steps = []
        for number in nodes:
            node = self.graph.nodes[number]
            options = node_placements(self.graph, number, strategy)
            needs = [item[0] for item in options.needs]
            makes = [item[0] for item in options.makes]
            self.needs[number, configuration], self.makes[number, configuration] = needs, makes
            self.reducers[number] = options.reducer or "sum"
            parts = []
            for operand, (name, needed) in enumerate(zip(node.inputs, needs, strict=True)):
                buffer = f"{name}@{number}.{operand}"
                places[buffer], value_of[buffer] = needed, name
                parts.append(ReadPart(buffer, needed))
            writes = tuple(f"{name}~" for name in node.outputs)
            for write, name, place in zip(writes, node.outputs, makes, strict=True):
                places[write], value_of[write] = place, name
            steps.append(ComputeStep(number, tuple(parts), writes))
        program = Program(self.graph, strategy, tuple(self.with_sources(steps, places, value_of)), places, value_of)
        seconds = price(program, self.machine).prices.before
        kept = [position for position, step in enumerate(program.steps) if isinstance(step, ComputeStep)]
        amounts = ticks(seconds[kept])
        for position, number in enumerate(nodes):
            description = description_of(self.graph, self.graph.nodes[number])
            if description is not None and description.operator.view:
                amounts[position] = 0
        return amounts

    def inputs(self, strategy: Strategy) -> tuple[dict[str, Placement], dict[str, str]]:
        """A program's places and values of buffers, to begin with."""
        shapes = {item.name: self.graph.values[item.name].shape for item in self.graph.inputs}
        places = {name: Placement.of(strategy.layouts[name], shape, self.mesh) for name, shape in shapes.items()}
        return places, {name: name for name in shapes}

    def with_sources(
        self, steps: Sequence[ComputeStep], places: dict[str, Placement], value_of: dict[str, str]
    ) -> Iterator[ComputeStep | TransferStep]:
        """The steps, each behind transfers that say: its inputs lie in one run of memory."""
        nothing = Placement(np.zeros((self.mesh.devices, 1, 2), np.int64), (0,) * self.mesh.axes)
        for step in steps:
            for read in step.reads:
                name = value_of[read.buffer]
                yield TransferStep(name, step.node, read.buffer, read.buffer, nothing, nothing, "fetch", "sum")
            yield step

    def edges(self, part: NDArray[np.uint8], rows: Sequence[int]) -> tuple[dict[str, Any], NDArray[np.int64]]:
        """What nodes read and make, and the numbers of transfers by the configurations of both operators."""
        position = {name: number for number, name in enumerate(self.graph.values)}
        table: list[NDArray[np.int64]] = []
        end = 0
        sides: list[tuple[list[int], list[list[int]]]] = [([0], []), ([0], [])]
        for number, node in enumerate(self.graph.nodes):
            mine = self.space.operator_of[number]
            for side, names in enumerate((node.inputs, node.outputs)):
                starts, entries = sides[side]
                for place, name in enumerate(names):
                    decider = self.space.decides[name]
                    chained = 1
                    transfer = np.full((self.sizes[decider], self.sizes[mine]), NOTHING, np.int64)
                    for own in range(self.sizes[mine]):
                        piece = (self.makes if side else self.needs)[number, own][place]
                        if not side:
                            takes = part[rows[number] + own] > 0
                            chained &= bool(_filled(piece)[takes].all())
                        for other in range(self.sizes[decider]):
                            if decider != mine or other == own:
                                lies = self.lie(name, other)
                                ends = (piece, lies) if side else (lies, piece)
                                transfer[other, own] = self.move(name, number, *ends, "store" if side else "fetch")
                    entries.append([position[name], decider, end, int(chained)])
                    table.append(transfer.ravel())
                    end += transfer.size
                starts.append(len(entries))
        columns: dict[str, Any] = {}
        for name, (starts, entries) in zip(("read", "make"), sides, strict=True):
            array = np.ascontiguousarray(np.asarray(entries, np.int64).reshape(-1, 4).T)
            columns[f"{name}_from"] = np.asarray(starts, np.int64)
            columns |= dict(zip((f"{name}_value", f"{name}_decider", f"{name}_at"), array[:3], strict=True))
            if name == "read":
                columns["read_chained"] = array[3].astype(np.uint8)
        return columns, np.concatenate(table)

    def move(self, name: str, node: int, source: Placement, target: Placement, purpose: str) -> int:
        """The number of the transfer from one placement to another, as lowering routes it; NOTHING if none."""
        if self.impossible(name, node, source, target, purpose):
            return IMPOSSIBLE
        value = self.graph.values[name]
        key = (
            source.regions.tobytes(), source.partial, target.regions.tobytes(), target.partial, value.item_bytes,
            value.shape, purpose,
        )  # fmt: skip
        known = self.numbers.get(key)
        if known is not None:
            return known
        hops = route(self.transfers, source, target, value.shape, value.item_bytes)
        if not hops and purpose == "store" and not np.array_equal(source.regions, target.regions):
            hops = (target,)
        steps = []
        for place in hops:
            by = combining(source, place, self.reducers[node] if purpose == "store" else "sum")
            step = TransferStep(name, node, "", "", source, place, purpose, by)
            number = self.store.number(source, place, value.item_bytes)
            steps.append(_Hop(step, self.store.patterns[number]))
            source = place
        self.numbers[key] = NOTHING if not steps else len(self.hops)
        if steps:
            self.hops.append(steps)
        return self.numbers[key]

    def impossible(self, name: str, node: int, source: Placement, target: Placement, purpose: str) -> bool:
        """Are partial results wanted that the source has not, or of what is combined otherwise?"""
        if (reducer := reducer_of(target.partial)) is None:
            return False
        if purpose == "store" and self.reducers[node] not in ("sum", reducer):
            return True
        ends = Placements.single(source), Placements.single(target)
        value = self.graph.values[name]
        return not np.isfinite(self.transfers.table(*ends, value.shape, value.item_bytes)[0, 0])

    def messages(self) -> dict[str, Any]:
        """The columns of `BoundTables` from hop_from on."""
        flat = [hop for hops in self.hops for hop in hops]
        hop_from = np.cumsum([0, *(len(hops) for hops in self.hops)])
        before, after = self.own_work(flat)
        columns: list[list[int]] = [[], [], [], [], [0], [], [0], []]  # sender … bundle_task
        task_from = [0]
        sender, receiver, duration, delay, bundle_from, bundle_device, bundle_at, bundle_task = columns
        for hop in flat:
            pattern, first = hop.pattern, len(sender)
            groups: dict[tuple[int, int], list[int]] = {}
            ends = (pattern.sender, pattern.receiver, pattern.egress, pattern.ingress)
            duration += pattern.duration.tolist()
            delay += pattern.delay.tolist()
            for task, (one, other, out, into) in enumerate(zip(*ends, strict=True)):
                sender.append(int(one))
                receiver.append(int(other))
                groups.setdefault((int(one), int(out)), []).append(first + task)
                groups.setdefault((int(other), int(into)), []).append(first + task)
            for (device, _), tasks in groups.items():
                if len(tasks) > 1:
                    bundle_device.append(device)
                    bundle_task.extend(tasks)
                    bundle_at.append(len(bundle_task))
            bundle_from.append(len(bundle_device))
            task_from.append(len(sender))
        arrays: dict[str, Any] = {
            "hop_from": hop_from, "before": before, "after": after, "task_from": task_from, "sender": sender,
            "receiver": receiver, "duration": duration, "delay": delay, "bundle_from": bundle_from,
            "bundle_device": bundle_device, "bundle_at": bundle_at, "bundle_task": bundle_task,
        }  # fmt: skip
        return {name: np.ascontiguousarray(np.asarray(column, np.int64)) for name, column in arrays.items()}

    def own_work(self, flat: Sequence[_Hop]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ticks of each device before and after the messages of each hop, if what it sends lies in one run."""
        steps = []
        strategy = self.space.strategy([0] * len(self.sizes))
        places, value_of = self.inputs(strategy)
        for number, hop in enumerate(flat):
            buffers = (f"source {number}", f"target {number}")
            places |= dict(zip(buffers, (hop.step.before, hop.step.after), strict=True))
            value_of |= dict.fromkeys(buffers, hop.step.value)
            one = hop.step
            steps.append(TransferStep(one.value, one.node, *buffers, one.before, one.after, one.purpose, one.reducer))
        prices = price(Program(self.graph, strategy, tuple(steps), places, value_of), self.machine).prices
        return ticks(prices.before), ticks(prices.after)


def _filled(place: Placement) -> NDArray[np.bool_]:
    """[devices]: does a device hold anything?"""
    return np.asarray((place.regions[..., 0] < place.regions[..., 1]).all(axis=-1))
