"""Element-wise operators: written for scalars, true at every broadcast position. Arithmetic and selection."""

from __future__ import annotations

from functools import partial

import numpy as np

from girih.ops.language import Select, equal, fn
from girih.ops.operator import operator

maximum_of, minimum_of, is_nan, trunc = fn("max"), fn("min"), fn("isnan"), fn("trunc")
pointwise = partial(operator, elementwise=True)


def unary(function, *operators, **facts):
    """ATen operators that are one scalar function of a tensor's elements."""
    return pointwise(*operators, **facts)(lambda x: fn(function)(x))


def binary(function, *operators):
    """ATen operators that are one scalar function of two tensors' elements."""
    return pointwise(*operators)(lambda x, other: fn(function)(x, other))


absolute = unary("abs", "aten.abs")
sign = unary("sign", "aten.sign", "aten.sgn", "girih.sgn")
reciprocal = unary("reciprocal", "aten.reciprocal", "girih.reciprocal")
round_down = unary("floor", "aten.floor")
round_up = unary("ceil", "aten.ceil")
round_to_zero = unary("trunc", "aten.trunc", "girih.trunc")
round_to_even = unary("round", "aten.round")
floor_divide = binary("floor_div", "aten.floor_divide", "aten.floor_divide.Scalar")
remainder = binary("remainder", "aten.remainder.Tensor", "aten.remainder.Scalar", "girih.remainder")
fmod = binary("fmod", "aten.fmod.Tensor", "aten.fmod.Scalar", "girih.fmod")


def times(x, factor):
    """x · factor, without an operation where the factor is the number one."""
    return x if isinstance(factor, (int, float)) and factor == 1 else x * factor


add = pointwise("aten.add.Tensor", "aten.add.Scalar")(lambda x, other, alpha=1: x + times(other, alpha))
sub = pointwise("aten.sub.Tensor", "aten.sub.Scalar")(lambda x, other, alpha=1: x - times(other, alpha))
rsub = pointwise("aten.rsub.Tensor", "aten.rsub.Scalar")(lambda x, other, alpha=1: other - times(x, alpha))
mul = pointwise("aten.mul.Tensor", "aten.mul.Scalar")(lambda x, other: x * other)
div = pointwise("aten.div.Tensor", "aten.div.Scalar")(lambda x, other: x / other)


@pointwise("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(x, other, rounding_mode=None):
    return {None: fn("div"), "floor": fn("floor_div"), "trunc": fn("trunc_div")}[rounding_mode](x, other)


neg = pointwise("aten.neg", "girih.neg")(lambda x: -x)
frac = pointwise("aten.frac")(lambda x: x - trunc(x))
addcmul = pointwise("aten.addcmul")(lambda x, tensor1, tensor2, value=1: x + times(tensor1 * tensor2, value))
addcdiv = pointwise("aten.addcdiv")(lambda x, tensor1, tensor2, value=1: x + times(tensor1 / tensor2, value))
lerp = pointwise("aten.lerp.Scalar", "aten.lerp.Tensor")(lambda x, end, weight: x + (end - x) * weight)


@pointwise("aten.fmax", numpy=np.fmax)
def larger_number(x, other):
    return Select(is_nan(x), other, Select(is_nan(other), x, maximum_of(x, other)))


@pointwise("aten.fmin", numpy=np.fmin)
def smaller_number(x, other):
    return Select(is_nan(x), other, Select(is_nan(other), x, minimum_of(x, other)))


@pointwise("aten.maximum", "aten.clamp_min", "aten.clamp_min.Tensor")
def maximum(x, other=None, min=None):
    return maximum_of(x, other if min is None else min)


@pointwise("aten.minimum", "aten.clamp_max", "aten.clamp_max.Tensor")
def minimum(x, other=None, max=None):
    return minimum_of(x, other if max is None else max)


@pointwise("aten.clamp", "aten.clamp.Tensor")
def clamp(x, min=None, max=None):
    above = x if min is None else maximum_of(x, min)
    return above if max is None else minimum_of(above, max)


@pointwise(
    "aten.nan_to_num",
    condition=lambda _, attributes: attributes.get("posinf") is not None and attributes.get("neginf") is not None,
)
def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    finite = Select(equal(x, float("inf")), posinf, Select(equal(x, float("-inf")), neginf, x))
    return Select(is_nan(x), 0.0 if nan is None else nan, finite)


@pointwise("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(condition, x, other):
    return Select(condition, x, other)


@pointwise("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(x, mask, value):
    return Select(mask, value, x)


apply_mask = pointwise("girih.apply_mask")(lambda input, mask, scale: input * mask * scale)


def masked_first(work):
    """The mask in the gradient's type, and behind it the masked gradient and the number that it is multiplied by."""
    grad, mask = work.inputs["grad_output"], work.inputs["mask"]
    in_type = 0 if grad.dtype == mask.dtype else mask.elements * grad.item_bytes
    return max(in_type, work.output.bytes) + work.output.item_bytes + 8


@pointwise("aten.native_dropout_backward", temporary=masked_first)
def native_dropout_backward(grad_output, mask, scale):
    return grad_output * mask * scale


clone = pointwise("aten.clone", "aten.lift_fresh_copy")(lambda x: x)
alias = pointwise("aten.alias", "aten.detach", view=True)(lambda x: x)


@pointwise("aten.copy")
def copy(x, src):
    return Select(True, src, x)  # `x` gives only its shape and type, but must be there


def converted(x, dtype):
    kind = x.dtype if dtype is None else dtype
    if kind == "bool":
        return lambda *i: fn("ne")(x[i], 0)
    if kind.startswith(("float", "bfloat", "complex")) or not x.dtype.startswith(("float", "bfloat")):
        return lambda *i: x[i]
    return lambda *i: trunc(x[i])


@operator("aten._to_copy")
def to_copy(x, dtype=None):
    return converted(x, dtype)


@operator("prims.convert_element_type")
def convert_element_type(a, dtype):
    return converted(a, dtype)
