"""oneDNN's calls with weights in oneDNN's own order: a convolution or a product, a bias, and a function of the result.

PyTorch's own convolution brings the weights into that order at each call. Inference does it once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

Tensor = Any

CONVOLUTION, PRODUCT = "aten.convolution", "aten.mm"
FUNCTIONS = {"aten.relu": "relu", "aten.sigmoid": "sigmoid", "aten.tanh": "tanh"}
"""What is computed in the same call, by oneDNN's name."""
WITH_PACKED = frozenset({*FUNCTIONS, "aten.add.Tensor"})


def takes(operator: str, attributes: Mapping[str, Any], data: tuple[int, ...], dtype: str) -> bool:
    """Is there such a call for this operator, for data of this shape? Of 2-dimensional images, and of matrices."""
    rank = {CONVOLUTION: 4, PRODUCT: 2}.get(operator)
    return rank == len(data) and dtype == "float32" and not attributes.get("transposed")


def adds(operator: str, function: str | None) -> bool:
    """Is there such a call that adds a tensor to the result, and computes this function of the sum?"""
    return function in ((None, "aten.relu") if operator == CONVOLUTION else (None,))


def packed(
    operator: str,
    attributes: Mapping[str, Any],
    weight: Tensor,
    data: tuple[int, ...],
    function: str | None = None,
    added: bool = False,
    over: bool = False,
) -> tuple[Tensor, Callable[..., Tensor], tuple[Any, ...]]:
    """(the weight in oneDNN's order, the call, what stands behind its data, weight and bias).

    attributes: of the convolution. weight: `[outputs, inputs / groups, h, w]`, or of a product `[inputs, outputs]`.
    data: the shape of what comes. function: an operator of `FUNCTIONS`. added: the call takes, behind its data, a
    tensor that is added before the function, if it `adds`. over: a convolution writes its result over that tensor,
    which then stands before its data: worth while where channels are last (in rows oneDNN copies it first).
    """
    name = FUNCTIONS[function] if function else None
    behind: tuple[Any, ...] = (name or "none", [], "")
    if operator == PRODUCT:
        order = torch.ops.mkldnn._reorder_linear_weight(weight.t().contiguous(), data[0])
        if added:
            return order, torch.ops.mkldnn._linear_pointwise.binary, ("add",)
        return order, torch.ops.mkldnn._linear_pointwise.default, behind
    options = [list(attributes[name]) for name in ("padding", "stride", "dilation")]
    groups = attributes["groups"]
    order = torch.ops.mkldnn._reorder_convolution_weight(weight, *options, groups, list(data))
    if added:
        call = torch.ops.mkldnn._convolution_pointwise_ if over else torch.ops.mkldnn._convolution_pointwise
        return order, call.binary, (*options, groups, "add", 1.0, name, [], "")
    return order, torch.ops.mkldnn._convolution_pointwise.default, (*options, groups, *behind)
