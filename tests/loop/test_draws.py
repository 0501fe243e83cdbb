"""Random numbers of a Generator in a loop, and other objects that change when they are used."""

from __future__ import annotations

import functools
import random
from typing import Any

import numba
import numpy as np
import pytest
from counts import LONG
from numba.experimental import jitclass

import girih
import girih.loop as gl
from girih.loop.capture.errors import LoopError


def helped(generator, scale):
    return generator.normal(0.0, scale)


def drawn(i, a, n, rng):
    a[i] = rng.random() + helped(rng, 2.0)
    n[i] = rng.integers(3, 90) + 100 * rng.integers(7)


def of_a_stream(key: np.ndarray, number: int) -> tuple[float, int]:
    generator = np.random.Generator(np.random.Philox(key=key, counter=[0, number, 0, 0]))
    return generator.random() + helped(generator, 2.0), generator.integers(3, 90) + 100 * generator.integers(7)


def results(space: gl.Space, **options: Any) -> list[list[Any]]:
    """Of two executions."""
    rng, loop = np.random.default_rng(5), gl.parallel_for(space, **options)(drawn)
    found = []
    for _ in range(2):
        a, n = gl.array(np.zeros(40)), gl.array(np.zeros(40, np.int64))
        loop(a, n, rng)
        found.append([a.numpy().tolist(), n.numpy().tolist()])
    return found


def test_a_generator_gives_each_iteration_a_stream_of_its_own() -> None:
    """Whatever the number of workers, on threads and processes; the next execution has others."""
    rng, expected = np.random.default_rng(5), []
    for _ in range(2):
        key = rng.integers(0, 1 << 64, 2, dtype=np.uint64)
        expected.append([list(item) for item in zip(*(of_a_stream(key, i) for i in range(40)), strict=True)])
    shuffled = np.random.default_rng(0).permutation(40)
    for workers in (1, 3):
        assert results(gl.range(40), workers=workers) == expected
    others = results(gl.sparse((shuffled,)), workers=3)
    for (a, n), (mine, whole) in zip(others, expected, strict=True):
        assert ([a[at] for at in shuffled], [n[at] for at in shuffled]) == (mine, whole)
    with girih.cluster(2):  # each of whose processes compiles, which takes as long as all of the above
        assert results(gl.sparse((shuffled,))) == others
        if LONG:
            assert results(gl.range(40)) == expected


def test_entries_of_one_key_draw_numbers_of_their_own() -> None:
    def added(key, total, rng):
        total[key] += rng.random()
        total[key] += gl.random() * 1000

    rng, total = np.random.default_rng(0), gl.array(np.zeros(2))
    gl.parallel_for(gl.sparse((np.repeat([0, 1], 400),)), workers=2)(added)(total, rng)
    assert np.all(np.abs(total.numpy() / 400 - 500.5) < 100)


def test_numbers_of_single_precision_loops_are_single() -> None:
    def scaled(i, a, rng):
        a[i] = (a[i] + rng.uniform(0.0, 1.0)) - a[i]

    a = gl.array(np.full(4, 1e8), np.float32)
    gl.parallel_for(gl.range(4))(scaled)(a, np.random.default_rng(0))
    assert not a.values.any()


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return self.count

    def next(self) -> int:
        return self()


@jitclass([("count", numba.int64)])
class Compiled:
    def __init__(self) -> None:
        self.count = 0

    def next(self):
        self.count += 1
        return self.count


GENERATOR = np.random.default_rng(0)


def hidden():
    return GENERATOR.random()


def by_method(i, a, held):
    a[i] = held.next()


def by_attribute(i, a, held):
    a[i] = held.count


def by_call(i, a, held):
    a[i] = held()


def by_iteration(i, a, held):
    a[i] = next(held)


def by_loop(i, a, held):
    for x in held:
        a[i] = x


def one_drawn():
    return gl.random()


def by_inner(i, a, held):
    a[i] = one_drawn()


def by_random(i, a, held):
    a[i] = held.random()


def by_item(i, a, held):
    a[i] = held[0].random()


def by_choice(i, a, held):
    a[i] = held.choice(3)


def by_helper(i, a, held):
    a[i] = hidden()


def by_filling(i, a, held):
    held.random(out=a)


def by_shuffling(i, a, held):
    held.shuffle(a)


def by_reading(i, a, held):
    a[i] = len(held.readline())


def by_global(i, a, held):
    a[i] = np.random.normal()


WORKERS = (
    "may change when it is used, and workers would share it or have copies; make the numbers and arrays that it holds"
)


@pytest.mark.parametrize(
    ("body", "held", "words"),
    [
        (by_method, Counter(), f"held.next()`: a Counter {WORKERS}"),
        (by_method, Compiled(), f"held.next()`: a Compiled {WORKERS}"),
        (by_attribute, Compiled(), f"held.count`: a Compiled {WORKERS}"),
        (by_call, Counter(), f"held()`: a Counter {WORKERS}"),
        (by_call, Counter().next, f"held()`: a Counter {WORKERS}"),
        (by_call, functools.partial(Counter()), f"held()`: a partial {WORKERS}"),
        (by_iteration, iter(range(9)), f"next(held)`: a range_iterator {WORKERS}"),
        (by_loop, enumerate([1.0]), f"held`: a enumerate {WORKERS}"),
        (by_call, GENERATOR.random, "held()`: random numbers of a Generator that the loop is not given; make it a"),
        (by_item, [GENERATOR], "held[0].random()`: random numbers of a Generator that the loop is not given"),
        (by_helper, None, "GENERATOR.random()`: random numbers of a Generator that the loop is not given"),
        (by_choice, GENERATOR, "held.choice(3)`: a Generator's .choice() is not to be had in a loop; draw before"),
        (by_inner, None, "gl.random()`: a function that a loop calls has no random numbers of the iteration; draw in"),
        (by_filling, GENERATOR, "held.random(out=a)`: drawing by, or into, an array is not followed"),
        (by_shuffling, GENERATOR, "held.shuffle(a)`: a Generator's .shuffle() is not to be had in a loop"),
        (by_random, np.random.RandomState(0), "held.random()`: random numbers would depend on the schedule; draw from"),
        (by_random, np.random, "held.random()`: random numbers would depend on the schedule"),
        (by_random, random, "held.random()`: random numbers would depend on the schedule"),
        (by_global, None, "np.random.normal()`: random numbers would depend on the schedule"),
    ],
)  # fmt: skip
def test_what_changes_when_it_is_used_is_refused_by_its_line(body: Any, held: Any, words: str) -> None:
    a = gl.array(np.zeros(3))
    with pytest.raises(LoopError) as refused:
        gl.parallel_for(gl.range(3), workers=2)(body)(a, held)
    assert str(refused.value).startswith("test_draws.py:")
    assert words in str(refused.value)
    assert not a.values.any()


def test_an_open_file_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("one\n")
    with path.open() as file, pytest.raises(LoopError, match=r"held\.readline\(\)`: a TextIOWrapper may change"):
        gl.parallel_for(gl.range(3), workers=2)(by_reading)(gl.array(np.zeros(3)), file)
