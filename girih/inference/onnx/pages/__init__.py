"""What each ONNX operator computes, in PyTorch's words: a page for each kind."""

from __future__ import annotations

from functools import cache

from girih.inference.onnx.operators import OnnxOperator, collected
from girih.inference.onnx.pages import (
    elementwise,
    images,
    indexing,
    norms,
    products,
    quantisation,
    recurrent,
    reductions,
    shapes,
    signals,
    windows,
)


@cache
def operators() -> dict[str, tuple[OnnxOperator, ...]]:
    """All operators by name, each with its meanings in one opset or another, the latest first."""
    return collected(
        (elementwise, images, indexing, norms, products, quantisation, recurrent, reductions, shapes, signals, windows)
    )
