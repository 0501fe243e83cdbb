"""Broken programs are found, and shown with their neighbours."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import machine_of, perceptron

from girih.layout import Mesh
from girih.lower import (
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
from girih.partition.problem import Objective
from girih.partition.strategy import Strategy


@pytest.fixture
def program() -> Program:
    graph = perceptron(2, 8, 12)
    strategy = Strategy(Mesh((2,)), tuple((0,) for _ in graph.nodes), dict.fromkeys(graph.values, (0,)))
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
