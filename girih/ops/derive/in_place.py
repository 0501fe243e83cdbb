"""Which operators can write their result over an operand: element-wise ones, where PyTorch has a kernel for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from girih.ops.operator import Operator

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
NEVER = frozenset((
    "alias", "clone", "copy", "detach", "hardswish_backward", "imag", "isfinite", "isinf", "isnan", "lift_fresh_copy",
    "log_sigmoid_forward", "native_dropout_backward", "real", "relu6", "rsub", "special_exp2", "special_i0", "square",
))  # fmt: skip
"""Element-wise functions of PyTorch's that have no kernel to write over an operand."""
FIRST = frozenset({"masked_fill", "relu"})
"""Those that write over their first operand alone."""
OWN_MEMORY = frozenset(f"girih.{name}" for name in (
    "attention_logsumexp", "attention_score_gradient", "attention_source_gradient", "attention_sum",
    "attention_target_gradient", "centered_square_mean", "convolution_input_gradient", "convolution_weight_gradient",
    "edge_products", "embedding_gradient", "grouped_gradient", "grouped_product", "head_product", "log_softmax_from",
    "log_softmax_gradient", "logsumexp", "max_pool", "max_pool_gradient", "mean", "neighbour_max",
    "neighbour_max_gradient", "neighbour_sum", "neighbour_ties", "normalise", "normalise_input_gradient",
    "normalised_dot", "pick", "place", "product_sum", "softmax_from", "softmax_gradient", "wrap_index",
))  # fmt: skip
"""girih's kernels whose results never look at an operand."""
OVER_FIRST = frozenset({"girih.normalise", "girih.log_softmax_from"})
"""Those that have a kernel which writes over the first operand."""
INTO = frozenset(f"girih.{name}" for name in (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "exp", "expm1", "isfinite", "isinf", "isnan", "log",
    "log10", "log1p", "log2", "neg", "reciprocal", "sgn", "signbit", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
))  # fmt: skip
"""girih's functions of one operand that write into memory that is there, which may be the operand's."""


def makes_memory(operator: Operator) -> bool:
    """Is a result in memory that nothing else looks at, other than what the result is of?"""
    return not operator.view and (operator.name.startswith("aten.") or operator.name in OWN_MEMORY | INTO)


def writes_over(operator: Operator, operand: int) -> bool:
    """Is there a kernel that computes this into the memory of one of its operands, and takes none besides?"""
    space, name, *_ = operator.name.split(".")
    plain = operator.elementwise and not operator.view and operator.temporary is None and operator.padding is None
    if operator.name in OVER_FIRST | INTO:
        return operand == 0
    return plain and space == "aten" and name not in NEVER and (operand == 0 or name not in FIRST)
