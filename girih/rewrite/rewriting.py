"""Passes, and what each of them has to keep.

A pass is a frozen dataclass: its fields are its options, and `apply` takes a graph and returns a graph that computes
the same. Where it finds nothing to rewrite it returns the very graph that it was given.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from girih.graph import Graph, GraphError
from girih.graph import check as check_law


class RewriteError(ValueError):
    """A pass broke the graph; the message says which pass, and what of the graph no longer holds."""


class Pass(Protocol):
    """One rewrite of graphs."""

    def apply(self, graph: Graph) -> Graph:
        """A graph that computes the same."""
        ...


def apply(graph: Graph, passes: Iterable[Pass], *, prove: bool = False) -> Graph:
    """The graph after all passes, in their order.

    prove: check the law of the graph, and what enters and leaves it, after each pass. It costs about as much as
    capturing the graph did.

    Raises:
        RewriteError: with `prove`, for a pass that breaks the graph.
    """
    for item in passes:
        rewritten = item.apply(graph)
        if prove:
            try:
                check(graph, rewritten)
            except RewriteError as error:
                raise RewriteError(f"{item}: {error}") from error
        graph = rewritten
    return graph


def check(before: Graph, after: Graph) -> None:
    """Prove that a rewritten graph keeps the law of graphs, and has the inputs and outputs that it had.

    Values between may be others. Outputs keep their order, roles, shapes, dtypes, and what they replace; their names
    may change.

    Raises:
        RewriteError: naming what differs.
    """
    try:
        check_law(after)
    except GraphError as error:
        raise RewriteError(str(error)) from error
    if after.inputs != before.inputs:
        different = [item.name for item in set(before.inputs) ^ set(after.inputs)]
        raise RewriteError(f"the inputs of the graph changed: {sorted(different)[:5] or 'their order'}")
    for item in before.inputs:
        if after.values[item.name] != before.values[item.name]:
            raise RewriteError(f"input {item.name!r} was {before.values[item.name]} and is {after.values[item.name]}")
    if len(after.outputs) != len(before.outputs):
        raise RewriteError(f"{len(before.outputs)} values left the graph, now {len(after.outputs)}")
    for old, new in zip(before.outputs, after.outputs, strict=True):
        was, now = before.values[old.name], after.values[new.name]
        first = (old.role, old.replaces, was.shape, was.dtype)
        second = (new.role, new.replaces, now.shape, now.dtype)
        if first != second:
            raise RewriteError(f"output {old.name!r} was {first} and is {second} (role, replaces, shape, dtype)")
