"""What every way to compute steps again needs."""

from __future__ import annotations

import numpy as np
from counts import random_cases
from graphs import random_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from lowered_programs import alone

from girih.program.again import with_again
from girih.program.life.lifetimes import lifetimes
from girih.program.life.sequences import lifetimes_in, sequenced
from girih.program.liveness import lasting
from girih.program.moves.residency import floor
from girih.search.memory.cut import least_held


@given(st.integers(0, 2**32), st.integers(3, 14), st.integers(0, 14), st.data())
@settings(max_examples=random_cases(60))
def test_no_sequence_needs_less_than_the_bound(seed: int, nodes: int, behind: int, data: st.DataObject) -> None:
    lives = lifetimes(alone(random_graph(np.random.default_rng(seed), nodes)))
    kept = lasting(lives.program.graph)
    able = [at for at, step in enumerate(lives.steps) if lives.repeats[at] and kept.isdisjoint(step.targets)]
    again = data.draw(st.sets(st.sampled_from(able))) if able else set()
    other = lifetimes_in(lives, sequenced(lives, with_again(lives, behind, again)))
    assert 0 < least_held(lives, moving=False) <= int(other.used.max())
    assert 0 < least_held(lives, moving=True) <= floor(other)[0]
