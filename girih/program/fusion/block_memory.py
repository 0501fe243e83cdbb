"""The memory of a loop over blocks: the chunks that it runs in, the sums that these leave, what another thread takes.

A loop runs in chunks of blocks. Each chunk has sums of its own, over its blocks; they are combined in the order of the
chunks. Where nobody else computes chunks, two sets of sums are held: those so far and the chunk's own. Where other
threads may, the sums of all chunks may wait for the first. Sums of short numbers are kept in wider ones, and are made
results, in the type that was asked for, behind the last chunk: there both are held. Cost: linear in the members.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from girih.graph.graph import ITEM_BYTES, Same
from girih.ops.derive.in_place import INTO
from girih.ops.derive.temporaries import KernelCall, Operand, converted
from girih.ops.scratch import at_most, held, rule_for
from girih.program.fusion.registers import Member, members_of, ranges, registers
from girih.program.program import Program
from girih.program.steps import BlockStep

CHUNKS, LEAST_BLOCKS = 16, 4
"""How many parts a loop has that other threads may compute, and of how many blocks at least."""
LEAST_OFFERED = 4
"""Chunks of a loop that is worth offering."""
WIDE = {"float32": "float64", "float16": "float32", "bfloat16": "float32"}
"""In what sums over blocks are kept: there may be very many blocks."""


# fmt: off
WITHOUT_OUT = frozenset((
    "clone", "complex", "copy", "elu", "elu_backward", "gelu", "gelu_backward", "hardsigmoid",
    "hardsigmoid_backward", "hardswish", "hardswish_backward", "hardtanh", "hardtanh_backward", "isfinite", "isinf",
    "isnan", "leaky_relu", "leaky_relu_backward", "lift_fresh_copy", "log_sigmoid_forward", "masked_fill", "mish",
    "native_dropout_backward", "polar", "relu", "relu6", "rsub", "sigmoid_backward", "silu", "silu_backward",
    "softplus", "softplus_backward", "special_exp2", "special_i0", "tanh_backward", "threshold_backward",
))
# fmt: on
"""Element-wise functions of PyTorch's that cannot write into memory that is there: `torch.NAME` takes no `out`."""


def makes_result(operator: str) -> bool:
    """Does an element-wise kernel make a result of its own, whatever memory there is? Most of girih's own do."""
    space, name, *_ = operator.split(".")
    return name in WITHOUT_OUT if space == "aten" else operator not in INTO


def _copied(member: Member) -> bool:
    """Does its kernel make a result that is then copied to where it belongs, and that no rule of its own tells of?"""
    ruled = member.piece.operator.startswith("aten.") and member.description.operator.temporary is not None
    return makes_result(member.piece.operator) and not ruled


