"""Loops on the processes of a cluster: the bits of threads, the bytes that were promised, and what stays here."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import pytest

import girih
import girih.array as gnp
import girih.loop as gl
from benchmarks.loop_bodies import sgd_mf, slr
from girih.run.errors import WorkerError

loss = gl.accumulator(0.0)


def wave(key, a):
    i, j = key
    a[i + 1, j + 1] = a[i, j + 1] * 0.5 + a[i + 1, j] * 0.25 + 1


def histogram(key, v, h):
    h[int(abs(v) * 3) % 5] += 1.0


def measured(sample, v, weights):
    label, ids, xs = v
    loss += (weights[ids[0]] - label) ** 2


def fails(i, a, b):
    b[i] = a[i + 40]


def data() -> tuple[gl.Space, gl.Space]:
    draw = np.random.default_rng(0)
    count = 4000
    ratings = gl.sparse(
        (draw.integers(0, 50, count), draw.integers(0, 20, count)), draw.standard_normal(count).astype(np.float32)
    )
    labels, ids, xs = draw.random(200) < 0.5, draw.integers(0, 30, (200, 4)), draw.random((200, 4))
    return ratings, gl.sparse((np.arange(200),), (labels.astype(np.float64), ids, xs))


def results() -> tuple[list[np.ndarray], gl.ParallelLoop]:
    ratings, samples = data()
    draw = np.random.default_rng(1)
    W, H = (gl.array(draw.normal(0, 0.3, (size, 8)), np.float32) for size in (50, 20))
    sgd = gl.parallel_for(ratings, ordered=False)(sgd_mf)
    sgd(W, H, step=0.05)
    weights = gl.array(np.zeros(30))
    gl.parallel_for(samples)(slr)(weights, gl.buffer(weights, delay=20), step=0.1)
    loss.reset()
    gl.parallel_for(samples)(measured)(weights)
    h = gl.array(np.zeros(5))
    gl.parallel_for(ratings)(histogram)(h)
    found = [item.numpy() for item in (W, H, weights, h)]
    return [*found, np.array(loss.value)], sgd


def test_processes_make_the_bits_of_threads_and_send_what_was_promised() -> None:
    before = gl.workers()
    try:
        gl.workers(2)
        expected, _ = results()
    finally:
        gl.workers(before)
    with girih.cluster(2) as cluster:
        found, sgd = results()
        assert all(np.array_equal(one, other) for one, other in zip(expected, found, strict=True))

        sent = sum(sum(item.sent) for item in cluster.run.statistics())
        W, H = gl.array(np.ones((50, 8)), np.float32), gl.array(np.ones((20, 8)), np.float32)
        sgd(W, H, step=0.05)
        assert sum(sum(item.sent) for item in cluster.run.statistics()) - sent == sgd.explain().bytes_moved

        a, b = gl.array(np.arange(41.0)), gl.array(np.zeros(40))
        with pytest.raises(IndexError, match="lies outside"):
            gl.parallel_for(gl.range(40))(fails)(a, b)
        assert not b.values.any()


class OwnError(ValueError):
    pass


def raises(i, a):
    if i == 99:
        raise KeyError("never")
    if i == 7:
        raise ValueError("i is 7")
    a[i] = i


def raises_own(i, a):
    a[i] = checked(i)


def checked(i):
    if i == 9:
        raise OwnError("nine", 9)
    return 1.0 * i


def unknown(i, a, b):
    a[i] = b.size3


def refused(body: Any, *arguments: Any) -> tuple[BaseException, str]:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which it is is compared
        gl.parallel_for(gl.range(16))(body)(*arguments)
    return caught.value, "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("backend", ["processes", "ray"])
def test_errors_are_those_of_threads(backend: str) -> None:
    """What the body raises keeps its class, its arguments and its line; what cannot be compiled is one line. Workers of
    Ray go on, with the arrays that they keep."""
    if backend == "ray":
        pytest.importorskip("ray")
    bodies = [(raises, ()), (unknown, (np.zeros(4),)), (fails, (gl.array(np.zeros(16)),)), (raises_own, ())]
    if backend == "ray":  # its workers do not import this module, in which the class is
        bodies.pop()
    here = [refused(body, gl.array(np.zeros(16)), *more)[0] for body, more in bodies]
    with girih.cluster(2, backend=backend) as cluster:
        x = (gnp.array(np.arange(6.0)) + 1).persist()
        # None waits for another that compiles for the first time: after ten seconds it would be ended.
        gl.parallel_for(gl.range(5))(raises)(gl.array(np.zeros(16)))
        pids = getattr(cluster.run.crew, "pids", [])
        there = [refused(body, gl.array(np.zeros(16)), *more) for body, more in bodies]
        if backend == "ray":
            assert cluster.run.crew.pids == pids
            np.testing.assert_array_equal(x.compute(), np.arange(6.0) + 1)
    for one, (other, _) in zip(here, there, strict=True):
        assert type(one) is type(other)
        assert one.args == other.args
        assert len(str(other).splitlines()) == 1
    assert [type(one) for one in here] == [ValueError, gl.LoopError, IndexError, OwnError][: len(here)]
    error, text = there[0]
    assert f"test_processes.py:{raises.__code__.co_firstlineno + 4}" in text
    assert isinstance(error.__cause__, WorkerError)
    if backend == "processes":
        assert f"test_processes.py:{checked.__code__.co_firstlineno + 2}" in there[3][1]


def test_explain_says_why_a_loop_stays_here() -> None:
    with girih.cluster(2):
        loop = gl.parallel_for(gl.range(20, 20), ordered=True)(wave)
        loop(gl.array(np.ones((21, 21))))
        assert "on threads of this process" in str(loop.explain())
        assert "a is written on both sides of a cut" in str(loop.explain())
        alone = gl.parallel_for(gl.range(20, 20), ordered=True, workers=1)(wave)
        alone(gl.array(np.ones((21, 21))))
        assert alone.explain().kind == "serial"
