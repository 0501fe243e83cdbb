"""The standard's array object, its operators, and its extensions `linalg` and `fft`, against array-api-strict."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from standard_elementwise import CASES as ELEMENTWISE
from standard_products import CASES as OTHERS
from standard_values import (
    COMPLEX,
    FLOATING,
    NUMERIC,
    Arguments,
    arrays,
    as_numpy,
    axes,
    call,
    content,
    own,
    same,
    shapes,
)

import girih.array as gnp

OPERATORS = {
    "abs": "abs", "add": "add", "bitwise_and": "and_", "bitwise_invert": "invert", "bitwise_left_shift": "lshift",
    "bitwise_or": "or_", "bitwise_right_shift": "rshift", "bitwise_xor": "xor", "divide": "truediv", "equal": "eq",
    "floor_divide": "floordiv", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
    "matmul": "matmul", "multiply": "mul", "negative": "neg", "not_equal": "ne", "positive": "pos", "pow": "pow",
    "remainder": "mod", "subtract": "sub",
}  # fmt: skip
IN_PLACE = [name for name in OPERATORS if name not in ("abs", "bitwise_invert", "matmul", "negative", "positive")
            and OPERATORS[name] not in ("eq", "ne", "lt", "le", "gt", "ge", "lshift", "rshift")]  # fmt: skip


def check_calls(
    examples: int, drawn: Callable[[st.DrawFn], Arguments], expected: Any, got: Any, check: Any = None, **more: Any
) -> None:
    """Both libraries' results of random calls are the same; or `check` says so."""

    @settings(max_examples=examples, deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.data())
    def run(data: st.DataObject) -> None:
        arguments = data.draw(st.composite(drawn)())
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            first, second = arguments.call(expected, strict), arguments.call(got, gnp)
            same(first, second, **more) if check is None else check(arguments, first, second)

    run()


# ------------------------------------------------------------------------------------------- the array object


def test_every_member_is_there() -> None:
    names = {name for name in dir(strict.zeros((2, 2))) if name.startswith("__") or not name.startswith("_")}
    names -= set(dir(object)) | {
        "__module__",
        "__weakref__",
        "__dict__",
        "__annotations__",
        "__buffer__",
        "__array_priority__",
    }
    in_place = {name for name in names if name.startswith("__i") and f"__{name[3:]}" in names}
    x = gnp.zeros((2, 2))
    assert [name for name in sorted(names - in_place) if not hasattr(x, name)] == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_operators(cluster: gnp.Cluster, examples: int, name: str) -> None:
    function = getattr(operator, OPERATORS[name])
    drawn = {**ELEMENTWISE, **OTHERS}[name]
    check_calls(examples, drawn, function, function)


@pytest.mark.parametrize("name", sorted(IN_PLACE))
def test_operators_in_place(cluster: gnp.Cluster, name: str) -> None:
    function = getattr(operator, "i" + OPERATORS[name].rstrip("_"))
    dtype = "int64" if "bit" in name else "float64"
    x, y = np.abs(content(dtype, (3, 4), 1, False)), np.abs(content(dtype, (4,), 2, False)) + 1
    first, second = own(x, strict), own(x, gnp)
    first, second = function(first, own(y, strict)), function(second, own(y, gnp))
    same(first, second)


@pytest.mark.parametrize(
    "key",
    [
        (0,),
        (-1, 2),
        (slice(None), 1),
        (slice(3, 0, -2), ...),
        (..., None),
        (None, slice(1, 2), None, ...),
        (slice(3, 3), 0),
        (..., slice(None, None, 3)),
    ],
    ids=str,
)
def test_indices(cluster: gnp.Cluster, key: Any) -> None:
    x = np.arange(24.0).reshape(4, 6)
    key = key if len(key) > 1 or key[0] is ... else (key[0], ...)
    same(own(x, strict)[key], own(x, gnp)[key])


def test_masks_and_index_arrays(cluster: gnp.Cluster) -> None:
    x = np.arange(24.0).reshape(4, 6)
    same(own(x, strict)[own(x > 5, strict)], own(x, gnp)[own(x > 5, gnp)])
    picks = np.array([2, 0, 1])
    same(own(x, strict)[own(picks, strict), own(picks, strict)], own(x, gnp)[own(picks, gnp), own(picks, gnp)])


def test_numbers(cluster: gnp.Cluster) -> None:
    x = gnp.asarray(3)
    assert (int(x), float(x), complex(x), operator.index(x), bool(x)) == (3, 3.0, 3 + 0j, 3, True)
    with pytest.raises(TypeError):
        operator.index(gnp.asarray(3.0))
    with pytest.raises(TypeError):
        float(gnp.asarray(1j))


