"""ONNX Runtime and OpenVINO as functions of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from girih.inference.runtimes.libraries import LIBRARIES

Tensor = Any
Run = Callable[..., list[Tensor]]


def _of_tensors(
    name: str, model: bytes | str, threads: int, fixed: Mapping[str, Tensor] | None = None, *more: Any
) -> Run:
    """model: as bytes, or the name of its file. fixed: inputs that are always these; the others are given in order.
    more: what the library is told beside.

    Raises:
        ImportError: the library is not installed.
    """
    always = {item: tensor.numpy() for item, tensor in (fixed or {}).items()}
    compute = LIBRARIES[name](model, threads, always, *more)

    def run(*inputs: Tensor) -> list[Tensor]:
        if len(inputs) == 1:  # without a list: models may take a few microseconds
            arrays = compute(inputs[0].contiguous().numpy())
        else:
            arrays = compute(*[tensor.contiguous().numpy() for tensor in inputs])
        return [*map(torch.from_numpy, arrays)]

    run.of_arrays = compute  # type: ignore[attr-defined]
    return run


def directly(run: Run) -> Callable[[Tensor], Tensor]:
    """The same of one tensor whose numbers lie in order, of whose results the first is wanted, in one function."""
    compute, tensor_of = run.of_arrays, torch.from_numpy  # type: ignore[attr-defined]
    return lambda tensor: tensor_of(compute(tensor.numpy())[0])


RUNTIMES: Mapping[str, Callable[..., Run]] = {name: partial(_of_tensors, name) for name in LIBRARIES}


def installed(names: Sequence[str]) -> tuple[str, ...]:
    """Those of the back ends that are PyTorch's own, or that can be imported."""
    from importlib.util import find_spec

    return tuple(name for name in names if name not in RUNTIMES or find_spec(name) is not None)
