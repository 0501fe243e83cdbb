"""Movements out of a device and back keep the cap, the law and the numbers, on random programs and by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from counts import random_cases
from graphs import Maker, random_graph
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lowered_programs import alone
from run_programs import rates, training

from girih.graph import Output, Ref
from girih.ops import description_of
from girih.program import MoveStep, Program, ProgramError, StartStep, check
from girih.program.life.accounts import live_bytes, memory_use
from girih.program.life.lifetimes import Lifetimes, lifetimes
from girih.program.moves.moves import moved
from girih.program.moves.residency import TooSmallError, floor
from girih.run.worker.measure import peak_bytes
from girih.run.worker.worker import Worker
from girih.search.memory.belady import belady


def within(lives: Lifetimes, cap: int, recent: float = 0.0) -> Program:
    return moved(lives, belady(lives, cap, np.ones(len(lives.steps)), recent), cap)


def caps(lives: Lifetimes) -> list[int]:
    """From the smallest that can be met to what needs no movement."""
    least, most = floor(lives)[0], int(lives.used.max())
    return sorted({least, least + (most - least) // 3, least + 2 * (most - least) // 3, most})


@given(st.integers(0, 2**32), st.integers(1, 14), st.sampled_from([0.0, 1.5, 4.0]))
@settings(max_examples=random_cases(120))
def test_random_programs_keep_every_cap_and_the_law(seed: int, nodes: int, recent: float) -> None:
    graph = random_graph(np.random.default_rng(seed), nodes)
    assume(all(description_of(graph, node) is not None for node in graph.nodes))
    program = alone(graph)
    lives = lifetimes(program)
    assert int(lives.used.max()) == memory_use(program).peak
    for cap in caps(lives):
        held = within(lives, cap, recent)
        check(held)
        assert memory_use(held).peak <= cap
        assert Program.parse(str(held), graph, held.strategy) == held
    least, step = floor(lives)
    with pytest.raises(TooSmallError) as refused:
        within(lives, least - 1)
    assert (refused.value.needed, refused.value.step) == (least, step)


def test_what_always_fits_is_not_moved() -> None:
    captured, _, _ = training()
    program = alone(captured.graph)
    lives = lifetimes(program)
    held = within(lives, int(lives.used.max()))
    assert not held.host
    assert [step for step in held if isinstance(step, MoveStep | StartStep)] == []
    assert memory_use(held) == memory_use(program)


@pytest.mark.parametrize("part", [0, 1, 2])
def test_ten_steps_of_training_have_the_same_bits_and_the_planned_peak(part: int) -> None:
    captured, state, batch = training((16, 24, 32, 8))
    program = alone(captured.graph)
    lives = lifetimes(program)
    held = within(lives, caps(lives)[part])
    assert held.host
    results = []
    for own in (program, held):
        worker = Worker(own, 0)
        names = {item.name: state[item.path] for item in captured.graph.state_inputs}
        worker.take_state(names)
        outputs = [worker.step(dict(batch) | rates(captured.graph)) for _ in range(10)]
        results.append(([{name: item.clone() for name, item in made.items()} for made in outputs], worker))
    (plain, first), (capped, second) = results
    for one, other in zip(plain, capped, strict=True):
        assert all(one[name].equal(other[name]) for name in one)
    assert all(first.state[name].equal(second.state[name]) for name in first.state)
    assert second.copiers is not None
    assert min(second.copiers.copied) > 0
    measured = peak_bytes(second, dict(batch) | rates(captured.graph))
    assert measured == memory_use(held).peak <= caps(lives)[part]


def moves(program: Program) -> list[str]:
    return [str(step.target) for step in program if isinstance(step, MoveStep)]


def test_a_value_that_is_needed_late_leaves_and_comes_back() -> None:
    make = Maker()
    x = make.input((100,))
    a = make.emit("aten.relu", (100,), self=Ref(x))
    last = a
    for _ in range(3):
        wave = make.emit("aten.sin", (100,), self=Ref(last))
        last = make.emit("aten.rsub.Tensor", (100,), self=Ref(last), other=Ref(wave))  # takes over nothing
    b = make.emit("aten.sum.dim_IntList", (), self=Ref(last), dim=(0,), keepdim=False)
    c = make.emit("aten.mul.Tensor", (100,), self=Ref(a), other=Ref(b))
    lives = lifetimes(alone(make.graph([Output(c, "result")])))
    least = floor(lives)[0]
    assert least == 1200
    assert int(lives.used.max()) == 1600
    held = within(lives, least)
    assert moves(held) == [f"{a}^host", f"{a}^1"]
    assert int(live_bytes(held).max()) == least
    lines = [line.strip() for line in str(held).splitlines()]
    starts = [line for line in lines if "start" in line]
    assert [line.partition(": ")[2].split()[0:2] for line in starts] == [["start", f"{a}^host"], ["start", f"{a}^1"]]


def broken(program: Program, **change: Any) -> str:
    with pytest.raises(ProgramError) as refused:
        check(replace(program, **change))
    return str(refused.value)


def test_the_law_of_moves() -> None:
    captured, _, _ = training()
    lives = lifetimes(alone(captured.graph))
    held = within(lives, floor(lives)[0])
    steps = list(held.steps)
    out = max(at for at, step in enumerate(steps) if isinstance(step, MoveStep) and step.out)
    into = next(at for at, step in enumerate(steps) if isinstance(step, MoveStep) and not step.out)
    assert "never finished" in broken(held, steps=tuple(steps[:out] + steps[out + 1 :]))
    assert "is read, but" in broken(held, steps=tuple(steps[:into] + steps[into + 1 :]))
    away = next(step.target for step in steps if isinstance(step, MoveStep) and step.target.endswith("^host"))
    assert f"takes {away}, which lies on the device" in broken(held, host=held.host - {away})
    old, new = next((old, new) for old, new in captured.graph.updates.items() if old in held.host)
    assert f"{new} replaces {old}" in broken(held, host=held.host - {old})
    first = next(at for at, step in enumerate(steps) if isinstance(step, StartStep))
    stranger = StartStep(steps[first].transfer, ("nobody",))
    assert "was not started" in broken(held, steps=(*steps[:first], stranger, *steps[first + 1 :]))


def test_state_that_leaves_between_use_and_replacement_need_not_lie_in_the_large_memory() -> None:
    """A weight is used, then much else is alive, then it is replaced: one copy each way, not two in."""
    make = Maker()
    x, w = make.input((100,)), make.input((100,), "parameter")
    last = make.emit("aten.mul.Tensor", (100,), self=Ref(x), other=Ref(w))
    for _ in range(3):
        wave = make.emit("aten.sin", (100,), self=Ref(last))
        last = make.emit("aten.rsub.Tensor", (100,), self=Ref(last), other=Ref(wave))  # takes over nothing
    new = make.emit("aten.add.Tensor", (100,), self=Ref(w), other=Ref(last))
    lives = lifetimes(alone(make.graph([Output(new, "update", w)])))
    least = floor(lives)[0]
    assert (least, int(lives.used.max())) == (1200, 1600)
    residency = belady(lives, least, np.ones(len(lives.steps)))
    assert residency.home == frozenset()
    assert residency.copied_bytes(lives.touches) == (400, 400)
    program = moved(lives, residency, least)
    check(program)
    assert moves(program) == [f"{w}^host", f"{w}^1"]
    assert memory_use(program).peak == least
