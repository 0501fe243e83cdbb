"""Programs of random strategies with random shares, on random graphs: what holds for equal parts holds for these."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from lowered_programs import THOROUGH, check_buffers, check_frees_are_early, lowered, strategies
from run_programs import stating

from girih.partition.searches.proportional import cost_of, with_shares
from girih.partition.space.problem import Objective
from girih.program import Program, check, lower


def uneven(case: tuple, seed: int) -> tuple[Program, Objective] | None:
    graph, objective, problem, _ = case
    program = lowered(case)
    if program is None:
        return None
    made = stating(graph, program.strategy, problem.variable, random.Random(seed))
    return lower(graph, made, objective.transfers), objective


@given(strategies(), st.integers(0, 2**32))
@THOROUGH
def test_programs_of_stated_shares_keep_the_law(case: tuple, seed: int) -> None:
    found = uneven(case, seed)
    if found is None:
        return
    program, objective = found
    check(program)
    check_buffers(program)
    check_frees_are_early(program)
    moved = program.bytes_received().sum()
    assert sum(size for _, size in program.kinds().values()) == moved
    if objective.name == "bytes":
        assert moved == cost_of(program.graph, program.strategy, objective)


@given(strategies(), st.integers(0, 2**32))
@THOROUGH
def test_pieces_of_stated_shares_cover_every_index_space_once(case: tuple, seed: int) -> None:
    """Each value is held as often as with equal parts: no element is lost, none is added."""
    found = uneven(case, seed)
    if found is None:
        return
    program, _ = found
    plain = lowered(case)
    assert plain is not None
    for name in program.graph.values:
        held, before = (np.prod(np.diff(one.layout_regions(name))[..., 0], axis=1).sum() for one in (program, plain))
        assert held == before


@given(strategies(), st.integers(1, 9))
@THOROUGH
def test_shares_of_one_are_equal_parts(case: tuple, share: int) -> None:
    plain = lowered(case)
    if plain is None:
        return
    graph, objective, _, _ = case
    alike = tuple((share,) * size for size in plain.mesh.sizes)
    made = lower(graph, with_shares(graph, plain.strategy, alike), objective.transfers)
    assert len(made.steps) == len(plain.steps)
    assert (made.bytes_received() == plain.bytes_received()).all()
    for buffer, place in plain.places.items():
        assert (made.places[buffer].regions == place.regions).all()
        assert made.places[buffer].partial == place.partial
