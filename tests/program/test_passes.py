"""Passes follow each other, each from a program to a program, and the law finds the one that breaks it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from graphs import machine_of, perceptron

from girih.layout import Mesh
from girih.partition import Strategy
from girih.partition.space.problem import Objective
from girih.program import Blocks, Overlap, Program, ProgramError, lower
from girih.program.life.lifetimes import lifetimes
from girih.program.passes import Address, Lower, Pass, Reorder, apply


@dataclass(frozen=True)
class WithoutTheFirst:
    """A pass that is wrong: it leaves out the first step."""

    def apply(self, program: Program) -> Program:
        return replace(program, steps=program.steps[1:])


def divided() -> tuple[Program, Lower]:
    """A program of two devices before its first pass, and this pass."""
    graph = perceptron(2, 8, 8)
    strategy = Strategy.of_codes(Mesh((2,)), ((0,),) * len(graph.nodes), dict.fromkeys(graph.values, (0,)))
    return Program(graph, strategy, (), {}, {}), Lower(Objective("bytes", machine_of((2,))).transfers)


@pytest.mark.parametrize("item", [Overlap(2, 2), Blocks(), Overlap()])
def test_every_pass_keeps_the_law_behind_the_first(item: Pass) -> None:
    empty, first = divided()
    program = apply(empty, [first], law=True)
    assert program == lower(empty.graph, empty.strategy, first.transfers)
    assert apply(empty, [first, item], law=True) == item.apply(program)


def test_what_breaks_the_law_is_found_where_it_is_broken() -> None:
    empty, first = divided()
    assert len(apply(empty, [first, WithoutTheFirst()]).steps) > 0
    with pytest.raises(ProgramError):
        apply(empty, [first, WithoutTheFirst()], law=True)
    with pytest.raises(ProgramError, match="the sequence leaves out step"):
        apply(empty, [first, Reorder((0,))])


def test_addresses_are_a_column_of_the_program_that_they_are_for() -> None:
    empty, first = divided()
    placing = Address(lambda program: (lifetimes(program, device) for device in range(2)))
    program = apply(empty, [first, placing], law=True)
    assert program == apply(empty, [first])
    largest = max(item.bytes for item in lifetimes(program, 0).storages)
    assert [largest <= item.bound <= item.bytes for item in program.addresses] == [True, True]
    with pytest.raises(ProgramError, match="expected no pass behind the one that adds addresses"):
        apply(empty, [first, placing, WithoutTheFirst()], law=True)
