"""Element-wise comparison, logic and bits."""

from __future__ import annotations

from girih.ops.catalogue.pointwise.arithmetic import binary, unary
from girih.ops.language import equal, fn
from girih.ops.operator import operator

not_, not_equal = fn("not"), fn("ne")

bitwise_and = binary("bit_and", "aten.bitwise_and.Tensor", "aten.bitwise_and.Scalar")
bitwise_or = binary("bit_or", "aten.bitwise_or.Tensor", "aten.bitwise_or.Scalar")
bitwise_xor = binary("bit_xor", "aten.bitwise_xor.Tensor", "aten.bitwise_xor.Scalar")
bitwise_not = unary("bit_not", "aten.bitwise_not")
shift_left = binary("shift_left", "aten.bitwise_left_shift.Tensor", "aten.bitwise_left_shift.Tensor_Scalar")
shift_right = binary("shift_right", "aten.bitwise_right_shift.Tensor", "aten.bitwise_right_shift.Tensor_Scalar")


@operator("aten.eq.Tensor", "aten.eq.Scalar", elementwise=True)
def eq(x, other):
    return equal(x, other)


@operator("aten.ne.Tensor", "aten.ne.Scalar", elementwise=True)
def ne(x, other):
    return not_equal(x, other)


@operator("aten.lt.Tensor", "aten.lt.Scalar", elementwise=True)
def lt(x, other):
    return x < other


@operator("aten.le.Tensor", "aten.le.Scalar", elementwise=True)
def le(x, other):
    return x <= other


@operator("aten.gt.Tensor", "aten.gt.Scalar", elementwise=True)
def gt(x, other):
    return x > other


@operator("aten.ge.Tensor", "aten.ge.Scalar", elementwise=True)
def ge(x, other):
    return x >= other


def again(work):
    """In a block the result is copied to its place (a bound, where it is not): PyTorch writes it nowhere else."""
    return work.output.bytes


def magnitudes(work):
    """Also the absolute values and the number that they are compared with, of floating-point numbers."""
    (item,) = work.inputs.values()
    return again(work) + item.bytes + 16


def magnitudes_and_truths(work):
    """`magnitudes`, and two truth values of each element."""
    return magnitudes(work) + 2 * work.output.bytes


@operator("aten.isnan", elementwise=True, temporary=again)
def isnan(x):
    return fn("isnan")(x)


@operator("girih.isnan", elementwise=True)
def numpys_isnan(x):
    return fn("isnan")(x)


@operator("aten.isinf", elementwise=True, temporary=magnitudes)
def isinf(x):
    return fn("isinf")(x)


@operator("girih.isinf", elementwise=True)
def numpys_isinf(x):
    return fn("isinf")(x)


@operator("aten.isfinite", elementwise=True, temporary=magnitudes_and_truths)
def isfinite(x):
    return not_(fn("isinf")(x) | fn("isnan")(x))


@operator("girih.isfinite", elementwise=True)
def numpys_isfinite(x):
    return not_(fn("isinf")(x) | fn("isnan")(x))


@operator("aten.logical_and", elementwise=True)
def logical_and(x, other):
    return not_equal(x, 0) & not_equal(other, 0)


@operator("aten.logical_or", elementwise=True)
def logical_or(x, other):
    return not_equal(x, 0) | not_equal(other, 0)


@operator("aten.logical_xor", elementwise=True)
def logical_xor(x, other):
    return fn("xor")(not_equal(x, 0), not_equal(other, 0))


@operator("aten.logical_not", elementwise=True)
def logical_not(x):
    return equal(x, 0)
