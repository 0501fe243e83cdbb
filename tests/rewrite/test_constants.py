"""What depends on weights alone is computed once; results of the graph among it stay nodes."""

from __future__ import annotations

import torch

from girih.graph import check, parse_graph
from girih.kernels.evaluate import interpret
from girih.rewrite.constants import folded

OF_WEIGHTS = """graph
  input %x: float32[2, 3]  batch  "x"
  input %w: float32[3, 3]  parameter  "w"
  %a: float32[3, 3] = aten.exp(self=%w)  # forward
  %b: float32[3, 3] = aten.neg(self=%a)  # forward
  %c: float32[2, 3] = aten.mm(self=%x, mat2=%b)  # forward
  return %c result
  return %a result"""


def test_what_is_made_of_a_result_of_weights_is_computed_once_too() -> None:
    graph, x, w = parse_graph(OF_WEIGHTS), torch.randn(2, 3), torch.randn(3, 3)
    smaller, weights = folded(graph, {"w": w})
    check(smaller)
    assert [node.operator for node in smaller.nodes] == ["aten.exp", "aten.mm"]
    made, expected = interpret(smaller, {"x": x, **weights}), interpret(graph, {"x": x, "w": w})
    for name in ("a", "c"):
        assert torch.equal(made[name], expected[name])
