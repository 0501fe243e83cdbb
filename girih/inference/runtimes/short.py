"""Programs in shorter types than the model's: faster, and off by what a user allows.

int8: products with weights in whole numbers of 8 bits, whose scales are found at each call, by ONNX Runtime's own
quantisation. bfloat16: a copy of the whole program, by PyTorch's kernels; what comes and leaves is in float32.
(OpenVINO has its own way, see `libraries.py`.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

Tensor = Any


def in_int8(program: Callable[[], tuple[str, Any]], folder: Path) -> tuple[str, Any]:
    """The file of an ONNX model, and its fixed inputs, with products in int8; it is written into the folder."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    file, fixed = program()
    short = folder / f"{Path(file).stem}-int8.onnx"
    quantize_dynamic(file, short, op_types_to_quantize=["MatMul"], per_channel=True, weight_type=QuantType.QInt8)
    return str(short), fixed


def in_bfloat16(
    module: torch.nn.Module, compiled: Callable[[Any], Callable[..., Any]] = lambda module: module
) -> Callable[..., Any]:
    """A copy of a module in bfloat16, called as the module is."""
    short = compiled(copy.deepcopy(module).to(torch.bfloat16))

    def run(*batch: Any, **named: Any) -> Any:
        batch, named = tree_map_only(torch.Tensor, _shorter, (batch, named))
        return tree_map_only(torch.Tensor, _longer, short(*batch, **named))

    return run


def _shorter(tensor: Tensor) -> Tensor:
    return tensor.to(torch.bfloat16) if tensor.dtype == torch.float32 else tensor


def _longer(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float32) if tensor.dtype == torch.bfloat16 else tensor
