"""Small arrays: what NumPy does at once, what is left to a graph, and what both give."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pytest
from borders import of_small

import girih.array as gnp
from girih.array.core.evaluation import BORDER
from girih.array.core.small import SmallArray
from girih.array.random import COUNTED, DRAWN

LARGE = 1 << 20
"""Elements of an array that is large by the border of these tests."""


@pytest.fixture
def between():
    """A border between the arrays of a test."""
    before, BORDER.bytes = BORDER.bytes, 1 << 16
    yield
    BORDER.bytes = before


PROGRAMS = [
    "x * 2 + 1", "x.sum()", "np.sort(-x)", "x[2:4]", "x[[1, 3, 2]]", "x[x > 3]", "np.concatenate([x, s])",
    "s[0] * x", "x - s.mean()", "np.where(x > s[1], x, 0)", "x @ x", "np.stack([x, x])", "x.reshape(2, -1) * s[:1]",
    "np.add.outer(s, x)", "np.maximum(x, s.max())", "np.take(s, x.astype(int) % 4)", "s[x.astype(int) % 4]",
    "s[:, None] + x", "np.broadcast_to(s, (len(x), 4)) * x[:, None]", "np.tile(s, len(x) // 4) - x", "x + s[0]",
    "np.repeat(s, len(x) // 4)", "divmod(x, s[2] + 1)[1]", "x ** s[2]", "(s < x[0]).any()", "np.clip(x, s[1], 3)",
]  # fmt: skip
GROWING = [
    "np.zeros((1000, 1000))", "x[:, None] * x", "np.outer(x, x)", "np.tile(x, 1000)", "np.repeat(x, 1000)", "x[i]",
    "np.arange(1e6)", "np.full(10**6, 2.0)", "np.linspace(0, 1, 10**6)", "np.eye(1000)", "np.pad(x, 10**6)",
    "np.kron(x, x)", "np.broadcast_to(x, (1000, 1000)) + 1", "np.meshgrid(x, x)[0]", "np.diag(x)", "np.take(x, i)",
    "np.indices((1000, 1000))", "np.add.outer(x, x)", "np.einsum('i,j', x, x)", "x.repeat(1000)",
    "np.subtract(x[:, None], x)", "x[:, None] @ x[None]", "np.where(x[:, None] > x, 1, 0)",
    "np.random.default_rng(0).random(10**6)",
]  # fmt: skip


def is_small(x) -> bool:
    return type(x) is SmallArray


@of_small
@pytest.mark.usefixtures("between")
class TestBorder:
    """The same programs, on arrays below and above the border."""

    @pytest.mark.parametrize("text", PROGRAMS)
    def test_both_sides_give_numpys(self, two, text):
        s = np.array([1.0, 2.0, 3.0, 4.0])
        for count in (8, 1 << 13):
            x = np.arange(float(count)) % 7
            expected = eval(text, {"np": np, "x": x, "s": s})
            got = eval(text, {"np": gnp, "x": gnp.asarray(x), "s": gnp.asarray(s)})
            np.testing.assert_allclose(got.compute(), expected, rtol=1e-12)
            assert got.compute().dtype == np.asarray(expected).dtype

    def test_what_is_small_makes_no_graph(self, two):
        before = two.evaluations
        x = gnp.arange(10.0)
        for _ in range(3):
            x = gnp.sin(x) + x[::-1]
        assert is_small(x)
        assert float(x.sum()) > 0
        assert two.evaluations == before

    @pytest.mark.parametrize("text", GROWING)
    def test_what_is_made_of_small_arrays_may_be_large(self, two, text):
        """NumPy must not make it: its memory is the workers'."""
        x = gnp.arange(1000.0)
        i = gnp.asarray(np.zeros(LARGE, np.int64))
        tracemalloc.start()
        made = eval(text, {"np": gnp, "x": x, "i": i})
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert not is_small(made)
        assert made.size >= 10**6
        assert most < 4 << 20

    def test_a_stretched_view_sees_writes(self, two):
        x = gnp.arange(3.0)
        wide = gnp.broadcast_to(x, (LARGE, 3))
        before = wide + 0
        x[1] = 9
        assert (wide[5].tolist(), wide.sum(0).tolist()) == ([0, 9, 2], [0, 9 * LARGE, 2 * LARGE])
        assert before[5].tolist() == [0, 1, 2]

    def test_a_constant_is_what_an_array_had(self, two):
        x, large = gnp.arange(4.0), gnp.ones((LARGE, 4))
        view = x[1:]
        made = []
        for number in range(3):
            made.append((large * x).sum(0))
            view[:] = number  # the constants of before keep their values
        assert [item.tolist()[1] for item in made] == [LARGE, 0, LARGE]
        assert x.expression is x.expression

    def test_large_values_written_into_small_arrays(self, two):
        x, large = gnp.zeros(4), gnp.arange(float(LARGE))
        x[1:3] = large[5:7]
        x += large[:4] * 0 + 1
        x[large[:4].astype(int) == 3] = -1
        np.testing.assert_array_equal(x.compute(), [1, 6, 7, -1])
        assert gnp.add(large[:4], 1, out=x) is x
        assert x.tolist() == [1, 2, 3, 4]

    def test_explain_tells_the_border(self, two):
        text = str(gnp.explain(gnp.arange(3.0)))
        assert "by NumPy in this process" in text
        assert "24 B" in text
        assert "65.54 KB" in text
        assert "only NumPy has arrays of dtype <U1" in str(gnp.explain(gnp.array(["a"])))


