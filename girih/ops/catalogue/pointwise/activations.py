"""Activation functions and their gradients, element by element."""

from __future__ import annotations

from math import pi, sqrt

from girih.ops.derive.temporaries import copied
from girih.ops.language import Select, fn
from girih.ops.operator import operator

exp, erf, tanh, sigmoid, log1p, absolute = (fn(name) for name in ("exp", "erf", "tanh", "sigmoid", "log1p", "abs"))
maximum, minimum = fn("max"), fn("min")


@operator("aten.relu", elementwise=True)
def relu(x):
    return maximum(x, 0)


@operator("aten.threshold", elementwise=True)
def threshold_(x, threshold, value):
    return Select(x <= threshold, value, x)


@operator("aten.threshold_backward", elementwise=True)
def threshold_backward(grad_output, x, threshold):
    return Select(x <= threshold, 0, grad_output)


@operator("aten.hardtanh", elementwise=True)
def hardtanh(x, min_val=-1, max_val=1):
    return minimum(maximum(x, min_val), max_val)


@operator("aten.hardtanh_backward", elementwise=True)
def hardtanh_backward(grad_output, x, min_val, max_val):
    return Select((x <= min_val) | (x >= max_val), 0, grad_output)


@operator("aten.relu6", elementwise=True)
def relu6(x):
    return minimum(maximum(x, 0), 6)


@operator("aten.leaky_relu", elementwise=True)
def leaky_relu(x, negative_slope=0.01):
    return Select(x > 0, x, x * negative_slope)


@operator("aten.leaky_relu_backward", elementwise=True)
def leaky_relu_backward(grad_output, x, negative_slope, self_is_result):
    return Select(x > 0, grad_output, grad_output * negative_slope)


@operator("aten.elu", elementwise=True)
def elu(x, alpha=1, scale=1, input_scale=1):
    return Select(x <= 0, fn("expm1")(x * input_scale) * alpha, x) * scale


@operator("aten.elu_backward", elementwise=True)
def elu_backward(grad_output, alpha, scale, input_scale, is_result, self_or_result):
    if is_result:  # the derivative from the result: α·exp(x) = result + α·scale
        slope = (self_or_result + alpha * scale) * input_scale
    else:
        slope = exp(self_or_result * input_scale) * (alpha * scale * input_scale)
    return Select(self_or_result <= 0, grad_output * slope, grad_output * scale)


@operator("aten.softplus", elementwise=True)
def softplus(x, beta=1, threshold=20):
    return Select(x * beta > threshold, x, log1p(exp(x * beta)) / beta)


@operator("aten.softplus_backward", elementwise=True)
def softplus_backward(grad_output, x, beta, threshold):
    return Select(x * beta > threshold, grad_output, grad_output * sigmoid(x * beta))


@operator("aten.sigmoid_backward", elementwise=True)
def sigmoid_backward(grad_output, output):
    return grad_output * ((1 - output) * output)


@operator("aten.tanh_backward", elementwise=True)
def tanh_backward(grad_output, output):
    return grad_output * (1 - output * output)


@operator("aten.log_sigmoid_forward", elementwise=True, result=0, temporary=copied)
def log_sigmoid(x):
    return minimum(x, 0) - log1p(exp(-absolute(x)))


@operator("aten.silu", elementwise=True)
def silu(x):
    return x * sigmoid(x)


@operator("aten.silu_backward", elementwise=True)
def silu_backward(grad_output, x):
    return grad_output * (sigmoid(x) * (1 + x * (1 - sigmoid(x))))


@operator("aten.mish", elementwise=True)
def mish(x):
    return x * tanh(log1p(exp(x)))


@operator("aten.hardsigmoid", elementwise=True)
def hardsigmoid(x):
    return minimum(maximum(x + 3, 0), 6) / 6


@operator("aten.hardsigmoid_backward", elementwise=True)
def hardsigmoid_backward(grad_output, x):
    return Select((x > -3) & (x < 3), grad_output / 6, 0)


@operator("aten.hardswish", elementwise=True)
def hardswish(x):
    return x * (minimum(maximum(x + 3, 0), 6) / 6)


@operator("aten.hardswish_backward", elementwise=True)
def hardswish_backward(grad_output, x):
    return Select(x <= -3, 0, Select(x < 3, grad_output * (x / 3 + 0.5), grad_output))


def tanh_argument(x):
    return (x + x * x * x * 0.044715) * sqrt(2 / pi)


@operator("aten.gelu", elementwise=True)
def gelu(x, approximate="none"):
    if approximate == "tanh":
        return x * 0.5 * (1 + tanh(tanh_argument(x)))
    return x * 0.5 * (1 + erf(x * sqrt(0.5)))


@operator("aten.gelu_backward", elementwise=True)
def gelu_backward(grad_output, x, approximate="none"):
    if approximate == "tanh":
        bent = tanh(tanh_argument(x))
        inner = (1 - bent * bent) * (1 + x * x * (3 * 0.044715)) * sqrt(2 / pi)
        return grad_output * ((1 + bent) * 0.5 + x * 0.5 * inner)
    density = exp(x * x * -0.5) * (1 / sqrt(2 * pi))
    return grad_output * ((1 + erf(x * sqrt(0.5))) * 0.5 + x * density)
