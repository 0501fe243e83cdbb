"""Which numbers of a batch pick rows of a table, or classes. Where one picks none, PyTorch raises an error; kernels
that have a part of the rows take it for a row of another part, and libraries do as they like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from girih.graph import Graph, Input, Node
from girih.kernels.evaluate import evaluate
from girih.ops.derive.lookups import looked_up, only_moves
from girih.ops.known import descriptions
from girih.plans.plan import PlanError


class RowError(PlanError, IndexError):
    """A number of the batch picks no row, for which PyTorch has an IndexError."""


@dataclass(frozen=True)
class LookUp:
    """Numbers of the batch by which rows of a table, or classes, are picked.

    input: of the graph; views: what is made of it before, one after another. Each number must be at least 0 and below
    `size`, or one of `others`, which the program treats apart (an `ignore_index`).
    """

    input: Input
    views: tuple[Node, ...]
    size: int
    others: frozenset[float]


def look_ups(graph: Graph) -> tuple[LookUp, ...]:
    """What must be checked of a batch before a step: where PyTorch raises an error, a part of a table finds nothing,
    since another part may have it.

    Of classes only where the program compares with what it ignores, as a mean over labels does: a sum has its
    `ignore_index` nowhere, since what is no class adds nothing.
    """
    chains: dict[str, tuple[Input, tuple[Node, ...]]] = {
        item.name: (item, ()) for item in graph.inputs if item.role == "batch"
    }
    found: dict[str, int] = {}
    others: dict[str, set[float]] = {}
    tables: set[str] = set()
    for node, description in zip(graph.nodes, descriptions(graph), strict=True):
        inside = [name for name in node.inputs if name in chains]
        if not inside or description is None:
            continue
        if len(node.inputs) == 1 and only_moves(description.body):
            item, views = chains[inside[0]]
            chains[node.outputs[0]] = item, (*views, node)
        elif isinstance(other := node.attributes.get("other"), (int, float)):
            others.setdefault(inside[0], set()).add(other)  # compared with it
        for number, name in enumerate(node.inputs):
            if name in chains and (size := looked_up(description, number)) is not None:
                found[name] = min(size, found.get(name, size))
                if any(graph.role_of(table) in ("parameter", "buffer") for table in node.inputs):
                    tables.add(name)
    return tuple(
        LookUp(*chains[name], size, frozenset(others.get(name, ())))
        for name, size in found.items()
        if name in tables or name in others
    )


def check_numbers(look_up: LookUp, tensor: Any) -> None:
    """
    Raises:
        RowError: one of the numbers has no row, or class.
    """
    for node in look_up.views:
        (tensor,) = evaluate(node, {node.inputs[0]: tensor})
    if not tensor.numel():
        return
    least, most = map(int, tensor.aminmax())
    if least >= 0 and most < look_up.size:
        return
    numbers = [int(number) for number in tensor.unique() if not 0 <= number < look_up.size]
    if wrong := [number for number in numbers if number not in look_up.others]:
        beside = "".join(f" or {other:g}" for other in sorted(look_up.others))
        raise RowError(
            f"the batch's tensor {look_up.input.path!r} has the number {wrong[0]}: expected from 0 to "
            f"{look_up.size - 1}{beside}, since it picks one of {look_up.size}"
        )