def test_a_cluster_has_a_border_of_its_own():
    outside = BORDER.bytes
    with gnp.cluster(1, backend="threads", small="1 KB") as cluster:
        assert (is_small(gnp.zeros(100)), is_small(gnp.zeros(200))) == (True, False)
        with gnp.cluster(1, backend="threads", small=0):
            assert not is_small(gnp.zeros(1))
        assert cluster.small == BORDER.bytes == 1000
    assert BORDER.bytes == outside


@of_small
def test_elements_are_numbers_of_numpys():
    x = gnp.array([[1.5, 2.5]])
    assert isinstance(x[0, 1], np.float64)
    assert isinstance(x[0, 1], float)
    assert isinstance(gnp.arange(3)[1], np.integer)
    assert [type(x[0, 1] + 1), float(x[0, 1].compute())] == [np.float64, 2.5]
    assert np.asarray(x[0, 1]).dtype == (x[0, 1] * np.ones(2)).dtype == np.float64
    assert pickle.loads(pickle.dumps(x[0, 0])) == 1.5


@of_small
def test_warnings_and_errors_come_where_numpy_gives_them():
    x = gnp.array([1.0, 0.0])
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        made = 1 / x
    assert made.tolist() == [1, np.inf]
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        gnp.log(x)
    with warnings.catch_warnings(), np.errstate(divide="ignore"):
        warnings.simplefilter("error")
        gnp.log(x)
    for wrong, kind in (
        (lambda: gnp.linalg.inv(gnp.zeros((2, 2))), np.linalg.LinAlgError), (lambda: x[[7]], IndexError),
        (lambda: gnp.take(x, 9), IndexError), (lambda: gnp.arange(3) ** gnp.array(-1), ValueError),
    ):  # fmt: skip
        with pytest.raises(kind):
            wrong()


