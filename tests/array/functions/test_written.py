"""What writes into an array writes as NumPy's, and what NumPy copies is a copy: later writes are not seen in both."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import test_functions
import test_more_functions
from array_cases import DATA
from borders import of_large

import girih.array as gnp


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[gnp.Cluster]:
    with gnp.cluster(workers=3, backend="threads", timeout=60.0) as made:
        yield made


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "out": lambda np, x: np.add(x, 1, out=x),
    "out by position": lambda np, x: np.multiply(x, 2, x),
    "out and where": lambda np, x: np.subtract(x, 5, out=x, where=x > 3),
    "out of a wider dtype and where": lambda np, x: np.greater(x * 2, 5, out=x, where=x > 3),
    "out of a reduction": lambda np, x: np.sum(x, axis=0, out=x[1]),
    "out of a scan": lambda np, x: np.cumsum(x, axis=1, out=x),
    "out of reduce": lambda np, x: np.add.reduce(x, axis=1, out=x[:, 0]),
    "out of two": lambda np, x: np.modf(x / 3, out=(x, np.zeros_like(x))),
    "out of clip": lambda np, x: np.clip(x, 2, 5, out=x),
    "out of a mean": lambda np, x: np.mean(x, 1, out=x[:, 1]),
    "at": lambda np, x: np.add.at(x, [0, 0, 2], 10.0),
    "at of several": lambda np, x: np.subtract.at(x, ([0, 0, -1], [1, 1, 2]), [1.0, 2.0, 3.0]),
    "at of a slice": lambda np, x: np.multiply.at(x, slice(0, 2), 3.0),
    "at of one operand": lambda np, x: np.negative.at(x, [1]),
    "copyto": lambda np, x: np.copyto(x, [9.0, 8.0, 7.0, 6.0], where=[True, False, True, True]),
    "putmask": lambda np, x: np.putmask(x, x > 4, [1.0, 2.0, 3.0]),
    "place": lambda np, x: np.place(x, x > 4, [1.0, 2.0, 3.0]),
    "put": lambda np, x: np.put(x, [0, -1, 5], [7.0, 8.0]),
    "put by clipping": lambda np, x: np.put(x, [99], [7.0], mode="clip"),
    "put_along_axis": lambda np, x: np.put_along_axis(x, np.argmax(x, axis=1, keepdims=True), -1.0, axis=1),
    "fill_diagonal": lambda np, x: np.fill_diagonal(x, [5.0, 6.0, 7.0]),
    "sort": lambda np, x: x.sort(0),
    "partition": lambda np, x: x.partition(0),
    "fill": lambda np, x: x.fill(4),
    "a mask without dimensions": lambda np, x: x.__setitem__(np.asarray(True), [x[:, ::-1].copy()]),
    "such a mask that does not hold": lambda np, x: x.__setitem__(False, np.zeros((0, 3, 4))),
    "a view": lambda np, x: np.add(x[::2], 1, out=x[::2]),
}


@pytest.mark.parametrize("what", sorted(WRITES))
def test_writes(what: str) -> None:
    x = np.arange(12.0).reshape(3, 4)[:, ::-1].copy()
    ours = gnp.array(x)
    expected, got = WRITES[what](np, x), WRITES[what](gnp, ours)
    np.testing.assert_array_equal(ours.compute(), x)
    if isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(got.compute(), expected)


@of_large
def test_what_is_not_written() -> None:
    x = gnp.zeros(3)
    with pytest.raises(TypeError, match="Cannot cast from float64 to the output's int64"):
        gnp.add(x, 0.5, out=gnp.zeros(3, int))
    with pytest.raises(ValueError, match=r"output parameter has shape \(2,\), the result \(3,\)"):
        gnp.add(x, 0.5, out=gnp.zeros(2))
    with pytest.raises(TypeError, match="out= must be a girih array, not ndarray"):
        gnp.add(x, 0.5, out=np.zeros(3))
    with pytest.raises(TypeError, match=r"girih.array has no power.at: expected one of add.at, subtract.at"):
        gnp.power.at(x, [0], 2.0)
    with pytest.raises(TypeError, match=r"girih.array.put writes into girih arrays, not into ndarray"):
        gnp.put(np.zeros(3), [0], 1.0)
    assert (x.compute() == 0).all()


VIEWS = ("np.broadcast_arrays(", "np.einsum('ii->i'")  # NumPy lets these be written to, for now or by their own rule
UNCHANGED = [
    "np.sum(a, axis=())", "np.mean(a, axis=())", "np.max(a, axis=())", "np.all(t, axis=())", "np.sort(a[:1, :1])",
    "a**1", "np.clip(a, None, None)", "np.full((7, 5), a)", "np.full((3,), 1j)", "np.meshgrid(v)", "np.array(a)",
    "np.add.accumulate(a[:1])", "np.fmax.reduce(a, axis=())", "a.astype(float)", "np.around(i)",
    "np.concatenate([a])", "np.stack([a])", "np.tile(a, 1)", "np.repeat(a, 1, axis=0)", "np.where(t, a, a)",
    "np.diff(a, 0)", "np.pad(a, 0)", "np.take(a, [0, 1, 2, 3, 4, 5, 6], 0)", "np.delete(a, [], 0)", "np.block([a])",
    "np.average(a, axis=())", "np.choose([0], [v])", "np.copy(a)", "np.array(a, ndmin=3)", "np.resize(a, (7, 5))",
    "np.floor(i)", "np.conj(a)", "np.nan_to_num(i)", "np.positive(a)",
]  # fmt: skip


@pytest.mark.parametrize("part", range(8))
def test_what_numpy_copies_is_a_copy(part: int) -> None:
    """Results are overwritten: inputs change where NumPy's do, and nowhere else."""
    texts = [*dict.fromkeys([*UNCHANGED, *test_functions.CASES, *test_more_functions.CASES])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = [text for text in texts[part::8] if not text.startswith(VIEWS) and not shares_alike(text)]
    assert wrong == []


def shares_alike(text: str) -> bool:
    arrays = {name: value.copy() for name, value in DATA.items()}
    ours = {name: gnp.array(value) for name, value in DATA.items()}
    for result, got in zip(results(text, np, arrays), results(text, gnp, ours), strict=True):
        if isinstance(result, np.ndarray) and isinstance(got, gnp.Array) and result.flags.writeable and result.size:
            result[...] = got[...] = result.dtype.type(1)
    return all(
        unchanged(name, value) == unchanged(name, ours[name].compute())
        for name, value in arrays.items()
        if name in text
    )


def unchanged(name: str, value: np.ndarray) -> bool:
    return np.array_equal(value, DATA[name], equal_nan=value.dtype.kind in "fc")


def results(text: str, space: Any, arrays: dict[str, Any]) -> tuple[Any, ...]:
    made = eval(text, {"np": space, **arrays})
    return tuple(made) if isinstance(made, (tuple, list)) else (made,)
