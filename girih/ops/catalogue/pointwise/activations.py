"""Activation functions and their gradients, element by element."""

from __future__ import annotations

from math import pi, sqrt

from girih.ops.catalogue.pointwise.arithmetic import pointwise
from girih.ops.derive.temporaries import copied
from girih.ops.language import Select, fn

exp, erf, tanh, sigmoid, log1p, absolute = (fn(name) for name in ("exp", "erf", "tanh", "sigmoid", "log1p", "abs"))
maximum, minimum = fn("max"), fn("min")

relu = pointwise("aten.relu")(lambda x: maximum(x, 0))
threshold_ = pointwise("aten.threshold")(lambda x, threshold, value: Select(x <= threshold, value, x))


@pointwise("aten.threshold_backward")
def threshold_backward(grad_output, x, threshold):
    return Select(x <= threshold, 0, grad_output)


hardtanh = pointwise("aten.hardtanh")(lambda x, min_val=-1, max_val=1: minimum(maximum(x, min_val), max_val))


@pointwise("aten.hardtanh_backward")
def hardtanh_backward(grad_output, x, min_val, max_val):
    return Select((x <= min_val) | (x >= max_val), 0, grad_output)


relu6 = pointwise("aten.relu6")(lambda x: minimum(maximum(x, 0), 6))
leaky_relu = pointwise("aten.leaky_relu")(lambda x, negative_slope=0.01: Select(x > 0, x, x * negative_slope))


@pointwise("aten.leaky_relu_backward")
def leaky_relu_backward(grad_output, x, negative_slope, self_is_result):
    return Select(x > 0, grad_output, grad_output * negative_slope)


@pointwise("aten.elu")
def elu(x, alpha=1, scale=1, input_scale=1):
    return Select(x <= 0, fn("expm1")(x * input_scale) * alpha, x) * scale


@pointwise("aten.elu_backward")
def elu_backward(grad_output, alpha, scale, input_scale, is_result, self_or_result):
    if is_result:  # the derivative from the result: α·exp(x) = result + α·scale
        slope = (self_or_result + alpha * scale) * input_scale
    else:
        slope = exp(self_or_result * input_scale) * (alpha * scale * input_scale)
    return Select(self_or_result <= 0, grad_output * slope, grad_output * scale)


@pointwise("aten.softplus")
def softplus(x, beta=1, threshold=20):
    return Select(x * beta > threshold, x, log1p(exp(x * beta)) / beta)


@pointwise("aten.softplus_backward")
def softplus_backward(grad_output, x, beta, threshold):
    return Select(x * beta > threshold, grad_output, grad_output * sigmoid(x * beta))


sigmoid_backward = pointwise("aten.sigmoid_backward")(lambda grad_output, output: grad_output * ((1 - output) * output))
tanh_backward = pointwise("aten.tanh_backward")(lambda grad_output, output: grad_output * (1 - output * output))


@pointwise("aten.log_sigmoid_forward", result=0, temporary=copied)
def log_sigmoid(x):
    return minimum(x, 0) - log1p(exp(-absolute(x)))


silu = pointwise("aten.silu")(lambda x: x * sigmoid(x))


@pointwise("aten.silu_backward")
def silu_backward(grad_output, x):
    return grad_output * (sigmoid(x) * (1 + x * (1 - sigmoid(x))))


mish = pointwise("aten.mish")(lambda x: x * tanh(log1p(exp(x))))
hardsigmoid = pointwise("aten.hardsigmoid")(lambda x: minimum(maximum(x + 3, 0), 6) / 6)


@pointwise("aten.hardsigmoid_backward")
def hardsigmoid_backward(grad_output, x):
    return Select((x > -3) & (x < 3), grad_output / 6, 0)


hardswish = pointwise("aten.hardswish")(lambda x: x * (minimum(maximum(x + 3, 0), 6) / 6))


@pointwise("aten.hardswish_backward")
def hardswish_backward(grad_output, x):
    return Select(x <= -3, 0, Select(x < 3, grad_output * (x / 3 + 0.5), grad_output))


def tanh_argument(x):
    return (x + x * x * x * 0.044715) * sqrt(2 / pi)


@pointwise("aten.gelu")
def gelu(x, approximate="none"):
    if approximate == "tanh":
        return x * 0.5 * (1 + tanh(tanh_argument(x)))
    return x * 0.5 * (1 + erf(x * sqrt(0.5)))


@pointwise("aten.gelu_backward")
def gelu_backward(grad_output, x, approximate="none"):
    if approximate == "tanh":
        bent = tanh(tanh_argument(x))
        inner = (1 - bent * bent) * (1 + x * x * (3 * 0.044715)) * sqrt(2 / pi)
        return grad_output * ((1 + bent) * 0.5 + x * 0.5 * inner)
    density = exp(x * x * -0.5) * (1 / sqrt(2 * pi))
    return grad_output * ((1 + erf(x * sqrt(0.5))) * 0.5 + x * density)
