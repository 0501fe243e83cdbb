"""Broken programs are found, and shown with their neighbours."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import machine_of, perceptron

from girih.api import plan_graph
from girih.graph import Graph, parse_graph
from girih.layout import PARTIAL, Mesh, among, becomes_partial, parse_sharding
from girih.partition.space.problem import Objective
from girih.partition.strategy import PASS, REPEAT, Strategy
from girih.plans.check import check as check_plan
from girih.plans.plan import PlanError
from girih.program import (
    ComputeStep,
    FreeStep,
    Overlap,
    Program,
    ProgramError,
    StartStep,
    TransferStep,
    check,
    lower,
    overlapped,
)


@pytest.fixture
def program() -> Program:
    graph = perceptron(2, 8, 12)
    strategy = Strategy.of_codes(Mesh((2,)), tuple((0,) for _ in graph.nodes), dict.fromkeys(graph.values, (0,)))
    return overlapped(lower(graph, strategy, Objective("bytes", machine_of((2,))).transfers), Overlap(3, 3))


def without(program: Program, position: int) -> Program:
    return replace(program, steps=program.steps[:position] + program.steps[position + 1 :])


def inserted(program: Program, position: int, *steps) -> Program:
    return replace(program, steps=program.steps[:position] + steps + program.steps[position:])


def first(program: Program, kind: type) -> int:
    return next(number for number, step in enumerate(program.steps) if isinstance(step, kind))


def started(program: Program) -> tuple[int, int]:
    """The positions of the first start and its finish."""
    start = first(program, StartStep)
    return start, program.steps.index(program.steps[start].transfer)  # type: ignore[union-attr]


def broken(program: Program, message: str) -> str:
    with pytest.raises(ProgramError, match=message) as found:
        check(program)
    return str(found.value)


def test_a_sound_program_passes(program: Program) -> None:
    check(program)
    assert any(isinstance(step, StartStep) for step in program)


def test_exchanges_are_finished_once(program: Program) -> None:
    start, finish = started(program)
    target = program.steps[finish].target  # type: ignore[union-attr]
    broken(without(program, finish), f"{target} is read, but its exchange has only started")
    broken(inserted(program, finish, program.steps[finish]), f"{target} is made a second time")
    broken(inserted(program, start, program.steps[start]), "was started or made before")
    broken(inserted(program, finish + 1, program.steps[start]), "was started or made before")
    last = replace(program, steps=program.steps[: finish - 1])
    broken(last, "exchanges were started and never finished")
    other = replace(program.steps[finish], purpose="store")
    changed = replace(program, steps=(*program.steps[:finish], other, *program.steps[finish + 1 :]))
    broken(changed, "was started otherwise")


def test_sources_live_until_the_finish(program: Program) -> None:
    start, finish = started(program)
    source = program.steps[start].transfer.source  # type: ignore[union-attr]
    text = broken(inserted(program, finish, FreeStep((source,))), f"{source} is freed while the exchange")
    assert f"step {finish} of" in text
    shown = text.splitlines()[1:]
    assert len(shown) == 7
    assert [line[0] for line in shown] == [" ", " ", " ", ">", " ", " ", " "]
    assert f"free     {source}" in shown[3]
    assert "transfer" in shown[4]


def test_buffers_are_made_before_they_are_read_and_freed_once(program: Program) -> None:
    compute, free = first(program, ComputeStep), first(program, FreeStep)
    gone = program.steps[free].buffers[0]  # type: ignore[union-attr]
    broken(inserted(program, free, program.steps[free]), f"{gone} is freed, but it was freed before")
    broken(without(program, compute), "is read, but nothing has made it|where node 0 is the next")
    output = program.graph.outputs[0].name
    broken(inserted(program, len(program.steps), FreeStep((output,))), "leaves the program or stays")
    broken(inserted(program, 0, FreeStep(("nobody",))), "nobody is freed, but nothing has made it")


def test_transfers_start_where_their_source_lies(program: Program) -> None:
    _, finish = started(program)
    step = program.steps[finish]
    assert isinstance(step, TransferStep)
    other = next(place for name, place in program.places.items() if name not in (step.source, step.target))
    moved = replace(program, places={**program.places, step.source: other})
    broken(moved, "to lie where it does not")


# ------------------------------------------------------------------------------------------- partial sums


Laid = dict[str, tuple[int, ...]]
LARGEST = """graph
  input %x: float32[8, 12]  batch  "0"
  %m: float32[8] = aten.amax(self=%x, dim=[1], keepdim=False)  # forward
  %r: float32[8] = aten.neg(self=%m)  # forward
  return %r result"""


def laid(graph: Graph, layouts: Laid, divisions: Laid, sizes: tuple[int, ...] = (2,), overlap: int = 3) -> Program:
    """A program of a graph of which everything is divided along dimension 0 on every axis, but for what is given."""
    rows = (0,) * len(sizes)
    parts = tuple(divisions.get(node.name, rows) for node in graph.nodes)
    strategy = Strategy.of_codes(Mesh(sizes), parts, dict.fromkeys(graph.values, rows) | layouts)
    plain = lower(graph, strategy, Objective("bytes", machine_of(sizes)).transfers)
    return overlapped(plain, Overlap(overlap, overlap))


def test_partial_sums_that_are_made_may_stay_and_pass_on() -> None:
    program = laid(
        perceptron(2, 8, 12),
        {"g1": (PARTIAL,), "gz0": (PARTIAL,), "gw0": (PARTIAL,)},
        {"g1": (2,), "gz0": (PASS,), "gw0": (PASS - 1,)},  # mm: i, j, and the sum over k
    )
    check(program)
    assert [program.places[name].partial for name in ("g1", "gz0", "gw0", "n0")] == [(2,), (2,), (2,), (0,)]
    assert {step.value for step in program.transfers if any(step.before.partial)} == {"gw0"}  # n0 adds them


def test_a_largest_element_that_is_divided_is_combined_at_once() -> None:
    check(laid(parse_graph(LARGEST), {}, {"m": (1,)}))


@pytest.mark.parametrize(
    ("layouts", "divisions", "told"),
    [
        ({"h0": (PARTIAL,)}, {"h0": (PASS - 2,)}, r"node h0 \(aten.relu\) .* to value h0 .* linear in none of its"),
        ({"gz1": (PARTIAL,)}, {"gz1": (PASS - 2,)}, r"node gz1 \(aten.mul.Tensor\) lets .* linear in 2 sets of its"),
        ({"x": (PARTIAL,)}, {}, "input x is to lie as 2 partial sums .* no node makes it"),
    ],
)  # fmt: skip
def test_partial_sums_that_nobody_makes_are_refused(layouts: Laid, divisions: Laid, told: str) -> None:
    broken(laid(perceptron(2, 8, 12), layouts, divisions), told)


@pytest.mark.parametrize(
    ("layouts", "divisions"),
    [({"z0": (PARTIAL,)}, {}), ({"h0": (PARTIAL,)}, {"h0": (REPEAT,)}), ({}, {"z1": (PASS,)})],
)
def test_what_lies_there_becomes_partial_sums(layouts: Laid, divisions: Laid) -> None:
    program = laid(perceptron(2, 8, 12), layouts, divisions)
    check(program)
    made = [step for step in program.transfers if becomes_partial(step.before, step.after)]
    assert made
    assert all(program.exchange_of(step).kind == "local copy" for step in made)


def test_what_lies_elsewhere_does_not_become_partial_sums() -> None:
    program = laid(perceptron(2, 8, 12), {}, {"z1": (REPEAT, PASS)}, (2, 2), 0)
    check(program)
    hop = next(step for step in program.transfers if step.target.endswith("+1"))
    second = program.steps.index(next(step for step in program.transfers if step.source == hop.target))
    straight = replace(program.steps[second], source=hop.source, before=hop.before)
    steps = [*program.steps[:second], straight, *program.steps[second + 1 :]]
    steps.remove(hop)
    told = r"node z1 \(aten.mm\) lets 2 partial sums of value h0 pass .* none, nor .* there: let the node"
    broken(replace(program, steps=tuple(steps)), told)


@pytest.mark.parametrize("division", [(1,), (0,)])
def test_only_sums_stay_partial(division: tuple[int, ...]) -> None:
    told = "value m of node m .* combined by max, and only sums"
    broken(laid(parse_graph(LARGEST), {"m": (PARTIAL,)}, {"m": division}), told)


def test_partial_sums_are_held_against_each_axis_and_each_coordinate() -> None:
    sums: Laid = {"z0": (2, 0)}
    check(laid(perceptron(2, 8, 12), {"z0": (PARTIAL, 0)}, sums, (2, 3)))
    check(laid(perceptron(2, 8, 12), {"z0": (0, PARTIAL)}, sums, (2, 3)))  # added first
    both = laid(perceptron(2, 8, 12), {"z0": (among(PARTIAL, (0, 1)),)}, {"z0": (among(2, (0, 1)),)}, (4,))
    check(both)
    other = laid(perceptron(2, 8, 12), {"z0": (among(PARTIAL, (2, 3)),)}, {"z0": (among(2, (0, 1)),)}, (4,))
    broken(other, r"value z0 is to lie as 2 partial sums along mesh axis 0 \(of 4\), but .* makes 2 others")


@pytest.mark.parametrize("search", ["exact", "data", "model", "single"])
@pytest.mark.parametrize("objective", ["bytes", "seconds"])
def test_plans_pass_and_those_changed_by_hand_are_refused(search: str, objective: str) -> None:
    plan = plan_graph(perceptron(2), machine=machine_of((2, 2)), search=search, objective=objective)
    check_plan(plan)
    layouts = plan.strategy.layouts | {"w0": parse_sharding("P·P")}
    with pytest.raises(PlanError, match="w0"):
        check_plan(plan.but(strategy=replace(plan.strategy, layouts=layouts)))
