"""The optimum for chains against every schedule of small ones."""

from __future__ import annotations

from heapq import heappop, heappush
from math import comb

import numpy as np
import pytest
from counts import random_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from girih.published.memory.chain import Chain, Operation, optimum


@st.composite
def chains(draw: st.DrawFn, most: int = 4) -> Chain:
    stages = draw(st.integers(1, most))

    def sizes(count: int, least: int = 0) -> np.ndarray:
        return np.asarray(draw(st.lists(st.integers(least, 3), min_size=count, max_size=count)), np.int64)

    value = sizes(stages + 1, 1)
    tape = value[1:] + sizes(stages)
    working = value[1:] + sizes(stages)
    most_used = np.stack([working, np.maximum(working, tape), sizes(stages)])
    return Chain(sizes(stages, 1).astype(float), value, sizes(stages + 1), tape, most_used)


def least_of_all(chain: Chain, limit: int) -> float:
    """The least seconds of all schedules that keep what they store, by the shortest path over states of memory.

    A state: stored inputs, tapes, the input that the last operation has left, and the stage that goes backward next.
    """
    n = chain.stages
    start = (frozenset({0}), frozenset[int](), -1, n - 1)
    queue: list[tuple[float, int, tuple]] = [(0.0, 0, start)]
    least = {start: 0.0}
    count = 0
    while queue:
        seconds, _, state = heappop(queue)
        stored, tapes, current, turn = state
        if turn < 0:
            return seconds
        if seconds > least[state]:
            continue
        kept = sum(int(chain.value[at]) for at in stored if at) + sum(int(chain.tape[at]) for at in tapes)
        own = int(chain.value[current]) if current > 0 and current not in stored else 0
        gradient = int(chain.gradient[turn + 1])
        nexts: list[tuple[float, tuple]] = []
        if current > 0 and current not in stored and kept + own + gradient <= limit:
            nexts.append((0.0, (stored | {current}, tapes, -1, turn)))
        for at in range(turn + 1):
            lies = at in stored or at - 1 in tapes
            if (lies or at == current) and at < turn:
                other = 0 if lies else own
                if kept + other + gradient + chain.most[0, at] <= limit:
                    nexts.append((chain.seconds[at], (stored, tapes, at + 1, turn)))
            if lies and at not in tapes and kept + gradient + chain.most[1, at] <= limit:
                nexts.append((chain.seconds[at], (stored, tapes | {at}, -1, turn)))
        if turn in tapes and (turn in stored or turn - 1 in tapes) and kept + chain.most[2, turn] <= limit:
            nexts.append((0.0, (stored - ({turn} if turn else set()), tapes - {turn}, -1, turn - 1)))
        for more, other_state in nexts:
            if seconds + more < least.get(other_state, np.inf):
                least[other_state] = seconds + more
                count += 1
                heappush(queue, (seconds + more, count, other_state))
    return float("inf")


@given(chains(), st.integers(0, 24))
@settings(max_examples=random_cases(150))
def test_no_schedule_is_faster(chain: Chain, limit: int) -> None:
    assert optimum(chain, 24).seconds[0, -1, limit] == least_of_all(chain, limit)


def run(chain: Chain, operations: tuple[Operation, ...]) -> float:
    """The seconds of a schedule, in which every backward pass has its tape."""
    seconds, at, turn = 0.0, {0}, chain.stages - 1
    taped = -1
    for operation in operations:
        if operation.backward:
            assert operation.stage == turn
            turn -= 1
        else:
            assert operation.stage in at
            at.add(operation.stage + 1)
            seconds += chain.seconds[operation.stage]
            taped = operation.stage
    assert turn == -1
    assert taped >= 0
    return seconds


@given(chains(6), st.integers(0, 40))
def test_a_schedule_takes_what_the_table_says(chain: Chain, limit: int) -> None:
    table = optimum(chain, 40)
    if np.isfinite(table.seconds[0, -1, limit]):
        assert run(chain, table.schedule(limit)) == table.seconds[0, -1, limit]
    else:
        with pytest.raises(ValueError, match=f"cannot be computed within {limit} units"):
            table.schedule(limit)


@pytest.mark.parametrize(("steps", "slots"), [(5, 1), (6, 2), (10, 3), (8, 8), (20, 3)])
def test_equal_stages_are_revolve(steps: int, slots: int) -> None:
    """Griewank and Walther's closed form, r · n - C(c + r, r - 1), for n steps, c stored inputs and r passes. Here
    tapes are so large that there is room for one, and each step is computed once more to make it."""
    one, tape = np.ones(steps, np.int64), 100
    most = np.stack([0 * one, tape * one, 0 * one])
    chain = Chain(one.astype(float), np.ones(steps + 1, np.int64), np.zeros(steps + 1, np.int64), tape * one, most)
    passes = next(r for r in range(1, steps + 1) if comb(slots + r, slots) >= steps)
    forward = passes * steps - comb(slots + passes, passes - 1)
    assert optimum(chain, tape + slots).seconds[0, -1, tape + slots] == forward + steps
