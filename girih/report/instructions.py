"""One device's instructions as text, in the order in which it runs them."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from girih.machine.units import format_bytes
from girih.program import BlockStep, ComputeStep, FreeStep, Message, MoveStep, Program, StartStep, TransferStep


def instructions(program: Program, device: int) -> Iterator[str]:
    """`compute`, `exchange`, `copy out`, `copy in` and `free` lines; what moves may have a `start` and a `finish`."""
    graph = program.graph
    started: set[str] = set()
    for step in program.steps_of(device):
        if isinstance(step, ComputeStep):
            node = graph.nodes[step.node]
            shapes = [list(program.part_shape(part.buffer, part.needed, device)) for part in step.reads]
            written = [list(program.part_shape(name, program.places[name], device)) for name in step.writes]
            reads = ", ".join(f"{part.buffer}{shape}" for part, shape in zip(step.reads, shapes, strict=True))
            writes = ", ".join(f"{name}{shape}" for name, shape in zip(step.writes, written, strict=True))
            yield f"compute   {writes} = {node.operator}({reads})"
        elif isinstance(step, BlockStep):
            names = ", ".join(graph.nodes[member.node].name for member in step.members)
            reads, writes = ", ".join(step.reads), ", ".join(step.writes)
            yield f"blocks    {writes} = {names} of {reads}, {step.rows} rows at a time"
        elif isinstance(step, StartStep) and isinstance(step.transfer, MoveStep):
            started.add(step.transfer.target)
            after = f", after {', '.join(step.after)}" if step.after else ""
            yield f"start     {_move(program, step.transfer, device)}{after}"
        elif isinstance(step, MoveStep) and step.target in started:
            yield f"finish    {step.target}: {step.purpose}"
        elif isinstance(step, MoveStep):
            yield f"{step.purpose}  {_move(program, step, device)}"
        elif isinstance(step, StartStep):
            assert isinstance(step.transfer, TransferStep)
            started.add(step.transfer.target)
            yield f"start     {_exchange(program, step.transfer, device)}"
        elif isinstance(step, TransferStep) and step.target in started:
            yield f"finish    {step.target}: {_received(program, step, device)}"
        elif isinstance(step, TransferStep):
            yield f"exchange  {_exchange(program, step, device)}"
        elif isinstance(step, FreeStep):
            yield f"free      {', '.join(step.buffers)}"


def _move(program: Program, step: MoveStep, device: int) -> str:
    shape = program.part_shape(step.source, program.places[step.source], device)
    size = prod(shape) * program.graph.values[step.value].item_bytes
    return f"{step.target} from {step.source}: {step.purpose}, {format_bytes(size)}"


def _exchange(program: Program, step: TransferStep, device: int) -> str:
    item = program.graph.values[step.value].item_bytes
    sent = [message for message in program.messages_of(step, device) if message.source == device != message.target]
    kind = program.exchange_of(step).kind
    return (
        f"{step.target} from {step.source}: {kind}, {_received(program, step, device)}, "
        f"sends {format_bytes(_elements(sent) * item)}"
    )


def _received(program: Program, step: TransferStep, device: int) -> str:
    item = program.graph.values[step.value].item_bytes
    received = [message for message in program.messages_of(step, device) if message.target == device != message.source]
    peers = sorted({message.source for message in received})
    return f"receives {format_bytes(_elements(received) * item)} from {peers}"


def _elements(messages: list[Message]) -> int:
    return sum(message.elements for message in messages)
