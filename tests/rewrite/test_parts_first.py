"""Sums of parts are added to one another before what is whole."""

from __future__ import annotations

import pytest

from girih.graph import check, parse_graph
from girih.rewrite.passes.parts_first import AddPartsFirst
from girih.rewrite.results import check_results

SUMS = """graph
  input %r: float32[4]  batch  "0"
  input %a: float32[4]  batch  "1"
  input %b: float32[4]  batch  "2"
  %x: float32[4] = aten.add.Tensor(self=%a, other=%r)  # forward
  %y: float32[4] = aten.add.Tensor(self=%x, other=%b)  # forward
  %z: float32[4] = aten.mul.Tensor(self=%y, other=%{reads})  # forward
  return %z result"""


def test_sums_of_parts_are_added_first() -> None:
    graph = parse_graph(SUMS.format(reads="r"))
    rewritten = AddPartsFirst(frozenset({"a", "b"})).apply(graph)
    check(rewritten)
    check_results(graph, rewritten)
    assert [(node.name, node.operator, node.inputs) for node in rewritten.nodes] == [
        ("y.sum1", "aten.add.Tensor", ("a", "b")),
        ("y", "aten.add.Tensor", ("y.sum1", "r")),
        ("z", "aten.mul.Tensor", ("y", "r")),
    ]
    assert "x" not in rewritten.values


@pytest.mark.parametrize(("reads", "sums"), [("x", {"a", "b"}), ("r", {"a"}), ("r", {"a", "b", "r"})])
def test_sums_that_others_read_or_that_are_alike_stay(reads: str, sums: set[str]) -> None:
    graph = parse_graph(SUMS.format(reads=reads))
    assert AddPartsFirst(frozenset(sums)).apply(graph) is graph


def test_long_sums_are_no_deep_ones() -> None:
    lines = [f'  input %i{number}: float32[4]  batch  "{number}"' for number in range(3000)]
    lines += ["  %s1: float32[4] = aten.add.Tensor(self=%i0, other=%i1)  # forward"]
    for number in range(2, 3000):
        lines.append(f"  %s{number}: float32[4] = aten.add.Tensor(self=%s{number - 1}, other=%i{number})  # forward")
    graph = parse_graph("\n".join(["graph", *lines, "  return %s2999 result"]))
    rewritten = AddPartsFirst(frozenset({"i1", "i2999"})).apply(graph)
    check(rewritten)
    assert rewritten.nodes[0].inputs == ("i1", "i2999")
    assert len(rewritten.nodes) == 2999


def test_sums_that_were_added_first_are_grouped_again_under_other_names() -> None:
    """The pass names sums after the last one; a graph that it has written has such a name already."""
    graph = parse_graph(SUMS.format(reads="r"))
    once = AddPartsFirst(frozenset({"a", "b"})).apply(graph)
    twice = AddPartsFirst(frozenset({"b", "r"})).apply(once)
    check(twice)
    check_results(graph, twice)
    assert twice.nodes[0].inputs == ("b", "r")