def chunks(low: int, high: int, rows: int) -> list[tuple[int, int, int]]:
    """(first, last, rows of a block) of parts of a loop: about CHUNKS of whole blocks, and what is left at the end.

    They do not depend on who runs them, so that neither do the sums.
    """
    whole = (high - low) // rows
    each = max(LEAST_BLOCKS, -(-whole // CHUNKS)) * rows
    middle = low + whole * rows
    spans = [(first, min(first + each, middle), rows) for first in range(low, middle, each)]
    return [*spans, (middle, high, high - middle)] if middle < high else spans


def kept_as(member: Member) -> str:
    """The type in which a member's sums over blocks are kept."""
    dtype = member.description.output.dtype
    return WIDE.get(dtype, dtype) if member.description.reducer == "sum" else dtype


@dataclass(frozen=True)
class LoopBytes:
    """The bytes of a group's loop on one device, beside what it reads and what is written where it belongs.

    sums: the results that are sums over blocks: they are made behind the loop. peak: the most while chunks run.
    after: beside all sums, while they are made. stolen: the most that another worker holds for one chunk, without
    the chunk's sums, which `peak` has; 0 where none may take any.
    """

    sums: tuple[str, ...]
    peak: int
    after: int
    stolen: int


def loop_bytes(program: Program, step: BlockStep, device: int, threads: int) -> LoopBytes:
    """Exact for buffers, results and sums where nobody steals, else a bound; as exact as the operators' `temporary`
    rules for kernels, and a bound where these are `Measured`: nobody measures blocks."""
    members = members_of(program, step, device)
    registered = registers(members, step.writes)
    low, high = ranges(program, step.members[0], step.variables[0])[device].tolist()
    rows = min(step.rows, high - low)
    once, each = _streamed(program, members, low, low + rows)
    each += sum(members[first].result_bytes(low, low + rows) for first in registered.pool)
    reduced = [member for member in members if member.kind == "reduced"]
    sums = sum(_sum_bytes(member, low, low + rows) for member in reduced)
    spans = chunks(low, high, rows)
    offered = is_offered(program, len(spans))
    peak = beside = 0
    for number, (first, last, length) in enumerate(spans):
        if 2 <= number < len(spans) - 1:  # as the chunk before
            continue
        others = sums * (len(spans) - 1) if offered else sums if number else 0
        most, without = _chunk_bytes(members, registered.ends, first, first + length, last - first > length, threads)
        peak, beside = max(peak, others + most), max(beside, without)
    wide = sum(
        _sum_bytes(member, low, low + rows)
        for member in reduced
        if member.write in program.files or kept_as(member) != member.description.output.dtype
    )
    names = tuple(member.write for member in reduced)
    stolen = each + beside if offered else 0
    return LoopBytes(names, once + each + peak, once + each + wide, stolen)


def is_offered(program: Program, count: int) -> bool:
    """May other workers compute some of so many chunks?"""
    return program.stealing and program.mesh.devices > 1 and count >= LEAST_OFFERED


def _sum_bytes(member: Member, low: int, high: int) -> int:
    short, kept = ITEM_BYTES[member.description.output.dtype], ITEM_BYTES[kept_as(member)]
    return member.result_bytes(low, high) // short * kept


def _streamed(program: Program, members: list[Member], low: int, high: int) -> tuple[int, int]:
    """Bytes that are read of sources: once for all blocks, and for each."""
    read = {
        (part.buffer, member.piece.regions[number]): member.read_bytes(number, low, high)
        for member in members
        for number, part in enumerate(member.step.reads)
        if part.buffer in program.streamed
    }
    fixed = {key: size for key, size in read.items() if all(type(end) is int for side in key[1] for end in side)}
    return sum(fixed.values()), sum(read.values()) - sum(fixed.values())


def _chunk_bytes(
    members: list[Member], ends: tuple[tuple[str, ...], ...], low: int, high: int, several: bool, threads: int
) -> tuple[int, int]:
    """The most bytes beside the buffers while a chunk runs, with its sums and without them.

    low, high: its first block. several: has it more than one? From the second block on all sums are there.
    """
    peak = beside = sums = 0
    for again in (False, True) if several else (False,):
        now = 0
        sizes: dict[str, int] = {}
        for member, over in zip(members, ends, strict=True):
            size = member.result_bytes(low, high)
            extra = _temporary(member, low, high, threads)
            own = 0
            if member.kind == "reduced":
                own = _sum_bytes(member, low, high)
                extra += size
                if kept_as(member) != member.description.output.dtype:
                    extra = max(extra, size + own)
            elif member.kind == "into" and _copied(member):
                extra += size
            elif member.kind == "made":
                sizes[member.write] = size
                now += size
            peak, beside = max(peak, sums + now + extra), max(beside, now + extra)
            sums += 0 if again else own
            peak = max(peak, sums + now)
            now -= sum(sizes.pop(name, 0) for name in over)
    return peak, beside


def _temporary(member: Member, low: int, high: int, threads: int) -> int:
    item = ITEM_BYTES[member.description.output.dtype]
    temporary = rule_for(member.description.operator.temporary, item)
    if temporary is None:
        return _converted(member, low, high) if member.description.operator.elementwise else 0
    inputs = {}
    for number, name in enumerate(member.piece.names):
        if name is not None:
            inputs[name] = Operand(
                member.read_shape(number, low, high), ITEM_BYTES[member.description.inputs[number].dtype]
            )
    result = Operand(member.result_shape(low, high), item)
    work = KernelCall(member.attributes(low, high), inputs, result, frozenset(), threads)
    return held(temporary, member.piece.operator, work, at_most)


def _converted(member: Member, low: int, high: int) -> int:
    kinds, result = [item.dtype for item in member.description.inputs], member.description.output.dtype
    if all(kind == result for kind in kinds):
        return 0
    operands = [(member.read_shape(number, low, high), kind) for number, kind in enumerate(kinds)]
    return converted(member.piece.operator, operands, member.piece.attributes.get("other"), result)


def stolen_bytes(program: Program, device: int, threads: int) -> int:
    """The most that this device's worker holds for a chunk of another's loop: it computes one at a time."""
    others = _offered_bytes(Same(program), threads) if program.stealing else ()
    return max((size for other, size in enumerate(others) if other != device), default=0)


@lru_cache(maxsize=4)
def _offered_bytes(same: Same[Program], threads: int) -> tuple[int, ...]:
    """By device, the most that another one holds for a chunk of its loops."""
    program = same.item
    steps = [step for step in program.steps if isinstance(step, BlockStep)]
    return tuple(
        max((loop_bytes(program, step, device, threads).stolen for step in steps), default=0)
        for device in range(program.mesh.devices)
    )
