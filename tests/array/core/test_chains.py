"""Chains: NumPy's calls that are written down and computed block by block; nobody sees that values come late."""

from __future__ import annotations

import threading
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from borders import of_small

import girih.array as gnp
from girih.array.core import chains
from girih.array.core.evaluation import BORDER
from girih.array.core.small import Deferred

COUNT = 1 << 20
"""Elements of 8 MB, of which chains are by the borders that there are."""
pytestmark = of_small

PROGRAMS = [
    "(x * 2 + y) / (y + 3) - x", "(x * y).sum()", "np.where(x > y, x, -y)[3:7]", "x ** 3 + x ** 2", "abs(x - y).max()",
    "((x.reshape(-1, 1, 2) - y[:6].reshape(3, 2)) ** 2).sum(-1).argmin(1)",
    "(x > 0.5).sum()", "(x * 1j + y).mean()", "(x * y).std()",
    "np.where(x > 0.5, x, y) + 1", "np.where(x * 2 > 3, x * 2, 0.0)", "np.where(i % 7 > 2, i, -1) * 2",
    "np.where(x.reshape(-1, 4) > 0.5, x[:4], y.reshape(-1, 4) * 2).sum()", "np.where(x > 0.5, i, y * 2)",
    "np.sqrt(x) + np.exp(-y)", "(x + y).astype('float32') * 2", "np.clip(x * 3, 0.5, 1).min()", "(x < y).any()",
    "(x.reshape(-1, 4) * np.arange(4.0)).sum(0)", "(x.reshape(-1, 4) * 2).mean(1, keepdims=True) + 1",
    "(x.reshape(-1, 4) * 2).sum(axis=(0, 1))", "(i * 3 + 1).sum()", "((i * 3) % 7 == 2) & (i > 3)", "(i * i).prod(0)",
    "(x * 2)[::-1] + x", "(x + 1).reshape(2, -1).T", "5 - x // y", "x * 2 + np.float32(3)",
    "(i << 2) ^ i", "x - x.mean()", "(x * y - 1) / ((x + 1) * (y - 2)) + x * 3", "((x + y).copy() * 2 + 1) ** 2 - x",
    "(np.zeros_like(x) + y) * (x - 3) + (x * y < 0.2)", "((i * 2 > x) * 1.5 + i) * 2",
]  # fmt: skip


