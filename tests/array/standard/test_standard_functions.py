"""Every function of the Python array API standard, on random calls, against array-api-strict."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from standard_elementwise import SMOOTH
from standard_products import CASES
from standard_values import Arguments, own, same

import girih.array as gnp

OF_THE_ORACLE = {
    "ArrayAPIStrictFlags",
    "Device",
    "__version__",
    "__array_api_version__",
    "get_array_api_strict_flags",
    "reset_array_api_strict_flags",
    "set_array_api_strict_flags",
}
CONSTANTS = {"e", "inf", "nan", "newaxis", "pi"}
TYPES = {"bool", "complex64", "complex128", "float32", "float64"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
INSPECTED = {"finfo", "iinfo", "__array_namespace_info__", "linalg", "fft"}
"""Tested by tests of their own, here and in test_standard_extensions."""
OF_THE_VERSION_AFTER = {"eig", "eigvals"}
TOLERANCES = {"tan": 16.0, "logaddexp": 4.0, "prod": 8.0, "cumulative_prod": 8.0, "var": 16.0, "std": 16.0, "mean": 4.0}
TOLERANCES.update(dict.fromkeys(SMOOTH, 16.0))


def compare(arguments: Arguments, expected: Callable[..., Any], got: Callable[..., Any], **more: Any) -> None:
    """What the oracle makes of a call, ours makes too; what it refuses, ours is not asked."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        first = arguments.call(expected, strict)
        same(first, arguments.call(got, gnp), **more)


def test_every_name_is_tested() -> None:
    names = set(strict.__all__) - OF_THE_ORACLE
    assert names == set(CASES) | CONSTANTS | TYPES | INSPECTED
    assert not [name for name in names if not hasattr(gnp, name)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(CASES))
def test_function(cluster: gnp.Cluster, examples: int, name: str) -> None:
    if name in ("isin", "broadcast_shapes"):
        strict.set_array_api_strict_flags(api_version="2025.12")

    @settings(max_examples=examples, deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.data())
    def check(data: st.DataObject) -> None:
        arguments = data.draw(st.composite(CASES[name])())
        more = {"tolerance": TOLERANCES.get(name, 1.0), "values": not name.startswith("empty")}
        compare(arguments, getattr(strict, name), getattr(gnp, name), **more)

    try:
        check()
    finally:
        strict.set_array_api_strict_flags(api_version=gnp.__array_api_version__)


@pytest.mark.parametrize("name", sorted(CONSTANTS | TYPES))
def test_constants_and_types(name: str) -> None:
    first, second = getattr(strict, name), getattr(gnp, name)
    if name in TYPES:
        assert np.dtype(second) == first._np_dtype
        assert gnp.zeros(1, dtype=second).dtype == second
    else:
        assert second is first or second == first or (name == "nan" and second != second)


@pytest.mark.parametrize("name", sorted(TYPES - {"bool"}))
def test_limits(name: str) -> None:
    kind = "iinfo" if "int" in name else "finfo"
    for argument in (lambda space: getattr(space, name), lambda space: space.zeros(2, dtype=getattr(space, name))):
        first, second = (getattr(space, kind)(argument(space)) for space in (strict, gnp))
        for field in ("bits", "max", "min") + (("eps", "smallest_normal") if kind == "finfo" else ()):
            assert float(getattr(second, field)) == float(getattr(first, field))
            assert isinstance(getattr(second, field), (int, float))
        assert second.dtype == first.dtype._np_dtype


def test_inspection() -> None:
    first, second = strict.__array_namespace_info__(), gnp.__array_namespace_info__()
    assert second.capabilities() == first.capabilities()
    assert set(second.default_dtypes()) == set(first.default_dtypes())
    for kind in (None, "bool", "integral", "real floating", ("signed integer", "complex floating")):
        assert set(second.dtypes(kind=kind)) == set(first.dtypes(kind=kind))
    assert second.default_device() in second.devices()
    with pytest.raises(ValueError, match="kind"):
        second.dtypes(kind="text")
    with pytest.raises(ValueError, match="girih arrays have device 'cpu'"):
        gnp.zeros(3, device="cuda")


@pytest.mark.parametrize("name", sorted(CASES) + [f"{space}.{name}" for space in ("linalg", "fft")
                                                  for name in getattr(strict, space).__all__
                                                  if name not in OF_THE_VERSION_AFTER])  # fmt: skip
def test_signatures(name: str) -> None:
    """Arguments have the standard's places and names; more are allowed."""
    space, _, function = name.rpartition(".")
    first, second = (getattr(getattr(here, space) if space else here, function) for here in (strict, gnp))
    expected, got = (list(inspect.signature(item).parameters.values()) for item in (first, second))
    by_name = {parameter.name: parameter for parameter in got}
    kinds = inspect.Parameter
    for position, parameter in enumerate(expected):
        if parameter.kind is kinds.VAR_POSITIONAL:
            assert any(item.kind is kinds.VAR_POSITIONAL for item in got)
        elif parameter.kind is kinds.KEYWORD_ONLY:
            assert by_name[parameter.name].kind in (kinds.KEYWORD_ONLY, kinds.POSITIONAL_OR_KEYWORD)
        else:
            assert got[position].kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
            if parameter.kind is kinds.POSITIONAL_OR_KEYWORD:
                assert parameter.name in by_name


ERRORS = {
    "axis too large": lambda space, x: space.sum(x, axis=2),
    "axis twice": lambda space, x: space.sum(x, axis=(0, 0)),
    "shapes that do not broadcast": lambda space, x: x + space.zeros((3,)),
    "reshape of another size": lambda space, x: space.reshape(x, (5,)),
    "matmul of other sizes": lambda space, x: space.matmul(x, x),
    "concat of other sizes": lambda space, x: space.concat([x, space.zeros((2, 5))], axis=0),
    "squeeze of a long axis": lambda space, x: space.squeeze(x, axis=0),
    "index too large": lambda space, x: x[2, 0],
    "too many indices": lambda space, x: x[0, 0, 0],
    "float index": lambda space, x: x[0.5],
    "bool of many": lambda space, x: bool(x),
    "float of many": lambda space, x: float(x),
    "broadcast_to a smaller shape": lambda space, x: space.broadcast_to(x, (2, 1)),
    "stack of other shapes": lambda space, x: space.stack([x, space.zeros((2, 5))]),
    "permute of too few axes": lambda space, x: space.permute_dims(x, (0,)),
    "transpose of a vector": lambda space, x: space.matrix_transpose(x[0, :]),
    "maximum of nothing": lambda space, x: space.max(space.zeros((0,))),
    "bits of floats": lambda space, x: space.bitwise_and(x, x),
    "a negative size": lambda space, x: space.zeros((-1,)),
    "no dtype": lambda space, x: space.zeros((1,), dtype="text"),
}


@pytest.mark.parametrize("what", sorted(ERRORS))
def test_errors(what: str) -> None:
    x = np.arange(8.0).reshape(2, 4)
    with pytest.raises(Exception) as expected:  # noqa: PT011 - the oracle says which
        ERRORS[what](strict, own(x, strict))
    with pytest.raises((type(expected.value), ValueError, TypeError, IndexError)):
        ERRORS[what](gnp, own(x, gnp))
