"""The Graph: what is computed. Knows nothing of devices, time or memory places."""

from girih.graph.graph import (
    Argument,
    Graph,
    GraphError,
    Input,
    Node,
    Output,
    Ref,
    Value,
    check,
    format_graph,
    kept_with_graph,
    of_batch,
    without_unread,
)
from girih.graph.repeats import Repeat, repeats
from girih.graph.text import parse_graph

__all__ = [
    "Argument",
    "Graph",
    "GraphError",
    "Input",
    "Node",
    "Output",
    "Ref",
    "Repeat",
    "Value",
    "check",
    "format_graph",
    "kept_with_graph",
    "of_batch",
    "parse_graph",
    "repeats",
    "without_unread",
]