@pytest.mark.parametrize("count", [4, LARGE])
def test_attributes_of_memory(two, count):
    x, y = np.arange(float(count)), gnp.arange(float(count))
    x.shape, y.shape = (2, -1), (2, -1)
    part, ours = x[:1], y[:1]
    part.shape, ours.shape = (count // 2,), (count // 2,)
    part[0], ours[0] = 7, 7
    assert float(y[0, 0]) == x[0, 0]
    for a, b in ((x, y), (x.T, y.T), (x[:, ::2], y[:, ::2])):
        assert b.strides == a.strides
        for name in ("C_CONTIGUOUS", "F_CONTIGUOUS", "OWNDATA", "WRITEABLE"):
            assert b.flags[name] == a.flags[name]
    with pytest.raises(AttributeError, match=r"reshape"):
        y.T.shape = (count,)
    with pytest.raises(ValueError, match="cannot reshape"):
        y.shape = (3, -1)
    np.testing.assert_array_equal(y.view(np.int64).compute(), x.view(np.int64))
    assert y.view().shape == x.shape
    assert f"shape {x.shape}, float64" in y._repr_html_()


@pytest.mark.parametrize("count", [4, LARGE])
def test_pickled_arrays_are_arrays_again(two, count):
    x = gnp.arange(float(count)) * 2
    for made in (x, x.sum(), x[0], x[1:3]):
        again = pickle.loads(pickle.dumps(made))
        assert isinstance(again, gnp.Array if isinstance(made, gnp.Array) else np.float64)
        np.testing.assert_array_equal(np.asarray(again), made.compute())


def test_what_a_function_on_tiles_refers_to_goes_with_it(two):
    x = gnp.arange(4.0) * 2
    assert gnp.map(lambda tile: tile + x[1], x).tolist() == [2, 4, 6, 8]


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_what_a_function_on_tiles_refers_to_is_numpys_in_workers(backend):
    """A worker that asked for its value would wait for the program, which waits for the worker."""
    with gnp.cluster(workers=2, small=0, backend=backend):
        x = gnp.arange(4.0) * 2
        assert gnp.map(lambda tile: tile + x[1], x).tolist() == [2, 4, 6, 8]
        assert gnp.map(lambda tile: tile + x.sum(), x).tolist() == [12, 14, 16, 18]
        if backend == "threads":
            with pytest.raises(gnp.EvaluationError, match="use numpy in it"):
                gnp.map(lambda tile: tile + gnp.sum(np.ones(3)), x, dtype=float).tolist()


def test_joblib_sends_arrays_to_processes():
    joblib = pytest.importorskip("joblib")
    made = joblib.Parallel(n_jobs=2)(joblib.delayed(np.sum)(gnp.arange(float(count))) for count in (4, 5))
    assert [float(item) for item in made] == [6, 10]


def test_texts_dates_and_masks_are_numpys(two):
    names, days = gnp.array(["b", "a", "c"]), gnp.array(["2020-01-01", "2020-01-05"], dtype="datetime64[D]")
    assert gnp.sort(names).tolist() == ["a", "b", "c"]
    assert (names == "a").tolist() == [False, True, False]
    assert gnp.strings.upper(names).tolist() == ["B", "A", "C"]
    assert gnp.unique(gnp.concatenate([names, names])).tolist() == ["a", "b", "c"]
    assert (days[1] - days[0]) == np.timedelta64(4, "D")
    assert gnp.diff(days).tolist() == [days[1].item() - days[0].item()]
    assert int(gnp.busday_count(days[0], days[1])) == 3
    assert gnp.isnat(gnp.array(["NaT"], dtype="M8[s]")).tolist() == [True]
    masked = gnp.ma.masked_array(gnp.arange(4.0), gnp.arange(4) > 2)
    assert masked.mean() == 1
    records = gnp.array([(1, 2.0), (3, 4.0)], dtype=[("n", int), ("x", float)])
    assert float(records["x"].sum()) == 6
    with pytest.raises(TypeError, match=r"dtype <U1 is not supported|did not contain a loop"):
        gnp.ones(LARGE)[:3] * names if BORDER.bytes == 0 else names.lazily()
    with pytest.raises(TypeError, match="dtype object is not supported"):
        gnp.array([None, 1])


@of_small
def test_an_iterator_of_numpys_writes():
    x = gnp.arange(4.0)
    for item in gnp.nditer(x, op_flags=["readwrite"]):
        item[...] = item * 2
    assert x.tolist() == [0, 2, 4, 6]


def test_an_iterator_of_numpys_reads(two):
    large = gnp.ones(LARGE) if BORDER.bytes else gnp.ones(3)
    assert sum(float(item) for item in gnp.nditer(large[:3])) == 3
    if not BORDER.bytes:
        with pytest.raises(TypeError, match="nditer writes into small arrays alone"):
            gnp.nditer(large, op_flags=["readwrite"])


@pytest.mark.parametrize("function", ["add", "subtract"])
def test_at_masks(two, function):
    x = np.arange(5.0)
    ours = gnp.array(x)
    getattr(np, function).at(x, x > 2, 10)
    getattr(gnp, function).at(ours, ours > 2, 10)
    assert ours.tolist() == x.tolist()


PARAMETERS = {
    "p": 0.3, "n": 5, "ngood": 5, "nbad": 6, "nsample": 4, "left": 0.0, "mode": 1.0, "loc": 0.0, "mu": 0.0,
}  # fmt: skip
DRAWS = [
    "random()", "random((3, 4))", "random(40)", "random(5, 'float32')", "normal(size=7)", "normal()",
    "integers(3, 9, 20)", "integers(0, 2**40, 5)", "uniform(1, 2, (2, 3))", "exponential(2.0, 5)", "choice(10, 4)",
    "permutation(6)",
    "choice(10, 4, replace=False)", "choice([1.0, 2, 3], 5, p=[0.2, 0.3, 0.5])", "permutation([3, 1, 2])",
    "multivariate_normal([0, 1], [[2.0, 1], [1, 2]], 3)", "gamma([1.0, 2.0], 2.0)", "poisson(3.0, 20_000)",
    "permuted([[1, 2, 3], [4, 5, 6]], axis=1)", "dirichlet([1, 2, 3], 2)", "standard_normal(5, 'float32')",
    *(f"{name}({''.join(str(PARAMETERS.get(item.partition('=')[0], 2.0)) + ', ' for item in fields.split())}size=5)"
      for table in (DRAWN, COUNTED) for name, fields in table.items()),
]  # fmt: skip


@of_small
@pytest.mark.parametrize("text", DRAWS)
def test_random_numbers_are_those_of_large_arrays(two, text):
    at_once = eval(f"np.random.default_rng(3).{text}", {"np": gnp})
    BORDER.bytes = 0
    try:
        planned = eval(f"np.random.default_rng(3).{text}", {"np": gnp})
        assert is_small(at_once)
        assert not is_small(planned)
        assert (at_once.dtype, at_once.shape, at_once.scalar) == (planned.dtype, planned.shape, planned.scalar)
        np.testing.assert_allclose(at_once.compute(), planned.compute(), rtol=1e-13)
    finally:
        BORDER.put(None)


def test_small_work_loads_no_pytorch():
    code = """
import os, sys
import girih.array as np
x = np.random.default_rng(0).normal(size=(4, 4))
print(float((np.linalg.inv(x) @ x).trace()))
import girih.array.session
print("torch" in sys.modules, os.environ["THP_MEM_ALLOC_ENABLE"])
"""
    plain = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=plain)
    trace, loaded, large_pages = done.stdout.split()
    assert abs(float(trace) - 4) < 1e-9
    assert (loaded, large_pages) == ("False", "1")  # which PyTorch looks for before its first tensor, and not again


