"""Element-wise operators: written for scalars, true at every broadcast position. Arithmetic and selection."""

from __future__ import annotations

import numpy as np

from girih.ops.language import Select, equal, fn
from girih.ops.operator import operator

maximum_of, minimum_of, is_nan, trunc = fn("max"), fn("min"), fn("isnan"), fn("trunc")


def unary(function, *operators, **facts):
    """ATen operators that are one scalar function of a tensor's elements."""
    return operator(*operators, elementwise=True, **facts)(lambda x: fn(function)(x))


def binary(function, *operators):
    """ATen operators that are one scalar function of two tensors' elements."""
    return operator(*operators, elementwise=True)(lambda x, other: fn(function)(x, other))


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


@operator("aten.add.Tensor", "aten.add.Scalar", elementwise=True)
def add(x, other, alpha=1):
    return x + times(other, alpha)


@operator("aten.sub.Tensor", "aten.sub.Scalar", elementwise=True)
def sub(x, other, alpha=1):
    return x - times(other, alpha)


@operator("aten.rsub.Tensor", "aten.rsub.Scalar", elementwise=True)
def rsub(x, other, alpha=1):
    return other - times(x, alpha)


@operator("aten.mul.Tensor", "aten.mul.Scalar", elementwise=True)
def mul(x, other):
    return x * other


@operator("aten.div.Tensor", "aten.div.Scalar", elementwise=True)
def div(x, other):
    return x / other


@operator("aten.div.Tensor_mode", "aten.div.Scalar_mode", elementwise=True)
def div_mode(x, other, rounding_mode=None):
    return {None: fn("div"), "floor": fn("floor_div"), "trunc": fn("trunc_div")}[rounding_mode](x, other)


@operator("aten.neg", "girih.neg", elementwise=True)
def neg(x):
    return -x


@operator("aten.frac", elementwise=True)
def frac(x):
    return x - trunc(x)


@operator("aten.addcmul", elementwise=True)
def addcmul(x, tensor1, tensor2, value=1):
    return x + times(tensor1 * tensor2, value)


@operator("aten.addcdiv", elementwise=True)
def addcdiv(x, tensor1, tensor2, value=1):
    return x + times(tensor1 / tensor2, value)


@operator("aten.lerp.Scalar", "aten.lerp.Tensor", elementwise=True)
def lerp(x, end, weight):
    return x + (end - x) * weight


@operator("aten.fmax", elementwise=True, numpy=np.fmax)
def larger_number(x, other):
    return Select(is_nan(x), other, Select(is_nan(other), x, maximum_of(x, other)))


@operator("aten.fmin", elementwise=True, numpy=np.fmin)
def smaller_number(x, other):
    return Select(is_nan(x), other, Select(is_nan(other), x, minimum_of(x, other)))


@operator("aten.maximum", "aten.clamp_min", "aten.clamp_min.Tensor", elementwise=True)
def maximum(x, other=None, min=None):
    return maximum_of(x, other if min is None else min)


@operator("aten.minimum", "aten.clamp_max", "aten.clamp_max.Tensor", elementwise=True)
def minimum(x, other=None, max=None):
    return minimum_of(x, other if max is None else max)


@operator("aten.clamp", "aten.clamp.Tensor", elementwise=True)
def clamp(x, min=None, max=None):
    above = x if min is None else maximum_of(x, min)
    return above if max is None else minimum_of(above, max)


@operator(
    "aten.nan_to_num",
    elementwise=True,
    condition=lambda _, attributes: attributes.get("posinf") is not None and attributes.get("neginf") is not None,
)
def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    finite = Select(equal(x, float("inf")), posinf, Select(equal(x, float("-inf")), neginf, x))
    return Select(is_nan(x), 0.0 if nan is None else nan, finite)


@operator("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar", elementwise=True)
def where(condition, x, other):
    return Select(condition, x, other)


@operator("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", elementwise=True)
def masked_fill(x, mask, value):
    return Select(mask, value, x)


@operator("girih.apply_mask", elementwise=True)
def apply_mask(input, mask, scale):
    return input * mask * scale


def masked_first(work):
    """The mask in the gradient's type, and behind it the masked gradient and the number that it is multiplied by."""
    grad, mask = work.inputs["grad_output"], work.inputs["mask"]
    in_type = 0 if grad.dtype == mask.dtype else mask.elements * grad.item_bytes
    return max(in_type, work.output.bytes) + work.output.item_bytes + 8


@operator("aten.native_dropout_backward", elementwise=True, temporary=masked_first)
def native_dropout_backward(grad_output, mask, scale):
    return grad_output * mask * scale


@operator("aten.clone", "aten.lift_fresh_copy", elementwise=True)
def clone(x):
    return x


@operator("aten.alias", "aten.detach", elementwise=True, view=True)
def alias(x):
    return x


@operator("aten.copy", elementwise=True)
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
