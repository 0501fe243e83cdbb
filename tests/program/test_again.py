"""What is dropped is computed again: any sequence keeps the law and the numbers, and the cut is the cheapest choice."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest
import torch
from counts import random_cases
from graphs import random_graph
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lowered_programs import alone
from numpy.typing import NDArray
from run_programs import rates, trained

from girih.api import plan_graph
from girih.graph import parse_graph
from girih.kernels.evaluate import interpret
from girih.ops import description_of
from girih.program import Overlap, Program, check
from girih.program.again import sequenced, with_again
from girih.program.life.accounts import memory_use
from girih.program.life.lifetimes import Lifetimes, lifetimes
from girih.program.moves.moves import moved
from girih.program.moves.residency import floor
from girih.run.training.session import start
from girih.run.worker.measure import peak_bytes
from girih.run.worker.worker import Worker
from girih.search.memory.belady import belady
from girih.search.memory.cut import boundaries, cheapest, pivot_of
from girih.search.memory.orders.locality import updates_early


def drawn(seed: int, nodes: int) -> Lifetimes:
    graph = random_graph(np.random.default_rng(seed), nodes)
    assume(all(description_of(graph, node) is not None for node in graph.nodes))
    return lifetimes(alone(graph))


def deep():
    """A chain of layers: (captured, state, batch)."""
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(24, 24), torch.nn.Tanh())]
    return trained(torch.nn.Sequential(*layers), (16, 24), (16, 24))


def able(lives: Lifetimes) -> list[int]:
    """The steps that make something that does not stay."""
    return [item.born for item in lives.storages if item.born >= 0 and not item.lasts]


@given(st.integers(0, 2**32), st.integers(2, 14), st.randoms(use_true_random=False))
@settings(max_examples=random_cases(80))
def test_any_steps_come_again_within_any_cap(seed: int, nodes: int, random) -> None:
    lives = drawn(seed, nodes)
    makers = able(lives)
    kept = {item.born for item in lives.storages if item.lasts}
    again = [step for step in makers if random.random() < 0.5 and step not in kept]
    program = sequenced(lives.program, with_again(lives, random.randrange(len(lives.steps)), again))
    check(program)
    assert Program.parse(str(program), program.graph, program.strategy) == program
    anew = lifetimes(program)
    assert int(anew.used.max()) == memory_use(program).peak
    for cap in {floor(anew)[0], (floor(anew)[0] + int(anew.used.max())) // 2}:
        held = moved(anew, belady(anew, cap, np.ones(len(anew.steps)), rates=(100.0, 70.0)), cap)
        check(held)
        assert memory_use(held).peak <= cap


def cost(lives: Lifetimes, seconds: NDArray[np.float64], pivot: int, price: float, again: frozenset[int]) -> float:
    """What a choice costs: bytes that are kept, and seconds of what is computed again."""
    number_of = {buffer: number for number, item in enumerate(lives.storages) for buffer in item.buffers}
    state = {number for pair in lives.state for number in pair}
    needed = {
        number
        for number, item in enumerate(lives.storages)
        if item.born <= pivot and any(step > pivot for step in item.touched)
    }
    for step in again:
        needed |= {number_of[buffer] for buffer in lives.steps[step].sources if buffer in number_of}
    kept = [lives.storages[number] for number in needed if number not in state and not lives.storages[number].lasts]
    return float(
        sum(price * item.bytes for item in kept if item.born not in again) + sum(seconds[list(again)], start=0.0)
    )


@given(st.integers(0, 2**32), st.integers(2, 9), st.sampled_from([1e-3, 1e-2, 0.1, 1.0]))
@settings(max_examples=random_cases(60))
def test_the_cut_is_the_cheapest_of_all_choices(seed: int, nodes: int, price: float) -> None:
    lives = drawn(seed, nodes)
    seconds = np.random.default_rng(seed).integers(1, 9, len(lives.steps)).astype(float)
    pivot = pivot_of(lives)
    makers = sorted(step for step in set(able(lives)) if step <= pivot)
    choices = map(frozenset, chain.from_iterable(combinations(makers, size) for size in range(len(makers) + 1)))
    least = min(cost(lives, seconds, pivot, price, choice) for choice in choices)
    chosen = cheapest(lives, seconds, pivot, price)
    assert cost(lives, seconds, pivot, price, chosen & set(makers)) == pytest.approx(least, rel=1e-6)


def test_dear_bytes_are_few_bytes_and_kept_boundaries_are_kept() -> None:
    lives = lifetimes(alone(deep()[0].graph))
    seconds = np.ones(len(lives.steps))
    pivot = pivot_of(lives)
    counts = [len(cheapest(lives, seconds, pivot, price)) for price in (0.0, 1e-4, 1e-3, 1e-2, 1.0)]
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert counts[-1] > 0
    kept = boundaries(lives, seconds, pivot, 3)
    assert kept
    assert not {lives.storages[number].born for number in kept} & cheapest(lives, seconds, pivot, 1.0, kept)


def test_training_has_the_same_bits_and_the_planned_peak() -> None:
    captured, state, batch = deep()
    lives = lifetimes(alone(captured.graph))
    early = sequenced(lives.program, updates_early(lives))
    ordered = lifetimes(early)
    pivot = pivot_of(ordered)
    seconds = np.ones(len(ordered.steps))
    again = cheapest(ordered, seconds, pivot, 1.0, boundaries(ordered, seconds, pivot, 4))
    dropped = sequenced(early, with_again(ordered, pivot, again))
    assert len(lifetimes(dropped).steps) > len(ordered.steps)
    states = []
    for program in (lives.program, early, dropped):
        check(program)
        worker = Worker(program, 0)
        worker.take_state({item.name: state[item.path] for item in captured.graph.state_inputs})
        for _ in range(10):
            worker.step(dict(batch) | rates(captured.graph))
        states.append({name: tensor.clone() for name, tensor in worker.state.items()})
        assert peak_bytes(worker, dict(batch) | rates(captured.graph)) == memory_use(program).peak
    assert all(states[0][name].equal(other[name]) for other in states[1:] for name in states[0])


SHARED = """graph
  input %x: float64[64, 32]  batch  "0"
  input %u: float64[128, 64]  batch  "1"
  input %v: float64[128, 64]  batch  "2"
  %early: float64[128, 32] = aten.mm(self=%u, mat2=%x)  # forward
  %a: float64[128, 32] = aten.tanh(self=%early)  # forward
  %b: float64[128, 32] = aten.mul.Tensor(self=%early, other=%a)  # forward
  %c: float64[128, 32] = aten.mul.Tensor(self=%a, other=%b)  # forward
  %late: float64[128, 32] = aten.mm(self=%v, mat2=%x)  # forward
  %d: float64[128, 32] = aten.add.Tensor(self=%c, other=%late)  # forward
  return %d result"""
"""x is brought once to where both products read all of it."""


@pytest.mark.parametrize("window", [Overlap(), Overlap(4, 16)])
def test_what_two_readers_share_is_fetched_again_for_the_later(window: Overlap) -> None:
    graph = parse_graph(SHARED)
    plan = plan_graph(graph, machine="local:2", memory="unlimited", objective="bytes", compare=()).but(overlap=window)
    lives = plan.lifetimes
    between, copy = lives.maker["c"], lives.maker["x.copy"]
    fetched = lives.maker["x@x.copy.0"]
    seconds = np.ones(len(lives.steps))
    assert {copy, fetched} <= cheapest(lives, seconds, between, 1.0)
    assert fetched not in cheapest(lives, seconds, between, 1.0, fetching=False)
    anew = plan.but(sequence=with_again(lives, between, {copy, fetched}))
    check(anew.unmoved)
    there = [(item.born, item.last) for item in anew.lifetimes.storages if item.name.startswith("x.copy")]
    between = anew.lifetimes.maker["c"]
    assert len(there) == 2
    assert not any(born <= between <= last for born, last in there)
    assert anew.bytes_received.tolist() == (2 * plan.bytes_received).tolist()
    draw = torch.Generator().manual_seed(0)
    given = {item.name: torch.randn(graph.values[item.name].shape, dtype=torch.float64, generator=draw)
             for item in graph.inputs}  # fmt: skip
    with start(anew.program, backend="processes") as run:
        torch.testing.assert_close(run.step(given)["d"], interpret(graph, given)["d"], rtol=1e-12, atol=1e-12)
        assert [item.bytes_received for item in run.statistics()] == anew.bytes_received.tolist()
        assert run.peak_bytes(given) == [use.peak for use in anew.memory_by_device]


def test_gradients_do_not_wait_for_the_end() -> None:
    captured, _, _ = deep()
    lives = lifetimes(alone(captured.graph))
    phases = [captured.graph.nodes[lives.steps[number].node].phase for number in updates_early(lives)]
    assert "backward" in phases[phases.index("update") :]
    assert memory_use(sequenced(lives.program, updates_early(lives))).peak < memory_use(lives.program).peak


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda order: order[1:], "reads|leaves out step 0"),
        (lambda order: order[::-1], "which no step before it in the sequence makes"),
        (lambda order: [*order, len(order)], "the sequence has step"),
        (lambda order: [*order, order[-1]], "comes again, but what it makes stays"),
    ],
)
def test_a_sequence_that_cannot_be_is_refused(change, message: str) -> None:
    program = alone(deep()[0].graph)
    with pytest.raises(ValueError, match=message):
        sequenced(program, change(list(range(len(lifetimes(program).steps)))))
