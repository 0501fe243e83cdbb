"""Values held as partial maxima and minima: where the search looks for them, against trying all, and run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from counts import random_cases
from graphs import machine_of, perceptron
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.array_programs import Program, least_bytes, random_program
from girih.graph import Graph, Ref, parse_graph
from girih.kernels.evaluate import interpret
from girih.layout import PARTIAL_BY, REPLICATE, Mesh
from girih.ops.derive.passing import passages
from girih.ops.known import descriptions
from girih.partition.searches.exact import Exact
from girih.partition.space.extremes import extremes_of
from girih.partition.space.problem import Objective
from girih.partition.strategy import PASS, Strategy
from girih.program import check, lower
from girih.run.training.session import start

TWO = Objective("bytes", machine_of((2,)))

ROWS_AND_COLUMNS = """graph
  input %a0: float64[16, 12]  batch  "0"
  %v0: float64[16, 12] = aten.maximum(self=%a0, other=%a0)  # forward
  %v1: float64[16] = aten.amin(self=%a0, dim=[1], keepdim=False)  # forward
  %v2: float64[12] = aten.amax(self=%a0, dim=[0], keepdim=False)  # forward
  %v3: float64[16, 12] = aten.add.Tensor(self=%v0, other=%v2)  # forward
  return %v1 result, %v3 result"""


def largest_of_columns(middle: str = "relu") -> Graph:
    """middle((A @ B).max(0)).max() of 64×48 by 48×40."""
    made = Program()
    columns = made.extreme(made.dot(made.newarray(64, 48), made.newarray(48, 40)), 0)
    made.extreme(made.emit(f"aten.{middle}", (40,), self=Ref(columns)), 0)
    return made.graph()


def test_a_maximum_of_maxima_is_combined_once() -> None:
    graph = largest_of_columns()
    narrow = Exact(space="tofu").search(graph, TWO).certificate.cost
    found = Exact().search(graph, TWO)
    assert found.certificate.cost == found.certificate.bound == 48 * 40 * 8 + 2 * 8  # half of B each, and a number each
    assert narrow == 48 * 40 * 8 + 40 * 8 + 2 * 8
    assert {str(found.strategy.layouts[name]) for name in ("v1", "v2")} == {"Pmax"}
    program = lower(graph, found.strategy, TWO.transfers)
    check(program)
    assert program.bytes_received().sum() == found.certificate.cost


def test_where_maxima_may_stay_partial() -> None:
    two, four = Mesh((2,)), Mesh((2, 2))
    assert extremes_of(largest_of_columns("neg"), two).values == {"v1": ("max",)}  # no amax lets the minima of v2 pass
    assert extremes_of(largest_of_columns("square"), two).values == {}
    assert extremes_of(largest_of_columns("tanh"), two).values == {"v1": ("max",), "v2": ("max",)}
    assert extremes_of(largest_of_columns("square"), four).values == {"v3": ("max",)}  # it is one number
    assert set(extremes_of(largest_of_columns("square"), four, once=True).values) == {"v1", "v3"}
    training = extremes_of(perceptron(2), four)
    assert not training.values
    assert not training.passed


def test_on_two_axes_a_maximum_is_combined_where_it_is_read() -> None:
    """Cut by both axes it would lie in quarters of which its reader, which is divided by rows too, wants others."""
    graph, aim = parse_graph(ROWS_AND_COLUMNS), Objective("bytes", machine_of((2, 2)))
    found = Exact().search(graph, aim)
    assert found.certificate.cost == found.certificate.bound == least_bytes(graph, aim, 2**16) == 320
    assert str(found.strategy.layouts["v2"]) == "Pmax·S0"


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.sampled_from([(2,), (3,), (2, 2)]))
@settings(max_examples=random_cases(25), suppress_health_check=[HealthCheck.filter_too_much])
def test_no_way_to_hold_maxima_moves_less(seed: int, operators: int, sizes: tuple[int, ...]) -> None:
    """Everything is tried, also where the search does not look."""
    graph = random_program(np.random.default_rng(seed), operators, (12, 16), extremes=True)
    aim = Objective("bytes", machine_of(sizes))
    least = least_bytes(graph, aim, 2**14)
    assume(least is not None)
    found = Exact().search(graph, aim)
    assert found.certificate.cost == found.certificate.bound == least
    program = lower(found.graph or graph, found.strategy, aim.transfers)
    check(program)
    assert program.bytes_received().sum() == least


@pytest.mark.parametrize("seed", range(6))
def test_plans_with_extremes_run_and_receive_what_was_predicted(seed: int) -> None:
    graph = random_program(np.random.default_rng(seed), 8, (12, 16), extremes=True)
    aim = Objective("bytes", machine_of((2, 2)))
    found = Exact().search(graph, aim)
    batch = {item.name: torch.randn(graph.values[item.name].shape, dtype=torch.float64) for item in graph.inputs}
    made, received = ran(lower(found.graph or graph, found.strategy, aim.transfers), batch)
    assert received == found.certificate.cost
    for item in graph.outputs:
        torch.testing.assert_close(made[item.name], interpret(graph, batch)[item.name], rtol=1e-10, atol=1e-10)


LARGEST = """graph
  input %x: {dtype}[8, 6]  batch  "x"
  input %w: {dtype}[6]  batch  "w"
  %m: {dtype}[6] = aten.{fold}(self=%x, dim=[0], keepdim=False)  # forward
  %z: {dtype}[6] = aten.{pair}(self=%m, other=%w)  # forward
  %t: {dtype}[] = aten.{fold}(self=%z, dim=[0], keepdim=False)  # forward
  return %t result"""


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "int64", "int8", "uint8", "bool"])
@pytest.mark.parametrize("reducer", ["max", "min"])
@pytest.mark.parametrize("whole", [True, False])
def test_each_dtype_begins_with_what_changes_nothing(dtype: str, reducer: str, whole: bool) -> None:
    """A vector that is whole, or split, becomes partial, and meets partial results of a matrix."""
    text = LARGEST.format(dtype=dtype, fold=f"a{reducer}", pair=f"{reducer}imum")
    graph = parse_graph(text)
    item = getattr(torch, dtype)
    if item.is_floating_point:
        x, w = torch.randn(8, 6).to(item), torch.randn(6).to(item)
    elif dtype == "bool":  # all alike, so that what a device begins with would be seen
        x, w = (torch.full(shape, reducer == "min", dtype=item) for shape in ((8, 6), (6,)))
    else:
        limits = torch.iinfo(item)
        x, w = (torch.randint(limits.min // 2, limits.max // 2, shape).to(item) for shape in ((8, 6), (6,)))
    program = divided(graph, reducer, whole)
    made, received = ran(program, {"x": x, "w": w})
    assert torch.equal(made["t"], interpret(graph, {"x": x, "w": w})["t"])
    assert received == program.bytes_received().sum() == 2 * item.itemsize


@pytest.mark.parametrize("reducer", ["max", "min"])
@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinities_come_through_as_on_one_device(reducer: str, odd: float) -> None:
    graph = parse_graph(LARGEST.format(dtype="float64", fold=f"a{reducer}", pair=f"{reducer}imum"))
    for place in range(3):
        x, w = torch.full((8, 6), odd if place == 2 else 1.0, dtype=torch.float64), torch.full((6,), 2.0).double()
        (x[7] if place == 0 else w)[5] = odd
        made, _ = ran(divided(graph, reducer, False), {"x": x, "w": w})
        assert torch.equal(made["t"].nan_to_num(7.0), interpret(graph, {"x": x, "w": w})["t"].nan_to_num(7.0))


def divided(graph: Graph, reducer: str, whole: bool) -> Any:
    """The matrix by rows; what follows from it stays partial until the last number."""
    partial = PARTIAL_BY[reducer]
    through = [
        PASS
        - next(number for number, one in enumerate(passages(item)) if one.takes == reducer and len(one.inputs) == count)
        for item, count in zip(descriptions(graph)[1:], (2, 1), strict=True)
    ]
    layouts = {"x": (0,), "w": (REPLICATE if whole else 0,), "m": (partial,), "z": (partial,), "t": (REPLICATE,)}
    strategy = Strategy.of_codes(Mesh((2,)), ((1,), *((code,) for code in through)), layouts)
    program = lower(graph, strategy, TWO.transfers)
    check(program)
    return program


def ran(program: Any, batch: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], int]:
    """What threads make of a batch, and the bytes that they receive."""
    with start(program, backend="threads", state={}) as run:
        made = run.step(batch)
        return made, sum(item.bytes_received for item in run.statistics())
