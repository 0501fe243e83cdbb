"""The function that lists what an iteration reads, and arrays in a server process."""

from __future__ import annotations

import numpy as np
import pytest

import girih.loop as gl
from benchmarks.loop_bodies import slr
from girih.loop.capture.analyse import analyse
from girih.loop.capture.body import ArrayRole, Body, Inherited
from girih.loop.capture.errors import LoopError
from girih.loop.capture.prefetch import prefetching
from girih.loop.capture.source import read_source


def body_of(function, space: gl.Space, **roles) -> Body:
    return analyse(read_source(function), space.known, roles)


def conditional(i, w, table, shift):
    unused = w[i] * 3
    if i % 2 == 0:
        at = table[i] + shift
        x = w[at]
    else:
        at = 0
        x = 0.0
    y = w[at] + x
    if y > 1:
        y += w[i + 1]
    w[i] = unused + y


def test_the_lister_is_cut_out_of_the_body() -> None:
    """Subscripts with what they depend on and the control flow around; not what depends on values of arrays."""
    vector = ArrayRole((20,), "float64")
    table = Inherited(np.arange(8))
    body = body_of(conditional, gl.range(8), w=vector, table=table, shift=Inherited(2))
    made = prefetching(body, {"w"})
    assert made is not None
    text, noted, left = made
    assert noted == ("w",)
    assert text == (
        "def conditional_rows(i, table, shift, rows_of_w):\n"
        "    rows_of_w[i] += 1\n"
        "    if i % 2 == 0:\n"
        "        at = table[i] + shift\n"
        "        rows_of_w[at] += 1\n"
        "    else:\n"
        "        at = 0\n"
        "    rows_of_w[at] += 1\n"
        "    rows_of_w[i + 1] += 1"
    )
    assert left == ()


def chained(i, w, z):
    z[i] = w[int(w[i])]


def test_reads_that_depend_on_reads_are_left_out_and_said_so() -> None:
    body = body_of(chained, gl.range(8), int=Inherited(int), w=ArrayRole((8,), "float64"), z=ArrayRole((8,), "float64"))
    made = prefetching(body, {"w"})
    assert made is not None
    assert made[2] == ("w[int(w[i])]",)
    with gl.served(np.zeros(8)) as w, pytest.raises(LoopError, match="cannot be known before"):
        gl.parallel_for(gl.range(8))(chained)(w, gl.array(np.zeros(8)))


def chosen_by_data(i, w, z):
    k = 0
    if w[i] > 0:
        k = 3
    z[i] = w[k]


def found_by_data(i, w, z):
    k = 0
    for k in range(3):
        if w[k] > 0:
            break
    z[i] = w[k] + w[i]


def as_long_as_data_say(i, w, z):
    for k in range(int(w[i])):
        z[i] = w[k]


def whole(i, w, z):
    z[i] = w[i] + np.sum(w)


@pytest.mark.parametrize(
    ("function", "left"),
    [(chosen_by_data, "w[k]"), (found_by_data, "w[k]"), (as_long_as_data_say, "w[k]"), (whole, "w")],
)
def test_what_data_decide_is_left_out_too(function, left: str) -> None:
    given = {
        "w": ArrayRole((8,), "float64"),
        "z": ArrayRole((8,), "float64"),
        "range": Inherited(range),
        "int": Inherited(int),
    }
    made = prefetching(body_of(function, gl.range(8), np=Inherited(np), **given), {"w"})
    assert made is not None
    assert made[2] == (left,)


@pytest.mark.parametrize("cached", [True, False])
def test_a_served_array_gives_what_one_in_memory_gives_in_few_requests(cached: bool) -> None:
    draw = np.random.default_rng(0)
    values = (draw.random(60) < 0.5) * 1.0, draw.integers(0, 40, (60, 4)), draw.random((60, 4))
    samples = gl.sparse((np.arange(60),), values)
    w = gl.array(np.zeros(40))
    gl.parallel_for(samples, workers=2)(slr)(w, gl.buffer(w, delay=10), step=0.1)
    with gl.served(np.zeros(40), cached=cached) as remote:
        loop = gl.parallel_for(samples, workers=2)(slr)
        buffered = gl.buffer(remote, delay=10)
        loop(remote, buffered, step=0.1)
        np.testing.assert_allclose(remote.numpy(), w.values, rtol=1e-12)
        before = remote.server.requests
        loop(remote, buffered, step=0.1)
        assert remote.server.requests - before == 3 * (2 + 2)  # rounds of 10 of each worker's 30: reads and sums
        assert float(remote[3]) == remote.numpy()[3]
        with pytest.raises(TypeError, match="through buffers"):
            remote[0] = 1.0


def looked_up(i, w, z, table):
    z[i] = w[table[i]]
    if z[i] < 0:
        z[i] = w[i + 100]  # a row that there is not, if it were read


def test_known_rows_are_those_of_the_same_arguments() -> None:
    z = gl.array(np.zeros(3))
    with gl.served(np.arange(1.0, 7.0)) as w:
        loop = gl.parallel_for(gl.range(3), workers=1)(looked_up)
        loop(w, z, np.array([0, 1, 2]))
        loop(w, z, np.array([3, 4, 5]))
        assert z.numpy().tolist() == [4.0, 5.0, 6.0]
        with pytest.raises(IndexError, match="out of bounds"):
            w[6]
        assert w[5] == 6.0  # the server is still there
        w.server.process.kill()
        with pytest.raises(RuntimeError, match="the server of an array has ended with exit code -9"):
            w[5]


def test_whole_numbers_of_a_served_array_do_not_wrap() -> None:
    def added(i, w, b):
        b[0] += w[i]

    with gl.served(np.array([50, 20, 40], np.int8)) as w:
        with pytest.raises(OverflowError, match=r"test_prefetch\.py:\d+: `b\[0\] \+= w\[i\]`: .* does not fit int8"):
            gl.parallel_for(gl.range(3), workers=1)(added)(w, gl.buffer(w))
        assert w.numpy().tolist() == [50, 20, 40]
