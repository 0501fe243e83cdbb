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
