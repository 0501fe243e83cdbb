"""Published ways to train within less memory: each is a Program that keeps its promise, run for real."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

import numpy as np
import pytest
import torch
from counts import random_cases
from graphs import perceptron, random_graph
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lowered_programs import alone
from run_programs import rates, trained

from girih.api import plan_graph
from girih.ops import description_of
from girih.program import MoveStep, Overlap, Program, TransferStep, check
from girih.program.again import sequenced
from girih.program.life.accounts import memory_use
from girih.program.life.lifetimes import Lifetimes, lifetimes
from girih.program.moves.moves import moved
from girih.program.moves.residency import TooSmallError, floor
from girih.published.memory.activations import LargeModelSupport, Vdnn, VdnnConvolutions
from girih.published.memory.chain import Operation
from girih.published.memory.checkpointing import OptimalChain, SquareRoot
from girih.published.memory.layers import end_of_forward, layers_of
from girih.published.memory.stages import chain_of, layers_forward, sequence_of, staged
from girih.published.memory.swapping import LayerByLayer, OnDemand, Partitioned
from girih.run.worker.measure import peak_bytes
from girih.run.worker.worker import Worker
from girih.search.memory.holds import Baseline, Holding, Setting
from girih.search.memory.orders.locality import updates_early
from girih.search.table import BASELINES, baseline_of, class_of


@cache
def deep():
    """A chain of layers: (captured, state, batch)."""
    torch.manual_seed(0)
    layers = [layer for _ in range(9) for layer in (torch.nn.Linear(24, 24), torch.nn.Tanh())]
    return trained(torch.nn.Sequential(*layers), (64, 24), (64, 24))


@cache
def convolutions():
    """The same of convolutions, whose kernels' scratch memory is a bound here."""
    layers = [layer for _ in range(5) for layer in (torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.Tanh())]
    return trained(torch.nn.Sequential(*layers, torch.nn.Tanh()), (8, 4, 6, 6), (8, 4, 6, 6))


@cache
def ordered(of=deep) -> Lifetimes:
    """Of a step with early updates, as frameworks do them."""
    lives = lifetimes(alone(of()[0].graph))
    return lifetimes(sequenced(lives.program, updates_early(lives)))


def held(lives: Lifetimes, baseline: Baseline, cap: int, copying=(np.inf, np.inf)) -> tuple[Program, Holding]:
    def look(sequence: tuple[int, ...]) -> Lifetimes:
        return lifetimes(sequenced(lives.program, sequence))

    setting = Setting(lives, cap, np.ones(len(lives.steps)), copying, look)
    holding = baseline.hold(setting)
    after = lives if holding.sequence is None else look(holding.sequence)
    return after.program if holding.residency is None else moved(after, holding.residency, cap), holding


def needs(lives: Lifetimes, baseline: Baseline, cap: int) -> int:
    """Bytes that the refusal of a cap names; 0: it is kept."""
    try:
        held(lives, baseline, cap)
    except TooSmallError as error:
        return error.needed
    return 0


def least_cap(lives: Lifetimes, baseline: Baseline) -> int:
    return needs(lives, baseline, 1)


@pytest.mark.parametrize("text", sorted({*BASELINES, "tensorflowmem:size=4"} - {"vdnn-conv", "tensorflowmem"}))
def test_training_has_the_same_bits_and_the_planned_peak(text: str) -> None:
    captured, state, batch = deep()
    lives, baseline = ordered(), baseline_of(text)
    cap, most = least_cap(lives, baseline), int(lives.used.max())
    assert cap < most
    if isinstance(baseline, OnDemand):  # the others do not depend on the cap
        cap += (most - cap) // 3
    program, holding = held(lives, baseline, cap)
    check(program)
    assert bool(program.host) == baseline.moves
    if not baseline.moves:
        assert holding.sequence is not None
        assert len(holding.sequence) > len(lives.steps)
    states = []
    for own in (lives.program, program):
        worker = Worker(own, 0)
        worker.take_state({item.name: state[item.path] for item in captured.graph.state_inputs})
        for _ in range(3):
            worker.step(dict(batch) | rates(captured.graph))
        states.append({key: tensor.clone() for key, tensor in worker.state.items()})
        assert peak_bytes(worker, dict(batch) | rates(captured.graph)) == memory_use(own).peak
    assert all(states[0][key].equal(states[1][key]) for key in states[0])
    assert memory_use(program).peak <= cap