def test_exchange(cluster: gnp.Cluster) -> None:
    x = np.arange(6.0).reshape(2, 3)
    ours = gnp.asarray(x) * 2
    np.testing.assert_array_equal(np.from_dlpack(ours), x * 2)
    np.testing.assert_array_equal(gnp.from_dlpack(x[:, ::-1]).compute(), x[:, ::-1])
    assert ours.__dlpack_device__() == (1, 0)
    assert ours.to_device(ours.device) is ours
    with pytest.raises(ValueError, match="girih arrays have device 'cpu'"):
        ours.to_device("cuda")
    with pytest.raises(BufferError, match="copy=False"):
        ours.__dlpack__(copy=False)
    assert ours.__array_namespace__(api_version=gnp.__array_api_version__) is gnp
    with pytest.raises(ValueError, match="version"):
        ours.__array_namespace__(api_version="1999.01")


# ------------------------------------------------------------------------------------------- linalg

DTYPES = FLOATING + COMPLEX
LINALG: dict[str, Callable[[st.DrawFn], Arguments]] = {}


def case(*names: str) -> Callable[[Any], Any]:
    def keep(function: Any) -> Any:
        LINALG.update(dict.fromkeys(names, function))
        return function

    return keep


def matrices(draw: st.DrawFn, *, square: bool = True, definite: bool = False, dtypes: Any = DTYPES) -> np.ndarray:
    n = draw(st.integers(1, 4))
    m = n if square else draw(st.integers(1, 4))
    batch = draw(shapes(0, 1, empty=False))
    x = content(draw(st.sampled_from(dtypes)), (*batch, n, m), draw(st.integers(0, 999)), False)
    x = np.asarray(x / max(1.0, float(np.abs(x).max())), x.dtype)
    if definite:
        x = x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(n, dtype=x.dtype)
    return x + 2 * np.eye(n, dtype=x.dtype) if square and not definite else x


@case("cholesky")
def cholesky(draw: st.DrawFn) -> Arguments:
    return call(matrices(draw, definite=True), upper=draw(st.booleans()))


@case("det", "inv", "slogdet")
def one_square(draw: st.DrawFn) -> Arguments:
    return call(matrices(draw))


@case("eigh", "eigvalsh")
def symmetric(draw: st.DrawFn) -> Arguments:
    return call(matrices(draw, definite=True))


@case("svdvals", "pinv", "matrix_rank")
def one_matrix(draw: st.DrawFn) -> Arguments:
    return call(matrices(draw, square=False))


@case("svd")
def svd(draw: st.DrawFn) -> Arguments:
    return call(matrices(draw, square=False), full_matrices=draw(st.booleans()))


@case("qr")
def qr(draw: st.DrawFn) -> Arguments:
    return call(matrices(draw, square=False), mode=draw(st.sampled_from(["reduced", "complete"])))


@case("solve")
def solve(draw: st.DrawFn) -> Arguments:
    a = matrices(draw)
    return call(a, content(a.dtype.name, draw(st.sampled_from([a.shape[-1:], (*a.shape[:-1], 2)])), 5, False))


@case("matrix_power")
def matrix_power(draw: st.DrawFn) -> Arguments:
    return call(matrices(draw), draw(st.integers(-2, 4)))


