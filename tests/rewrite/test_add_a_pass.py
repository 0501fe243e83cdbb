"""A newcomer's pass, written by docs/add-a-pass.md alone: a sum with zeros is left out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from girih.api import plan_graph
from girih.graph import Graph, Ref, parse_graph, without_unread
from girih.rewrite import apply
from girih.rewrite.results import check_results


@dataclass(frozen=True)
class DropAddedZeros:
    """Read what zeros are added to as it was before. operators: those that add."""

    operators: tuple[str, ...] = ("aten.add.Tensor",)

    def apply(self, graph: Graph) -> Graph:
        makers = {name: node for node in graph.nodes for name in node.outputs}
        leaving = {item.name for item in graph.outputs}
        before: dict[str, str] = {}
        for node in graph.nodes:
            arguments = dict(node.arguments)
            first, second = arguments.get("self"), arguments.get("other")
            if node.operator not in self.operators or not isinstance(first, Ref) or not isinstance(second, Ref):
                continue
            maker, sum_ = makers.get(second.name), node.outputs[0]
            zeros = maker is not None and maker.operator == "aten.full" and maker.attributes["fill_value"] == 0
            same = graph.values[first.name] == replace(graph.values[sum_], name=first.name)
            if zeros and same and sum_ not in leaving:
                before[sum_] = before.get(first.name, first.name)
        if not before:
            return graph
        nodes = tuple(node.renamed(lambda name: before.get(name, name)) for node in graph.nodes)
        return without_unread(replace(graph, nodes=nodes))


GRAPH = parse_graph("""graph
  input %a: float32[8, 4]  batch  "0"
  %zeros: float32[8, 4] = aten.full(size=[8, 4], fill_value=0.0, dtype="float32")  # forward
  %b: float32[8, 4] = aten.add.Tensor(self=%a, other=%zeros)  # forward
  %c: float32[8, 4] = aten.add.Tensor(self=%b, other=%zeros)  # forward
  %d: float32[8, 4] = aten.exp(self=%c)  # forward
  return %d result""")


def test_the_pass_rewrites_and_keeps_the_results() -> None:
    rewritten = apply(GRAPH, [DropAddedZeros()], prove=True)
    assert [node.operator for node in rewritten.nodes] == ["aten.exp"]
    assert rewritten.nodes[0].inputs == ("a",)
    check_results(GRAPH, rewritten)
    assert DropAddedZeros().apply(rewritten) is rewritten


def test_other_sums_stay() -> None:
    assert DropAddedZeros(operators=()).apply(GRAPH) is GRAPH


@pytest.mark.parametrize("machine", ["1", "local:4"])
def test_what_is_rewritten_is_planned(machine: str) -> None:
    plan = plan_graph(apply(GRAPH, [DropAddedZeros()]), machine=machine, objective="bytes")
    assert len(plan.graph.nodes) == 1
