"""Steps in pieces: the floor falls, the law and the numbers hold, and the measured peak is the planned one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from counts import random_cases
from graphs import Maker
from hypothesis import given, settings
from hypothesis import strategies as st
from lowered_programs import alone
from run_programs import training

from girih.capture import TrainingStep, capture, state_of
from girih.graph import Graph, Output, Ref
from girih.kernels.evaluate import interpret
from girih.models.catalogue import example
from girih.program import BlockStep, Program, check
from girih.program.life.accounts import memory_use
from girih.program.life.lifetimes import Lifetimes, lifetimes
from girih.program.moves.moves import moved
from girih.program.moves.residency import floor
from girih.program.pieces import Cut, InPieces, PieceFinder, in_pieces
from girih.run.worker.measure import peak_bytes
from girih.run.worker.worker import Worker
from girih.search.memory.belady import belady

Tensors = dict[str, torch.Tensor]


def transformer(batch: int, sequence: int, vocabulary: int) -> tuple[Graph, Tensors, Tensors]:
    """(graph, state, batch) by input names of a training step of gpt-tiny."""
    model = example("gpt-tiny", batch=batch, sequence=sequence, vocabulary=vocabulary, device="cpu")
    optimizer = torch.optim.SGD(model.module.parameters(), lr=0.01)
    step = TrainingStep(model.module, step=model.step, optimizer=optimizer)
    captured, state = capture(step, model.inputs), state_of(step)
    return captured.graph, {item.name: state[item.path] for item in captured.graph.state_inputs}, (
        dict(captured.flatten(model.inputs)) | rates(captured.graph)
    )  # fmt: skip


def perceptron() -> tuple[Graph, Tensors, Tensors]:
    captured, state, batch = training((1024, 24, 32, 8))
    return captured.graph, {item.name: state[item.path] for item in captured.graph.state_inputs}, (
        dict(batch) | rates(captured.graph)
    )  # fmt: skip


def rates(graph: Graph) -> Tensors:
    names = [item.name for item in graph.inputs if item.role == "scalar"]
    return {name: torch.tensor(0.1, dtype=getattr(torch, graph.values[name].dtype)) for name in names}


def compare(one: Program, other: Program, state: Tensors, batch: Tensors, steps: int = 2) -> None:
    """Both have the same results, to reassociation; the second has its planned peak."""
    workers = [Worker(program, 0) for program in (one, other)]
    for worker in workers:
        worker.take_state({name: tensor.clone() for name, tensor in state.items()})
    for _ in range(steps):
        plain, pieces = ({name: made.clone() for name, made in worker.step(dict(batch)).items()} for worker in workers)
        torch.testing.assert_close(pieces, plain)
    torch.testing.assert_close(dict(workers[1].state), dict(workers[0].state))
    assert peak_bytes(workers[1], dict(batch)) == memory_use(other).peak


def half(program: Program, share: float = 0.5) -> tuple[Program, Cut, int]:
    """The program with every step within a share of its floor, and that cap."""
    lives = lifetimes(program)
    cap = int(floor(lives)[0] * share)
    cut = PieceFinder(lives, lifetimes).cuts(cap)
    cutted = in_pieces(program, cut.loops)
    check(cutted)
    assert Program.parse(str(cutted), cutted.graph, cutted.strategy) == cutted
    assert floor(lifetimes(cutted))[0] == cut.floor <= cap
    return cutted, cut, cap


def operators(graph: Graph, step: BlockStep) -> list[str]:
    return [graph.nodes[member.node].operator for member in step.members]


def loops_of(program: Program) -> list[BlockStep]:
    return [step for step in program if isinstance(step, BlockStep)]


def test_the_loss_over_a_large_vocabulary_and_its_gradient_are_one_loop() -> None:
    graph, state, batch = transformer(16, 16, 2048)
    program = alone(graph)
    cutted, _, cap = half(program, 0.6)
    (loop,) = loops_of(cutted)
    names = operators(graph, loop)
    assert {"aten.mm", "girih.logsumexp", "girih.pick", "girih.log_softmax_gradient"} <= set(names)
    logits = 256 * 2048 * 4
    assert all(graph.values[cutted.value_of[name]].bytes < logits for name in loop.writes)
    lives = lifetimes(cutted)
    held = moved(lives, belady(lives, cap, np.ones(len(lives.steps))), cap)
    check(held)
    assert memory_use(held).peak <= cap < floor(lifetimes(program))[0]
    compare(program, held, state, batch)


def test_attention_is_computed_again_in_the_loop_of_the_backward_pass() -> None:
    graph, state, batch = transformer(2, 128, 32)
    program = alone(graph)
    cutted, cut, _ = half(program)
    assert len(loops_of(cutted)) == len(cut.loops) == 4  # forward and backward of two layers
    again = [name for step in loops_of(cutted) for member in step.members for name in member.writes if "~1" in name]
    assert any(name.startswith("softmax_from") for name in again)
    assert any(name.startswith("bmm") for name in again)
    compare(program, cutted, state, batch)


@pytest.mark.parametrize("share", [0.9, 0.65])
def test_a_large_batch_comes_in_micro_batches(share: float) -> None:
    graph, state, batch = perceptron()
    program = alone(graph)
    cutted, _, _ = half(program, share)
    (loop,) = loops_of(cutted)
    assert operators(graph, loop).count("aten.mm") >= 6  # all layers, forward and backward
    assert memory_use(cutted).peak < memory_use(program).peak
    compare(program, cutted, state, batch)


def test_what_is_named_as_the_lowest_floor_can_be_kept() -> None:
    graph, _, _ = perceptron()
    lives = lifetimes(alone(graph))
    least = PieceFinder(lives, lifetimes).cuts(1).floor
    assert 1 < least < floor(lives)[0] * 0.65
    assert PieceFinder(lives, lifetimes).cuts(least).floor == least
    assert PieceFinder(lives, lifetimes).cuts(floor(lives)[0]).loops == ()


@pytest.mark.parametrize(
    ("graph", "views"), [(lambda: transformer(2, 16, 16)[0], True), (lambda: perceptron()[0], False)]
)
def test_what_loops_need_follows_from_the_program_without_a_walk(graph: Callable[[], Graph], views: bool) -> None:
    """views: some loops write what was a view, and are walked."""
    lives = lifetimes(alone(graph()))
    walked: list[Program] = []

    def measured(program: Program) -> Lifetimes:
        walked.append(program)
        return lifetimes(program)

    finder = PieceFinder(lives, measured)
    for share in (0.5,) if views else (0.9, 0.5, 0.25):
        finder.cuts(int(floor(lives)[0] * share))
    assert bool(walked) == views
    assert len(walked) < len(finder.needs)
    assert all(needed == finder.walked(loops) for loops, needed in finder.needs.items())


def test_where_no_sum_is_cut_bits_are_the_same() -> None:
    make = Maker()
    x = make.input((256, 64))
    last = x
    for operator in ("aten.sin", "aten.exp", "aten.tanh"):
        last = make.emit(operator, (256, 64), self=Ref(last))
    total = make.emit("aten.sum.dim_IntList", (256,), self=Ref(last), dim=(1,), keepdim=False)
    graph = make.graph([Output(total, "result")])
    program = alone(graph)
    cutted, _, _ = half(program, 0.75)
    (loop,) = loops_of(cutted)
    assert len(loop.members) == 4
    assert loop.reads == (x,)
    batch = {x: torch.randn(256, 64, dtype=getattr(torch, graph.values[x].dtype))}
    made = Worker(cutted, 0).step(dict(batch))
    assert made[total].equal(interpret(graph, batch)[total])


def chain(random: np.random.Generator, length: int) -> Graph:
    """Element-wise functions, products and differences to column means, of tensors [96, 8], summed up at last.

    Means and not sums: differences to sums grow with every step, and the sine of large numbers magnifies rounding.
    """
    make = Maker()
    weight, large = make.input((8, 8)), [make.input((96, 8))]
    for _ in range(length):
        one, other = (large[int(random.integers(max(0, len(large) - 3), len(large)))] for _ in range(2))
        kind = int(random.integers(4))
        if kind == 0:
            large.append(make.emit("aten.tanh", (96, 8), self=Ref(one)))
        elif kind == 1:
            large.append(make.emit("aten.add.Tensor", (96, 8), self=Ref(one), other=Ref(other)))
        elif kind == 2:
            large.append(make.emit("aten.mm", (96, 8), self=Ref(one), mat2=Ref(weight)))
        else:
            total = make.emit("aten.sum.dim_IntList", (1, 8), self=Ref(other), dim=(0,), keepdim=True)
            mean = make.emit("aten.mul.Scalar", (1, 8), self=Ref(total), other=1 / 96)
            large.append(make.emit("aten.sub.Tensor", (96, 8), self=Ref(one), other=Ref(mean)))
    wave = make.emit("aten.sin", (96, 8), self=Ref(large[-1]))
    return make.graph([Output(make.emit("aten.sum.dim_IntList", (96,), self=Ref(wave), dim=(1,), keepdim=False), "y")])


@given(st.integers(0, 2**32), st.integers(1, 8), st.sampled_from([0.9, 0.7, 0.4]))
@settings(max_examples=random_cases(25))
def test_random_programs_keep_the_law_and_the_numbers(seed: int, length: int, share: float) -> None:
    graph = chain(np.random.default_rng(seed), length)
    program = alone(graph)
    lives = lifetimes(program)
    cut = PieceFinder(lives, lifetimes).cuts(int(floor(lives)[0] * share))
    cutted = in_pieces(program, cut.loops)
    check(cutted)
    assert floor(lifetimes(cutted))[0] == cut.floor <= floor(lives)[0]
    assert (cut.floor < floor(lives)[0]) == bool(cut.loops)
    values = [graph.values[item.name] for item in graph.inputs]
    random = torch.Generator().manual_seed(seed)
    batch = {value.name: torch.rand(value.shape, generator=random) / 8 for value in values}
    made, plain = Worker(cutted, 0).step(dict(batch)), interpret(graph, batch)
    for name, tensor in made.items():
        torch.testing.assert_close(tensor, plain[name], rtol=1e-4, atol=1e-4)


def test_loops_that_cannot_be_are_refused() -> None:
    graph, _, _ = perceptron()
    program = alone(graph)
    (loop,) = half(program, 0.65)[1].loops
    (first, variable), *rest = loop.steps
    for steps, why in (
        (((10_000, 0), *rest), "step 10000 cannot be computed in pieces of its index variable 0"),
        (((first, 64), *rest), f"step {first} cannot be computed in pieces"),
        (((first, 1 - variable), *rest), "is not cut as the steps before it in its loop are"),
    ):
        with pytest.raises(ValueError, match=why):
            in_pieces(program, [replace(loop, steps=steps)])
    assert in_pieces(program, []) == program
    assert InPieces(loop.steps, loop.rows) == loop
