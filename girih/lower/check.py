"""The law of a Program, as code: whoever changes the steps can have them proved."""

from __future__ import annotations

from collections.abc import Iterable

from girih.lower.liveness import lasting, reads_of, writes_of
from girih.lower.program import BlockStep, ComputeStep, FreeStep, Program, StartStep, Step, TransferStep

AROUND = 3  # steps that are shown before and after the broken one


class ProgramError(ValueError):
    """A program that breaks its law; the message shows the step with its neighbours."""


def check(program: Program) -> None:
    """Prove the invariants of a program.

    Every node is computed once, in the graph's order; where nodes are computed in blocks, behind what they read. A
    buffer is made once, before it is read, and is not read or freed after it was freed; outputs and state that nothing
    replaces are there at the end. A transfer starts where its source lies and is alive. An exchange that starts is
    finished by exactly one equal transfer; until then its source is not freed, and nobody reads its target.

    Raises:
        ProgramError: naming what is broken, and where.
    """
    law = _Law(program)
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
        return ""

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
