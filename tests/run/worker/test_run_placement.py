"""Operators and tensors on a part of the devices (FlexFlow's operator dimension): the results are one device's."""

from __future__ import annotations

import pytest
from counts import LONG
from run_programs import program_of, random_strategy, transfers

from girih.layout import Mesh, among, kind_of
from girih.partition.space.options import Rules
from girih.partition.strategy import Strategy
from girih.program import lower
from girih.program.life.accounts import memory_use
from girih.run.training.session import start

PLACED = Rules(repeat=True, partial=True, places=True)


@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 2), (3, 2)], ids=str)
@pytest.mark.parametrize("seed", range(6 if LONG else 2))
def test_random_placed_strategies(example, sizes, seed):
    program = program_of(example.graph, Mesh(sizes), seed, PLACED)
    with start(program, backend="threads", state=example.state) as run:
        example.compare(run, 3)
        measured = run.statistics()
    assert [item.bytes_received for item in measured] == (3 * program.bytes_received()).tolist()


def test_the_strategies_do_place(example):
    """The random strategies are no weak test: nodes and values lie on one coordinate, beside axes that divide them."""
    strategies = [random_strategy(example.graph, Mesh((2, 2)), seed, PLACED) for seed in range(6)]
    divisions = [division.codes for strategy in strategies for division in strategy.divisions]
    assert any(code != kind_of(code) for division in divisions for code in division)
    assert any(any(code != kind_of(code) for code in division) and max(division, key=kind_of) >= 0
               for division in divisions)  # fmt: skip
    assert any(code != kind_of(code) for s in strategies for layout in s.layouts.values() for code in layout.codes)
    scalars = [name for name, value in example.graph.values.items() if not value.shape]
    assert any(code != kind_of(code) for s in strategies for name in scalars for code in s.layouts[name].codes)


def layers_on_devices(example, mesh, device_of):
    """Model parallelism: everything of a parameter's layer on one device; what belongs to none stays everywhere."""
    graph = example.graph
    layer = {item.name: item.path.split(".")[0].split("/")[0] for item in graph.inputs if item.role == "parameter"}
    divisions, layouts = [], dict.fromkeys(graph.values, (-1,))
    for name, which in layer.items():
        layouts[name] = layouts[graph.updates[name]] = (among(-1, device_of(which)),)
    for node in graph.nodes:
        of = {layer[name] for name in node.inputs if name in layer}
        divisions.append((among(-1, device_of(of.pop())),) if len(of) == 1 else (-1,))
    return Strategy.of_codes(mesh, tuple(divisions), layouts)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_each_layer_on_a_device_of_its_own(example, backend):
    order = {"first": (0,), "second": (1, 2), "last": (3,)}
    mesh = Mesh((4,))
    program = lower(example.graph, layers_on_devices(example, mesh, order.__getitem__), transfers(mesh))
    with start(program, backend=backend, state=example.state) as run:
        example.compare(run, 3)


def test_what_lies_elsewhere_takes_no_memory(example):
    order = {"first": (0,), "second": (1,), "last": (1,)}
    mesh = Mesh((2,))
    program = lower(example.graph, layers_on_devices(example, mesh, order.__getitem__), transfers(mesh))
    values, held = example.graph.values, [memory_use(program, device).state for device in range(2)]
    parameters = [item for item in example.graph.inputs if item.role == "parameter"]
    everywhere = sum(values[item.name].bytes for item in example.graph.state_inputs) - sum(
        values[item.name].bytes for item in parameters
    )
    first = sum(values[item.name].bytes for item in parameters if item.path.startswith("first"))
    total = sum(values[item.name].bytes for item in parameters)
    assert held == [everywhere + first, everywhere + total - first]


def test_a_checkpoint_goes_from_placed_to_divided(example, tmp_path):
    order = {"first": (0,), "second": (1,), "last": (1,)}
    mesh = Mesh((2,))
    placed = lower(example.graph, layers_on_devices(example, mesh, order.__getitem__), transfers(mesh))
    with start(placed, backend="threads", state=example.state) as run:
        example.compare(run, 1)
        run.save(tmp_path / "saved")
    divided = program_of(example.graph, Mesh((3,)), 4)
    with start(divided, backend="threads", resume=tmp_path / "saved") as run:
        example.compare(run, 2, first=1)
