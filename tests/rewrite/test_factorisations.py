"""Factorisations in tiles: the same factors, the same names, in a graph that keeps its law."""

from __future__ import annotations

import pytest
import torch

from girih.graph import Graph, Input, Node, Output, Ref, Value
from girih.kernels.evaluate import interpret
from girih.rewrite import check
from girih.rewrite.passes import factorisations
from girih.rewrite.passes.factorisations import DivideFactorisations, panels_of

TWO = DivideFactorisations(workers=2, small=100, cache=1 << 12)


def graph(
    operator: str, shape: tuple[int, ...], *results: tuple[int, ...], dtype: str = "float64", **more: bool
) -> Graph:
    names = ("y", *(f"y.{number}" for number in range(1, len(results))))
    real = factorisations.REAL.get(dtype, dtype)
    kinds = (dtype, real, dtype) if operator == "aten._linalg_svd" else (real if "svdvals" in operator else dtype,) * 2
    values = [Value("x", shape, dtype), *map(Value, names, results, kinds)]
    given = ("self" if "cholesky" in operator else "A", Ref("x"))
    node = Node("y", operator, (given, *more.items()), names, source="program.py:3")
    outputs = tuple(Output(name, "result") for name in names)
    return Graph({value.name: value for value in values}, (node,), (Input("x", "state", "x"),), outputs)


CASES = {
    "qr": graph("aten.linalg_qr", (301, 6), (301, 6), (6, 6)),
    "qr, padded": graph("aten.linalg_qr", (300, 5), (300, 5), (5, 5), dtype="complex128"),
    "triangle": graph("girih.triangular_factor", (301, 6), (6, 6)),
    "svd": graph("aten._linalg_svd", (301, 6), (301, 6), (6,), (6, 6), full_matrices=False),
    "wide svd": graph("aten._linalg_svd", (6, 301), (6, 6), (6,), (6, 301), full_matrices=False, dtype="complex128"),
    "singular values": graph("aten.linalg_svdvals", (301, 6), (6,)),
    "cholesky": graph("aten.linalg_cholesky", (40, 40), (40, 40)),
    "cholesky, padded": graph("aten.linalg_cholesky", (61, 61), (61, 61), dtype="complex128"),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factorisations, "LEAST", 20)
    monkeypatch.setattr(factorisations, "WIDTH", 16)


@pytest.mark.parametrize("name", CASES)
def test_it_computes_the_same(name: str) -> None:
    before = CASES[name]
    after = TWO.apply(before)
    check(before, after)
    assert len(after.nodes) > 1
    assert {node.source for node in after.nodes} == {"program.py:3"}
    x = torch.randn(before.values["x"].shape, dtype=getattr(torch, before.values["x"].dtype))
    if "cholesky" in name:
        x = x @ x.mH + len(x) * torch.eye(len(x), dtype=x.dtype)
    was, now = interpret(before, {"x": x}), interpret(after, {"x": x})
    if "svd" in name:  # U and Vh have signs of their own; what they are factors of is x
        torch.testing.assert_close((now["y"] * now["y.1"]) @ now["y.2"], x)
        was, now = {"y.1": was["y.1"]}, {"y.1": now["y.1"]}
    for item in was.keys() & {output.name for output in after.outputs}:
        torch.testing.assert_close(now[item], was[item])


@pytest.mark.parametrize(
    "whole",
    [
        graph("aten.linalg_qr", (40, 40), (40, 40), (40, 40)),
        graph("aten.linalg_qr", (2, 301, 6), (2, 301, 6), (2, 6, 6)),
        graph("aten.linalg_cholesky", (12, 12), (12, 12)),
        graph("aten._linalg_svd", (301, 6), (301, 301), (6,), (6, 6), full_matrices=True),
    ],
)
def test_what_is_small_square_or_stacked_stays_whole(whole: Graph) -> None:
    assert TWO.apply(whole) is whole


def test_what_nobody_reads_is_not_computed() -> None:
    both = CASES["qr"]
    alone = Graph(both.values, both.nodes, both.inputs, both.outputs[1:])
    operators = [node.operator for node in TWO.apply(alone).nodes]
    assert operators.count("aten.linalg_qr") == 2
    assert "aten.bmm" not in operators


def test_panels_divide_among_the_workers() -> None:
    count, width = panels_of(61, 3)
    assert width % 3 == 0
    assert (count - 1) * width < 61 <= count * width
