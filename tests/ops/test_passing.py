"""Which inputs let partial maxima and minima pass, and what they become: derived from the index notation.

That what is derived is right, for NaN and infinities too, is held against PyTorch's kernels in `test_catalogue`.
"""

from __future__ import annotations

from typing import Any

import pytest

from girih.ops import Description, TensorType
from girih.ops.derive.passing import passages
from girih.ops.describe import describe_call

MATRIX = (4, 6)


def described(operator: str, shapes: dict[str, tuple[int, ...]], made: tuple[int, ...], **given: Any) -> Description:
    """given: attributes; `dtype` and `to` are the dtypes of the tensors and of the result."""
    dtype = given.pop("dtype", "float64")
    result = given.pop("to", dtype)
    tensors = {name: TensorType(shape, dtype) for name, shape in shapes.items()}
    found = describe_call(operator, tensors, given, TensorType(made, result))
    assert found is not None
    return found


def extremes(description: Description) -> set[tuple[frozenset[int], str, str]]:
    return {(one.inputs, one.takes, one.makes) for one in passages(description) if one.takes != "sum"}


def both(*inputs: int) -> set[tuple[frozenset[int], str, str]]:
    return {(frozenset(inputs), reducer, reducer) for reducer in ("max", "min")}


TURNED = {(frozenset({0}), "max", "min"), (frozenset({0}), "min", "max")}
X, XY = {"self": MATRIX}, {"self": MATRIX, "other": MATRIX}


@pytest.mark.parametrize(
    ("operator", "shapes", "made", "given", "expected"),
    [
        ("aten.relu", X, MATRIX, {}, both(0)),
        ("aten.exp", X, MATRIX, {}, both(0)),
        ("aten.neg", X, MATRIX, {}, TURNED),
        ("aten.clamp", X, MATRIX, {"min": -1.0, "max": 1.0}, both(0)),
        ("aten.permute", X, (6, 4), {"dims": (1, 0)}, both(0)),
        ("aten.reshape", X, (2, 12), {"shape": (2, 12)}, both(0)),
        ("aten.slice.Tensor", X, (2, 6), {"dim": 0, "start": 1, "end": 3, "step": 1}, both(0)),
        ("aten.expand", {"self": (1, 6)}, MATRIX, {"size": MATRIX}, both(0)),
        ("aten.mul.Scalar", X, MATRIX, {"other": 2.0}, both(0)),
        ("aten.mul.Scalar", X, MATRIX, {"other": -2.0}, TURNED),
        ("aten.add.Scalar", X, MATRIX, {"other": -2.0}, both(0)),
        ("aten.rsub.Scalar", X, MATRIX, {"other": 1.0}, TURNED),
        ("aten.where.self", {"condition": MATRIX, **XY}, MATRIX, {}, both(1, 2)),
        ("aten.cat", {"tensors.0": MATRIX, "tensors.1": MATRIX}, (8, 6), {"dim": 0}, both(0, 1)),
        ("aten.amax", X, (4,), {"dim": (1,), "keepdim": False}, {(frozenset({0}), "max", "max")}),
        ("aten.sqrt", X, MATRIX, {}, {(frozenset({0}), "min", "min")}),
        ("aten.relu", X, MATRIX, {"dtype": "int64"}, both(0)),
        ("aten.any.dim", X, (4,), {"dim": 1, "keepdim": False, "dtype": "bool"}, {(frozenset({0}), "max", "max")}),
        ("aten.logical_not", X, MATRIX, {"dtype": "bool"}, TURNED),
    ],
)  # fmt: skip
def test_what_keeps_the_order_lets_extremes_pass(
    operator: str, shapes: dict, made: tuple[int, ...], given: dict, expected: set
) -> None:
    assert extremes(described(operator, shapes, made, **given)) == expected


def test_two_inputs_meet_in_a_maximum_and_one_in_a_minimum() -> None:
    larger = extremes(described("aten.maximum", XY, MATRIX))
    assert larger == {
        (frozenset({0, 1}), "max", "max"),
        (frozenset({0}), "min", "min"),
        (frozenset({1}), "min", "min"),
    }


@pytest.mark.parametrize(
    ("operator", "shapes", "made", "given", "why"),
    [
        ("aten.mul.Tensor", XY, MATRIX, {}, "the factor may be negative"),
        ("aten.add.Tensor", XY, MATRIX, {}, "the summand may be infinite"),
        ("aten.square", X, MATRIX, {}, "it falls and rises"),
        ("aten.gelu", X, MATRIX, {}, "it falls and rises"),
        ("aten.rsqrt", X, MATRIX, {}, "0 and -0 are equal, what becomes of them is not"),
        ("aten.sum.dim_IntList", X, (4,), {"dim": (1,), "keepdim": False}, "the largest of each are not one term's"),
        ("aten.fmax", XY, MATRIX, {}, "NaN is left out"),
        ("aten.sign", X, MATRIX, {}, "NaN has the sign 0"),
        ("aten.neg", X, MATRIX, {"dtype": "int64"}, "the least whole number is its own negative"),
        ("aten.add.Scalar", X, MATRIX, {"other": 1, "dtype": "int64"}, "whole numbers wrap around"),
        ("aten.add.Scalar", X, MATRIX, {"other": float("inf")}, "-inf + inf is NaN"),
        ("aten.mul.Scalar", X, MATRIX, {"other": 0.0}, "0 · inf is NaN"),
        ("aten.gt.Scalar", X, MATRIX, {"other": 0.0, "to": "bool"}, "NaN is not larger"),
    ],
)
def test_what_does_not_keep_the_order_of_all_numbers_does_not(
    operator: str, shapes: dict, made: tuple[int, ...], given: dict, why: str
) -> None:
    assert not extremes(described(operator, shapes, made, **given)), why


@pytest.mark.parametrize(
    ("before", "after", "keeps"),
    [
        ("float64", "float32", True),
        ("int64", "float64", True),
        ("float64", "int64", False),
        ("int64", "int32", False),
        ("float64", "bool", False),
    ],
)
def test_types_that_hold_all_numbers_keep_the_order(before: str, after: str, keeps: bool) -> None:
    tensors = {"self": TensorType(MATRIX, before)}
    description = describe_call("aten._to_copy", tensors, {"dtype": after}, TensorType(MATRIX, after))
    assert description is not None
    assert extremes(description) == (both(0) if keeps else set())
