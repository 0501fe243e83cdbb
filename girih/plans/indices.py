"""Which tensors of a batch hold indices, and of how many rows. Where an index is in no row, PyTorch raises IndexError;
kernels that have a part of the rows take it for a row of another part, and libraries do as they like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from girih.graph import Graph, Node
from girih.ops.describe import first_description
from girih.ops.expressions import Read


def rows_looked_up(graph: Graph) -> dict[str, int]:
    """By the name of an input of the batch that a table is looked up with, how many rows that has (the fewest)."""
    maker = {name: node for node in graph.nodes for name in node.outputs}
    batch = {item.name for item in graph.inputs if item.role == "batch"}
    rows: dict[str, int] = {}
    for node in graph.nodes:
        if node.operator.partition(".")[2] != "embedding" or node.attributes.get("first"):
            continue
        table, name = node.inputs
        while name in maker and _only_moves(graph, maker[name]):
            name = maker[name].inputs[0]
        if name in batch:
            rows[name] = min(rows.get(name, 1 << 62), graph.values[table].shape[0])
    return rows


def _only_moves(graph: Graph, node: Node) -> bool:
    """Does a node make all numbers that it reads, as they are, in another shape or type?"""
    description = first_description(graph, node)
    if description is None or len(node.inputs) != 1:
        return False
    read, made = graph.values[node.inputs[0]], graph.values[node.outputs[0]]
    return isinstance(description.body, Read) and made.elements >= read.elements


def check_indices(batch: Mapping[str, Any], rows: Mapping[str, int], paths: Mapping[str, str]) -> None:
    """batch: tensors by the names of inputs. paths: how the user finds them.

    Raises:
        IndexError: an index is in no row of its table.
    """
    for name, count in rows.items():
        tensor = batch[name]
        if tensor.numel() and not (int(tensor.min()) >= 0 and int(tensor.max()) < count):
            raise IndexError(
                f"the batch's tensor {paths[name]!r} has indices from {int(tensor.min())} to {int(tensor.max())}, and "
                f"the table that they look up has {count} rows: expected 0 to {count - 1}"
            )
