"""The order in which iterations that depend on each other run, and what users hear of it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import girih.loop as gl


def floyd_warshall(key, d):
    k, i, j = key
    d[i, j] = min(d[i, j], d[i, k] + d[k, j])


def distances(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges of a graph that has few, and the shortest distances."""
    draw = np.random.default_rng(0)
    edges = np.where(draw.random((size, size)) < 0.1, draw.integers(1, 100, (size, size)).astype(float), np.inf)
    shortest = edges.copy()
    for k in range(size):
        shortest = np.minimum(shortest, shortest[:, k, None] + shortest[k])
    return edges, shortest


def test_a_loop_that_says_nothing_of_order_keeps_it_and_hears_once_what_another_would_gain() -> None:
    edges, shortest = distances(30)
    loop = gl.parallel_for(gl.range(30, 30, 30), workers=2)(floyd_warshall)
    d = gl.array(edges.copy())
    with pytest.warns(gl.LoopWarning) as heard:
        loop(d)
    assert np.array_equal(d.values, shortest)
    loop(d)  # where a warning would be an error
    assert [str(item.message).partition(": ")[2] for item in heard] == [
        "floyd_warshall keeps the order of the serial loop, by keys, since iterations depend on each other (distances "
        "(0, 0, +∞), (0, +∞, 0), (+∞, 0, 0), (+∞, 0, ∞), (+∞, ∞, 0)): it is serial, which keeps 1.0 of 2 workers busy. "
        "Say ordered=True to keep it so, or ordered=False if any order will do: then it is 2D, space p1, time p2, with "
        "2.0 of 2 busy"
    ]
    assert heard[0].filename == __file__


def rows(key, v, W, H):
    i, j = key
    W[i], H[j] = W[i] + v * H[j], H[j] + v * W[i]


def test_an_order_that_is_divided_still_has_the_bits_of_the_serial_loop() -> None:
    draw = np.random.default_rng(1)
    space = gl.sparse((draw.integers(0, 9, 80), draw.integers(0, 7, 80)), draw.random(80), shape=(9, 7))
    results = []
    for how in ("parallel", "serial", "ordered"):
        loop = gl.parallel_for(space, ordered=True if how == "ordered" else None, workers=3)(rows)
        W, H = gl.array(np.ones((9, 4))), gl.array(np.ones((7, 4)))
        if how == "parallel":
            with pytest.warns(gl.LoopWarning, match=r"2D, .* keeps 2\.\d of 3 workers busy.* with 3\.0 of 3 busy"):
                loop(W, H)
            assert (loop.explain().kind, loop.explain().strategy.ordered) == ("2d", True)
        else:
            (loop.serial if how == "serial" else loop)(W, H)
        results.append((W.values, H.values))
    assert all(np.array_equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


def chain(i, a):
    a[i] = a[i - 1] + 1


@pytest.mark.parametrize("ordered", [None, True, False])
def test_a_loop_that_ends_up_serial_says_why_and_what_to_write(ordered: bool | None) -> None:
    loop = gl.parallel_for(gl.range((1, 9)), ordered=ordered, workers=2)(chain)
    loop.explain(gl.array(np.ones(9)))
    words = (
        r"test_loop_order\.py:\d+: chain runs on one worker of 2, since iterations depend on each other "
        r"\(distances \(1\)\) "
        r"in a\. Where writes may come late, write to gl\.buffer\(a\) by `\+=`; .*; else say kind='serial'"
    )
    with pytest.warns(gl.LoopWarning, match=words) as heard:
        loop(gl.array(np.ones(9)))
    assert len(heard) == 1
    loop(gl.array(np.ones(9)))


def alone(i, a):
    a[i] += i


def test_nothing_is_said_where_nothing_is_lost() -> None:
    """Loops without dependences, sums, what was asked for, and one worker."""
    total = gl.accumulator(0)

    def counted(i, a):
        a[i % 3] += 1.0
        total += 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for body, options in (
            (alone, {}), (counted, {}), (chain, {"kind": "serial"}), (chain, {"workers": 1}),
        ):  # fmt: skip
            loop = gl.parallel_for(gl.range((1, 9)), **{"workers": 2, **options})(body)
            loop(gl.array(np.ones(9)))
            loop.serial(gl.array(np.ones(9)))
    assert total.value == 16


def test_sums_of_floats_that_depend_on_no_order_are_still_divided() -> None:
    a = gl.array(np.zeros(3))

    def added(i, v, a):
        a[i % 3] += v

    loop = gl.parallel_for(gl.dense(np.arange(9.0)), workers=2)(added)
    loop(a)
    assert (loop.explain().kind, a.numpy().tolist()) == ("1d", [9.0, 12.0, 15.0])


@pytest.mark.parametrize("ordered", [True, None])
def test_the_serial_order_is_that_of_keys_and_the_listed_one_is_had_by_a_first_key(ordered: bool | None) -> None:
    """Python's own loop over the entries, sorted by key or as they were listed, is what the results are held against.
    Entries of one key stay in the order in which they were listed."""
    keys, values = [3, 1, 2, 1, 0], [3.0, 1.0, 2.0, 5.0, 4.0]

    def by_key(i, v, a):
        a[0] = a[0] * 10 + v

    def as_listed(key, v, a):
        number, i = key
        a[0] = a[0] * 10 + v

    listed = gl.sparse((np.array(keys),), np.array(values))
    numbered = gl.sparse((np.arange(5), np.array(keys)), np.array(values))
    by_keys = [v for _, v in sorted(zip(keys, values, strict=True), key=lambda entry: entry[0])]
    for space, body, order in ((listed, by_key, by_keys), (numbered, as_listed, values)):
        expected = [0.0]
        for v in order:
            expected[0] = expected[0] * 10 + v
        for workers in (1, 3):
            loop = gl.parallel_for(space, ordered=ordered, workers=workers, kind="serial")(body)
            for run in (loop, loop.serial):
                a = gl.array(np.zeros(1))
                run(a)
                assert a.numpy().tolist() == expected