@given(st.integers(0, 2**32), st.integers(1, 14), st.sampled_from(sorted(BASELINES)))
@settings(max_examples=random_cases(80))
def test_random_programs_keep_the_cap_and_the_law(seed: int, nodes: int, name: str) -> None:
    graph = random_graph(np.random.default_rng(seed), nodes)
    assume(all(description_of(graph, node) is not None for node in graph.nodes))
    lives = lifetimes(alone(graph))
    for cap in (floor(lives)[0], int(lives.used.max())):
        if (needed := needs(lives, baseline_of(name), cap)) > cap:
            continue
        assert needed == 0
        program, _ = held(lives, baseline_of(name), cap, (100.0, 70.0))
        check(program)
        assert memory_use(program).peak <= cap


def moves(program: Program) -> set[str]:
    """What is copied out."""
    return {step.source.partition("^")[0] for step in program if isinstance(step, MoveStep) and step.out}


def test_vdnn_moves_inputs_of_layers_and_its_conv_variant_those_of_convolutions() -> None:
    lives = ordered(convolutions)
    cap = int(lives.used.max())
    every, some = (moves(held(lives, way, cap)[0]) for way in (Vdnn(), VdnnConvolutions()))
    assert some < every
    graph = lives.program.graph
    inputs = {node.inputs[0] for node in graph.nodes if node.operator == "aten.convolution"}
    own = {buffer: item for item in lives.storages for buffer in item.buffers}
    assert some == {own[name].name for name in inputs}
    parameters = {item.name for item in graph.state_inputs}
    assert parameters.isdisjoint(every)


def test_vdnn_prefetches_one_layer_ahead() -> None:
    lives = ordered()
    layers = layers_of(lives)
    holding = held(lives, Vdnn(), int(lives.used.max()))[1]
    assert holding.residency is not None
    coming = [stay for stay in holding.residency.stays if not stay.fresh]
    assert coming
    for stay in (stay for stay in coming if stay.start > end_of_forward(lives) + 1):
        assert layers[stay.first] - layers[stay.start] == 1
        assert layers[stay.start] != layers[stay.start - 1]


def test_lms_moves_what_is_far_away_and_prefetches_by_operators() -> None:
    lives = ordered()
    cap = int(lives.used.max())
    counts = [len(moves(held(lives, LargeModelSupport(threshold=far), cap)[0])) for far in (1, 40, 100, 10_000)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[1] > counts[-1] == 0
    residency = held(lives, LargeModelSupport(ahead=3), cap)[1].residency
    assert residency is not None
    assert {stay.first - stay.start for stay in residency.stays if not stay.fresh} <= {1, 2, 3}


def test_layer_by_layer_moves_parameters_too_and_needs_least() -> None:
    lives = ordered()
    parameters = {item.name for item in lives.program.graph.state_inputs if item.role == "parameter"}
    cap = least_cap(lives, LayerByLayer())
    program, _ = held(lives, LayerByLayer(), cap)
    assert parameters <= program.host
    assert cap < min(least_cap(lives, way) for way in (Vdnn(), LargeModelSupport(), SquareRoot()))


def test_on_demand_moves_no_more_than_it_has_to() -> None:
    lives = ordered()
    assert not moves(held(lives, OnDemand(), int(lives.used.max()))[0])
    assert moves(held(lives, OnDemand(), floor(lives)[0])[0])


def test_larger_partitions_need_more_memory() -> None:
    lives = ordered()
    caps = [least_cap(lives, Partitioned(size=size)) for size in (4, 16, 64)]
    assert caps == sorted(caps)
    assert caps[0] < caps[-1]


def test_without_placement_parameters_stay() -> None:
    lives = ordered()
    parameters = {item.name for item in lives.program.graph.state_inputs}
    for text, away in (("size=4", True), ("size=4,placement=no", False), ("size=4,visit=depth-guided", True)):
        baseline = baseline_of(f"tensorflowmem:{text}")
        program, _ = held(lives, baseline, least_cap(lives, baseline))
        assert parameters.isdisjoint(program.host) != away


def test_square_root_computes_all_but_the_last_segment_once_more() -> None:
    lives = ordered()
    layers = layers_forward(lives)
    _, holding = held(lives, SquareRoot(), least_cap(lives, SquareRoot()))
    assert holding.sequence is not None
    times = np.bincount(holding.sequence, minlength=len(lives.steps))
    assert set(times.tolist()) == {1, 2}
    stages = staged(lives, int(np.ceil(np.sqrt(layers))))
    assert stages.count == int(np.ceil(np.sqrt(layers)))
    last = range(stages.forward[-2], len(lives.steps))
    assert times[last].max() == 1
    assert times[: stages.forward[-2]].sum() > 1.5 * stages.forward[-2]


def test_the_optimum_for_chains_is_never_worse_than_the_square_root() -> None:
    lives = ordered()
    square = least_cap(lives, SquareRoot())
    assert least_cap(lives, OptimalChain()) <= square
    lengths = []
    for cap in np.linspace(least_cap(lives, OptimalChain()), int(lives.used.max()), 6).astype(int).tolist():
        program, holding = held(lives, OptimalChain(), cap)
        assert memory_use(program).peak <= cap
        lengths.append(len(holding.sequence or lives.steps))
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] == len(lives.steps)
    chosen = held(lives, OptimalChain(), square)[1].sequence
    own = held(lives, SquareRoot(), square)[1].sequence
    assert chosen is not None
    assert own is not None
    assert len(chosen) <= 1.03 * len(own)  # it counts whole stages


