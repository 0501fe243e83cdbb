"""Groups of nodes that run block by block: temporaries stay in a core's cache, and never exist whole.

A block is a piece in time as a tile is a piece in space. Nodes that can be cut along one index variable (rows, nearly
always) so that each reads of the others exactly its own block form a group, a `BlockStep`; sums over the blocks (the
reduction at a node's root, combined as pieces of devices are) are complete behind it. Views are taken into the group
that reads them.

The steps are walked once. A node joins the latest group whose results it reads, or one beside it, if what it needs else
is complete before that group, and if this saves more memory traffic than the calls on small blocks cost. Levels keep
the groups free of cycles: whatever depends on a group and is not in it has a higher level. Cost: linear in the steps
times the groups that are tried (`MOST_TRIED`).

Exchanges stay as they are, so the bytes between devices do not change; their order may.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from math import prod

from girih.graph.graph import ITEM_BYTES
from girih.ops import Description, description_of
from girih.ops.derive.kinds import CREATION, ELEMENTWISE, is_product, kind_of
from girih.ops.scratch import rule_for
from girih.program.fusion.block_units import Unit, ordered
from girih.program.fusion.registers import Member, elementwise, member_of, members_of, ranges, row_bytes
from girih.program.fusion.slicing import FREE, along
from girih.program.liveness import lasting
from girih.program.orders import arranged
from girih.program.program import Program
from girih.program.steps import BlockStep, ComputeStep, FreeStep, Step

TRAFFIC_SECONDS = 1 / 4e9
"""What a byte takes that is written to memory and read again by one core; half of that is new pages."""
MOST_TRIED = 8
NEARLY_ALL = 0.9
PRODUCT_ROWS = 192
"""A product of fewer rows takes longer for each: it arranges all of the other matrix anew."""
PRODUCT_CACHES = 4
"""To have so many rows, a block may be so many times as large."""
CACHE_BYTES = 1 << 20
"""Bytes of a block's values together: half of the second-level cache of a core of today's servers (1 to 2 MiB), in
which element-wise kernels are three times as fast as on memory."""
CALL_SECONDS = 2e-6
"""What a call of a kernel takes beside its work."""
SMALL_BYTES = 1 << 16
"""A sixteenth of the cache of a block."""
BESIDE = 16
"""What is so many times as small as a result may be read each time that the result is made again."""
TWICE = 2
"""So many readers compute a sum or a product of inputs each for itself, in the cache, which takes less than to write it
to new memory (`benchmarks.arrays_numpy`, PCA). What has more readers is written."""

_Pulled = dict[str, tuple[ComputeStep, int, int]]  # views by result: step, variable, dimension that is cut


@dataclass(frozen=True)
class Blocks:
    """How a program is cut into blocks.

    cache: bytes of a block's values together. call: seconds of a kernel's call. small: up to so many bytes a value is
    read whole by every block, which costs nothing. streamed: inputs that are not in memory: groups read them block by
    block. files: inputs, and results of groups, that lie in files. always: groups of one node too, which can then write
    to files. stealing: workers are threads that compute chunks of each other's groups.
    """

    cache: int = CACHE_BYTES
    call: float = CALL_SECONDS
    streamed: frozenset[str] = frozenset()
    small: int = SMALL_BYTES
    files: frozenset[str] = frozenset()
    always: bool = False
    stealing: bool = False

    def apply(self, program: Program) -> Program:
        """The same program, computed in blocks where that pays."""
        return blocked(program, self)


class _Gathering:
    def __init__(self, program: Program, options: Blocks) -> None:
        self.program = program
        self.options = options
        self.units: list[Unit] = []
        self.groups: list[Unit] = []
        self.maker: dict[str, Unit] = {}
        # Views, and what is cheap to make again, that nothing outside of groups has needed so far.
        self.deferred: dict[str, ComputeStep] = {}
        self.views: dict[str, ComputeStep] = {}  # by result
        self.inputs = {item.name for item in program.graph.inputs}
        self.again: set[str] = {name for name in self.inputs if self.small(name)} | options.streamed
        self.of_files: set[str] = set(options.streamed)  # what is read of files, or made again of that
        self.kept = lasting(program.graph)
        self.readers = _readers(program)

    # ------------------------------------------------------------------------------------------- steps

    def add(self, position: int, step: Step) -> None:
        if isinstance(step, ComputeStep):
            description = description_of(self.program.graph, self.program.graph.nodes[step.node])
            view = description is not None and description.operator.view and len(step.reads) == 1
            again = self.made_again(step, description)
            if again:
                self.again.update(step.writes)
                if any(part.buffer in self.of_files for part in step.reads):
                    self.of_files.update(step.writes)
            if view:
                self.views[step.writes[0]] = step
            if view or again:
                self.deferred[step.writes[0]] = step
                return
            if description is not None and self.group(position, step):
                return
        self.alone(position, step)

    def small(self, name: str) -> bool:
        return self.program.graph.values[name].bytes <= self.options.small

    def made_again(self, step: ComputeStep, description: Description | None) -> bool:
        """Is it made element by element from the index, or from what is small or read in blocks anyway?"""
        if description is None or len(step.writes) != 1 or self.small(self.program.value_of[step.writes[0]]):
            return False
        cheap = elementwise(description) or description.operator.view or kind_of(description) == CREATION
        if cheap and all(part.buffer in self.again for part in step.reads):
            return True
        if kind_of(description) == ELEMENTWISE and self.of_inputs(step):
            return True
        # To read a file again and compute takes less than to write a file as large and read that.
        of_files = any(part.buffer in self.of_files for part in step.reads)
        return of_files and (cheap or description.operator.scan) and self.beside(step)

    def of_inputs(self, step: ComputeStep) -> bool:
        """Is it made of what is in memory anyway, read by two, and not kept?"""
        if len(self.readers[step.writes[0]]) != TWICE or step.writes[0] in self.kept:
            return False
        inputs = {part.buffer for part in step.reads if part.buffer in self.inputs and part.buffer not in self.of_files}
        return bool(inputs) and self.beside(step, inputs)

    def beside(self, step: ComputeStep, but: Collection[str] = ()) -> bool:
        """Is all that it reads small beside what it makes, but for these and for what is made again?"""
        values, value_of = self.program.graph.values, self.program.value_of
        most = values[value_of[step.writes[0]]].bytes // BESIDE
        others = {part.buffer for part in step.reads}.difference(self.again, but)
        return all(values[value_of[buffer]].bytes <= most for buffer in others)

    def alone(self, position: int, step: Step) -> None:
        level = max((self.whole(name, position) for name in step.sources), default=0)
        view = step.writes[0] in self.views if isinstance(step, ComputeStep) else False
        unit = Unit(level if view else level + 1, position, step)  # a view is there when what it shows is
        self.units.append(unit)
        self.maker.update(dict.fromkeys(step.targets, unit))

    def whole(self, buffer: str, position: int) -> int:
        """The level at which a buffer is there as a whole; a view of it is made, and it leaves its group."""
        if buffer in self.deferred:
            self.made_whole(self.deferred.pop(buffer), position)
        unit = self.maker.get(buffer)
        if unit is None:
            return 0
        unit.taken = True
        return unit.level

    def made_whole(self, step: ComputeStep, position: int) -> None:
        """Views by themselves; what is made again, in a group that makes it already, or in another one."""
        buffer = step.writes[0]
        group = next((unit for unit in self.groups if buffer in unit.dims), None)
        if buffer in self.views:
            self.alone(position, step)
        elif group is not None:
            self.maker[buffer] = group
        elif not self.group(position, step):
            self.alone(position, step)
        self.again.discard(buffer)

    def root(self, buffer: str) -> str:
        """What a chain of views that are not made yet begins with."""
        while buffer in self.deferred and buffer not in self.again:
            buffer = self.deferred[buffer].reads[0].buffer
        return buffer

    def place(self, buffer: str, at: int) -> int:
        """The dimension behind views, as far as they only move it."""
        while at >= 0 and (step := self.views.get(buffer)) is not None:
            description = description_of(self.program.graph, self.program.graph.nodes[step.node])
            variable = None if description is None else description.place[at].variable
            way = None if description is None or variable is None else along(description, variable)
            if way is None or way.read[0] < 0:
                break
            buffer, at = step.reads[0].buffer, way.read[0]
        return at

    # ------------------------------------------------------------------------------------------- groups

    def group(self, position: int, step: ComputeStep) -> bool:
        """Put a node into a group that exists or into one of its own; False where no variable of it can be cut."""
        able = self.able(step)
        if not able:
            return False
        roots = {self.root(part.buffer) for part in step.reads}
        best = self.preferred(able)
        for unit in self.tried(roots):
            for member in able.values() if any(name in unit.dims for name in roots) else [best]:
                pulled: _Pulled = {}
                if member is not best and not self.follows(unit, member):
                    continue
                if self.joins(unit, member, pulled) and self.pays(unit, member):
                    self.put(unit, member, pulled, position)
                    return True
        unit = Unit(0, position, None, self.cut(best), self.length(best))
        streams = any(self.root(part.buffer) in self.options.streamed for part in step.reads)
        if not streams and not self.options.always and unit.blocks(self.width(best), self.options.cache) < 2:
            return False
        pulled = {}
        if not self.joins(unit, best, pulled):
            pulled = {}  # one operand is read in blocks and another, made of the same, whole: all are whole before
        self.put(unit, best, pulled, position)
        self.units.append(unit)
        self.groups.append(unit)
        return True

    def able(self, step: ComputeStep) -> dict[int, Member]:
        """The node along each of its variables that can be cut on every device."""
        description = description_of(self.program.graph, self.program.graph.nodes[step.node])
        assert description is not None
        variables = {}
        for variable in range(description.rank):
            devices = [member_of(self.program, step, variable, d) for d in range(self.program.mesh.devices)]
            if devices[0] is not None and None not in devices and self.sensible(devices[0]):
                variables[variable] = devices[0]
        return variables

    def sensible(self, member: Member) -> bool:
        """Is the work of all blocks that of the whole? Each block of a sum adds to all of the result, which must stay
        in the cache beside it, and looks through all indices that are not cut with it."""
        way, reads = member.way, member.step.reads
        if any(self.root(part.buffer) in self.options.streamed for part in reads):
            return True
        name = self.program.value_of[member.step.writes[0]]
        large = 4 * self.program.graph.values[name].bytes > self.options.cache and not self.small(name)
        if way.made is None and large:
            return False
        walked = member.description.operator.walked
        return walked is None or way.read[walked] >= 0

    def preferred(self, able: dict[int, Member]) -> Member:
        """Along a variable that cuts nearly all that is read and made; of these, the outermost dimension of the largest
        tensor, behind views: its blocks lie in one run."""

        def cut(member: Member) -> list[tuple[int, int]]:
            tensors = [
                (kind, self.place(part.buffer, at))
                for kind, part, at in zip(member.description.inputs, member.step.reads, member.way.read, strict=True)
            ]
            tensors += [] if member.way.made is None else [(member.description.output, member.way.made)]
            return [(prod(value.shape), -at) for value, at in tensors if at != FREE]

        most = max(sum(size for size, _ in cut(member)) for member in able.values())
        enough = [member for member in able.values() if sum(size for size, _ in cut(member)) >= NEARLY_ALL * most]
        return max(enough, key=lambda member: max(cut(member)))

    def follows(self, unit: Unit, member: Member) -> bool:
        """Is so much of what the node reads made in the group that it is cut as the group is?"""
        inside = [
            prod(kind.shape)
            for kind, part in zip(member.description.inputs, member.step.reads, strict=True)
            if self.root(part.buffer) in unit.dims
        ]
        largest = max(prod(kind.shape) for kind in (*member.description.inputs, member.description.output))
        return 4 * max(inside, default=0) >= largest

    def tried(self, roots: set[str]) -> list[Unit]:
        """Groups that make something of these, then others, the latest first."""
        own = {id(self.maker[name]): self.maker[name] for name in roots if name in self.maker}
        makers = sorted((unit for unit in own.values() if unit.step is None), key=lambda unit: -unit.position)
        return [*makers, *(unit for unit in self.groups[: -MOST_TRIED - 1 : -1] if id(unit) not in own)]

    def cut(self, member: Member) -> bytes:
        return ranges(self.program, member.step, member.variable).tobytes()

    def length(self, member: Member) -> int:
        both = ranges(self.program, member.step, member.variable)
        return int((both[:, 1] - both[:, 0]).max())

    def joins(self, unit: Unit, member: Member, pulled: _Pulled) -> bool:
        """Can every operand be read block by block, or is it complete before the group?"""
        if self.cut(member) != unit.cut:
            return False
        if not all(
            self.readable(unit, part.buffer, at, pulled)
            for part, at in zip(member.step.reads, member.way.read, strict=True)
        ):
            return False
        inside = unit.dims.keys() | pulled.keys()
        return not any(self.needs(part.buffer, unit, pulled) for part in member.step.reads if part.buffer not in inside)

    def readable(self, unit: Unit, buffer: str, at: int, pulled: _Pulled) -> bool:
        if buffer in unit.dims:
            return unit.dims[buffer] == at
        if buffer in pulled:
            return pulled[buffer][2] == at
        if buffer in unit.complete:
            return False
        if buffer in self.deferred:
            root = self.root(buffer)
            if root in unit.dims:
                return at >= 0 and self.pull(unit, buffer, at, pulled)
            if buffer in self.again:
                pulled_in = at >= 0 and self.pull(unit, buffer, at, pulled)
                return pulled_in or not (unit.taken or self.needs(buffer, unit, pulled))
            buffer = root
        maker = self.maker.get(buffer)
        return maker is None or (maker is not unit and (maker.level < unit.level or not unit.taken))

    def needs(self, buffer: str, unit: Unit, pulled: _Pulled) -> bool:
        """Is what a group makes, or makes again, block by block among what it takes to make this whole?"""
        if buffer in self.deferred:
            reads = [part.buffer for part in self.deferred[buffer].reads]
            return any(name in pulled or name in unit.dims or self.needs(name, unit, pulled) for name in reads)
        return self.maker.get(buffer) is unit

    def pull(self, unit: Unit, buffer: str, at: int, pulled: _Pulled) -> bool:
        """Take a view into the group, or what is made again, with what that is made of."""
        step = self.deferred[buffer]
        description = description_of(self.program.graph, self.program.graph.nodes[step.node])
        assert description is not None
        variable = description.place[at].variable
        if variable is None:
            return False
        members = [member_of(self.program, step, variable, d) for d in range(self.program.mesh.devices)]
        member = members[0]
        if member is None or None in members or ranges(self.program, step, variable).tobytes() != unit.cut:
            return False
        for part, where in zip(step.reads, member.way.read, strict=True):
            if not self.readable(unit, part.buffer, where, pulled):
                return False
        pulled[buffer] = (step, variable, at)
        return True

    def pays(self, unit: Unit, member: Member) -> bool:
        """Does the traffic that is saved take longer than the calls that come with more and smaller blocks? To read a
        file once more does."""
        if any(not unit.outside.isdisjoint(self.files_of(part.buffer)) for part in member.step.reads):
            return True
        wide, cache = self.width(member), self.options.cache
        before, after = unit.blocks(unit.width, cache), unit.blocks(max(unit.width, wide), cache)
        calls = after * (len(unit.members) + 1) - before * len(unit.members) - unit.blocks(wide, cache)
        saved = 0
        for number, part in enumerate(member.step.reads):
            size = member.read_bytes(number, 0, 1) * unit.length
            root = self.root(part.buffer)
            saved += 2 * size if root in unit.dims else size if part.buffer in unit.outside else 0
        own = wide * unit.length  # a quarter more is well spent on a node that may save traffic later
        return calls * self.options.call <= (saved + own / 4) * TRAFFIC_SECONDS

    def files_of(self, buffer: str) -> frozenset[str]:
        """The inputs in files that are read to make this in a group."""
        if buffer in self.options.streamed:
            return frozenset((buffer,))
        step = self.deferred.get(buffer)
        return (
            frozenset().union(*(self.files_of(part.buffer) for part in step.reads)) if step is not None else frozenset()
        )

    def width(self, member: Member) -> int:
        operands = sum(member.read_bytes(number, 0, 1) for number, at in enumerate(member.way.read) if at >= 0)
        return operands + (member.result_bytes(0, 1) if member.way.made is not None else 0)

    def put(self, unit: Unit, member: Member, pulled: _Pulled, position: int) -> None:
        for buffer, (step, variable, at) in pulled.items():
            unit.members.append((step, variable))
            unit.dims[buffer] = at
            self.enters(unit, step, position)
        unit.members.append((member.step, member.variable))
        unit.width = max(unit.width, self.width(member))
        self.enters(unit, member.step, position)
        write = member.step.writes[0]
        self.maker[write] = unit
        if member.way.made is None:
            unit.complete.add(write)
        else:
            unit.dims[write] = member.way.made

    def enters(self, unit: Unit, step: ComputeStep, position: int) -> None:
        """Operands that come from outside are whole before the group."""
        for part in step.reads:
            if part.buffer not in unit.dims:
                unit.level = max(unit.level, self.whole(part.buffer, position) + 1)
                unit.outside.add(part.buffer)

    # ------------------------------------------------------------------------------------------- a program again

    def finished(self) -> list[Step]:
        for buffer in [name for name in self.kept if name in self.deferred]:
            self.whole(buffer, len(self.program.steps))
        wanted = set(self.kept)
        for unit in self.units:
            wanted |= unit.outside if unit.step is None else set(unit.step.sources)
        parts: list[tuple[Unit, list[Step]]] = []
        for unit in self.units:
            parts.append((unit, [unit.step] if unit.step is not None else self.blocked(unit, wanted)))
        return ordered(parts)

    def blocked(self, unit: Unit, wanted: set[str]) -> list[Step]:
        """A group as a step; as single steps where there is nothing to win."""
        written = [step.writes[0] for step, _ in unit.members if self.maker.get(step.writes[0]) is unit]
        writes = tuple(name for name in written if name in wanted)
        reads = tuple(sorted(unit.outside))
        steps, variables = zip(*unit.members, strict=True)
        step = BlockStep(steps, variables, 1, reads, writes)
        members = [members_of(self.program, step, device) for device in range(self.program.mesh.devices)]
        width = max(row_bytes(one, writes) for one in members)
        blocks = -(-unit.length * width // self.options.cache)
        if any(is_product(one.description) and one.way.read[-1] == FREE for one in members[0]):
            rows = min(PRODUCT_ROWS, PRODUCT_CACHES * self.options.cache // width)
            blocks = min(blocks, max(2, unit.length // max(rows, 1)))
        needed = self.options.always or not self.options.streamed.isdisjoint(reads)
        if (blocks < 2 or self.simple(members[0])) and not needed:
            return list(steps)
        return [replace(step, rows=-(-unit.length // min(blocks, unit.length)))]

    def simple(self, members: list[Member]) -> bool:
        """One kernel with what it reads and makes, and nothing between."""
        kernels = [member.description for member in members if member.kind != "view"]
        if len(kernels) != 1:
            return False
        (kernel,) = kernels
        return rule_for(kernel.operator.temporary, ITEM_BYTES[kernel.output.dtype]) is None


def _readers(program: Program) -> dict[str, frozenset[int]]:
    """The steps that read each buffer, directly or through views."""
    found: dict[str, frozenset[int]] = defaultdict(frozenset)
    for number, step in reversed(list(enumerate(program.steps))):
        if isinstance(step, FreeStep):
            continue
        own = frozenset((number,))
        if isinstance(step, ComputeStep):
            description = description_of(program.graph, program.graph.nodes[step.node])
            if description is not None and description.operator.view and len(step.reads) == 1:
                own = found[step.writes[0]]
        for buffer in step.sources:
            found[buffer] |= own
    return found


def blocked(program: Program, options: Blocks) -> Program:
    """The same program, computed in blocks where that pays."""
    gathering = _Gathering(program, options)
    for position, step in enumerate(program.steps):
        if not isinstance(step, FreeStep):
            gathering.add(position, step)
    steps = gathering.finished()
    kept = {name: getattr(options, name) for name in ("streamed", "files", "stealing")}
    elsewhere = replace(program, **kept)
    if not any(isinstance(step, BlockStep) for step in steps):
        return elsewhere
    return arranged(elsewhere, steps, gathering.kept)
