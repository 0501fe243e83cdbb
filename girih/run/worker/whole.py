"""A program as calls of kernels on slots: what the only worker computes, in whatever thread asks.

One device has every value whole: nothing is divided, sent or searched, and sizes are those that the graph says. So a
graph of small values becomes calls node by node (`calls_of_graph`), in a tenth of the time that a plan takes; of what a
plan computes in blocks its instructions are taken as they are (`calls_of_worker`). Either way the same kernels are
called as a worker calls, and give the same bits. Cost: linear in the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import torch

from girih.graph import Graph, Node
from girih.ops import descriptions_of
from girih.ops.catalogue import catalogue
from girih.ops.derive.pieces import PieceCall, make_piece
from girih.program import FreeStep
from girih.run.worker.compute import Compute, Nothing, compile_call
from girih.run.worker.instructions import FreeBuffers, Instruction
from girih.run.worker.parts import Tensor, relative
from girih.run.worker.worker import Times, Worker, settle


@dataclass(frozen=True, eq=False)
class Calls:
    """entering: the slot of each input, in the order of the graph's, or -1 of one that is not read. leaving: the slot
    of each output."""

    steps: Sequence[Instruction]
    slots: int
    entering: tuple[int, ...]
    leaving: tuple[int, ...]

    def run(self, inputs: Sequence[Tensor], times: Times) -> list[Tensor]:
        """The outputs, as state is kept (`settle`). times: to which these seconds are added."""
        began = perf_counter()
        slots: list[Any] = [None] * (self.slots + 1)  # the last is of inputs that are not read
        for slot, tensor in zip(self.entering, inputs, strict=True):
            slots[slot] = tensor
        seconds = [0.0, 0.0]
        tracks = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # as no_grad, which takes as long as a kernel
        try:
            for step in self.steps:
                step.run(slots, seconds)
            outputs = [settle(slots[slot]) for slot in self.leaving]
        finally:
            torch._C._set_grad_enabled(tracks)
        times.steps += 1
        times.kernels += seconds[0]
        times.total += perf_counter() - began
        return outputs


def calls_of_worker(worker: Worker, inputs: Sequence[str], outputs: Sequence[str]) -> Calls:
    """The instructions of a program's only worker. inputs, outputs: their names, in their order."""
    slot_of = worker.slots
    entering = tuple(slot_of.get(name, -1) for name in inputs)
    return Calls(worker.instructions, len(slot_of), entering, tuple(slot_of[name] for name in outputs))


def calls_of_graph(graph: Graph) -> Calls:
    """One call for each node, in their order; what no later one reads is let go."""
    device = torch.device("cpu")
    slot_of = {name: number for number, name in enumerate(graph.values)}
    lasting = {item.name for item in graph.inputs} | {item.name for item in graph.outputs}
    read: set[str] = set()
    steps: list[Instruction] = []
    for node in reversed(graph.nodes):
        over = tuple(name for name in dict.fromkeys((*node.inputs, *node.outputs)) if name not in read | lasting)
        read.update(node.inputs)
        if over:
            steps.append(FreeBuffers(FreeStep(over), slot_of))
        steps.append(_call(graph, node, slot_of, device))
    entering = tuple(slot_of[item.name] for item in graph.inputs)
    return Calls(steps[::-1], len(slot_of), entering, tuple(slot_of[item.name] for item in graph.outputs))


def _call(graph: Graph, node: Node, slot_of: Mapping[str, int], device: Any) -> Compute | Nothing:
    writes = tuple(slot_of[name] for name in node.outputs)
    shapes = tuple(graph.values[name].shape for name in node.outputs)
    if shapes and all(0 in shape for shape in shapes):
        return Nothing(writes, shapes, [getattr(torch, graph.values[name].dtype) for name in node.outputs], device)
    piece = _piece(graph, node)
    if piece is None:
        reads: list[Any] = [(slot_of[name], (), None) for name in node.inputs]
    else:
        wholes = [tuple((0, size) for size in graph.values[name].shape) for name in node.inputs]
        reads = [
            (slot_of[name], relative(region, whole), None)
            for name, region, whole in zip(node.inputs, piece.regions, wholes, strict=True)
        ]
    call = compile_call(graph, node, piece, reads, writes, shapes, device)
    call.function = getattr(call.function, "_op", call.function)  # which PyTorch's operators call, and nothing else
    return call


def _piece(graph: Graph, node: Node) -> PieceCall | None:
    """The call that computes all of a node, where it is another than the node's own."""
    item = catalogue().get(node.operator)
    if item is None or (item.result is None and item.results == 1 and (item.view or item.piece is None)):
        return None
    descriptions = descriptions_of(graph, node)
    if not descriptions:
        return None
    sizes = descriptions[0].sizes
    piece = make_piece(descriptions[0], node.attributes, (0,) * len(sizes), sizes)
    return replace(piece, result=None) if len(descriptions) > 1 else piece
