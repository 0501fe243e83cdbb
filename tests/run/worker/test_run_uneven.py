"""Cuts of stated shares run: results are one device's, bytes and peaks are what was predicted, on any operator."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from counts import LONG
from run_programs import program_of, random_strategy, transfers

import girih
from girih.api import plan_graph
from girih.cost.pricing import price
from girih.graph import Graph, Input, Node, Output, Ref, Value
from girih.layout import Mesh, Split
from girih.machine import machine
from girih.partition.searches.proportional import shares_along
from girih.partition.space.options import Rules
from girih.partition.strategy import Strategy
from girih.plans.check import check as check_plan
from girih.program import Blocks, BlockStep, blocked, lower
from girih.program.check import check
from girih.program.life.accounts import memory_use
from girih.run.training.session import start
from girih.simulate.incremental import Simulator

FAST_AND_SLOW = str(Path(__file__).parents[3] / "examples" / "machines" / "fast-and-slow.yaml")
UNEVEN = Rules(repeat=True, partial=True)


def chain(rows: int = 50, width: int = 40, products: int = 3, dtype: str = "float64") -> Graph:
    """x · w0 · w1 · …"""
    values = {"x": Value("x", (rows, width), dtype)}
    nodes, inputs, last = [], [Input("x", "batch", "x")], "x"
    for number in range(products):
        weight, made = f"w{number}", f"y{number}"
        values[weight] = Value(weight, (width, width), dtype)
        values[made] = Value(made, (rows, width), dtype)
        inputs.append(Input(weight, "batch", weight))
        nodes.append(Node(made, "aten.mm", (("self", Ref(last)), ("mat2", Ref(weight))), (made,)))
        last = made
    return Graph(values, tuple(nodes), tuple(inputs), (Output(last, "result"),))


def divided(graph: Graph, cut: str) -> Strategy:
    """Rows of every product are cut so, weights lie everywhere."""
    layouts = {name: "R" if name.startswith("w") else cut for name in graph.values}
    return Strategy.of_texts(Mesh((2,)), [cut] * len(graph.nodes), layouts)


def tensors(graph: Graph) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {item.name: torch.randn(graph.values[item.name].shape, dtype=torch.float64, generator=draw)
            for item in graph.inputs}  # fmt: skip


@pytest.mark.parametrize("backend", ["threads", "processes"])
@pytest.mark.parametrize("cut", ["S0[7:3]", "S1[7:3]"])
def test_a_chain_of_products_is_divided_seven_to_three(backend: str, cut: str) -> None:
    """By rows nothing moves; by columns each product fetches what the other device has of the one before."""
    graph = chain()
    program = lower(graph, divided(graph, cut), transfers(Mesh((2,))))
    check(program)
    given = tensors(graph)
    expected = given["x"]
    for number in range(3):
        expected = expected @ given[f"w{number}"]
    with start(program, backend=backend) as run:
        torch.testing.assert_close(run.step(given)["y2"], expected, rtol=1e-12, atol=1e-12)
        measured = run.statistics()
    assert [item.bytes_received for item in measured] == program.bytes_received().tolist()
    held = program.layout_regions("y2")
    part = 50 * 40 * 8 // 10
    assert (held[..., 1] - held[..., 0]).prod(axis=1).tolist() == [50 * 40 * 7 // 10, 50 * 40 * 3 // 10]
    received = [3 * 3 * part, 3 * 7 * part] if cut == "S1[7:3]" else [0, 0]
    assert program.bytes_received().tolist() == received


def test_peaks_are_what_was_predicted_for_each_part() -> None:
    graph = chain(500, 64)
    program = lower(graph, divided(graph, "S0[7:3]"), transfers(Mesh((2,))))
    with start(program, backend="processes") as run:
        measured = run.peak_bytes(tensors(graph))
    predicted = [memory_use(program, device).peak for device in range(2)]
    weights, row = 3 * 64 * 64 * 8, 64 * 8
    assert predicted == [weights + 2 * 350 * row, weights + 2 * 150 * row]
    assert measured == predicted


def test_loops_over_blocks_have_parts_of_different_lengths() -> None:
    values = {name: Value(name, (101, 30), "float64") for name in ("x", "a", "b", "c")}
    values["s"] = Value("s", (30,), "float64")
    nodes = (
        Node("a", "aten.exp", (("self", Ref("x")),), ("a",)),
        Node("b", "aten.mul.Tensor", (("self", Ref("a")), ("other", Ref("x"))), ("b",)),
        Node("c", "aten.tanh", (("self", Ref("b")),), ("c",)),
        Node("s", "aten.sum.dim_IntList", (("self", Ref("c")), ("dim", (0,))), ("s",)),
    )
    graph = Graph(values, nodes, (Input("x", "batch", "x"),), (Output("s", "result"),))
    cut = dict.fromkeys(("x", "a", "b", "c"), "S0[7:3:1]") | {"s": "R"}
    strategy = Strategy.of_texts(Mesh((3,)), ("S0[7:3:1]",) * 3 + ("S1[7:3:1]",), cut)
    program = blocked(lower(graph, strategy, transfers(Mesh((3,)))), Blocks(cache=1 << 12, call=0.0, small=0))
    (loop,) = [step for step in program.steps if isinstance(step, BlockStep)]
    assert len(loop.members) == 4
    given = tensors(graph)
    with start(program, backend="threads") as run:
        made = run.step(given)["s"]
    x = given["x"]
    torch.testing.assert_close(made, (x.exp() * x).tanh().sum(0), rtol=1e-12, atol=1e-12)


def test_the_fast_device_takes_more_and_both_end_together() -> None:
    """On devices of 70 and 30 TFLOP/s equal halves wait for the slow one."""
    where, graph = machine(FAST_AND_SLOW), chain(10_000, 4096, dtype="float32")
    assert shares_along(where) == ((7, 3),)
    seconds = {}
    for cut in ("S0", "S0[7:3]", "S0[1:1]", "S0[9:1]"):
        program = lower(graph, divided(graph, cut), transfers(Mesh((2,)), "seconds"))
        prices = price(program, where).prices
        seconds[cut] = Simulator(program, where, prices).seconds
        if cut == "S0[7:3]":
            each = prices.before.sum(axis=0)
            assert each[0] == pytest.approx(each[1], rel=1e-3)
    assert seconds["S0"] == seconds["S0[1:1]"]
    assert seconds["S0[7:3]"] == pytest.approx(seconds["S0"] * 30 / 50, rel=0.01)
    assert seconds["S0[7:3]"] < seconds["S0[9:1]"]


@pytest.mark.parametrize("objective", ["bytes", "seconds", "time"])
def test_the_search_proportional_states_the_devices_speeds(objective: str, tmp_path: Path) -> None:
    graph = chain(10_000, 512, dtype="float32")
    plan = plan_graph(graph, machine=FAST_AND_SLOW, search="proportional", objective=objective)
    check_plan(plan)
    stated = {axis.shares for division in plan.strategy.divisions for axis in division.axes if isinstance(axis, Split)}
    assert stated == {(7, 3)}
    plan.save(tmp_path / "plan.json")
    again = girih.load(tmp_path / "plan.json")
    assert (again.strategy, again.machine) == (plan.strategy, plan.machine)
    assert again.certificate.bound <= again.certificate.cost


def test_alike_devices_get_equal_parts() -> None:
    plan = plan_graph(chain(), machine="local:2", search="proportional", objective="bytes")
    assert not any(division.shares for division in plan.strategy.divisions)


@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 2)], ids=str)
@pytest.mark.parametrize("seed", range(4 if LONG else 2))
def test_random_strategies_of_random_shares(example, sizes, seed):
    """Training steps in which every split of every node and value states shares of its own."""
    strategy = random_strategy(example.graph, Mesh(sizes), seed, UNEVEN, shares=True)
    assert any(division.shares for division in strategy.divisions)
    assert any(layout.shares for layout in strategy.layouts.values())
    program = lower(example.graph, strategy, transfers(Mesh(sizes)))
    check(program)
    with start(program, backend="threads", state=example.state) as run:
        example.compare(run, 3)
        measured = run.statistics()
    assert [item.bytes_received for item in measured] == (3 * program.bytes_received()).tolist()


def test_a_checkpoint_goes_from_uneven_to_equal_parts_and_back(example, tmp_path):
    uneven = lower(
        example.graph, random_strategy(example.graph, Mesh((2,)), 1, UNEVEN, shares=True), transfers(Mesh((2,)))
    )
    with start(uneven, backend="threads", state=example.state) as run:
        example.compare(run, 1)
        run.save(tmp_path / "first")
    with start(program_of(example.graph, Mesh((3,)), 4), backend="threads", resume=tmp_path / "first") as run:
        example.compare(run, 1, first=1)
        run.save(tmp_path / "second")
    with start(uneven, backend="threads", resume=tmp_path / "second") as run:
        example.compare(run, 1, first=2)
