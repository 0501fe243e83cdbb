"""Repeated layers and timesteps are found in the graph."""

from __future__ import annotations

import pytest

from girih.capture import TrainingStep, capture
from girih.graph import Graph, Repeat, parse_graph, repeats
from girih.models import example


def captured(name: str, **options: int) -> Graph:
    made = example(name, **options)
    return capture(TrainingStep(made.module, step=made.step), made.inputs).graph


def chain(layers: int, extra: int) -> Graph:
    lines, last = ['input %x: float32[8, 8]  batch  "0"'], "x"
    for number in range(layers):
        for place, operator in enumerate(["aten.relu", "aten.tanh", *["aten.sigmoid"] * 6]):
            lines.append(f"%v{number}_{place}: float32[8, 8] = {operator}(self=%{last})  # forward")
            last = f"v{number}_{place}"
    for number in range(extra):
        lines.append(f"%e{number}: float32[8, 8] = aten.exp(self=%{last})  # forward")
        last = f"e{number}"
    return parse_graph("\n".join([*lines, f"return %{last} result"]))


@pytest.mark.parametrize("layers", [3, 5, 7])
def test_a_chain_of_equal_layers(layers: int) -> None:
    # The first layer is fed by the batch and not by a node: the run that repeats begins one node later.
    (found,) = repeats(chain(layers, 3))
    assert found.period == 8
    assert found.count in (layers, layers - 1)
    assert found.stop <= 8 * layers + 3


def test_nothing_repeats_in_one_layer() -> None:
    assert repeats(chain(1, 2)) == ()


def test_transformer_blocks_forward_and_backward() -> None:
    graph = captured("gpt-6-64", heads=2, sequence=16, vocabulary=64, batch=2)
    found = repeats(graph)
    phases = {graph.nodes[part.start].phase: part.count for part in found}
    assert phases["forward"] == 6
    assert phases["backward"] in (5, 6)
    assert all(isinstance(part, Repeat) and part.stop <= len(graph.nodes) for part in found)


def test_timesteps_of_an_unrolled_network() -> None:
    graph = captured("rnn-2-32", steps=7, input=16, vocabulary=16, batch=4)
    assert max(part.count for part in repeats(graph) if graph.nodes[part.start].phase == "forward") in (6, 7)
