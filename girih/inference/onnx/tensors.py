"""ONNX's tensors and element types as PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, numpy_helper

from girih.graph.graph import ITEM_BYTES
from girih.inference.onnx.errors import OnnxError

Tensor = Any

DTYPES = {
    TensorProto.FLOAT: torch.float32,
    TensorProto.DOUBLE: torch.float64,
    TensorProto.FLOAT16: torch.float16,
    TensorProto.BFLOAT16: torch.bfloat16,
    TensorProto.INT8: torch.int8,
    TensorProto.INT16: torch.int16,
    TensorProto.INT32: torch.int32,
    TensorProto.INT64: torch.int64,
    TensorProto.UINT8: torch.uint8,
    TensorProto.UINT16: torch.uint16,
    TensorProto.UINT32: torch.uint32,
    TensorProto.UINT64: torch.uint64,
    TensorProto.BOOL: torch.bool,
    TensorProto.COMPLEX64: torch.complex64,
    TensorProto.COMPLEX128: torch.complex128,
}
assert all(str(item).removeprefix("torch.") in ITEM_BYTES for item in DTYPES.values())

MOST_BYTES = 1 << 30
"""The most bytes of a constant that is computed while a file is read: a larger one is a mistake, or an attack."""


def type_name(number: int) -> str:
    """`FLOAT` for 1; what it is called where ONNX knows no such number."""
    names = {value: name for name, value in TensorProto.DataType.items()}
    return str(names.get(number, f"number {number}"))


def dtype_of(number: int) -> torch.dtype:
    """Raises OnnxError for element types that a graph has not: text, and numbers of less than 8 bits and of 8 bits with
    an exponent."""
    if number not in DTYPES:
        raise OnnxError(f"tensors of {type_name(number)} are not supported")
    return DTYPES[number]


def tensor_of(proto: TensorProto) -> Tensor:
    """The numbers of a tensor that lie in the file itself.

    Raises:
        OnnxError: another element type, or fewer or more numbers than its shape says.
    """
    dtype = dtype_of(proto.data_type)
    try:
        array = numpy_helper.to_array(proto)
    except Exception as error:
        raise OnnxError(f"tensor {proto.name!r} is damaged: {first_line(error)}") from error
    return from_numpy(array, dtype)


def from_numpy(array: np.ndarray, dtype: torch.dtype) -> Tensor:
    """The same numbers, in memory of their own; bfloat16 comes in an extension's dtype."""
    if dtype is torch.bfloat16:
        return torch.from_numpy(np.array(array, order="C").view(np.int16)).view(torch.bfloat16).reshape(array.shape)
    return torch.from_numpy(np.array(array, order="C")).to(dtype)


def to_numpy(tensor: Tensor) -> np.ndarray:
    """The tensor as an array that ONNX's own libraries take."""
    if tensor.dtype is torch.bfloat16:
        numbers: np.ndarray = tensor.contiguous().view(torch.int16).numpy()
        return numbers.view(onnx.helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16))
    return tensor.numpy()  # type: ignore[no-any-return]


def first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__
