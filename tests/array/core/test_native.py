"""What is compiled does what Python does: without asking it, and without keeping what went."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from borders import of_small

import girih.array as gnp
from girih.array import at_once
from girih.array.core import small
from girih.array.core.small import NATIVE, SmallArray

compiled = pytest.mark.skipif(NATIVE is None, reason="there is no C compiler, or no header of Python's")
QUICK = [
    "x + y", "2.0 * x", "x - n", "n[1] * x", "x ** 2", "-x", "x @ y", "x < y", "x[1]", "x[1:]", "a[1, 2]", "a[:, 0]",
    "a[..., None]", "x[x > 1]", "a[i]", "abs(y)", "float(s)", "bool(x[0] < 9)", "[*x]", "len(x)", "x.shape", "a.T",
    "x.sum()", "a.mean(axis=0)", "a.reshape(-1)", "x.astype(int)", "np.sqrt(x)", "np.sum(a, axis=1, keepdims=True)",
    "np.maximum(x, y)", "np.where(x > 1, x, y)", "np.array([s, 1.0, [2.0][0]])", "np.array([x, y])", "np.zeros((2, 3))",
    "np.eye(3)", "np.arange(4)", "np.concatenate([x, y])", "np.dot(a, x[:3])", "np.exp(s)", "divmod(x, 2)", "x[i[0]]",
]  # fmt: skip
WRITES = [
    "x += y",
    "x *= 2",
    "x[0] = 3.5",
    "a[1] = 0",
    "a[:, 1] = a[:, 2]",
    "x[x > 2] = -1",
    "a[1:] -= a[:-1]",
    "x **= 2",
]


def names(space) -> dict:
    x, y, a = (np.array([1.0, 2.0, 4.0]), np.array([3.0, -2.0, 1.0]), np.arange(12.0).reshape(4, 3))
    own = space.asarray
    given = {"x": own(x), "y": own(y), "a": own(a), "i": own(np.array([2, 0])), "n": np.arange(3.0)}
    return {"np": space, "s": given["x"].sum(), **given}


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """What Python is asked from now on."""
    names: list[str] = []

    def counted(name, function):
        return lambda *items, **options: names.append(name) or function(*items, **options)

    for name, function in small.IN_PYTHON.items():
        if callable(function):
            monkeypatch.setitem(small.IN_PYTHON, name, counted(name, function))
    for name in ("call", "ours", "small"):  # by which functions and methods come to an end in Python
        monkeypatch.setattr(at_once, name, counted(name, getattr(at_once, name)))
    return names


@compiled
@of_small
@pytest.mark.parametrize("text", QUICK)
def test_small_work_is_numpys_and_python_is_not_asked(text, asked):
    expected, given = eval(text, names(np)), names(gnp)
    asked.clear()
    got = eval(text, given)
    assert asked == []
    for one, other in zip(*((item if isinstance(item, tuple) else (item,)) for item in (got, expected)), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
        assert np.asarray(one).dtype == np.asarray(other).dtype
        assert isinstance(one, SmallArray) == (isinstance(other, np.ndarray) or (np.ndim(other) == 0 and text in SUMS))


@compiled
@of_small
def test_what_is_not_simple_asks_python(asked):
    given = names(gnp)
    for text in ("x + [1, 2, 3]", "x[[0, 1]]", "np.sum(x, where=x > 1)", "np.sqrt(x, out=y)"):
        asked.clear()
        eval(text, given)
        assert asked, text


SUMS = ("x @ y", "x.sum()", "np.exp(s)")
"""What NumPy gives as a number, and girih as an array."""


@compiled
@of_small
@pytest.mark.parametrize("text", WRITES)
def test_small_writes_are_numpys_and_python_is_not_asked(text, asked):
    expected, given = names(np), names(gnp)
    exec(text, expected)
    x = given["x"]
    asked.clear()
    exec(text, given)
    assert asked == []
    for name in ("x", "a"):
        np.testing.assert_array_equal(given[name].compute(), expected[name])
    assert given["x"] is x


@compiled
@of_small
def test_nothing_is_kept():
    given = names(gnp)
    codes = [compile(text, text, "exec") for text in (*QUICK, *WRITES)]
    errors = [
        compile(text, text, "exec") for text in ("x + a.T[:, :2]", "x[7]", "x['a']", "np.sum(x, axis=3)", "x + None")
    ]
    held = [x.held for x in given.values() if isinstance(x, SmallArray)]

    def once() -> None:
        for code in codes:
            exec(code, given)
        for code in errors:
            with pytest.raises((ValueError, IndexError, TypeError)):
                exec(code, given)

    def counts() -> list[int]:
        gc.collect()
        return [len(gc.get_objects()), *map(sys.getrefcount, (*held, SmallArray, gnp.float64, np.float64))]

    with np.errstate(all="ignore"):
        once()
        before = counts()
        for _ in range(20):
            once()
    for one, other in zip(counts(), before, strict=True):
        assert abs(one - other) < 20  # evaluations, each of 45 lines


KEYS = ["1", "-2", ":", "::2", "3:1", "::-1", "5:", "-3:-1", "2**70:", "()", "(1, slice(None, 2))", "slice(True, None)",
        "(slice(1, None), 2)", "(0, 1)", "(slice(None), slice(None, None, -2), slice(4, 0, -3))", "(slice(9, 9), 2)",
        "(slice(np.int64(1), None), -1)", "(None, 1)", "(..., 1)"]  # fmt: skip


@of_small
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", ["rows", "columns", "every other", "bytes", "read only", "a view"])
def test_views_are_numpys(key, kind):
    """Of the same memory, with the same strides and flags, and with the array that has the memory behind them."""
    whole = np.asarray(np.arange(120.0).reshape(4, 5, 6), order="F" if kind == "columns" else "C")
    whole = np.frombuffer(whole.tobytes() + b" ", np.uint8)[1:].view(np.float64).reshape(4, 5, 6) if kind == "bytes" \
        else whole[:, ::2] if kind == "every other" else whole[1:] if kind == "a view" else whole  # fmt: skip
    whole.flags.writeable = kind not in ("read only", "bytes")
    expected, got = (eval(f"x[{key}]", {"x": x, "np": np}) for x in (whole, small.small(whole)))
    assert got.held.flags == expected.flags
    assert got.held.base is expected.base
    assert got.held.__array_interface__ == expected.__array_interface__


@of_small
@pytest.mark.parametrize("key", ["4", "(0, 5)", "(0, 0, 0, 0)", "::0", "'a'", "slice(1.5, None)", "(slice(None), 9)"])
def test_what_numpy_refuses_is_refused_with_its_words(key):
    whole = np.arange(120.0).reshape(4, 5, 6)
    errors = []
    for x in (whole, small.small(whole)):
        with pytest.raises((IndexError, ValueError, TypeError)) as error:
            eval(f"x[{key}]", {"x": x})
        errors.append((type(error.value), str(error.value)))
    assert errors[0] == errors[1]


@of_small
@pytest.mark.parametrize("other", ["x[1:3]", "x[2:4]", "x[1:3][::-1]", "x[1:3, ::-1]", "x.T[1:3]", "x[1:3] + 0"])
def test_a_part_of_the_array_that_is_set_to_another_part(other):
    expected, x = np.arange(16.0).reshape(4, 4), gnp.asarray(np.arange(16.0).reshape(4, 4))
    expected[1:3] = eval(other, {"x": expected})
    x[1:3] = eval(other, {"x": x})
    np.testing.assert_array_equal(x.compute(), expected)


@of_small
def test_reshaping_while_iterating_ends_it():
    x = gnp.arange(4.0)
    elements = iter(x)
    assert next(elements) == 0
    x.shape = (2, 2)
    if NATIVE is not None:
        assert list(elements) == []


@of_small
@pytest.mark.parametrize("function", [gnp.sum, gnp.sqrt, gnp.linalg.inv, gnp.zeros, gnp.add.reduce])
def test_functions_are_pickled_by_their_names(function):
    assert pickle.loads(pickle.dumps(function)) is copy.deepcopy(function) is function


PROGRAM = """
import girih.array as np
from girih.array.core.small import NATIVE
x = np.array([1.0, 2.0, 3.0])
x[1:] += 2 * x[0]
a = np.eye(3) * x
print(NATIVE is None, x.shape, float((a @ x).sum()), [*x], np.where(x > 1, x, 0).tolist(), x.max(axis=0), len(x), -x)
"""


@of_small
def test_without_a_compiler_python_does_the_same(tmp_path):
    numpys = PROGRAM.replace("girih.array as", "numpy as").replace(
        "from girih.array.core.small import NATIVE", "NATIVE = 0"
    )
    environment = {**os.environ, "CC": "no-such-compiler", "XDG_CACHE_HOME": str(tmp_path)}
    lines = [
        subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True).stdout
        for text in (PROGRAM, numpys)
    ]
    assert lines[0] == lines[1].replace("False", "True", 1)
