"""x[key] = value and views that see it, against NumPy: chosen programs, and random sequences of views and writes."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from array_cases import DATA
from borders import of_large
from counts import random_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from test_functions import CASES

import girih.array as gnp

PROGRAMS = [
    "y = x[1:3]; y[0] = 100; z = y.T; z += 1; r = x.reshape(-1); r[3] = -1; x[3, 1:5:2] = [7, 8]",
    "x[x > 10] = 0; x[x < 3] += 2; x[[0, 2]] = 5; x[:, [1, 1]] = [[1, 2]]; x[[1, 1, 2], [0, 0, 3]] = [4, 5, 6]",
    "y = x[::-1, ::2]; y[...] = y * 2; z = y[1]; z[1:] = x[0, :2]; x[0] = z[0]",
    "x[1:] = x[:-1]; x[:, 1:] += x[:, :-1]; x[::2] -= x[1::2]",
    "y = x; y *= 2; z = x + 1; x[0] = 0; y[1, 1] = -5",
    "y = x.T[2:4]; del x; y[0] = 1; z = y[:, 1:]; z[1] = 9",
    "a, b = x[:2], x[1:]; del x; a[1] = 7; b[0, 0] = 8",
    "y = x.copy(); z = x[1].copy(); w = x.astype(float); x[1] = 3; y[2] = 4; z[0] = 5; w[0] = 6",
    "y = x[None, :, 2]; y[0, 1] = 9; z = np.expand_dims(x, 1); z[0, 0] = 1; w = np.squeeze(z); w[3] = 2",
    "y = np.moveaxis(x, 0, 1); y[5] = 1; z = np.flip(x); z[0] = 4; a, b = np.split(x, 2); a[0] = b[1]",
    "y = x[x > 4]; y[0] = 50; z = x[[0, 1]]; z[0] = 60; w = x[1][2:]; w[0] = 70",
    "x.fill(3); x[2:].fill(4); y = x[:, 0]; y.sort(); x[0] = [3, 1, 2, 6, 5, 4]; x[0].sort(); x.sort(0)",
    "x[x[:, 0] > 5] = [1, 2, 3, 4, 5, 6]; x[x[:, 1] > 100] = 9; x[:, x[0] > 2] = 0",
    "x[x > 20] = [1, 2, 3]; x[np.array([True, False, True, False])] = [[1] * 6, [2] * 6]",
    "s = x.sum(); t = s; s += 1; y = x.max(0); z = y; y += 1; w = x[1, 2]; v = w; w += 5",
    "y = x.reshape(2, 2, 6); y[0, 1] = 5; z = y.swapaxes(0, 2); z[1] = 8; w = z.reshape(-1); w[0] = 100",
    "y = x[:, ::2].reshape(-1); y[0] = 100; z = x[1:3].reshape(12); z[0] = 200; w = x.ravel(); w[1] = 300",
    "x[2:2] = 5; x[...] = x[::-1]; x[-1, -1] = 0.5; x[1, :] = x[:, 1:2][:1, 0]; x[()] = x + 1",
    "c = x + 1j * x; c.real = 5; c.imag[0] = 7; y = c.real; y[1] = -1; x[...] = c.imag",
    "i = x.astype(int); i[0] = 2.7; i[1] += 3; i //= 2; i **= 2; i %= 7; i <<= 1; i |= 8",
    "b = x > 3; b &= x < 9; b[0] = 5; c = ~b; c[1] = b[1]; x *= c; x **= 2; x //= 3; x /= 2; x -= 1; x %= 3",
    "y = np.zeros((3, 2)); z = y; y += x[:3, :2]; y @= y[:2]; w = np.zeros(()); v = w; v += 2; v[...] = 5",
    "np.add(x, 1, out=x); y = x[0]; np.multiply(y, 2, out=y); np.copyto(x[1:2], 7, where=x[1:2] > 9)",
    "y = np.atleast_2d(x[0]); y[0, 0] = 44; z = x.view_of if False else x.squeeze(); z[3] = 2; x[3][1] = 1",
    "for row in x: row[1:3] = row[0]",
    "for k in range(4): x[k, k] = k; x[k] += x[k - 1]",
]  # fmt: skip


def run(program, np_, dtype=np.float64):
    names = {"np": np_, "x": np_.array(np.arange(24, dtype=dtype).reshape(4, 6))}
    exec(program.replace("; ", "\n") if not program.startswith("for") else program, names)
    return {name: np.asarray(value) for name, value in names.items() if name not in ("np", "k", "row", "__builtins__")}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(cluster, program):
    expected, got = run(program, np), run(program, gnp)
    assert set(got) == set(expected)
    for name, value in expected.items():
        assert got[name].dtype == value.dtype, name
        np.testing.assert_array_equal(got[name], value, err_msg=name)


# ------------------------------------------------------------------------------------------- random sequences

KEYS = st.one_of(
    st.integers(-3, 2),
    st.builds(slice, *[st.one_of(st.none(), st.integers(-4, 4))] * 2, st.sampled_from([None, 1, 2, -1, -2, 3])),
    st.none(),
    st.just(Ellipsis),
)
VIEWS = ["key", "T", "reshape", "ravel", "flip", "squeeze", "swap"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*VIEWS, *VIEWS, "write", "write", "write", "add", "choose", "mask", "drop", "compute", "new"]),
        st.integers(0, 7), st.integers(0, 7), st.lists(KEYS, min_size=1, max_size=2).map(tuple),
    ),
    min_size=2, max_size=9,
)  # fmt: skip


def view_of(kind, x, number, key):
    if kind == "key":
        return x[key]
    if kind == "T":
        return x.T
    if kind == "reshape":
        divisors = [n for n in range(1, x.size + 1) if x.size % n == 0] if x.size else [1]
        first = divisors[number % len(divisors)]
        return x.reshape((first, x.size // first))
    if kind == "ravel":
        return x.ravel()
    if kind == "flip":
        return np.flip(x, number % x.ndim) if x.ndim else x
    if kind == "squeeze":
        return x.squeeze()
    return x.swapaxes(0, number % x.ndim) if x.ndim else x


def change(kind, arrays, first, second, key):
    x, y = arrays[first % len(arrays)], arrays[second % len(arrays)]
    if kind == "write":
        x[key] = second * 10
    elif kind == "add":
        x += y if y.shape == x.shape else first
    elif kind == "choose" and x.ndim and x.shape[0]:
        x[[second % x.shape[0], first % x.shape[0]]] = second
    elif kind == "mask":
        x[x > 5 * second] = first
    elif kind == "new":
        arrays.append([x * 2 + 1, np.copy(x), x.astype(x.dtype), x.copy(), np.round(x)][second % 5])
    elif kind == "drop" and len(arrays) > 1:
        arrays.pop(first % len(arrays))
    elif kind in VIEWS:
        made = view_of(kind, x, second, key)
        if made.ndim:  # a number of NumPy's is no array
            arrays.append(made)


@pytest.mark.parametrize("workers", [1, 3])
def test_random_views_and_writes(workers):
    refused = []

    @settings(max_examples=random_cases(80), deadline=None, derandomize=True, database=None)
    @given(STEPS, st.sampled_from([(6,), (3, 4), (2, 3, 2)]))
    def check(steps, shape):
        content = np.arange(np.prod(shape)).reshape(shape)
        plain, ours = [content.copy()], [gnp.array(content)]
        for kind, first, second, key in steps:
            if kind == "compute":
                ours[first % len(ours)].compute()
                continue
            try:
                change(kind, plain, first, second, key)
            except (IndexError, ValueError) as error:
                with pytest.raises(type(error)):
                    change(kind, ours, first, second, key)
                return
            try:
                change(kind, ours, first, second, key)
            except ValueError as error:
                refused.append(str(error))
                return
        assert len(ours) == len(plain)
        for got, expected in zip(ours, plain, strict=True):
            np.testing.assert_array_equal(got.compute(), expected)

    with gnp.cluster(workers=workers, backend="threads"):
        check()
    assert len(refused) < 10
    assert all("whether NumPy would copy" in text for text in refused)


# ------------------------------------------------------------------------------------------- who shares with whom


def written_by(text, space):
    """Which of the operands change when all results of a call are written to."""
    given = {name: space.array(value) for name, value in DATA.items()}
    with np.errstate(all="ignore"):
        made = eval(text, {"np": space, **given})
    for item in made if isinstance(made, (tuple, list)) else [made]:
        if isinstance(item, (np.ndarray, gnp.ndarray)) and item.ndim and item.size:
            with contextlib.suppress(ValueError):  # read-only
                item[...] = ~item if item.dtype.kind == "b" else 77
    return {name for name, value in DATA.items() if not equal(np.asarray(given[name]), value)}


OTHERWISE = ("broadcast_arrays", "einsum")
"""NumPy warns that it will change; einsum of one operand gives a copy here."""


@pytest.mark.parametrize("start", range(0, len(CASES), 40))
def test_results_share_elements_with_operands_as_numpys_do(start):
    """Writing to a result of any function changes the operands that it changes in NumPy, and no other."""
    wrong = []
    with gnp.cluster(workers=1, backend="threads"):
        for text in CASES[start : start + 40]:
            if not any(name in text for name in OTHERWISE):
                expected, got = (written_by(text, space) for space in (np, gnp))
                if got != expected:
                    wrong.append(f"{text} writes to {got}, NumPy's to {expected}")
    assert not wrong, "\n".join(wrong)


def equal(first, second):
    return np.array_equal(first, second, equal_nan=first.dtype.kind in "fc")


ERRORS = [
    "x[0] = [1, 2]", "x[9] = 1", "x[0, 0, 0] = 1", "x[x[0] > 1] = 2", "x[[4]] = 1", "x += np.ones((2, 4, 6))",
    "x += 1j", "np.broadcast_to(x, (2, 4, 6))[0] = 1", "np.diagonal(x)[0] = 1", "x[x > 20] = [1, 2]",
    "y = np.broadcast_to(x, (2, 4, 6)); y += 1", "x.astype(np.uint8)[0] = 300", "x.astype(int)[0] = np.inf * 1",
    "x['a'] = 1",
]  # fmt: skip


@pytest.mark.parametrize("program", ERRORS)
def test_errors_are_numpys(two, program):
    with pytest.raises(Exception) as expected:  # noqa: PT011 - NumPy's, whatever it is
        run(program, np)
    with pytest.raises(Exception) as got:  # noqa: PT011
        run(program, gnp)
    assert isinstance(expected.value, got.type) or got.type is gnp.EvaluationError, got.value


def test_what_was_computed_before_a_write_keeps_its_value(two):
    x = gnp.array(np.arange(6.0))
    before, chosen, view = x + 1, x[x > 2], x[:3]
    x[:] = 0
    np.testing.assert_array_equal(before.compute(), np.arange(6) + 1.0)
    np.testing.assert_array_equal(chosen.compute(), [3, 4, 5])
    np.testing.assert_array_equal(view.compute(), np.zeros(3))


@of_large
def test_a_slice_is_written_where_it_lies():
    """Nothing moves but the ends of tiles, and nobody holds the whole."""
    with gnp.cluster(workers=2, backend="threads"):
        x = gnp.array(np.zeros(100_000))
        x[100:-100] = 1
        x[50_000] = 2
        assert gnp.explain(x).bytes <= 400 * 8
        assert float(x.sum()) == 100_000 - 200 + 1


@of_large
def test_reshapes_that_numpy_may_copy_are_refused(two):
    x = gnp.array(np.arange(6.0).reshape(2, 3)).T + 1
    y = x.reshape(-1)
    with pytest.raises(ValueError, match=r"copy\(\)"):
        x[0] = 1
    del y
    x[0] = 1
    np.testing.assert_array_equal(x.compute()[0], [1, 1])
