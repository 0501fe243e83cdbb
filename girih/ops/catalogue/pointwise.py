"""Element-wise operators: written for scalars, true at every broadcast position."""

from __future__ import annotations

from girih.ops.language import Select, fn
from girih.ops.operator import operator

tanh = fn("tanh")


@operator("aten.add.Tensor", "aten.add.Scalar", elementwise=True)
def add(x, other, alpha=1):
    return x + other * alpha


@operator("aten.mul.Tensor", "aten.mul.Scalar", elementwise=True)
def mul(x, other):
    return x * other


@operator("aten.tanh", elementwise=True)
def tanh_(x):
    return tanh(x)


@operator("aten.relu", elementwise=True)
def relu(x):
    return Select(x > 0, x, 0)