@of_small
def test_what_a_loop_goes_over_is_as_what_it_asks_for():
    """Rows are views, elements are numbers that have `compute()`, and both see what is written meanwhile."""
    x, y = gnp.ones((3, 2)), gnp.arange(3.0)
    for row in x:
        row += 1
    assert x.tolist() == [[2.0, 2.0]] * 3
    seen = []
    for number in y:
        seen.append(float(number.compute()))
        y[-1] = 7.0
    assert seen == [0.0, 1.0, 7.0]
    assert [type(item) for item in gnp.array([True, False])] == [np.bool_, np.bool_]
    assert type(np.float64(2.0) * y) is type(y)
    assert (np.float64(2.0) * y).tolist() == [0.0, 2.0, 14.0]


@of_small
def test_an_array_that_somebody_has_is_copied_and_another_is_not():
    theirs = np.ones(3)
    held = [np.ones(3)]
    taken = [gnp.asarray(theirs), gnp.asarray(held[0]), *map(gnp.asarray, held), gnp.asarray(theirs[:2])]
    theirs[:] = held[0][:] = 5.0
    assert [x.tolist() for x in taken] == [[1.0] * 3] * 3 + [[1.0] * 2]
    content = np.ones(3)
    place = content.ctypes.data
    made = [content]
    del content
    x = gnp.asarray(made.pop())
    assert x.held.ctypes.data == place


@of_small
def test_persist_computes_what_is_deferred(monkeypatch):
    monkeypatch.setattr(BORDER, "quick", 0)
    monkeypatch.setattr(BORDER, "chains", 0)
    x = gnp.ones((100, 50))
    y = x + 1
    assert type(y) is not type(x)
    assert type(y.persist()) is type(x)


@of_small
def test_large_work_sees_a_shape_that_was_set():
    matrix = np.arange(400.0).reshape(20, 20)
    with gnp.cluster(1, backend="threads", small=200):
        large, x = gnp.asarray(matrix), gnp.asarray(np.arange(20.0))
        np.testing.assert_array_equal((large * x).compute(), matrix * np.arange(20.0))
        x.shape = (20, 1)
        np.testing.assert_array_equal((large * x).compute(), matrix * np.arange(20.0)[:, None])