@case("matrix_norm")
def matrix_norm(draw: st.DrawFn) -> Arguments:
    orders = [1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc"]
    return call(matrices(draw, square=False), ord=draw(st.sampled_from(orders)), keepdims=draw(st.booleans()))


@case("vector_norm")
def vector_norm(draw: st.DrawFn) -> Arguments:
    x = draw(arrays(DTYPES, shapes(1, 3, empty=False), special=False))
    axis = axes(draw, x.ndim)
    orders = [0, 1, -1, 2, -2, 3, 0.5, np.inf, -np.inf]
    return call(x, axis=None if axis == () else axis, ord=draw(st.sampled_from(orders)), keepdims=draw(st.booleans()))


@case("trace")
def trace(draw: st.DrawFn) -> Arguments:
    return call(draw(arrays(NUMERIC, shapes(2, 3), special=False)), offset=draw(st.integers(-3, 3)))


@case("diagonal")
def diagonal(draw: st.DrawFn) -> Arguments:
    return call(draw(arrays(shape=shapes(2, 3))), offset=draw(st.integers(-3, 3)))


@case("cross")
def cross(draw: st.DrawFn) -> Arguments:
    shape, dtype = (*draw(shapes(0, 2)), 3), draw(st.sampled_from(NUMERIC))
    return call(content(dtype, shape, 1, False), content(dtype, shape, 2, False))


@case("outer")
def outer(draw: st.DrawFn) -> Arguments:
    dtype = (draw(st.sampled_from(NUMERIC)),)
    return call(*(draw(arrays(dtype, shapes(1, 1), special=False)) for _ in range(2)))


for shared in ("matmul", "tensordot", "vecdot", "matrix_transpose"):
    case(shared)(OTHERS[shared])

FACTORS = {"qr", "svd", "eigh"}
"""Whose factors are not unique: their products are compared."""


def check_factors(name: str) -> Callable[[Arguments, Any, Any], None]:
    def check(arguments: Arguments, expected: Any, got: Any) -> None:
        same(expected, got, values=False)
        parts = [as_numpy(part) for part in got]
        x = arguments.positional[0]
        if name == "qr":
            made = parts[0] @ parts[1]
        elif name == "svd":
            size = parts[1].shape[-1]
            made = (parts[0][..., :size] * parts[1][..., None, :]) @ parts[2][..., :size, :]
        else:
            made = (parts[1] * parts[0][..., None, :]) @ np.conj(np.swapaxes(parts[1], -1, -2))
        close = 256 * np.finfo(x.dtype).eps
        np.testing.assert_allclose(made, x, rtol=close, atol=close)
        orthogonal = parts[1] if name == "eigh" else parts[0]
        gram = np.conj(np.swapaxes(orthogonal, -1, -2)) @ orthogonal
        np.testing.assert_allclose(gram, np.broadcast_to(np.eye(gram.shape[-1]), gram.shape), atol=close)

    return check


def test_every_linalg_function_is_tested() -> None:
    assert set(strict.linalg.__all__) - {"eig", "eigvals"} == set(LINALG)  # these are of the version after


@pytest.mark.parametrize("name", sorted(LINALG))
def test_linalg(cluster: gnp.Cluster, examples: int, name: str) -> None:
    check = check_factors(name) if name in FACTORS else None
    check_calls(
        examples, LINALG[name], getattr(strict.linalg, name), getattr(gnp.linalg, name), check=check, tolerance=64.0
    )


# ------------------------------------------------------------------------------------------- fft

FFT: dict[str, Callable[[st.DrawFn], Arguments]] = {}


def transform(name: str, dtypes: tuple[str, ...], several: bool) -> None:
    def drawn(draw: st.DrawFn) -> Arguments:
        x = draw(arrays(dtypes, shapes(2, 3, 5, empty=False), special=False))
        x = x if x.shape[-1] > 1 else np.repeat(x, 2, -1)
        norm = draw(st.sampled_from(["backward", "ortho", "forward"]))
        if not several:
            axis = axes(draw, x.ndim, several=False)
            axis = axis if x.shape[axis] > 1 else -1
            return call(x, n=draw(st.one_of(st.none(), st.integers(2, 7))), axis=axis, norm=norm)
        dims = tuple(draw(st.permutations(range(x.ndim)))[: draw(st.integers(1, 2))])
        if x.shape[dims[-1]] < 2:
            dims = (x.ndim - 1,)
        sizes = tuple(draw(st.integers(2, 5)) for _ in dims) if draw(st.booleans()) else None
        return call(x, s=sizes, axes=dims, norm=norm)

    FFT[name] = drawn


for one, types in (("fft", COMPLEX), ("ifft", COMPLEX), ("rfft", FLOATING), ("irfft", COMPLEX)):
    transform(one, types, several=False)
    transform(f"{one}n", types, several=True)
transform("hfft", COMPLEX, several=False)
transform("ihfft", FLOATING, several=False)


def frequencies(name: str) -> None:
    FFT[name] = lambda draw: call(draw(st.integers(1, 9)), d=draw(st.sampled_from([1.0, 0.5])))


frequencies("fftfreq")
frequencies("rfftfreq")


def shifted(name: str) -> None:
    def drawn(draw: st.DrawFn) -> Arguments:
        x = draw(arrays(FLOATING + COMPLEX, shapes(1, 3)))
        return call(x, axes=axes(draw, x.ndim))

    FFT[name] = drawn


shifted("fftshift")
shifted("ifftshift")


def test_every_transform_is_tested() -> None:
    assert set(strict.fft.__all__) == set(FFT)


@pytest.mark.parametrize("name", sorted(FFT))
def test_fft(cluster: gnp.Cluster, examples: int, name: str) -> None:
    check_calls(examples, FFT[name], getattr(strict.fft, name), getattr(gnp.fft, name), tolerance=16.0)
