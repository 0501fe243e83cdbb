"""Schedules of loops: their law, a model checker over all interleavings, unimodular transformations, cuts."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedule_law import check

from benchmarks import loop_bodies
from benchmarks.loop_cases import Case, Log, blocks_of, conflict, touched
from girih.loop.capture.dependences import ANY, POSITIVE
from girih.loop.capture.errors import LoopError
from girih.loop.schedules.blocks import balanced
from girih.loop.schedules.schedule import Schedule, Task, one_dimension, rotation, wavefront
from girih.loop.schedules.unimodular import determinant, least, transformation


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("each", [1, 2, 3])
def test_schedules_keep_their_law(workers: int, each: int) -> None:
    check(rotation(workers, each), in_order=False)
    check(rotation(workers, each, 3), in_order=False)
    check(wavefront(workers, workers * each), in_order=True)
    one_dimension(workers)


def test_the_law_finds_what_is_wrong() -> None:
    loose = Schedule(2, 2, ((Task(0, 0), Task(0, 1)), (Task(1, 1), Task(1, 0))))
    with pytest.raises(ValueError, match=r"blocks \(0, 0\) and \(1, 0\) may run at once"):
        check(loose, in_order=False)
    circle = Schedule(2, 1, ((Task(0, 0, (1, 1)),), (Task(1, 0, (0, 1)),)))
    with pytest.raises(ValueError, match="wait for each other"):
        check(circle, in_order=False)
    with pytest.raises(ValueError, match="may begin before"):
        check(rotation(2, 1), in_order=True)
    with pytest.raises(ValueError, match="cover"):
        check(Schedule(2, 2, ((Task(0, 0),),)), in_order=False)


def test_an_unordered_schedule_keeps_all_workers_busy_from_the_start() -> None:
    first = rotation(4, 2)
    assert all(tasks[0].after is None and tasks[1].after is None for tasks in first.tasks)
    assert len({tasks[0].time for tasks in first.tasks}) == 4
    assert {task.after[0] for task in first.tasks[1] if task.after} == {2}  # a part comes from one worker alone


def interleavings(plan: Schedule, blocks: dict[tuple[int, int], list], logs: dict[object, Log]) -> int:
    """Visit every state that any timing can reach; the number of states.

    A state: of each worker, how many tasks it has finished, and whether it runs the next.
    """
    touching = {
        block: (set().union(*(logs[key].reads for key in keys)), set().union(*(logs[key].writes for key in keys)))
        for block, keys in blocks.items()
    }
    start = ((0, False),) * plan.workers
    seen, stack = {start}, [start]
    while stack:
        state = stack.pop()
        running = [
            (plan.tasks[worker][number].space, plan.tasks[worker][number].time)
            for worker, (number, runs) in enumerate(state)
            if runs
        ]
        for first, second in combinations(running, 2):
            (reads, writes), (others, written) = touching[first], touching[second]
            assert not writes & (others | written), (first, second)
            assert not reads & written, (first, second)
        moves = []
        for worker, (number, runs) in enumerate(state):
            if runs:
                moves.append((worker, (number + 1, False)))
            elif number < len(plan.tasks[worker]):
                after = plan.tasks[worker][number].after
                if after is None or state[after[0]][0] >= after[1]:
                    moves.append((worker, (number, True)))
        assert moves or all(number == len(tasks) for (number, _), tasks in zip(state, plan.tasks, strict=True))
        for worker, entry in moves:
            following = (*state[:worker], entry, *state[worker + 1 :])
            if following not in seen:
                seen.add(following)
                stack.append(following)
    return len(seen)


CHECKED = [case for case in loop_bodies.paper() if case.kinds != ("serial",) and "LDA" not in case.name]


@pytest.mark.parametrize("case", CHECKED, ids=lambda case: case.name)
@pytest.mark.parametrize("workers", [2, 3])
def test_no_timing_lets_conflicting_iterations_run_at_once(case: Case, workers: int) -> None:
    loop = case.loop(workers=workers, rounds=1 if workers > 2 else 2)
    prepared = loop.prepared(loop.bound((), case.given()), workers)
    assert interleavings(prepared.plan, blocks_of(loop, prepared), dict(touched(case))) > 2**workers


def test_the_model_checker_finds_conflicts() -> None:
    case = loop_bodies.paper()[0]
    loop = case.loop(workers=2)
    prepared = loop.prepared(loop.bound((), case.given()), 2)
    plan = prepared.plan
    loose = Schedule(plan.spaces, plan.times, tuple(tuple(Task(t.space, t.time) for t in one) for one in plan.tasks))
    with pytest.raises(AssertionError):
        interleavings(loose, blocks_of(loop, prepared), dict(touched(case)))


component = st.sampled_from([-2, -1, 0, 1, 2, POSITIVE])


@given(st.lists(st.tuples(st.sampled_from([0, 1, 2, POSITIVE]), component), min_size=1, max_size=4))
def test_two_dimensions_of_known_distances_can_always_be_transformed(vectors: list) -> None:
    """Wolf & Lam: a nest whose dependences are distances can be made fully permutable by skewing."""
    known = [(a, b) for a, b in vectors if a != 0 or b is POSITIVE or b > 0]
    if not known:
        return
    found = transformation(known, (10, 20))
    assert found is not None
    assert abs(determinant(found.matrix)) == 1
    for vector in known:
        assert least(found.space, vector) >= 0
        assert least(found.time, vector) >= 0
        assert least(found.matrix[0], vector) > 0


def test_a_dependence_of_any_distance_cannot_be_transformed() -> None:
    assert transformation([(POSITIVE, ANY)], (5, 5)) is None
    assert transformation([(1,)], (5,)) is None


def test_three_dimensions_are_transformed() -> None:
    found = transformation([(1, 0, -1), (0, 1, -1), (0, 0, 1)], (4, 4, 4))
    assert found is not None
    assert abs(determinant(found.matrix)) == 1


def test_what_a_user_wants_is_kept_or_refused() -> None:
    case = loop_bodies.paper()[0]
    for dims in ((0, 1), (1, 0)):
        loop = case.loop(workers=2, dims=dims)
        strategy = loop.prepared(loop.bound((), case.given()), 2).strategy
        assert (strategy.space.index(1), strategy.time.index(1)) == dims
    loop = case.loop(workers=2, kind="1d")
    with pytest.raises(LoopError, match="kind='1d' would not keep what sgd_mf computes: its dependence vectors are"):
        loop(**case.given())
    told = case.loop(workers=2).explain(**case.given())
    chosen = told.strategy.certificate
    assert chosen.cost == min(chosen.tried.values()) == chosen.bound == 9 * 5
    assert "cost 45 elements, bound 45 elements, gap 0 % (proved)" in told.text
    assert all(f"{cost:.0f} elements by {name}" in told.text for name, cost in chosen.tried.items())


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 7))
def test_cuts_are_balanced(counts: list[int], parts: int) -> None:
    histogram = np.array(counts)
    cuts = balanced(histogram, parts)
    assert len(cuts) == parts + 1
    assert list(cuts) == sorted(cuts)
    work = [histogram[a:b].sum() for a, b in pairwise(cuts)]
    assert sum(work) == histogram.sum()
    assert max(work) <= histogram.sum() / parts + histogram.max()


def test_conflict_is_about_elements() -> None:
    first, second = Log(), Log()
    first.read(np.array([1]))
    second.read(np.array([1]))
    assert not conflict(first, second)
    second.write(np.array([1]))
    assert conflict(first, second)
