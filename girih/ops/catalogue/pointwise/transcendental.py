"""Element-wise powers, exponentials, logarithms, trigonometry and special functions."""

from __future__ import annotations

from girih.ops.catalogue.pointwise.arithmetic import binary, pointwise, unary
from girih.ops.language import Select, equal, fn

exp, log = fn("exp"), fn("log")

exp_ = unary("exp", "aten.exp", "girih.exp")
exp2 = unary("exp2", "aten.exp2", "aten.special_exp2")
expm1 = unary("expm1", "aten.expm1", "girih.expm1")
log_ = unary("log", "aten.log", "girih.log")
log2 = unary("log2", "aten.log2", "girih.log2")
log10 = unary("log10", "aten.log10", "girih.log10")
log1p = unary("log1p", "aten.log1p", "girih.log1p")
sqrt = unary("sqrt", "aten.sqrt", "girih.sqrt")
rsqrt = unary("rsqrt", "aten.rsqrt")
sin = unary("sin", "aten.sin")
cos = unary("cos", "aten.cos")
tan = unary("tan", "aten.tan", "girih.tan")
asin = unary("asin", "aten.asin", "girih.asin")
acos = unary("acos", "aten.acos", "girih.acos")
atan = unary("atan", "aten.atan", "girih.atan")
sinh = unary("sinh", "aten.sinh", "girih.sinh")
cosh = unary("cosh", "aten.cosh", "girih.cosh")
tanh = unary("tanh", "aten.tanh", "girih.tanh")
asinh = unary("asinh", "aten.asinh", "girih.asinh")
acosh = unary("acosh", "aten.acosh", "girih.acosh")
atanh = unary("atanh", "aten.atanh", "girih.atanh")
erf = unary("erf", "aten.erf")
erfc = unary("erfc", "aten.erfc")
erfinv = unary("erfinv", "aten.erfinv")
lgamma = unary("lgamma", "aten.lgamma")
digamma = unary("digamma", "aten.digamma")
sigmoid = unary("sigmoid", "aten.sigmoid")
bessel_i0 = unary("i0", "aten.i0", "aten.special_i0")
sinc = unary("sinc", "aten.sinc")
signbit = unary("signbit", "aten.signbit", "girih.signbit")

atan2 = binary("atan2", "aten.atan2")
hypot = binary("hypot", "aten.hypot")
copysign = binary("copysign", "aten.copysign.Tensor")
nextafter = binary("nextafter", "aten.nextafter")
gcd = binary("gcd", "aten.gcd")
lcm = binary("lcm", "aten.lcm")


@pointwise("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar", "girih.whole_power", "girih.power")
def power(x, exponent):
    return fn("pow")(x, exponent)


square = pointwise("aten.square", "girih.square")(lambda x: x * x)
xlogy = pointwise("aten.xlogy.Tensor")(lambda x, other: Select(equal(x, 0), 0, x * log(other)))


@pointwise("aten.logaddexp")
def logaddexp(x, other):
    larger = fn("max")(x, other)
    return larger + fn("log1p")(exp(fn("min")(x, other) - larger))


@pointwise("aten.logaddexp2")
def logaddexp2(x, other):
    larger = fn("max")(x, other)
    return larger + fn("log2")(fn("exp2")(fn("min")(x, other) - larger) + 1)


def near_and_rest(work):
    """The logarithms of sums as two numbers each of the input's dtype."""
    return work.inputs["logsumexp"].bytes if work.inputs["input"].item_bytes < 8 else 0


softmax_from = pointwise("girih.softmax_from", temporary=near_and_rest)(lambda input, logsumexp: exp(input - logsumexp))


@pointwise("girih.log_softmax_from", temporary=near_and_rest)
def log_softmax_from(input, logsumexp):
    return input - logsumexp


softmax_gradient = pointwise("girih.softmax_gradient")(lambda grad, output, sum: output * (grad - sum))
log_softmax_gradient = pointwise("girih.log_softmax_gradient")(lambda grad, output, sum: grad - exp(output) * sum)
