"""A Choice says all that was chosen: the plan's Program follows from it alone, and its page names each part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import pytest
from fuzz_plans import plan_of
from graphs import perceptron

from girih.layout import Mesh
from girih.machine import machine
from girih.partition import Strategy
from girih.partition.space.problem import Objective
from girih.plans.choice import Choice, apply
from girih.plans.plan import DEPENDS_ON, GIVEN, NOUN_OF, Goal, Plan
from girih.program import Blocks, Overlap, lower
from girih.rewrite.certificate import Certificate

KINDS = ("moved", "computed again", "in pieces", "pipeline", "rewritten")
PROVED = Certificate(0.0, 0.0, "seconds", "by hand", "by hand", "one division", {})


def by_rows(graph: Any, mesh: Mesh) -> Strategy:
    """A strategy written by hand: all on every device."""
    return Strategy.of_texts(mesh, ["R"] * len(graph.nodes), dict.fromkeys(graph.values, "R"))


def test_a_choice_by_hand_makes_the_program_of_its_plan() -> None:
    graph, two = perceptron(2, 8, 8), machine("local:2")
    choice = Choice(by_rows(graph, two.mesh), routes="bytes")
    plan = Plan(graph, two, choice, PROVED, Goal("by hand", "bytes"))
    plain = lower(graph, choice.strategy, Objective("bytes", two).transfers)
    assert apply(graph, two, choice) == plan.program == plain
    turned = replace(choice, sequence=(*range(len(graph.nodes)),), overlap=Overlap(1, 1))
    assert apply(graph, two, turned) == plan.but(choice=turned).program


@pytest.mark.parametrize("kind", KINDS)
def test_the_program_follows_from_the_choice_alone(kind: str) -> None:
    plan = plan_of(kind)
    copied = Choice(**{name: getattr(plan.choice, name) for name, noun in NOUN_OF.items() if noun == "choice"})
    assert copied == plan.choice
    assert apply(plan.graph, plan.machine, copied, plan.scratch, law=True) == plan.program


def test_equal_choices_have_equal_hashes() -> None:
    choices = [plan_of(kind).choice for kind in KINDS]
    assert len(set(choices)) == len(choices)
    for choice in choices:
        other = replace(choice, strategy=replace(choice.strategy, layouts=dict(choice.strategy.layouts)))
        assert other == choice
        assert hash(other) == hash(choice)
    assert Choice(choices[0].strategy) != choices[0]


@pytest.mark.parametrize(
    ("kind", "chosen", "words"),
    [
        ("moved", {"sequence", "residency", "room"}, "copies go out to the large memory and"),
        ("computed again", {"sequence"}, "computed again: "),
        ("in pieces", {"pieces"}, "rows at a time"),
        ("pipeline", {"strategy", "routes", "schedule", "residency", "room"}, "class 1 of 2 of devices: "),
        ("rewritten", {"rewrites", "strategy", "routes", "overlap"}, "1 × one_sum: "),
    ],
)
def test_the_page_names_what_was_chosen_and_what_was_not(kind: str, chosen: set[str], words: str) -> None:
    page = str(plan_of(kind).choice)
    *lines, last = page.splitlines()
    assert {line[:12].strip() for line in lines} - {""} == chosen
    assert last.startswith("not chosen")
    assert chosen.isdisjoint(last[12:].split(", "))
    assert words in page
    assert max(map(len, page.splitlines())) <= 110


def test_the_page_is_short_however_much_was_chosen() -> None:
    choice = plan_of("moved").choice
    many = replace(choice, sequence=(*range(10_000), *range(5_000)), residency=choice.residency * 50, blocks=Blocks())
    assert len(str(many).splitlines()) < 30
    assert "computed again: 0, 1, 2, 3 … (5000 in all)" in str(many)


def test_what_a_plan_works_out_says_on_what_it_depends() -> None:
    assert {name for name, item in vars(Plan).items() if isinstance(item, cached_property)} == DEPENDS_ON.keys()
    plan = plan_of("moved")
    for name in GIVEN:
        plan._part(name)


CHANGES: dict[str, Callable[[], dict[str, Any]]] = {
    "all memory": lambda: {"sequence": None, "residency": (), "room": None},
    "movements": lambda: {"residency": ()},
    "overlap": lambda: {"overlap": Overlap(2, 2), "sequence": None, "residency": ()},
    "limit": lambda: {"memory": None},
    "words": lambda: {"simulated": 1.0, "notes": ("a note",), "model": "another"},
    "certificate": lambda: {"search": "another", "certificate": PROVED},
    "choice": lambda: {"choice": Choice(plan_of("moved").strategy)},
    "graph": lambda: {"graph": plan_of("computed again").graph, "choice": plan_of("computed again").choice},
}


@pytest.mark.parametrize("changed", CHANGES)
def test_a_plan_that_differs_keeps_only_what_is_the_same(changed: str) -> None:
    plan = plan_of("moved")
    for name in DEPENDS_ON:
        getattr(plan, name)
    other = plan.but(**CHANGES[changed]())
    anew = replace(other)  # works everything out
    assert type(other) is type(plan)
    for name in ("lowered", "unmoved", "program", "peak", "costs"):
        assert getattr(other, name) == getattr(anew, name), name
    assert (other.lifetimes.used == anew.lifetimes.used).all()
    assert [arena.bytes for arena in other.arenas] == [arena.bytes for arena in anew.arenas]


def test_what_does_not_depend_on_a_change_is_not_worked_out_again() -> None:
    plan = plan_of("moved")
    told = plan.but(notes=("a note",), simulated=1.0)
    assert told.program is plan.program
    assert plan.but(residency=()).lifetimes is plan.lifetimes
    assert plan.but(residency=()).program is plan.unmoved
    assert plan.but(sequence=None, residency=()).program is plan.lowered
    with pytest.raises(TypeError, match="sequences"):
        plan.but(sequences=())


def test_a_plan_is_told_what_was_worked_out_elsewhere_by_the_names_that_it_has() -> None:
    graph, two = perceptron(2, 8, 8), machine("local:2")
    plan = Plan(graph, two, Choice(by_rows(graph, two.mesh)), PROVED, Goal("by hand", "bytes"))
    told = plan.knowing(lifetimes=plan.lifetimes)
    assert told.lifetimes is plan.lifetimes
    assert told == plan
    with pytest.raises(ValueError, match="does not work out lifetime:"):
        plan.knowing(lifetime=plan.lifetimes)
