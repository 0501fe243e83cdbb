"""What a pass has to keep, and that breaking it is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from girih.graph import Graph, Ref, parse_graph, without_unread
from girih.rewrite import RewriteError, apply, check
from girih.rewrite.results import check_results

GRAPH = parse_graph("""graph
  input %a: float32[4]  batch  "0"
  input %w: float32[4]  parameter  "w"
  %b: float32[4] = aten.mul.Tensor(self=%a, other=%w)  # forward
  %c: float32[4] = aten.sub.Tensor(self=%w, other=%b)  # update
  %d: float32[4] = aten.exp(self=%b)  # forward
  return %b result, %c update -> %w""")


@dataclass(frozen=True)
class Change:
    """A pass that does what it is told."""

    change: Callable[[Graph], Graph]

    def apply(self, graph: Graph) -> Graph:
        return self.change(graph)


def swapped(graph: Graph) -> Graph:
    return replace(graph, nodes=(graph.nodes[1], graph.nodes[0], graph.nodes[2]))


def fewer_inputs(graph: Graph) -> Graph:
    nodes = tuple(node.renamed(lambda name: "w") for node in graph.nodes)
    values = {name: value for name, value in graph.values.items() if name != "a"}
    return replace(graph, values=values, nodes=nodes, inputs=graph.inputs[1:])


def other_shape(graph: Graph) -> Graph:
    return replace(graph, values=graph.values | {"a": replace(graph.values["a"], shape=(5,))})


BROKEN = {
    "read before": (swapped, "is read before it is made"),
    "fewer inputs": (fewer_inputs, "the inputs of the graph changed: .'a'."),
    "other shape": (other_shape, "input 'a' was"),
    "fewer outputs": (lambda graph: replace(graph, outputs=graph.outputs[:1]), "2 values left the graph, now 1"),
    "other role": (
        lambda graph: replace(graph, outputs=(graph.outputs[0], replace(graph.outputs[1], replaces=None))),
        "output 'c' was",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_pass_that_breaks_the_graph_is_named(kind: str) -> None:
    change, message = BROKEN[kind]
    with pytest.raises(RewriteError, match=f"(?s)Change.*{message}"):
        apply(GRAPH, [Change(change)], prove=True)


def test_passes_are_applied_in_order_and_unread_nodes_can_go() -> None:
    rewritten = apply(GRAPH, [Change(without_unread), Change(without_unread)], prove=True)
    assert [node.name for node in rewritten.nodes] == ["b", "c"]
    assert "d" not in rewritten.values
    check_results(GRAPH, rewritten)


def test_another_result_is_noticed() -> None:
    divided = replace(GRAPH.nodes[0], operator="aten.div.Tensor")
    other = replace(GRAPH, nodes=(divided, *GRAPH.nodes[1:]))
    check(GRAPH, other)  # the law says nothing of numbers
    with pytest.raises(RewriteError, match="output 'b' differs"):
        check_results(GRAPH, other)


def test_references_inside_lists_are_renamed() -> None:
    graph = parse_graph("""graph
  input %a: float32[4]  batch  "0"
  input %b: float32[4]  batch  "1"
  %c: float32[8] = aten.cat(tensors=[%a, %b], dim=0)  # forward
  return %c result""")
    node = graph.nodes[0].renamed({"a": "b", "b": "a"}.__getitem__)
    assert node.arguments == (("tensors", (Ref("b"), Ref("a"))), ("dim", 0))
