"""One device's instructions as text, in the order in which it runs them."""

from __future__ import annotations

from collections.abc import Iterator

from girih.lower import ComputeStep, FreeStep, Program, TransferStep
from girih.report.units import format_bytes


def instructions(program: Program, device: int) -> Iterator[str]:
    """`compute`, `exchange` and `free` lines."""
    graph = program.graph
    for step in program.steps:
        if isinstance(step, ComputeStep):
            node = graph.nodes[step.node]
            shapes = [_shape(part.needed.regions[device]) for part in step.reads]
            made = [_shape(program.places[name].regions[device]) for name in step.writes]
            reads = ", ".join(f"{part.buffer}{shape}" for part, shape in zip(step.reads, shapes, strict=True))
            writes = ", ".join(f"{name}{shape}" for name, shape in zip(step.writes, made, strict=True))
            yield f"compute   {writes} = {node.operator}({reads})"
        elif isinstance(step, TransferStep):
            swap = program.exchange_of(step)
            item = graph.values[step.value].item_bytes
            sent = sum(m.elements for m in swap.messages if m.source == device != m.target) * item
            received = sum(m.elements for m in swap.messages if m.target == device != m.source) * item
            peers = sorted({m.source for m in swap.messages if m.target == device != m.source})
            yield (
                f"exchange  {step.target} from {step.source}: {swap.kind}, receives {format_bytes(received)}"
                f" from {peers}, sends {format_bytes(sent)}"
            )
        elif isinstance(step, FreeStep):
            yield f"free      {', '.join(step.buffers)}"


def _shape(region: object) -> str:
    return str([int(stop - start) for start, stop in region])  # type: ignore[attr-defined]