def both(text: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    names = {"x": rng.random(COUNT), "y": rng.random(COUNT) + 0.1, "i": np.arange(COUNT)}
    ours = eval(text, {"np": gnp, **{name: gnp.asarray(item) for name, item in names.items()}})
    return np.asarray(eval(text, {"np": np, **names})), ours.compute()


@pytest.mark.parametrize("text", PROGRAMS)
def test_values_are_numpys(text):
    expected, got = both(text)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_what_nobody_holds_never_exists_whole():
    x = gnp.asarray(np.random.default_rng(0).random(COUNT))
    tracemalloc.start()
    total = ((x * 2 + 1) / (x + 1)).sum()
    assert type(total) is Deferred
    float(total)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 << 20


@pytest.mark.parametrize("text", ["x * 2 + 1", "np.exp(-x * x) * 3 - 1", "(x + 1).copy() * 2 + 1"])
def test_what_comes_before_the_last_result_lies_where_that_will(text):
    x = gnp.asarray(np.random.default_rng(0).random(COUNT))
    tracemalloc.start()
    made = eval(text, {"x": x, "np": gnp}).persist()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert x.nbytes < most < (1 + text.count("copy")) * x.nbytes + BORDER.block // 2
    np.testing.assert_array_equal(made.compute(), eval(text, {"x": x.compute(), "np": np}))


def test_shape_and_dtype_are_known_before_the_value():
    x = gnp.ones((COUNT, 1))
    y = (x[:, 0] > 0.5) * 2
    assert type(y) is Deferred
    assert (y.shape, y.dtype, y.ndim, y.size, len(y), y.nbytes) == ((COUNT,), np.int64, 1, COUNT, COUNT, 8 * COUNT)
    assert type(y) is Deferred
    assert y[5] == 2
    assert type(y) is not Deferred


def test_later_writes_are_not_seen():
    x, y = gnp.ones(COUNT), gnp.ones(COUNT)
    view = x[1:]
    first, second = view * 2, y + x
    total = (first * 3).sum()
    x[:] = 5
    y += 7
    first[3] = 100
    assert (first[2], first[3], second[9], float(total)) == (2, 100, 2, 6 * (COUNT - 1))
    assert view[4] == 5


def test_what_is_written_is_not_computed_elsewhere_before():
    x, y = gnp.zeros((COUNT // 4, 4)), gnp.ones((COUNT // 4, 4))
    expected = np.zeros((COUNT // 4, 4))
    kept = y * 2 + 1
    x[1:, :2] = kept[1:, :2]
    x[:, 3:] = kept[:, 3:]
    x += y * 3 + 1
    x += x * 2 + 1
    x[1:] = x[:-1] * 2 + 1
    expected[1:, :2], expected[:, 3:] = 3, 3
    expected += 4
    expected += expected * 2 + 1
    expected[1:] = expected[:-1] * 2 + 1
    np.testing.assert_array_equal(x.compute(), expected)
    assert kept[0, 0] == 3


def test_a_loop_that_asks_for_no_value_does_not_grow():
    x = gnp.ones(COUNT)
    for _ in range(3 * chains.LONGEST):
        x = x * 0.5 + 1
    assert x.call.length <= chains.LONGEST
    assert abs(x[0] - 2) < 1e-12


def test_warnings_name_the_line_of_the_call_once():
    x = gnp.arange(COUNT) * 1.0 - 9
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        made = gnp.sqrt(x) + 1  # here
        assert not given
        made[0].compute()
        with np.errstate(invalid="ignore"):
            gnp.sqrt(x * 1)[0].compute()
    assert [str(item.message) for item in given] == ["invalid value encountered in sqrt"]
    lines = Path(__file__).read_text().splitlines()
    assert lines[given[0].lineno - 1].endswith("# here")
    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError):
        gnp.sqrt(x)


def test_errors_are_numpys_and_come_with_the_call():
    x, y = gnp.ones(COUNT), gnp.ones((COUNT, 3))
    with pytest.raises(ValueError, match="could not be broadcast together"):
        x + gnp.ones(COUNT + 1)
    with pytest.raises(ValueError, match=rf"\({COUNT},3\)"):
        y * 2 + x
    with pytest.raises(np.exceptions.AxisError):
        (y * 2).sum(axis=2)
    with pytest.raises(ValueError, match="negative integer powers"):
        gnp.arange(COUNT) ** -gnp.arange(COUNT)


def test_numpys_own_arrays_may_be_written_to():
    own = np.ones(COUNT)
    row = np.ones(3)
    x, y = gnp.ones(COUNT) * 2 + own, gnp.ones((COUNT, 3)) * row
    own[:], row[:] = 9, 9
    assert (x[0], y[0, 0]) == (3, 1)


def test_below_the_border_nothing_is_deferred():
    assert type(gnp.ones(BORDER.quick // 8 - 1) * 2) is not Deferred


@pytest.mark.parametrize("turn", range(5))
def test_threads_of_the_program_share_what_is_deferred(turn):
    y = gnp.ones(COUNT) * 2 + turn
    total = (y * y).sum()
    seen: list[float] = []
    work = [lambda: seen.append(float(y[7])), lambda: seen.append(float(total))] * 4
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == sorted([2.0 + turn, COUNT * (2.0 + turn) ** 2] * 4)


def test_a_warning_that_is_an_error_leaves_the_value():
    x = gnp.log(gnp.zeros(COUNT)) + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="divide by zero encountered in log"):
            float(x[3])
    gnp.ones(3)[0] = 2  # which computes what is deferred
    assert x[3] == -np.inf


def test_what_no_name_shows_is_written_over():
    x = gnp.ones(COUNT)
    tracemalloc.start()
    made = (gnp.zeros_like(x) + 1).persist()
    chain = ((gnp.zeros_like(x) + x * 2) / (x + 1)).persist()
    most = tracemalloc.get_traced_memory()[1]
    assert most < 2.5 * 8 * COUNT
    assert (made[3], chain[3]) == (1, 1)
    del made, chain
    tracemalloc.reset_peak()
    far = (((gnp.zeros_like(x) + 3) * 2) - x).persist()  # not the last call's operand
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1.5 * 8 * COUNT
    assert far[3] == 5


def test_what_another_call_reads_again_is_not_written_over():
    x = gnp.ones(COUNT)
    shared = (x + 1).persist() * 2  # nobody has the sum but the product
    first, second = shared + x, shared - x
    del shared
    assert [float(item[3]) for item in (first, second)] == [5, 3]
    twice = (x + 1).persist() * 2
    square = twice * twice
    del twice
    assert square[3] == 16


def test_what_a_name_or_a_view_shows_is_not_written_over():
    x, list_of_one = gnp.ones(COUNT), [gnp.zeros(COUNT)]
    named, viewed = gnp.zeros(COUNT), gnp.zeros(COUNT)
    part = viewed[3:5]
    iterator = gnp.zeros(COUNT).flat
    sums = [named + 1, list_of_one[0] + 1, viewed + x * 2]
    del viewed
    assert [float(item[3]) for item in sums] == [1, 1, 2]
    assert [named[3], list_of_one[0][3], part[0], iterator[3]] == [0, 0, 0, 0]


def test_what_ctrl_c_left_half_written_is_no_value(monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    made = gnp.log(gnp.zeros(COUNT))
    with monkeypatch.context() as patched:
        patched.setattr(chains._Noted, "_note", interrupt)
        with pytest.raises(KeyboardInterrupt):
            made.persist()
    with pytest.raises(RuntimeError, match="written over what it is made of"):
        made.persist()
    del made
    made = gnp.log(gnp.zeros(COUNT) * 1) + 1
    inner = gnp.sqrt(made)
    with monkeypatch.context() as patched:
        patched.setattr(chains._Noted, "_note", interrupt)
        with pytest.raises(KeyboardInterrupt):
            inner.persist()
    for one in (inner, made):
        with pytest.raises(RuntimeError, match="written over what it is made of"):
            one.persist()
    del made, inner, one
    kept = gnp.zeros(COUNT)
    again = gnp.log(kept)
    with monkeypatch.context() as patched:
        patched.setattr(chains._Noted, "_note", interrupt)
        with pytest.raises(KeyboardInterrupt):
            again.persist()
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert again[0] == -np.inf


@pytest.mark.parametrize("other", [3, 200, -1, 2.5, True, np.float32(2), np.int8(3), np.float64(1e300), 1j])
@pytest.mark.parametrize("kind", ["bool", "uint8", "int64", "float32", "float64", "complex64"])
def test_dtypes_are_numpys_before_anything_is_computed(kind, other):
    x = np.ones(COUNT * 8 // np.dtype(kind).itemsize, kind)
    try:
        with np.errstate(all="ignore"):
            expected = x[:2] * other
    except (OverflowError, TypeError) as error:
        with pytest.raises(type(error)):
            gnp.asarray(x) * other
        return
    with np.errstate(all="ignore"):
        made = gnp.asarray(x) * other
        assert (made.dtype, made.shape) == (expected.dtype, x.shape)
        np.testing.assert_array_equal(made[:2].compute(), expected)
