"""The law of a Program, as code: whoever changes the steps can have them proved."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import numpy as np

from girih.layout import PARTIAL_BY, Links, Partial, Placement, Placements, Transfers, becomes_partial, reducer_of
from girih.layout.mesh import COUNTED
from girih.ops import descriptions_of
from girih.ops.derive.passing import passages
from girih.program.liveness import lasting
from girih.program.orders import Shares
from girih.program.program import Program
from girih.program.steps import BlockStep, ComputeStep, FreeStep, MoveStep, Order, StartStep, Step, Stream, TransferStep
from girih.program.text import describe

PLURALS = {"sum": "sums", "max": "maxima", "min": "minima", "prod": "products", "logsumexp": "logarithms of sums"}
AROUND = 3  # steps that are shown before and after the broken one


class ProgramError(ValueError):
    """A program that breaks its law; the message shows the step with its neighbours."""


def check(program: Program) -> None:
    """Prove the invariants of a program.

    Every device has one order; what it holds a part of, it takes part in, and the devices of one order hold parts of
    the same. All orders follow the order of the steps, so that no device waits for another in a circle, and two devices
    exchange their messages in one order. In each order: a node is computed once, behind what it reads, or again into
    new buffers. A buffer is made once, before it is read, and is not read or freed after it was freed; outputs and
    state that nothing replaces are there at the end. A transfer starts where its source lies and is alive. An exchange
    that starts is finished by exactly one equal transfer; until then its source is not freed, and nobody reads its
    target. So it is with moves, but the source of one that leaves the device may be freed before it ends: its memory is
    then free at the end. Addresses are for as many steps as a device does. What lies in the large memory is read by
    moves alone; new state lies in the memory that the old one lies in. Partial sums are made by dividing a sum, passed
    on by what is linear, or made of what one holder keeps, and wanted only where the source has them; so are partial
    maxima and minima, which what keeps the order passes on. Nothing else stays partial.

    Raises:
        ProgramError: naming what is broken, and where.
    """
    if wrong := _broken_at_the_start(program):
        raise ProgramError(
            f"at the start of {len(program.steps)} steps: {wrong}\n{_around(program, range(len(program.steps)), 0)}"
        )
    shares = Shares(program)
    if program.orders:
        _check_orders(program, shares)
    nodes: set[int] = set()
    for order in program.classes:
        law = _Law(program, order, shares)
        whose = f"devices {order.devices}, " if program.orders else ""
        for place, number in enumerate(order.steps):
            if wrong := law.broken_by(program.steps[number]):
                raise ProgramError(
                    f"{whose}step {number} of {len(program.steps)}: {wrong}\n{_around(program, order.steps, place)}"
                )
        if wrong := law.broken_at_the_end():
            shown = _around(program, order.steps, len(order.steps))
            raise ProgramError(f"{whose}at the end of {len(program.steps)} steps: {wrong}\n{shown}")
        nodes |= law.nodes
    if len(nodes) != len(program.graph.nodes):
        shown = _around(program, range(len(program.steps)), len(program.steps))
        raise ProgramError(
            f"at the end of {len(program.steps)} steps: {len(nodes)} of {len(program.graph.nodes)} nodes are computed"
            f"\n{shown}"
        )


def _check_orders(program: Program, shares: Shares) -> None:
    """The law of orders where there are several.

    Raises:
        ProgramError: a device is in no order or in two, differs from the others of its order, lacks a step that it
            takes part in, or waits for one that waits for it.
    """
    count = Counter(device for order in program.orders for device in order.devices)
    if wrong := [device for device in {*range(program.mesh.devices), *count} if count[device] != 1]:
        raise ProgramError(
            f"device {wrong[0]} has {count[wrong[0]]} orders: expected one for each of {program.mesh.devices} devices"
        )
    for order in program.orders:
        if unknown := [number for number in order.steps if not 0 <= number < len(program.steps)]:
            raise ProgramError(
                f"the order of devices {order.devices} has a step {unknown[0]}: there are {len(program.steps)}, "
                "counted from 0"
            )
    _check_circles(program)
    masks = shares.distinct(program.steps)
    for order in program.orders:
        own = masks[:, list(order.devices)]
        if len(differing := np.flatnonzero((own != own[:, :1]).any(axis=0))):
            other = list(order.devices)[int(differing[0])]
            raise ProgramError(
                f"devices {order.devices} have one order, but device {other} holds parts of other buffers than "
                f"device {order.devices.first}: give it an order of its own"
            )
    have = [set(order.steps) for order in program.orders]
    for number, step in enumerate(program.steps):
        taking = shares.of_step(step)
        for order, steps in zip(program.orders, have, strict=True):
            if number in steps or isinstance(step, FreeStep) or not taking[order.devices.first]:
                continue
            raise ProgramError(
                f"devices {order.devices} take part in step {number}, {describe(step)}, which their order leaves out\n"
                f"{_around(program, order.steps, bisect_left(order.steps, number))}"
            )


def _check_circles(program: Program) -> None:
    """Do all orders follow that of the steps? If not, may devices wait for each other?"""
    follows: TopologicalSorter[int] = TopologicalSorter()
    falling: tuple[Order, int] | None = None
    for order in program.orders:
        for place, (before, after) in enumerate(pairwise(order.steps), start=1):
            follows.add(after, before)
            if after <= before:
                falling = falling or (order, place)
    if falling is None:
        return
    order, place = falling
    shown = _around(program, order.steps, place)
    try:
        follows.prepare()
    except CycleError as error:
        circle = " before ".join(f"step {number}" for number in error.args[1])
        raise ProgramError(
            f"devices would wait for each other: by their orders {circle}; devices {order.devices} have\n{shown}"
        ) from None
    raise ProgramError(
        f"the order of devices {order.devices} has step {order.steps[place]} behind step {order.steps[place - 1]}, "
        f"and the program's steps have it before: number the steps so that all orders ascend\n{shown}"
    )


def _broken_at_the_start(program: Program) -> str:
    for old, new in program.graph.updates.items():
        if (old in program.host) != (new in program.host):
            there, here = (new, old) if new in program.host else (old, new)
            return f"{new} replaces {old}, but {there} lies in the large memory and {here} on the device"
    for item in program.graph.inputs:
        place = program.places.get(item.name)
        for axis, terms in enumerate(() if place is None else place.partial):
            if terms:
                return (
                    f"input {item.name} is to lie as {_terms(terms)} along {_along(program, axis)}, but no node "
                    "makes it, so it has none: lay it divided or as copies on that axis"
                )
    for device, lying in enumerate(program.addresses):
        steps = sum(not isinstance(step, FreeStep) for step in program.steps_of(device))
        if len(lying.scratch) != steps:
            return (
                f"device {device} has addresses for the scratch of {len(lying.scratch)} steps and does {steps}: "
                "expected no pass behind the one that adds addresses"
            )
    return ""


class _Law:
    """What is known after some steps of one order. pending: the exchanges under way, by their target."""

    def __init__(self, program: Program, order: Order, shares: Shares) -> None:
        self.program = program
        self.shares = shares
        self.device = order.devices.first if program.orders else None  # None: as if each held a part of everything
        self.kept = {name for name in lasting(program.graph) if self.holds(name)}
        self.live = {item.name for item in program.graph.inputs if self.holds(item.name)}
        self.made = set(self.live)
        self.pending: dict[str, TransferStep | MoveStep] = {}
        self.nodes: set[int] = set()

    def holds(self, buffer: str) -> bool:
        return self.device is None or bool(self.shares.holders(buffer)[self.device])

    def reads(self, step: Step) -> tuple[str, ...]:
        """What the devices of the order read themselves, and must be alive: not what a move has begun to read."""
        if isinstance(step, MoveStep) and step.target in self.pending:
            return ()
        if isinstance(step, StartStep) and step.transfer.source in self.pending and step.transfer.source in step.after:
            return ()
        if self.device is None:
            return step.sources
        if isinstance(step, ComputeStep):
            return tuple(part.buffer for part in step.reads if self.shares.of(part.needed)[self.device])
        return tuple(buffer for buffer in step.sources if self.holds(buffer))

    def broken_by(self, step: Step) -> str:
        """What the next step breaks, or nothing; it is then done."""
        if isinstance(step, FreeStep):
            return self.free(step)
        for buffer in self.reads(step):
            if buffer not in self.live:
                return f"{buffer} is read, but {self.state(buffer)}"
        if wrong := self.beyond(step):
            return wrong
        if isinstance(step, StartStep):
            return self.start(step)
        if isinstance(step, ComputeStep):
            if step.node in self.nodes and any(buffer in self.made for buffer in step.writes):
                return f"node {step.node} is computed a second time"
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
        for buffer in step.targets:
            if buffer in self.made:
                return f"{buffer} is made a second time"
            if buffer not in self.program.places or buffer not in self.program.value_of:
                return f"{buffer} has no place"
        written = [buffer for buffer in step.targets if self.holds(buffer)]
        self.made.update(written)
        self.live.update(written)
        return ""

    def members(self, step: BlockStep) -> str:
        """What is wrong with a group's members, each of which reads from outside, or what a member before it has
        made."""
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

    def beyond(self, step: Step) -> str:
        """Is anything read or made in the large memory but by moves, or by moves that go the wrong way?"""
        host = self.program.host
        move = step.transfer if isinstance(step, StartStep) else step
        if isinstance(move, MoveStep):
            for buffer, there in ((move.source, not move.out), (move.target, move.out)):
                if (buffer in host) != there:
                    lies = "in the large memory" if buffer in host else "on the device"
                    return f"the move {'out' if move.out else 'in'} takes {buffer}, which lies {lies}"
            return ""
        for buffer in (*self.reads(step), *step.targets):
            if buffer in host:
                return f"{buffer} is read or made, but lies in the large memory: move it first"
        return ""

    def start(self, step: StartStep) -> str:
        transfer = step.transfer
        if transfer.target in self.pending or transfer.target in self.made:
            return f"the exchange of {transfer.target} was started or made before"
        for target in step.after:
            if target not in self.made and target not in self.pending:
                return f"the move of {transfer.target} is to wait for that of {target}, which was not started"
        self.pending[transfer.target] = transfer
        return self.misplaced(transfer)

    def free(self, step: FreeStep) -> str:
        sources = {transfer.source: transfer for transfer in self.pending.values()}
        for buffer in step.buffers:
            if buffer not in self.live:
                return f"{buffer} is freed, but {self.state(buffer)}"
            if buffer in sources and sources[buffer].stream is not Stream.OUT:
                return f"{buffer} is freed while the exchange of {sources[buffer].target} still reads it"
            if buffer in self.kept:
                return f"{buffer} is freed, but it leaves the program or stays as state"
            self.live.discard(buffer)
        return ""

    def misplaced(self, step: TransferStep | MoveStep) -> str:
        places = self.program.places
        if isinstance(step, MoveStep):
            if places.get(step.source) is not places.get(step.target):
                return f"the move takes {step.target} to another place than that of {step.source}"
            return ""
        for buffer, place in ((step.source, step.before), (step.target, step.after)):
            if places.get(buffer) is not place:
                return f"the transfer takes {buffer} to lie where it does not"
        return self.partly_moved(step)

    def partly_moved(self, step: TransferStep) -> str:
        """Are partial results wanted that the source has not, or of what is combined otherwise?"""
        axes = [axis for axis, terms in enumerate(step.after.partial) if terms]
        if axes and step.reducer != reducer_of(step.after.partial):
            return self.otherwise(step.value, step.node, axes[0], step.reducer)
        for axis in axes:
            held, wanted = step.before.partial[axis], step.after.partial[axis]
            if held == wanted and (self._present(step.before, axis) == self._present(step.after, axis)).all():
                continue
            if becomes_partial(step.before, step.after) and self._lies_there(step):
                continue
            has = f"{held % COUNTED} others" if held else "none, nor does the full result lie there"
            along, value = self._along(axis), step.value
            if step.purpose == "store":
                return (
                    f"value {value} is to lie as {_terms(wanted)} along {along}, but {self._told(step.node)}, "
                    f"which makes it, makes {has}: lay {value} divided or as copies on that axis, or divide a sum of "
                    "its maker there"
                )
            return (
                f"{self._told(step.node)} lets {_terms(wanted)} of value {value} pass along {along}, but there "
                f"are {has}: let the node divide or repeat its work on that axis, or lay {value} as partial sums there"
            )
        return ""

    def partly_made(self, step: ComputeStep) -> str:
        """Does a node write partial results without a reduction that is divided or passed on, or keep what no value is
        held as?"""
        places, graph = self.program.places, self.program.graph
        partial = {name: places[name].partial for name in step.writes if name in places and any(places[name].partial)}
        if not partial:
            return ""
        every = [passages(item) for item in descriptions_of(graph, graph.nodes[step.node])]
        sets = min(map(len, every))
        for axis, entry in enumerate(self.program.strategy.divisions[step.node].axes):
            if isinstance(entry, Partial) and entry.passes >= sets:
                sums = min(sum(passage.takes == "sum" for passage in each) for each in every)
                name = self.program.value_of[next(iter(partial))]
                return (
                    f"{self._told(step.node)} lets partial sums pass to value {name} along {self._along(axis)}, but "
                    f"it is linear in {_counted(sums)} of its inputs, and keeps the order of {_counted(sets - sums)}: "
                    "divide the node or repeat its work on that axis"
                )
        for name, terms in partial.items():
            reducer = str(reducer_of(terms))
            if reducer not in PARTIAL_BY and name == self.program.value_of[name]:  # nothing combines them afterwards
                return self.otherwise(name, step.node, next(at for at, count in enumerate(terms) if count), reducer)
        return ""

    def otherwise(self, value: str, node: int, axis: int, reducer: str) -> str:
        own = f"lay {value} as P{reducer}, " if reducer in PARTIAL_BY else f"lay {value} "
        return (
            f"value {value} of {self._told(node)} is to stay partial along {self._along(axis)}, but its parts are "
            f"combined by {reducer}, and only sums may stay partial as P, maxima and minima as Pmax and Pmin: {own}"
            "divided or as copies on that axis"
        )

    def _present(self, place: Placement, axis: int) -> np.ndarray:
        """[size of the axis]: the coordinates on which some device has a part."""
        mesh = self.program.mesh
        present = np.zeros(mesh.sizes[axis], np.bool_)
        present[mesh.coordinates[(place.regions[..., 0] < place.regions[..., 1]).all(axis=1), axis]] = True
        return present

    def _lies_there(self, step: TransferStep) -> bool:
        """Does all that is to become partial sums lie where it is wanted, so that nothing has to be sent?"""
        transfers = Transfers(self.program.mesh, Links((), ()), submeshes=self.program.strategy.submeshes)
        ends = Placements.single(step.before), Placements.single(step.after)
        return bool(np.isfinite(transfers.direct(*ends, 1)[0, 0]))

    def _along(self, axis: int) -> str:
        return _along(self.program, axis)

    def _told(self, node: int) -> str:
        item = self.program.graph.nodes[node]
        return f"node {item.name} ({item.operator})"

    def state(self, buffer: str) -> str:
        if buffer in self.pending:
            return "its exchange has only started"
        return "it was freed before" if buffer in self.made else "nothing has made it"

    def broken_at_the_end(self) -> str:
        if self.pending:
            return f"exchanges were started and never finished: {', '.join(sorted(self.pending))}"
        missing = sorted(self.kept - self.live)
        return f"nothing holds {', '.join(missing)}" if missing else ""


def _along(program: Program, axis: int) -> str:
    return f"mesh axis {axis} (of {program.mesh.sizes[axis]})"


def _terms(entry: int) -> str:
    """How many partial results an entry of a placement stands for, and which."""
    return f"{entry % COUNTED} partial {PLURALS[reducer_of((entry,)) or 'sum']}"


def _counted(sets: int) -> str:
    return f"{sets} {'set' if sets == 1 else 'sets'}" if sets else "none"


def _around(program: Program, order: Sequence[int], place: int) -> str:
    """The steps of an order before and behind a place in it, which is marked."""
    shown = range(max(0, place - AROUND), min(len(order), place + AROUND + 1))
    return "\n".join(
        f"{'>' if at == place else ' '} {order[at]:>5}  {describe(program.steps[order[at]])}" for at in shown
    )
