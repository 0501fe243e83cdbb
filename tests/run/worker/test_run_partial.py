"""A term beside a divided sum: it stays the partial sums that it already is, and one exchange serves for both."""

from __future__ import annotations

import pytest
import torch
from run_programs import transfers

from girih.graph import Graph, Input, Node, Output, Ref, Value
from girih.layout import PARTIAL, REPLICATE, Mesh
from girih.partition.strategy import PASS, REPEAT, Strategy
from girih.program import Program, lower
from girih.program.check import check
from girih.run.training.session import start

ROWS, DEPTH, COLUMNS = 4, 6, 5


def added() -> Graph:
    """z = x·y + 0.5·(v·w), the first by aten.mm, the rest by aten.addmm."""
    shapes = {"x": (ROWS, DEPTH), "y": (DEPTH, COLUMNS), "v": (ROWS, DEPTH), "w": (DEPTH, COLUMNS)}
    values = {name: Value(name, shape, "float64") for name, shape in shapes.items()}
    values |= {name: Value(name, (ROWS, COLUMNS), "float64") for name in ("p", "z")}
    nodes = (
        Node("p", "aten.mm", (("self", Ref("x")), ("mat2", Ref("y"))), ("p",)),
        Node(
            "z",
            "aten.addmm",
            (("self", Ref("p")), ("mat1", Ref("v")), ("mat2", Ref("w")), ("beta", 1), ("alpha", 0.5)),
            ("z",),
        ),
    )
    inputs = tuple(Input(name, "batch", name) for name in shapes)
    return Graph(values, nodes, inputs, (Output("z", "result"),))


def gathered() -> Graph:
    """z = zeros, to which rows are added: the gradient of a look-up."""
    values = {
        "rows": Value("rows", (DEPTH, COLUMNS), "float64"),
        "index": Value("index", (DEPTH,), "int64"),
        "p": Value("p", (ROWS, COLUMNS), "float64"),
        "z": Value("z", (ROWS, COLUMNS), "float64"),
    }
    nodes = (
        Node("p", "aten.full", (("size", (ROWS, COLUMNS)), ("fill_value", 0.0), ("dtype", "float64")), ("p",)),
        Node(
            "z",
            "aten.index_add",
            (("self", Ref("p")), ("dim", 0), ("index", Ref("index")), ("source", Ref("rows"))),
            ("z",),
        ),
    )
    inputs = (Input("rows", "batch", "rows"), Input("index", "batch", "index"))
    return Graph(values, nodes, inputs, (Output("z", "result"),))


def programs() -> dict[str, Program]:
    mesh = Mesh((2,))
    by_depth = {"x": (1,), "y": (0,), "v": (1,), "w": (0,), "p": (PARTIAL,), "z": (REPLICATE,)}
    by_rows = {"rows": (0,), "index": (0,), "p": (PARTIAL,), "z": (REPLICATE,)}
    return {
        "added": lower(added(), Strategy.of_codes(mesh, ((2,), (2,)), by_depth), transfers(mesh)),
        "gathered": lower(gathered(), Strategy.of_codes(mesh, ((PASS,), (2,)), by_rows), transfers(mesh)),
    }


@pytest.mark.parametrize("name", ["added", "gathered"])
def test_a_term_stays_partial(name: str) -> None:
    program = programs()[name]
    draw = torch.Generator().manual_seed(0)
    given = {
        item.name: torch.randint(0, ROWS, (DEPTH,), generator=draw)
        if item.name == "index"
        else torch.randn(program.graph.values[item.name].shape, dtype=torch.float64, generator=draw)
        for item in program.graph.inputs
    }
    if name == "added":
        expected = given["x"] @ given["y"] + 0.5 * (given["v"] @ given["w"])
    else:
        expected = torch.zeros(ROWS, COLUMNS, dtype=torch.float64).index_add(0, given["index"], given["rows"])
    with start(program, backend="threads") as run:
        torch.testing.assert_close(run.step(given)["z"], expected, rtol=1e-12, atol=1e-12)
        received = [item.bytes_received for item in run.statistics()]
    assert sum(received) == 2 * ROWS * COLUMNS * 8  # one reduce-scatter and one all-gather, of z alone


def test_a_whole_term_is_added_once() -> None:
    """One device keeps it, the others begin with zeros."""
    mesh = Mesh((2,))
    layouts = {"x": (REPLICATE,), "y": (REPLICATE,), "v": (1,), "w": (0,), "p": (REPLICATE,), "z": (REPLICATE,)}
    program = lower(added(), Strategy.of_codes(mesh, ((REPEAT,), (2,)), layouts), transfers(mesh))
    check(program)
    draw = torch.Generator().manual_seed(0)
    given = {
        item.name: torch.randn(program.graph.values[item.name].shape, dtype=torch.float64, generator=draw)
        for item in program.graph.inputs
    }
    with start(program, backend="threads") as run:
        made = run.step(given)["z"]
    expected = given["x"] @ given["y"] + 0.5 * (given["v"] @ given["w"])
    torch.testing.assert_close(made, expected, rtol=1e-12, atol=1e-12)
