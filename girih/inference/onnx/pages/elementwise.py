"""Element by element: arithmetic, comparisons, logic, functions."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch.nn import functional as F

from girih.inference.onnx.operators import OnnxOperator, each, named, operator, pairs
from girih.inference.onnx.tensors import dtype_of

Tensor = Any

ALIKE = [
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "IsNaN",
    "Log", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh",
]  # fmt: skip
"""Functions that PyTorch has under the same name, in small letters."""
FUNCTIONS = named(
    {
        **{name: getattr(torch, name.lower()) for name in ALIKE},
        "BitwiseNot": torch.bitwise_not,
        "HardSwish": F.hardswish,
        "Mish": F.mish,
        "Not": torch.logical_not,
        "Softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
        "Softsign": F.softsign,
    }
)

IDENTITY = OnnxOperator("Identity", lambda x: x, exact=True)

PAIRS = pairs(
    {
        "Add": torch.add,
        "And": torch.logical_and,
        "BitwiseAnd": torch.bitwise_and,
        "BitwiseOr": torch.bitwise_or,
        "BitwiseXor": torch.bitwise_xor,
        "Equal": torch.eq,
        "Greater": torch.gt,
        "GreaterOrEqual": torch.ge,
        "Less": torch.lt,
        "LessOrEqual": torch.le,
        "Mul": torch.mul,
        "Or": torch.logical_or,
        "Sub": torch.sub,
        "Xor": torch.logical_xor,
    }
)


ONE_EXPRESSION = each(
    {
        "Celu": lambda x, *, alpha=1.0: F.celu(x, alpha),
        "Div": lambda a, b: torch.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc"),
        "Elu": lambda x, *, alpha=1.0: F.elu(x, alpha),
        "Gelu": lambda x, *, approximate="none": F.gelu(x, approximate=approximate),
        "HardSigmoid": lambda x, *, alpha=0.2, beta=0.5: torch.clamp(alpha * x + beta, 0.0, 1.0),
        "LeakyRelu": lambda x, *, alpha=0.01: F.leaky_relu(x, alpha),
        "Max": lambda first, *others: reduce(torch.maximum, others, first),
        "Mean": lambda first, *others: reduce(torch.add, others, first) / (1 + len(others)),
        "Min": lambda first, *others: reduce(torch.minimum, others, first),
        "Mod": lambda a, b, *, fmod=0: torch.fmod(a, b) if fmod else torch.remainder(a, b),
        "Sum": lambda first, *others: reduce(torch.add, others, first),
        "Swish": lambda x, *, alpha=1.0: x * torch.sigmoid(alpha * x),
        "ThresholdedRelu": lambda x, *, alpha=1.0: torch.where(x > alpha, x, torch.zeros_like(x)),
        "Where": lambda condition, x, y: torch.where(condition, x, y),
    }
)


@operator("Pow")
def power(x: Tensor, y: Tensor) -> Tensor:
    """x to the power y, in the dtype of x."""
    if x.is_floating_point() or not y.is_floating_point():
        return torch.pow(x, y.to(x.dtype))
    return torch.pow(x.to(torch.float64), y.to(torch.float64)).to(x.dtype)


@operator("BitShift")
def bit_shift(x: Tensor, by: Tensor, *, direction: str) -> Tensor:
    shift = torch.bitwise_left_shift if direction == "LEFT" else torch.bitwise_right_shift
    return shift(x, by)


@operator("Clip")
def clip(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    for function, bound in ((torch.maximum, min), (torch.minimum, max)):
        if bound is not None:
            x = function(x, torch.as_tensor(bound, dtype=x.dtype))
    return x


@operator("PRelu")
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """Before opset 7 a slope of one dimension was one for each channel."""
    if slope.dim() == 1 and x.dim() > 1 and slope.shape[0] not in (1, x.shape[-1]):
        slope = slope.reshape([-1] + [1] * (x.dim() - 2))
    return torch.where(x < 0, x * slope, x)


@operator("Selu")
def selu(x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Tensor:
    return torch.where(x > 0, gamma * x, gamma * alpha * torch.expm1(x))


@operator("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    zero = torch.zeros_like(x)
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, zero)).to(x.dtype)


@operator("IsInf")
def is_infinite(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """Infinities of the signs that are asked for."""
    if detect_negative and detect_positive:
        return torch.isinf(x)
    if not detect_negative and not detect_positive:
        return torch.zeros_like(x, dtype=torch.bool)
    return torch.isinf(x) & ((x < 0) if detect_negative else (x > 0))


@operator("Cast", exact=True)
def cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return x.to(dtype_of(to))


@operator("CastLike", exact=True)
def cast_like(x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return x.to(like.dtype)


@operator("Dropout", known=("ratio", "training_mode"))
def dropout(x: Tensor, ratio: Any = None, training_mode: Any = None, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inference drops nothing; training mode is refused. The mode must be known."""
    if training_mode and ratio != 0:
        raise ValueError("in training mode it draws random numbers")
    return x, torch.ones_like(x, dtype=torch.bool)
