"""Searches against brute force, against one another, and against what a strategy must be to run."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from counts import random_cases
from graphs import Maker, machine_of, perceptron, random_graph
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from oracles import brute_force

from girih.graph import Graph, Output, Ref, parse_graph
from girih.layout import PARTIAL, REPLICATE, Mesh
from girih.machine import machine
from girih.partition.search import Search
from girih.partition.searches.exact import exact
from girih.partition.solver.elimination import cost_of
from girih.partition.space.options import SECONDS, SOAP, Rules, layouts_of
from girih.partition.space.problem import Objective, build, value_variables
from girih.partition.strategy import SearchResult
from girih.program import lower
from girih.program.lower import node_placements
from girih.rewrite.certificate import Certificate
from girih.search.table import SEARCHES, search_of

NARROW = Rules(small=0)


def same(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-9 * max(abs(one), abs(other))


def check_result(graph: Graph, objective: Objective, found: SearchResult, dearer: bool = False) -> None:
    """A strategy that can run, at the cost that it claims. dearer: its program may cost less than it says."""
    strategy, certificate = found.strategy, found.certificate
    graph = found.graph or graph
    mesh = objective.machine.mesh
    assert strategy.mesh == mesh
    assert set(strategy.layouts) == set(graph.values)
    assert len(strategy.divisions) == len(graph.nodes)
    for old, new in graph.updates.items():
        assert strategy.layouts[old].codes == strategy.layouts[new].codes
    for item in (*graph.inputs, *graph.outputs):
        assert PARTIAL not in strategy.layouts[item.name].codes
    for name, layout in strategy.layouts.items():
        parts = [prod(s for s, code in zip(mesh.sizes, layout.codes, strict=True) if code == d) for d in range(9)]
        assert len(layout.axes) == mesh.axes
        assert all(parts[d] <= size for d, size in enumerate(graph.values[name].shape))
    assert 0 <= certificate.bound <= certificate.cost * (1 + 1e-12) < np.inf
    assert certificate.unit == objective.name
    program = lower(graph, strategy, objective.transfers)
    if objective.name == "bytes":
        assert program.bytes_received().sum() == certificate.cost


# ------------------------------------------------------------------------------------------- brute force


@given(
    st.integers(0, 2**32),
    st.integers(1, 3),
    st.sampled_from([(2,), (3,), (2, 2)]),
    st.sampled_from(["bytes", "seconds"]),
)
@settings(max_examples=random_cases(60), suppress_health_check=list(HealthCheck))
def test_exact_is_the_minimum_over_all_labelings(seed: int, nodes: int, sizes: tuple, name: str) -> None:
    graph = random_graph(np.random.default_rng(seed), nodes)
    objective = Objective(name, machine_of(sizes))
    rules = NARROW if name == "bytes" else Rules(repeat=True, partial=len(sizes) == 1)
    problem = build(graph, objective, rules)
    assume(prod(problem.problem.domains) <= 4000)
    try:
        least = brute_force(problem.problem).cost
    except ValueError:
        with pytest.raises(ValueError, match="infeasible"):
            exact(graph, objective, rules=rules)
        return
    found = exact(graph, objective, rules=rules)
    assert same(found.certificate.cost, least)
    assert found.certificate.gap == 0
    assert found.certificate.stopped == "optimal"
    check_result(graph, objective, found)


@given(st.integers(0, 2**32), st.integers(2, 4))
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
def test_the_minimum_by_random_search_is_never_below(seed: int, nodes: int) -> None:
    random = np.random.default_rng(seed)
    graph = random_graph(random, nodes)
    objective = Objective("bytes", machine_of((2, 2)))
    problem = build(graph, objective, NARROW)
    found = exact(graph, objective, rules=NARROW).certificate.cost
    for _ in range(300):
        labels = np.asarray([random.integers(size) for size in problem.problem.domains])
        assert cost_of(problem.problem, labels) >= found


# ------------------------------------------------------------------------------------------- against one another

# Under `bytes` most searches keep to Tofu's rule; these may copy at will, and so move less.
PLACING = {"one-weird-trick", "model", "rnn-expert", "hybrid", "parameter-server"}  # and these may place
COPYING = {"data", "sharded", "single", "megatron", *PLACING}
SCORED = {"optimum", "sampled", "portfolio", "joint"}  # these ask for the simulated step
# Not pipelines, which want micro-batches (test_pipeline.py), nor "megatron", which wants blocks (test_megatron.py), nor
# "stages", which wants a training step (search/test_stages.py), nor "vertices", which wants a graph network
# (gnn/partitioner/test_search.py), nor "experts", which wants some (published/divisions/test_experts.py).
PARTICULAR = ("pipeline", "pipeline-1f1b", "stages", "megatron", "vertices", "experts")
ANY_GRAPH = [name for name in SEARCHES if name not in (*PARTICULAR, *SCORED)]
# These may end where Tofu's rule of least copies does not hold: it is applied to what they may choose from.
OTHERWISE = {"row", "equal", "recursive"}


def in_its_space(name: str) -> Search:
    """A search by name; of the exact one that of Tofu's space, with which the others are compared. The whole space has
    tests of its own (test_fetches.py)."""
    return search_of("exact:space=tofu" if name == "exact" else name)


@pytest.mark.parametrize("sizes", [(2,), (2, 2), (2, 3)])
@pytest.mark.parametrize("objective", ["bytes", "seconds"])
def test_nothing_is_below_exact_on_a_perceptron(sizes: tuple[int, ...], objective: str) -> None:
    graph, goal = perceptron(2, 96, 192), Objective(objective, machine_of(sizes))
    best = exact(graph, goal)
    free = exact(graph, goal, rules=SECONDS)
    placed = exact(graph, goal, rules=SOAP)
    for name in [*ANY_GRAPH, "megatron"]:
        found = in_its_space(name).search(graph, goal)
        check_result(graph, goal, found)
        least = placed if name in PLACING else free if objective == "seconds" or name in COPYING else best
        assert found.certificate.cost >= least.certificate.cost * (1 - 1e-9), name
    assert free.certificate.cost <= best.certificate.cost


@given(st.integers(0, 2**32), st.integers(4, 12), st.sampled_from([(2,), (2, 2)]))
@example(7, 4, (2,))  # a server makes what only its share is read for
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
def test_nothing_is_below_exact_on_random_graphs(seed: int, nodes: int, sizes: tuple[int, ...]) -> None:
    graph = random_graph(np.random.default_rng(seed), nodes, (32, 48, 64, 96), 96 * 96 * 64)
    for objective in ("bytes", "seconds"):
        goal = Objective(objective, machine_of(sizes))
        best = exact(graph, goal)
        free = exact(graph, goal, rules=SECONDS)
        placed = exact(graph, goal, rules=SOAP)
        assert best.certificate.gap == free.certificate.gap == placed.certificate.gap == 0
        assert placed.certificate.cost <= free.certificate.cost * (1 + 1e-9)
        for name in ANY_GRAPH:
            found = in_its_space(name).search(graph, goal)
            check_result(graph, goal, found)
            if name in PLACING:
                assert found.certificate.cost >= placed.certificate.cost * (1 - 1e-9), name
            elif objective == "seconds" or name in COPYING | OTHERWISE:
                assert found.certificate.cost >= free.certificate.cost * (1 - 1e-9), name
            else:
                assert found.certificate.cost >= best.certificate.cost, name


@pytest.mark.parametrize("name", [*ANY_GRAPH, "megatron"])
@pytest.mark.parametrize("where", ["local:1", "local:2", "local:3", "1x2", "2x2"])
def test_every_search_on_every_machine(name: str, where: str) -> None:
    graph = perceptron(2 if name == "megatron" else 1, 12, 18)
    for objective in ("bytes", "seconds"):
        goal = Objective(objective, machine(where))
        found = search_of(name).search(graph, goal)
        check_result(graph, goal, found)
        if goal.machine.devices == 1 and objective == "bytes":
            assert found.certificate.cost == 0


@pytest.mark.parametrize("name", [*ANY_GRAPH, "megatron"])
def test_searches_are_deterministic(name: str) -> None:
    graph, goal = perceptron(2, 96, 192), Objective("bytes", machine_of((2, 2)))
    assert search_of(name).search(graph, goal).strategy == search_of(name).search(graph, goal).strategy


# ------------------------------------------------------------------------------------------- each search's own promise


def test_data_parallelism_splits_the_batch_and_replicates_weights() -> None:
    graph, goal = perceptron(2, 64, 96), Objective("bytes", machine_of((2, 2)))
    found = search_of("data").search(graph, goal)
    layouts = {name: layout.codes for name, layout in found.strategy.layouts.items()}
    assert layouts["x"] == (0, 0)
    assert {layouts[name] for name in ("w0", "w1", "n0", "n1")} == {(REPLICATE, REPLICATE)}
    for name in ("z0", "h0", "z1", "h1", "gz1", "g1"):
        assert layouts[name] == (0, 0)
    assert layouts["t1"] == (1, 1)
    for number, node in enumerate(graph.nodes):
        if node.phase != "update" and node.name != "u1":  # the transpose of a weight
            assert REPLICATE not in found.strategy.divisions[number].codes, node.name
    # A reduce-scatter and an all-gather of each gradient: 2 (p - 1) times its bytes.
    assert found.certificate.cost == 2 * 2 * 3 * 96 * 96 * 4


def test_sharded_state_is_held_once() -> None:
    graph, goal = perceptron(2, 64, 96), Objective("bytes", machine_of((2, 2)))
    found = search_of("sharded").search(graph, goal)
    for name in ("w0", "w1"):
        assert REPLICATE not in found.strategy.layouts[name].codes
    assert found.strategy.layouts["x"].codes == (0, 0)
    # ZeRO-3: both weights are gathered for the forward pass, the second one again for the backward pass (the input
    # wants no gradient), and both gradients are scattered.
    assert found.certificate.cost == (2 + 1 + 2) * 3 * 96 * 96 * 4


def test_a_parameter_server_gathers_gradients_and_hands_out_weights() -> None:
    graph, goal = perceptron(2, 64, 96), Objective("bytes", machine_of((2, 2)))
    assert search_of("parameter-server").search(graph, goal).certificate.cost == 2 * 2 * 3 * 96 * 96 * 4


def test_rows() -> None:
    graph, goal = perceptron(2, 64, 96), Objective("bytes", machine_of((2, 2)))
    assert set(map(str, search_of("row").search(graph, goal).strategy.layouts.values())) == {"S0·S0"}


def test_no_division_along_reductions() -> None:
    graph, goal = perceptron(2, 96, 192), Objective("bytes", machine_of((2, 2)))
    found = search_of("no-reduction").search(graph, goal)
    for number, node in enumerate(graph.nodes):
        for place in node_placements(graph, number, found.strategy).makes:
            assert not place.partial.any(), node.name


def test_equal_chop_cuts_one_dimension() -> None:
    graph, goal = perceptron(2, 96, 192), Objective("bytes", machine_of((2, 2)))
    found = search_of("equal").search(graph, goal)
    for sharding in (*found.strategy.layouts.values(), *found.strategy.divisions):
        assert len(set(sharding.axes)) == 1


def test_tofus_rule_divides_all_work_and_holds_large_tensors_once() -> None:
    graph, goal = perceptron(2, 96, 192), Objective("bytes", machine_of((2, 2)))
    for name in ("exact", "recursive", "greedy"):
        found = in_its_space(name).search(graph, goal)
        for value, layout in found.strategy.layouts.items():
            assert REPLICATE not in layout.codes, (name, value)
        for division in found.strategy.divisions:
            assert min(division.codes) >= 0, name


def test_one_matrix_product_by_hand() -> None:
    """[128, 64] x [64, 128], two devices, all held once: rows of a stay, each fetches half of b: 32 KiB in all."""
    make = Maker()
    a, b = make.input((128, 64)), make.input((64, 128), "parameter")
    y = make.emit("aten.mm", (128, 128), self=Ref(a), mat2=Ref(b))
    graph = make.graph([Output(y, "result")])
    found = exact(graph, Objective("bytes", machine_of((2,))), rules=NARROW)
    assert found.certificate.cost == 128 * 64 * 4


def test_undescribed_operators_run_whole() -> None:
    text = """graph
  input %x: float32[64, 128]  batch  "0"
  %y: float32[64, 128] = test.unknown(self=%x)  # forward
  return %y result"""
    graph = parse_graph(text)
    goal = Objective("bytes", machine_of((2,)))
    found = exact(graph, goal)
    assert list(map(str, found.strategy.divisions)) == ["R"]
    assert found.certificate.cost == 64 * 128 * 4  # each device fetches the half that it lacks
    check_result(graph, goal, found)


# ------------------------------------------------------------------------------------------- options


@given(st.integers(0, 2**32), st.integers(1, 6))
@settings(max_examples=random_cases(60))
def test_nodes_and_values_are_never_without_a_choice(seed: int, nodes: int) -> None:
    graph = random_graph(np.random.default_rng(seed), nodes)
    for rules in (Rules(), NARROW, Rules(one_dimension=True, small=0), Rules(reductions=False, small=0), SECONDS):
        problem = build(graph, Objective("bytes", machine_of((2, 2))), rules)
        assert min(problem.problem.domains) >= 1
        for number, options in enumerate(problem.options):
            node = graph.nodes[number]
            for name, places in zip(node.outputs, options.makes, strict=True):
                check_pieces_cover(graph, name, places.regions)


def check_pieces_cover(graph: Graph, name: str, regions: np.ndarray) -> None:
    """The pieces of every division cover the output, all elements equally often."""
    shape = graph.values[name].shape or (1,)
    for pieces in regions:
        times = np.zeros(shape, np.int64)
        for piece in pieces:
            times[tuple(slice(int(low), int(high)) for low, high in piece)] += 1
        assert times.min() == times.max() >= 1


def test_layouts_never_leave_a_device_empty_and_stored_values_are_never_partial() -> None:
    value = perceptron(1, 3, 5).values["x"]
    mesh = Mesh((2, 2))
    free = layouts_of(value, mesh, SECONDS, stored=False)
    stored = layouts_of(value, mesh, SECONDS, stored=True)
    assert (0, 0) not in free  # three rows, four devices
    assert (1, 1) in free
    assert (PARTIAL, PARTIAL) in free
    assert not any(PARTIAL in layout for layout in stored)
    assert set(stored) < set(free)


def test_values_that_replace_one_another_share_a_variable() -> None:
    graph = perceptron(2, 4, 8)
    variable = value_variables(graph)
    assert variable["w0"] == variable["n0"] != variable["w1"] == variable["n1"]
    assert sorted(set(variable.values())) == list(range(len(graph.values) - 2))


def test_gaps() -> None:
    def gap(cost: float, bound: float) -> float:
        return Certificate(cost, bound, "bytes", "", "", "", {}).gap

    assert (gap(0, 0), gap(5, 5), gap(6, 5), gap(1, 0)) == (0, 0, pytest.approx(0.2), np.inf)
