"""The text form of a Graph: it round-trips, and what cannot be read names its line."""

from __future__ import annotations

import math

import numpy as np
import pytest
from counts import random_cases
from graphs import perceptron, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from girih.graph import Argument, Graph, GraphError, Input, Node, Output, Ref, Value, check, format_graph, parse_graph
from girih.graph.graph import format_argument
from girih.graph.text import parse_argument

awkward = st.sampled_from(
    ["inf", "a inf, b", "%x", 'say "%x" [1, 2]', "a  # b", "a = b", "\\", '\\"', "\n", "é😀", "nan", ""]
)
scalars = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.none(),
    st.text(),
    awkward,
    st.from_regex(r"[a-z][\w.]{0,6}", fullmatch=True).map(Ref),
)
arguments = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8)


def typed(argument: Argument) -> object:
    """1, 1.0 and True are equal but not the same."""
    if isinstance(argument, tuple):
        return tuple(map(typed, argument))
    return (type(argument), argument, math.copysign(1, argument) if isinstance(argument, float) else 0)


@given(arguments)
@settings(max_examples=random_cases(300), deadline=None)
def test_an_argument_round_trips(argument: Argument) -> None:
    assert typed(parse_argument(format_argument(argument))) == typed(argument)


@pytest.mark.parametrize("number", [math.inf, -math.inf, -0.0, 1e300, 5e-324, 0.1])
def test_floats_are_exact(number: float) -> None:
    assert typed(parse_argument(format_argument((number,)))) == typed((number,))


def test_nan_round_trips() -> None:
    (number,) = parse_argument(format_argument((math.nan,)))  # type: ignore[misc]
    assert math.isnan(number)  # type: ignore[arg-type]


@given(st.lists(arguments, min_size=1, max_size=5))
@settings(max_examples=random_cases(100), deadline=None)
def test_a_graph_with_any_arguments_round_trips(items: list[Argument]) -> None:
    given_arguments = tuple((f"a{number}", item) for number, item in enumerate(items))
    node = Node("y", "test.any", given_arguments, ("y", "z.1"), "backward")
    values = {v.name: v for v in (Value("x", (2,), "int64"), Value("y", (), "bool"), Value("z.1", (0, 3), "bfloat16"))}
    graph = Graph(values, (node,), (Input("x", "batch", '0/"a"  b'),), (Output("y", "loss"),))
    assert parse_graph(str(graph)) == graph


@given(st.integers(0, 2**32), st.integers(0, 12))
@settings(max_examples=random_cases(60), deadline=None)
def test_random_graphs_round_trip(seed: int, nodes: int) -> None:
    graph = random_graph(np.random.default_rng(seed), nodes)
    check(graph)
    assert parse_graph(format_graph(graph)) == graph


def test_a_training_step_round_trips_with_its_roles() -> None:
    graph = perceptron(2)
    check(graph)
    again = parse_graph(str(graph))
    assert again == graph
    assert again.updates == {"w0": "n0", "w1": "n1"}
    assert again.role_of("x") == "batch"
    assert again.role_of("z0") is None
    assert [item.path for item in again.state_inputs] == ["w0", "w1"]


def test_sources_and_scopes_round_trip() -> None:
    text = """graph
  input %x: float32[2]  batch  "0"
  %y: float32[2] = aten.relu(self=%x)  # forward, /a b/model.py:12, layers.0
  %z: float32[2] = aten.relu(self=%y)  # backward, layers.1
  %u: float32[2] = aten.relu(self=%z)  # update
  return %u result"""
    graph = parse_graph(text)
    assert [(node.phase, node.source, node.scope) for node in graph.nodes] == [
        ("forward", "/a b/model.py:12", "layers.0"),
        ("backward", "", "layers.1"),
        ("update", "", ""),
    ]
    assert str(graph) == text


@pytest.mark.parametrize(
    "line",
    [
        'input %x float32[2]  batch  "0"',
        "input %x: float32[2]  batch  unquoted",
        "input %x: float32[2]",
        "%y: float32[a] = aten.relu(self=%x)  # forward",
        "%y: float32[2] = aten.relu(self=)  # forward",
        "%y: float32[2] = aten.relu(self=[%x)  # forward",
        "%y: float32[2] = aten.relu(self=1 + 1)  # forward",
        '%y: float32[2] = aten.relu(self="open)  # forward',
        "%y: float32[2] = aten.relu(self={1: 2})  # forward",
        "%y: float32[2]",
        "%y: float32[2] = aten.relu",
        "gibberish",
        "return %y",
    ],
)
def test_what_cannot_be_read_names_its_line(line: str) -> None:
    text = f'graph\n  input %a: float32[2]  batch  "0"\n\n  {line}\n  return %a result'
    with pytest.raises(GraphError, match="line 4 of the graph cannot be read") as caught:
        parse_graph(text)
    assert line in str(caught.value).replace("\\'", "'").replace('\\"', '"')
