"""Samples of element-wise operators."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
from sampling import (
    Arguments,
    Generator,
    Maker,
    add,
    away,
    broadcast,
    integer,
    positive,
    real,
    sample,
    shape,
    some,
    truth,
    unit,
    whole,
)


def unary(values: Callable = real) -> Maker:
    return lambda rng: {"self": values(rng, shape(rng))}


def binary(first: Callable = real, second: Callable = real, other: str = "other") -> Maker:
    def maker(rng: Generator) -> Arguments:
        size = shape(rng)
        shapes = [size, broadcast(rng, size)]
        rng.shuffle(shapes)
        return {"self": first(rng, tuple(shapes[0])), other: second(rng, tuple(shapes[1]))}

    return maker


def scalar(first: Callable, number: Callable[[Generator], Any], other: str = "other") -> Maker:
    return lambda rng: {"self": first(rng, shape(rng)), other: number(rng)}


def number(rng: Generator) -> float:
    return float(np.round(rng.normal(), 2)) or 0.5


def with_alpha(maker: Maker) -> Maker:
    return lambda rng: {**maker(rng), **some(rng, {}, {"alpha": 2.5})}


def extended(maker: Maker, **attributes: Callable[[Generator], Any]) -> Maker:
    return lambda rng: {**maker(rng), **{name: value(rng) for name, value in attributes.items()}}


def fixed(value: Any) -> Callable[[Generator], Any]:
    return lambda rng: value


add("aten.add.Tensor aten.sub.Tensor aten.rsub.Tensor", with_alpha(binary()))
add("aten.add.Scalar aten.sub.Scalar aten.rsub.Scalar", with_alpha(scalar(real, number)))
add("aten.mul.Tensor aten.maximum aten.minimum aten.fmax aten.fmin aten.atan2 aten.hypot aten.logaddexp", binary())
add("aten.mul.Scalar aten.div.Scalar", scalar(real, number))
add("girih.fmod girih.remainder", binary(real, away))
add(
    "girih.neg girih.sgn girih.square girih.exp girih.expm1 girih.tan girih.atan girih.sinh girih.cosh girih.tanh "
    "girih.asinh girih.trunc girih.signbit girih.isnan girih.isinf girih.isfinite",
    unary(),
)
add("girih.sqrt girih.log1p girih.log girih.log2 girih.log10", unary(positive))
add("girih.acos girih.asin girih.atanh", unary(unit))
add("girih.acosh", lambda rng: {"self": 1.0 + positive(rng, shape(rng))})
add("girih.reciprocal", unary(away))
add("girih.power", binary(positive, real, "exponent"))
add("aten.nextafter aten.logaddexp2", binary())
add("aten.gcd aten.lcm", binary(whole, whole))
add("girih.whole_power", binary(whole, lambda rng, size: rng.integers(0, 4, size), "exponent"))
add("aten.i0 aten.special_i0 aten.sinc aten.signbit", unary())
add("aten.real aten.imag aten.angle", unary(lambda rng, size: real(rng, size) + 1j * real(rng, size)))
add("aten.div.Tensor", binary(real, away))
add("aten.copysign.Tensor", binary(real, away))
add("aten.div.Tensor_mode", extended(binary(real, away), rounding_mode=lambda rng: some(rng, None, "floor", "trunc")))
add("aten.div.Scalar_mode", extended(scalar(real, number), rounding_mode=lambda rng: some(rng, "floor", "trunc")))
add("aten.floor_divide aten.remainder.Tensor aten.fmod.Tensor", binary(real, away))
add("aten.floor_divide.Scalar aten.remainder.Scalar aten.fmod.Scalar", scalar(real, number))
add(
    "aten.neg aten.abs aten.sign aten.sgn aten.floor aten.ceil aten.trunc aten.round aten.frac aten.clone aten.alias "
    "aten.detach aten.lift_fresh_copy aten.isnan aten.isinf aten.isfinite aten.exp aten.exp2 "
    "aten.special_exp2 aten.expm1 aten.sin aten.cos aten.tan aten.atan aten.sinh aten.cosh aten.tanh aten.asinh "
    "aten.erf aten.erfc aten.sigmoid aten.square aten.relu aten.relu6 aten.mish aten.silu aten.log_sigmoid_forward",
    unary(),
)
add("aten.log aten.log2 aten.log10 aten.log1p aten.sqrt aten.rsqrt aten.lgamma aten.digamma", unary(positive))
add("aten.asin aten.acos aten.atanh aten.erfinv", unary(unit))
add("aten.acosh", lambda rng: {"self": 1.0 + positive(rng, shape(rng))})
add("aten.reciprocal", unary(away))
add("aten.pow.Tensor_Tensor", binary(positive, real, "exponent"))
add("aten.pow.Tensor_Scalar", scalar(positive, number, "exponent"))
add("aten.pow.Scalar", lambda rng: {"self": 1.7, "exponent": real(rng, shape(rng))})
add("aten.xlogy.Tensor", binary(real, positive))
add("aten.hardsigmoid aten.hardswish", lambda rng: {"self": 3 * real(rng, shape(rng))})
add("aten.clamp_min", scalar(real, number, "min"))
add("aten.clamp_max", scalar(real, number, "max"))
add("aten.clamp_min.Tensor", binary(other="min"))
add("aten.clamp_max.Tensor", binary(other="max"))
add(
    "aten.clamp",
    lambda rng: {"self": real(rng, shape(rng)), **some(rng, {"min": -0.3}, {"max": 0.4}, {"min": -0.2, "max": 0.5})},
)
add("aten.hardtanh", lambda rng: {"self": real(rng, shape(rng)), **some(rng, {}, {"min_val": -0.5, "max_val": 0.3})})
add("aten.leaky_relu", lambda rng: {"self": real(rng, shape(rng)), **some(rng, {}, {"negative_slope": 0.2})})
add("aten.elu", lambda rng: {"self": real(rng, shape(rng)), **some(rng, {}, {"alpha": 1.3, "scale": 0.7})})
add("aten.softplus", lambda rng: {"self": 9 * real(rng, shape(rng)), **some(rng, {}, {"beta": 2.0, "threshold": 3.0})})
add("aten.threshold", lambda rng: {"self": real(rng, shape(rng)), "threshold": 0.2, "value": -1.0})
add("aten.gelu", lambda rng: {"self": real(rng, shape(rng)), **some(rng, {}, {"approximate": "tanh"})})
add(
    "aten.nan_to_num",
    lambda rng: {
        "self": np.where(truth(rng, (3, 2)), some(rng, inf, -inf, np.nan), real(rng, (3, 2))),
        "posinf": 9.0,
        "neginf": -8.0,
    },
)


@sample("aten.clamp.Tensor")
def clamp_tensor(rng: Generator) -> Arguments:
    size = shape(rng)
    bounds = {"min": real(rng, broadcast(rng, size)) - 0.5, "max": real(rng, broadcast(rng, size)) + 0.5}
    return {"self": real(rng, size), **bounds}


@sample("aten.addcmul", "aten.addcdiv")
def addc(rng: Generator) -> Arguments:
    size = shape(rng)
    tensors = {"tensor1": real(rng, broadcast(rng, size)), "tensor2": away(rng, broadcast(rng, size))}
    return {"self": real(rng, size), **tensors, **some(rng, {}, {"value": 0.3})}


@sample("aten.lerp.Scalar")
def lerp_scalar(rng: Generator) -> Arguments:
    size = shape(rng)
    return {"self": real(rng, size), "end": real(rng, broadcast(rng, size)), "weight": 0.3}


@sample("aten.lerp.Tensor")
def lerp_tensor(rng: Generator) -> Arguments:
    return {**lerp_scalar(rng), "weight": real(rng, ())}


for overload, left, right in (("self", 1, 1), ("ScalarOther", 1, 0), ("ScalarSelf", 0, 1), ("Scalar", 0, 0)):

    def where_of(rng: Generator, left: int = left, right: int = right) -> Arguments:
        size = shape(rng)
        return {
            "condition": truth(rng, size),
            "self": real(rng, broadcast(rng, size)) if left else 1.5,
            "other": real(rng, broadcast(rng, size)) if right else -0.5,
        }

    add(f"aten.where.{overload}", where_of)


@sample("aten.masked_fill.Scalar")
def masked_fill(rng: Generator) -> Arguments:
    size = shape(rng)
    return {"self": real(rng, size), "mask": truth(rng, broadcast(rng, size)), "value": some(rng, 0.0, -7.0, -inf)}


add("aten.masked_fill.Tensor", lambda rng: {**masked_fill(rng), "value": real(rng, ())})
add("aten.native_dropout_backward", lambda rng: dropout(rng, "grad_output"))
add("girih.apply_mask", lambda rng: dropout(rng, "input"))


def dropout(rng: Generator, name: str) -> Arguments:
    size = shape(rng)
    return {name: real(rng, size), "mask": truth(rng, size), "scale": 1.25}


@sample("aten.copy")
def copy(rng: Generator) -> Arguments:
    size = shape(rng)
    return {"self": real(rng, size), "src": real(rng, broadcast(rng, size))}


@sample("aten._to_copy")
def to_copy(rng: Generator) -> Arguments:
    values = some(rng, real, whole, truth)
    return {"self": values(rng, shape(rng)), "dtype": some(rng, "float32", "float64", "int64", "bool")}


add(
    "prims.convert_element_type",
    lambda rng: (lambda given: {"a": given["self"], "dtype": given["dtype"]})(to_copy(rng)),
)


def near(rng: Generator, size: tuple[int, ...]) -> np.ndarray:
    return whole(rng, size, -1, 1)


def small(rng: Generator, size: tuple[int, ...]) -> np.ndarray:
    return whole(rng, size, 0, 3)


for comparison in ("eq", "ne", "lt", "le", "gt", "ge"):
    add(f"aten.{comparison}.Tensor", binary(near, near))
    add(f"aten.{comparison}.Scalar", scalar(near, lambda rng: integer(rng, -1, 1)))

add("aten.logical_and aten.logical_or aten.logical_xor", binary(truth, lambda rng, size: whole(rng, size, -1, 1)))
add("aten.logical_not", unary(lambda rng, size: whole(rng, size, -1, 1)))
add("aten.bitwise_not", lambda rng: {"self": some(rng, whole, truth)(rng, shape(rng))})
add("aten.bitwise_and.Tensor aten.bitwise_or.Tensor aten.bitwise_xor.Tensor", binary(whole, whole))
add(
    "aten.bitwise_and.Scalar aten.bitwise_or.Scalar aten.bitwise_xor.Scalar",
    scalar(whole, lambda rng: integer(rng, 0, 7)),
)
add("aten.bitwise_left_shift.Tensor aten.bitwise_right_shift.Tensor", binary(whole, small))
add(
    "aten.bitwise_left_shift.Tensor_Scalar aten.bitwise_right_shift.Tensor_Scalar",
    scalar(whole, lambda rng: integer(rng, 0, 3)),
)


def backward(values: Callable = real, name: str = "self", **attributes: Any) -> Maker:
    def maker(rng: Generator) -> Arguments:
        size = shape(rng)
        return {"grad_output": real(rng, size), name: values(rng, size), **attributes}

    return maker


add("aten.threshold_backward", backward(threshold=0.2))
add("aten.hardtanh_backward", backward(min_val=-0.5, max_val=0.4))
add("aten.leaky_relu_backward", backward(negative_slope=0.1, self_is_result=False))
add("aten.softplus_backward", backward(beta=2.0, threshold=1.5))
add("aten.sigmoid_backward aten.tanh_backward", backward(unit, "output"))
add("aten.silu_backward aten.hardsigmoid_backward aten.hardswish_backward", backward())
add(
    "aten.gelu_backward",
    lambda rng: {**backward()(rng), "approximate": some(rng, "none", "tanh")},
)


@sample("aten.elu_backward")
def elu_backward(rng: Generator) -> Arguments:
    size = shape(rng)
    scales = {"alpha": 1.3, "scale": 0.7, "input_scale": 1.1}
    return {
        "grad_output": real(rng, size),
        **scales,
        "is_result": some(rng, True, False),
        "self_or_result": unit(rng, size),
    }


@sample("girih.softmax_from", "girih.log_softmax_from")
def softmax_from(rng: Generator) -> Arguments:
    size = shape(rng, 1)
    return {"input": real(rng, size), "logsumexp": real(rng, (*size[:-1], 1))}


@sample("girih.softmax_gradient", "girih.log_softmax_gradient")
def softmax_gradient(rng: Generator) -> Arguments:
    size = shape(rng, 1)
    return {"grad": real(rng, size), "output": real(rng, size), "sum": real(rng, (*size[:-1], 1))}


# ------------------------------------------------------------------------------------------- complex numbers


def imaginary(rng: Generator, size: tuple[int, ...]) -> np.ndarray:
    return real(rng, size) + 1j * real(rng, size)


def parts(first: str, second: str) -> Maker:
    def maker(rng: Generator) -> Arguments:
        size = shape(rng)
        return {first: real(rng, size), second: real(rng, size)}

    return maker


add("aten.view_as_complex", lambda rng: {"self": real(rng, (*shape(rng), 2))})
add("aten.view_as_real aten.conj_physical", lambda rng: {"self": imaginary(rng, shape(rng))})
add("aten.complex", parts("real", "imag"))
add("aten.polar", parts("abs", "angle"))
