"""The law of a Graph: each kind of breakage is found, and shown with its neighbours."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import perceptron

from girih.graph import Graph, GraphError, Input, Node, Output, Ref, Value, check


def with_node(graph: Graph, number: int, **changes: object) -> Graph:
    nodes = list(graph.nodes)
    nodes[number] = replace(nodes[number], **changes)  # type: ignore[arg-type]
    return Graph(graph.values, tuple(nodes), graph.inputs, graph.outputs)


GRAPH = perceptron(2, 4, 8)


def test_a_good_graph_passes() -> None:
    check(GRAPH)
    check(Graph({}, (), (), ()))


def test_reading_before_making_shows_the_neighbours() -> None:
    swapped = (GRAPH.nodes[0], GRAPH.nodes[2], GRAPH.nodes[1], *GRAPH.nodes[3:])
    with pytest.raises(GraphError, match="'h0' is read before it is made") as caught:
        check(Graph(GRAPH.values, swapped, GRAPH.inputs, GRAPH.outputs))
    lines = str(caught.value).splitlines()
    assert [line[0] for line in lines[:4]] == [" ", "→", " ", " "]
    assert "%z1: float32[4, 8] = aten.mm(self=%h0, mat2=%w1)" in lines[1]
    assert "%z0" in lines[0]
    assert "%h0" in lines[2]


def test_an_unknown_name_is_found_inside_lists() -> None:
    broken = with_node(GRAPH, 3, arguments=(("tensors", (Ref("h0"), (Ref("nobody"),))),))
    with pytest.raises(GraphError, match="'nobody' is read before it is made"):
        check(broken)


def test_making_twice() -> None:
    with pytest.raises(GraphError, match="'z0' is made twice"):
        check(with_node(GRAPH, 1, outputs=("z0",)))
    with pytest.raises(GraphError, match="'x' is made twice"):
        check(with_node(GRAPH, 1, outputs=("x",)))


def test_declaring_an_input_twice() -> None:
    with pytest.raises(GraphError, match="input 'x' is declared twice"):
        check(Graph(GRAPH.values, GRAPH.nodes, (*GRAPH.inputs, Input("x", "batch")), GRAPH.outputs))


def test_values_without_a_maker_and_made_without_a_value() -> None:
    with pytest.raises(GraphError, match="disagree about \\['ghost'\\]"):
        check(replace(GRAPH, values={**GRAPH.values, "ghost": Value("ghost", (), "float32")}))
    extra = Node("ghost", "aten.relu", (("self", Ref("x")),), ("ghost",))
    with pytest.raises(GraphError, match="'ghost'"):
        check(replace(GRAPH, nodes=(*GRAPH.nodes, extra)))


def test_an_output_that_nobody_makes() -> None:
    with pytest.raises(GraphError, match="output 'ghost' is made by no node"):
        check(replace(GRAPH, outputs=(Output("ghost", "result"),)))


def test_replacing() -> None:
    with pytest.raises(GraphError, match="input 'w0' is replaced twice"):
        check(replace(GRAPH, outputs=(Output("n0", "update", "w0"), Output("n1", "update", "w0"))))
    with pytest.raises(GraphError, match=r"'h0' float32\[4, 8\] cannot replace 'w0' float32\[8, 8\]"):
        check(replace(GRAPH, outputs=(Output("h0", "update", "w0"),)))
    with pytest.raises(GraphError, match=r"'ghost'.*no input"):
        check(replace(GRAPH, outputs=(Output("n0", "update", "ghost"),)))
    with pytest.raises(GraphError, match=r"'gw0'.*no input"):
        check(replace(GRAPH, outputs=(Output("n0", "update", "gw0"),)))


def test_a_value_under_another_name() -> None:
    with pytest.raises(GraphError, match="'x'"):
        check(replace(GRAPH, values={**GRAPH.values, "x": Value("y", (4, 8), "float32")}))


def test_derived_facts() -> None:
    assert GRAPH.producer["z0"] == 0
    assert "x" not in GRAPH.producer
    assert GRAPH.consumers["h1"] == (4,)  # read twice by one node
    assert GRAPH.nodes[4].inputs == ("h1", "h1")
    value = Value("v", (2, 3), "bfloat16")
    assert (value.elements, value.item_bytes, value.bytes) == (6, 2, 12)
    assert Value("s", (), "float64").bytes == 8
    assert GRAPH.nodes[-1].attributes == {"alpha": -0.01}