def test_stages_follow_the_layers_and_have_all_steps_once() -> None:
    lives = ordered()
    for count in (1, 3, 7, 1000):
        stages = staged(lives, count)
        assert stages.count <= count
        assert list(stages.forward) == sorted(set(stages.forward))
        assert stages.forward[-1] == end_of_forward(lives) + 1
        behind = [at for stage in reversed(stages.backward) for at in stage]
        assert behind == list(range(stages.forward[-1], len(lives.steps)))
        whole = [Operation(at) for at in range(stages.count)]
        whole += [Operation(at, backward=True) for at in reversed(range(stages.count))]
        assert sequence_of(stages, whole) == tuple(range(len(lives.steps)))
        chain = chain_of(stages, np.ones(len(lives.steps)))
        assert chain.seconds.sum() == stages.forward[-1]
        assert (chain.tape <= chain.most[1]).all()


@pytest.mark.parametrize("window", [Overlap(), Overlap(4, 16)])
def test_stages_that_come_again_may_fetch_again(window: Overlap) -> None:
    graph = perceptron(9, 128, 64)
    plan = plan_graph(graph, machine="titanx-40g:2", memory="unlimited", search="sharded", compare=())
    plan = plan.but(overlap=window)
    lives = plan.lifetimes
    stages = staged(lives, 3)
    operations = [Operation(stage) for stage in range(stages.count)]
    for stage in reversed(range(stages.count)):
        operations += [Operation(stage), Operation(stage, backward=True)]
    times, peaks = [], []
    for fetching in (False, True):
        sequence = sequence_of(stages, operations, fetching)
        own = plan.but(sequence=sequence)
        check(own.unmoved)
        times.append(sum(isinstance(lives.steps[at], TransferStep) for at in sequence))
        peaks.append(own.peak)
    assert times[0] == len(plan.lowered.transfers) < times[1]
    assert peaks[1] < peaks[0]


def test_what_does_not_go_backward_is_left_as_it_is() -> None:
    lives = lifetimes(alone(random_graph(np.random.default_rng(3), 8)))
    cap = int(lives.used.max())
    for name in ("sqrt", "chain", "lms", "vdnn"):
        program, _ = held(lives, baseline_of(name), cap)
        assert [str(step) for step in program] == [str(step) for step in lives.program]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("magic", "no baseline 'magic': expected one of odswap, lms, vdnn"),
        ("vdnn:size=3", "vdnn has no option 'size': it has none"),
        ("chain:sizes=3", "chain has no option 'sizes': expected one of stages, slots"),
        ("chain:stages=none", "chain: option stages is a whole number of at least 1, got 'none'"),
        ("lms:ahead=0", "lms: option ahead is a whole number of at least 1, got 0"),
        (
            "tensorflowmem:visit=3",
            "tensorflowmem: option visit is one of depth-first, depth-guided, depth-first-guided",
        ),
    ],
)
def test_what_is_no_baseline_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        baseline_of(text)


def test_the_table_has_them_by_their_names() -> None:
    for name in BASELINES:
        cls = class_of("baseline", name)
        assert cls.name == name
        assert baseline_of(name) == cls()
        assert len(cls.summary()) > 40
    assert baseline_of("chain:stages=32,slots=100") == OptimalChain(stages=32, slots=100)
    assert baseline_of(own := SquareRoot()) is own
    assert [item.name for item in fields(Partitioned)] == ["size", "running", "ahead", "visit", "placement"]
