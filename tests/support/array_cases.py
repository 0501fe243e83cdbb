"""Calls of NumPy's functions, as text that is run once with NumPy and once with girih: the results must be equal."""

from __future__ import annotations

import numpy as np

import girih.array as gnp

_random = np.random.default_rng(0)
DATA = {
    "a": _random.normal(size=(7, 5)),
    "b": _random.normal(size=(7, 5)),
    "c": _random.normal(size=(5, 6)),
    "v": _random.normal(size=5),
    "w": _random.normal(size=9),
    "f": _random.normal(size=(4, 3, 5)).astype(np.float32),
    "g": _random.normal(size=(4, 5, 2)).astype(np.float32),
    "p": _random.uniform(0.1, 0.9, size=(6, 4)),
    "i": _random.integers(-9, 9, size=(7, 5)),
    "j": _random.integers(1, 9, size=(7, 5)).astype(np.int32),
    "u": _random.integers(0, 5, size=11),
    "t": _random.random((7, 5)) > 0.5,
    "n": np.array([1.0, np.nan, -np.inf, np.inf, -0.0, 0.0, 2.5]),
    "s": np.array(1.5),
    "z": _random.normal(size=(4, 4)) + 1j * _random.normal(size=(4, 4)),
    "spd": (lambda m: m @ m.T + 4 * np.eye(6))(_random.normal(size=(6, 6))),
}


def both(text: str) -> tuple[object, object]:
    """What NumPy and girih make of the text, in which `np` is either of them."""
    import girih.array

    expected = eval(text, {"np": np, **DATA})
    got = eval(text, {"np": girih.array, **{name: gnp.array(value) for name, value in DATA.items()}})
    return expected, got


def same(text: str) -> None:
    """Equal shapes, dtypes and values; of tuples and lists each of their items."""
    expected, got = both(text)
    if not isinstance(expected, (tuple, list)):
        expected, got = [expected], [got]
    assert len(expected) == len(got)
    for first, second in zip(expected, got, strict=True):
        if isinstance(first, np.dtype):
            assert second == first
            continue
        first = np.asarray(first)
        if hasattr(second, "compute"):
            assert second.shape == first.shape
            assert second.dtype == first.dtype
            second = second.compute()
        second = np.asarray(second)
        assert (second.shape, second.dtype) == (first.shape, first.dtype)
        tolerance = {"float16": 1e-2, "float32": 2e-5, "complex64": 2e-5}.get(first.dtype.name, 1e-11)
        np.testing.assert_allclose(second, first, rtol=tolerance, atol=tolerance)
