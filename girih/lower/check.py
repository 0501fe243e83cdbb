"""The law of a Program, as code: whoever changes the steps can have them proved."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from girih.layout import Partial, Placement
from girih.lower.liveness import lasting, reads_of, writes_of
from girih.lower.lower import node_placements
from girih.lower.program import BlockStep, ComputeStep, FreeStep, Program, StartStep, Step, TransferStep
from girih.ops import descriptions_of
from girih.ops.derive.divisions import passing_sets

AROUND = 3  # steps that are shown before and after the broken one


class ProgramError(ValueError):
    """A program that breaks its law; the message shows the step with its neighbours."""


def check(program: Program) -> None:
    """Prove the invariants of a program.

    Every node is computed once, in the graph's order; where nodes are computed in blocks, behind what they read. A
    buffer is made once, before it is read, and is not read or freed after it was freed; outputs and state that nothing
    replaces are there at the end. A transfer starts where its source lies and is alive. An exchange that starts is
    finished by exactly one equal transfer; until then its source is not freed, and nobody reads its target. Partial
    sums are made by dividing a sum, or passed on by what is linear, and wanted only where the source has them; nothing
    but a sum stays partial.

    Raises:
        ProgramError: naming what is broken, and where.
    """
    law = _Law(program)
    if wrong := law.broken_at_the_start():
        raise ProgramError(f"at the start of {len(program.steps)} steps: {wrong}\n{_around(program, 0)}")
    for position, step in enumerate(program.steps):
        found = law.broken_by(step)
        if found:
            raise ProgramError(f"step {position} of {len(program.steps)}: {found}\n{_around(program, position)}")
    left = law.broken_at_the_end()
    if left:
        raise ProgramError(f"at the end of {len(program.steps)} steps: {left}\n{_around(program, len(program.steps))}")


class _Law:
    """What is known after some steps. pending: the exchanges under way, by their target."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.kept = lasting(program.graph)
        self.live = {item.name for item in program.graph.inputs}
        self.made = set(self.live)
        self.pending: dict[str, TransferStep] = {}
        self.nodes: set[int] = set()
        self.in_order = not any(isinstance(step, BlockStep) for step in program.steps)

    def broken_by(self, step: Step) -> str:
        """What the next step breaks, or nothing; it is then done."""
        if isinstance(step, FreeStep):
            return self.free(step)
        for buffer in reads_of(step):
            if buffer not in self.live:
                return f"{buffer} is read, but {self.state(buffer)}"
        if isinstance(step, StartStep):
            return self.start(step.transfer)
        if isinstance(step, ComputeStep):
            if self.in_order and step.node != len(self.nodes):
                return f"node {step.node} is computed where node {len(self.nodes)} is the next"
            self.nodes.add(step.node)
            if wrong := self.partly_made(step):
                return wrong
        elif isinstance(step, BlockStep):
            if wrong := self.members(step):
                return wrong
        elif begun := self.pending.pop(step.target, None):
            if begun != step:
                return f"the exchange of {step.target} was started otherwise: {describe(StartStep(begun))}"
        elif wrong := self.misplaced(step):
            return wrong
        for buffer in writes_of(step):
            if buffer in self.made:
                return f"{buffer} is made a second time"
            if buffer not in self.program.places or buffer not in self.program.value_of:
                return f"{buffer} has no place"
        self.made.update(writes_of(step))
        self.live.update(writes_of(step))
        return ""

    def members(self, step: BlockStep) -> str:
        """Of a group: each reads from outside, or what a member before it has made."""
        outside, inside = set(step.reads), set[str]()
        for member in step.members:
            for part in member.reads:
                if part.buffer not in outside | inside:
                    return f"member {member.writes[0]} reads {part.buffer}, which is neither inside nor outside"
            inside.update(member.writes)
            self.nodes.add(member.node)
            if wrong := self.partly_made(member):
                return wrong
        missing = set(step.writes) - inside
        return f"no member makes {', '.join(sorted(missing))}" if missing else ""

    def start(self, transfer: TransferStep) -> str:
        if transfer.target in self.pending or transfer.target in self.made:
            return f"the exchange of {transfer.target} was started or made before"
        self.pending[transfer.target] = transfer
        return self.misplaced(transfer)

    def free(self, step: FreeStep) -> str:
        sources = {transfer.source: transfer for transfer in self.pending.values()}
        for buffer in step.buffers:
            if buffer not in self.live:
                return f"{buffer} is freed, but {self.state(buffer)}"
            if buffer in sources:
                return f"{buffer} is freed while the exchange of {sources[buffer].target} still reads it"
            if buffer in self.kept:
                return f"{buffer} is freed, but it leaves the program or stays as state"
            self.live.discard(buffer)
        return ""

    def misplaced(self, step: TransferStep) -> str:
        places = self.program.places
        for buffer, place in ((step.source, step.before), (step.target, step.after)):
            if places.get(buffer) is not place:
                return f"the transfer takes {buffer} to lie where it does not"
        return self.partly_moved(step)

    def partly_moved(self, step: TransferStep) -> str:
        """Are partial sums wanted that the source has not, or of what is not summed?"""
        axes = [axis for axis, terms in enumerate(step.after.partial) if terms]
        if axes and step.reducer != "sum":
            return self.not_summed(step.value, step.node, axes[0], step.reducer)
        for axis in axes:
            held, wanted = step.before.partial[axis], step.after.partial[axis]
            if held == wanted and (self._present(step.before, axis) == self._present(step.after, axis)).all():
                continue
            has = f"{held} others" if held else "none: every device has the full result there"
            along, value = self._along(axis), step.value
            if step.purpose == "store":
                return (
                    f"value {value} is to lie as {wanted} partial sums along {along}, but {self._told(step.node)}, "
                    f"which makes it, makes {has}: lay {value} divided or as copies on that axis, or divide a sum of "
                    "its maker there"
                )
            return (
                f"{self._told(step.node)} lets {wanted} partial sums of value {value} pass along {along}, but there "
                f"are {has}: let the node divide or repeat its work on that axis, or lay {value} as partial sums there"
            )
        return ""

    def partly_made(self, step: ComputeStep) -> str:
        """Does a node write partial sums without a sum that is divided or passed on, or keep what is no sum?"""
        places, graph = self.program.places, self.program.graph
        partial = {name: places[name].partial for name in step.writes if name in places and any(places[name].partial)}
        if not partial:
            return ""
        sets = min(len(passing_sets(item)) for item in descriptions_of(graph, graph.nodes[step.node]))
        for axis, entry in enumerate(self.program.strategy.divisions[step.node].axes):
            if isinstance(entry, Partial) and entry.passes >= sets:
                name = self.program.value_of[next(iter(partial))]
                return (
                    f"{self._told(step.node)} lets partial sums pass to value {name} along {self._along(axis)}, but "
                    f"it is linear in {_counted(sets)} of its inputs: divide the node or repeat its work on that axis"
                )
        reducer = node_placements(graph, step.node, self.program.strategy).reducer or "sum"
        for name, terms in partial.items():
            if reducer != "sum" and name == self.program.value_of[name]:  # nothing combines them after this step
                return self.not_summed(
                    name, step.node, next(axis for axis, count in enumerate(terms) if count), reducer
                )
        return ""

    def not_summed(self, value: str, node: int, axis: int, reducer: str) -> str:
        return (
            f"value {value} of {self._told(node)} is to stay partial along {self._along(axis)}, but its parts are "
            f"combined by {reducer}, and only sums may stay partial: lay {value} divided or as copies on that axis"
        )

    def broken_at_the_start(self) -> str:
        for item in self.program.graph.inputs:
            place = self.program.places.get(item.name)
            for axis, terms in enumerate(() if place is None else place.partial):
                if terms:
                    return (
                        f"input {item.name} is to lie as {terms} partial sums along {self._along(axis)}, but no node "
                        "makes it, so it has none: lay it divided or as copies on that axis"
                    )
        return ""

    def _present(self, place: Placement, axis: int) -> np.ndarray:
        """[size of the axis]: the coordinates on which some device has a part."""
        mesh = self.program.mesh
        found = np.zeros(mesh.sizes[axis], np.bool_)
        found[mesh.coordinates[(place.regions[..., 0] < place.regions[..., 1]).all(axis=1), axis]] = True
        return found

    def _told(self, node: int) -> str:
        item = self.program.graph.nodes[node]
        return f"node {item.name} ({item.operator})"

    def _along(self, axis: int) -> str:
        return f"mesh axis {axis} (of {self.program.mesh.sizes[axis]})"

    def state(self, buffer: str) -> str:
        if buffer in self.pending:
            return "its exchange has only started"
        return "it was freed before" if buffer in self.made else "nothing has made it"

    def broken_at_the_end(self) -> str:
        if self.pending:
            return f"exchanges were started and never finished: {', '.join(sorted(self.pending))}"
        if len(self.nodes) != len(self.program.graph.nodes):
            return f"{len(self.nodes)} of {len(self.program.graph.nodes)} nodes are computed"
        missing = sorted(self.kept - self.live)
        return f"nothing holds {', '.join(missing)}" if missing else ""


def _counted(sets: int) -> str:
    return f"{sets} {'set' if sets == 1 else 'sets'}" if sets else "none"


def describe(step: Step) -> str:
    """One line about a step."""
    if isinstance(step, ComputeStep):
        return f"compute  {', '.join(step.writes)} = node {step.node} of {', '.join(reads_of(step))}"
    if isinstance(step, BlockStep):
        nodes = ", ".join(str(member.node) for member in step.members)
        return f"blocks   {', '.join(step.writes)} = nodes {nodes} of {', '.join(step.reads)}, {step.rows} rows each"
    if isinstance(step, FreeStep):
        return f"free     {', '.join(step.buffers)}"
    if isinstance(step, StartStep):
        return f"start    {step.transfer.target} from {step.transfer.source} ({step.transfer.purpose})"
    return f"transfer {step.target} from {step.source} ({step.purpose})"


def _around(program: Program, position: int) -> str:
    return "\n".join(_lines(program.steps, position))


def _lines(steps: tuple[Step, ...], position: int) -> Iterable[str]:
    for number in range(max(0, position - AROUND), min(len(steps), position + AROUND + 1)):
        yield f"{'>' if number == position else ' '} {number:>5}  {describe(steps[number])}"
