"""Which numbers of a batch pick rows of a table, or classes. Where one picks none, PyTorch raises an error: here it is
raised before the step begins, and names the batch's tensor. Of numbers that a step computes, kernels raise their own
(`girih.kernels.own.in_table`), which names the operator and stops the run; libraries do as they like.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from girih.graph import Graph, Input, Node, of_batch
from girih.kernels.evaluate import evaluate
from girih.ops.derive.lookups import looked_up, only_moves
from girih.ops.known import descriptions
from girih.ops.operator import Description
from girih.plans.plan import PlanError


class RowError(PlanError, IndexError):
    """A number of the batch picks no row, for which PyTorch has an IndexError."""


@dataclass(frozen=True)
class LookUp:
    """Numbers of the batch by which rows of a table, or classes, are picked.

    input: of the graph; views: what is made of it before, in their order, and name: of the last. Each number must be
    one of `rows`, or of `others`, which the program treats apart (an `ignore_index`).
    """

    input: Input
    views: tuple[Node, ...]
    name: str
    rows: range
    others: frozenset[int]


def look_ups(graph: Graph) -> tuple[LookUp, ...]:
    """What can be checked of a batch before a step: what is made of one tensor of it, by moves or as whole numbers.

    Of other numbers, such as those that depend on weights, kernels raise an error of their own.
    """
    origins: dict[str, Input] = {item.name: item for item in graph.inputs if item.role == "batch"}
    makers: dict[str, Node] = {}
    found: dict[str, range] = {}
    others: dict[str, set[int]] = {}
    for node, description in zip(graph.nodes, descriptions(graph), strict=True):
        if description is None or not any(name in origins for name in node.inputs):
            continue
        sources = {origins.get(name) for name in node.inputs}
        if len(sources) == 1 and (only_moves(description.body) or _is_whole(graph, node, description)):
            origins[node.outputs[0]], makers[node.outputs[0]] = origins[node.inputs[0]], node
        for number, name in enumerate(node.inputs):
            if name in origins and (rows := looked_up(description, number)) is not None:
                known = found.get(name, rows)
                found[name] = range(max(rows.start, known.start), min(rows.stop, known.stop))
                parameter = description.operator.parameters.get("ignored")
                if parameter is not None:
                    ignored: Any = node.attributes.get("ignored", parameter.default)
                    others.setdefault(name, set()).add(ignored)
    return tuple(
        LookUp(origins[name], _made_by(name, makers), name, rows, frozenset(others.get(name, ())))
        for name, rows in found.items()
    )


def _is_whole(graph: Graph, node: Node, description: Description) -> bool:
    """Does a node make whole numbers, and at little cost: of other ones, or each of one number?"""
    read, made = ([graph.values[name].dtype for name in names] for names in (node.inputs, node.outputs))
    checked = made if description.operator.elementwise else read + made
    return all(dtype.startswith(("int", "uint", "bool")) for dtype in checked)


def _made_by(name: str, makers: dict[str, Node]) -> tuple[Node, ...]:
    """What makes a value of the batch, the first first; makers: in their order."""
    needed, views = {name}, []
    for node in reversed(makers.values()):
        if node.outputs[0] in needed:
            needed.update(node.inputs)
            views.append(node)
    return tuple(reversed(views))


def check_numbers(look_up: LookUp, tensor: Any) -> None:
    """
    Raises:
        RowError: one of the numbers has no row, or class.
    """
    values = {look_up.input.name: tensor}
    for node in look_up.views:
        (values[node.outputs[0]],) = evaluate(node, values)
    tensor, rows = values[look_up.name], look_up.rows
    if not tensor.numel():
        return
    least, most = map(int, tensor.aminmax())
    if least in rows and most in rows:
        return
    numbers = map(int, tensor.unique())
    if wrong := [number for number in numbers if number not in rows and number not in look_up.others]:
        size = rows.stop
        from_end = any(node.operator == "girih.wrap_index" for node in look_up.views)
        filled = {node.attributes.get("value") for node in look_up.views}  # by the program, in place of what it ignores
        beside = "".join(f" or {other}" for other in sorted(look_up.others - filled))
        raise RowError(
            f"{of_batch(look_up.input.path)} has the number {wrong[0]}: expected from "
            f"{-size if from_end else rows.start} to {size - 1}{beside}, since it picks one of {size}"
        )
