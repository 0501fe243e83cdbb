"""Operands whose memory an element-wise result may take over: nobody reads them behind that step.

So an optimizer's update, an activation, or a sum of gradients needs no memory of its own. It is decided by rules that
hold for every device of a program: here those that follow from the program; the walk of the accounts
(`girih.program.life.accounts`) adds those of storages and strides. The worker asks that walk, so both take the same.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from girih.graph import Graph
from girih.ops.derive.in_place import FLOATS, makes_memory, writes_over
from girih.ops.known import descriptions
from girih.program.program import Program
from girih.program.steps import ComputeStep, FreeStep, MoveStep, StartStep, TransferStep


def operands_to_take(program: Program, device: int) -> tuple[dict[str, tuple[int, ...]], frozenset[str]]:
    """(by the result of a step, the operands of one device whose memory it might take if they end with this step; which
    buffers do not take part after all, since they are sent, and peers may still look at them). Such operands were made
    by this device for itself, and have the result's type. Cost: linear in the steps."""
    graph = program.graph
    own = _owned(graph)
    takes: dict[str, tuple[int, ...]] = {}
    sent: set[str] = set()
    for step in program.steps_of(device):
        move = step.transfer if isinstance(step, StartStep) else step
        if isinstance(move, TransferStep):
            sent.add(move.source)
        elif isinstance(move, MoveStep) and not move.out:
            own.add(move.target)
        if not isinstance(step, ComputeStep) or len(step.writes) != 1:
            continue
        node = graph.nodes[step.node]
        description = descriptions(graph)[step.node]
        if description is None:
            continue
        dtype = graph.values[node.outputs[0]].dtype
        numbers = tuple(
            number
            for number, part in enumerate(step.reads)
            if part.buffer in own
            and dtype in FLOATS
            and writes_over(description.operator, number)
            and graph.values[program.value_of[part.buffer]].dtype == dtype
        )
        if numbers:
            takes[step.writes[0]] = numbers
        sees_own = description.operator.view and step.reads and step.reads[0].buffer in own
        if makes_memory(description.operator) or sees_own:
            own.update(step.writes)
    away = program.files | program.streamed | program.host
    reads = {step.writes[0]: step.reads for step in program.steps_of(device) if isinstance(step, ComputeStep)}
    kept = {
        target: tuple(number for number in numbers if reads[target][number].buffer not in away)
        for target, numbers in takes.items()
        if target not in away
    }
    return {target: numbers for target, numbers in kept.items() if numbers}, frozenset(sent)


def ending_with(program: Program, device: int) -> dict[str, frozenset[str]]:
    """By the first result of a compute step, the buffers that are freed right behind it. Cost: linear in the steps."""
    return {
        step.writes[0]: frozenset(following.buffers)
        for step, following in pairwise(program.steps_of(device))
        if isinstance(step, ComputeStep) and isinstance(following, FreeStep) and step.writes
    }


def _owned(graph: Graph) -> set[str]:
    """State that nobody but the worker has: what replaced it was made by a step for this alone."""
    uses = Counter(graph.updates.values())
    uses.update(output.name for output in graph.outputs if output.replaces is None)
    uses.update(item.name for item in graph.inputs)
    shared: set[str] = set()  # with what looks at it, or what it looks at
    for node, description in zip(graph.nodes, descriptions(graph), strict=True):
        if description is None or description.operator.view:
            shared.update((*node.inputs, *node.outputs))
    return {old for old, new in graph.updates.items() if uses[new] == 1 and new not in shared}
