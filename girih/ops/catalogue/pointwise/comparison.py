"""Element-wise comparison, logic and bits."""

from __future__ import annotations

from girih.ops.catalogue.pointwise.arithmetic import binary, pointwise, unary
from girih.ops.language import equal, fn

not_, not_equal = fn("not"), fn("ne")

bitwise_and = binary("bit_and", "aten.bitwise_and.Tensor", "aten.bitwise_and.Scalar")
bitwise_or = binary("bit_or", "aten.bitwise_or.Tensor", "aten.bitwise_or.Scalar")
bitwise_xor = binary("bit_xor", "aten.bitwise_xor.Tensor", "aten.bitwise_xor.Scalar")
bitwise_not = unary("bit_not", "aten.bitwise_not")
shift_left = binary("shift_left", "aten.bitwise_left_shift.Tensor", "aten.bitwise_left_shift.Tensor_Scalar")
shift_right = binary("shift_right", "aten.bitwise_right_shift.Tensor", "aten.bitwise_right_shift.Tensor_Scalar")

eq = pointwise("aten.eq.Tensor", "aten.eq.Scalar")(lambda x, other: equal(x, other))
ne = pointwise("aten.ne.Tensor", "aten.ne.Scalar")(lambda x, other: not_equal(x, other))
lt = pointwise("aten.lt.Tensor", "aten.lt.Scalar")(lambda x, other: x < other)
le = pointwise("aten.le.Tensor", "aten.le.Scalar")(lambda x, other: x <= other)
gt = pointwise("aten.gt.Tensor", "aten.gt.Scalar")(lambda x, other: x > other)
ge = pointwise("aten.ge.Tensor", "aten.ge.Scalar")(lambda x, other: x >= other)


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


isnan = unary("isnan", "aten.isnan", temporary=again)
numpys_isnan = unary("isnan", "girih.isnan")
isinf = unary("isinf", "aten.isinf", temporary=magnitudes)
numpys_isinf = unary("isinf", "girih.isinf")
isfinite = pointwise("aten.isfinite", temporary=magnitudes_and_truths)(lambda x: not_(fn("isinf")(x) | fn("isnan")(x)))
numpys_isfinite = pointwise("girih.isfinite")(lambda x: not_(fn("isinf")(x) | fn("isnan")(x)))
logical_and = pointwise("aten.logical_and")(lambda x, other: not_equal(x, 0) & not_equal(other, 0))
logical_or = pointwise("aten.logical_or")(lambda x, other: not_equal(x, 0) | not_equal(other, 0))
logical_xor = pointwise("aten.logical_xor")(lambda x, other: fn("xor")(not_equal(x, 0), not_equal(other, 0)))
logical_not = pointwise("aten.logical_not")(lambda x: equal(x, 0))
