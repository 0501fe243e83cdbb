"""Loops on the processes of a cluster: the bits of threads, the bytes that were promised, and what stays here."""

from __future__ import annotations

import numpy as np
import pytest

import girih
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

        sent = sum(item.bytes_sent for item in cluster.run.statistics())
        W, H = gl.array(np.ones((50, 8)), np.float32), gl.array(np.ones((20, 8)), np.float32)
        sgd(W, H, step=0.05)
        assert sum(item.bytes_sent for item in cluster.run.statistics()) - sent == sgd.explain().bytes_moved

        a, b = gl.array(np.arange(41.0)), gl.array(np.zeros(40))
        with pytest.raises(WorkerError, match="lies outside"):
            gl.parallel_for(gl.range(40))(fails)(a, b)
        assert not b.values.any()


def test_explain_says_why_a_loop_stays_here() -> None:
    with girih.cluster(2):
        loop = gl.parallel_for(gl.range(20, 20), ordered=True)(wave)
        loop(gl.array(np.ones((21, 21))))
        assert "on threads of this process" in str(loop.explain())
        assert "a is written on both sides of a cut" in str(loop.explain())
        alone = gl.parallel_for(gl.range(20, 20), ordered=True, workers=1)(wave)
        alone(gl.array(np.ones((21, 21))))
        assert alone.explain().kind == "serial"
