"""Libraries that run a whole model: ONNX Runtime and OpenVINO, as functions of tensors. Both are optional.

They compute in float32, as PyTorch does, with as many threads as are given; neither keeps its threads on cores of
their own, since other candidates run beside.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch

Tensor = Any
Run = Callable[..., tuple[Tensor, ...]]


def onnxruntime(model: bytes | str, threads: int, fixed: Mapping[str, Tensor] | None = None) -> Run:
    """model: as bytes, or the name of its file. fixed: inputs that are always these; the others are given in order.

    Raises:
        ImportError: ONNX Runtime is not installed.
    """
    import onnxruntime as runtime

    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    always = {name: tensor.numpy() for name, tensor in (fixed or {}).items()}
    names = [item.name for item in session.get_inputs() if item.name not in always]

    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        given = {name: tensor.contiguous().numpy() for name, tensor in zip(names, inputs, strict=True)}
        return tuple(torch.from_numpy(item) for item in session.run(None, given | always))

    return run


def openvino_alone() -> Any:
    """The module `openvino`, without the package by which it reports each import to its makers: nothing that girih does
    sends anything to anybody, and the report is sent by a process forked from one with threads."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # as if it were not installed
    return import_module("openvino")


def openvino(model: bytes | str, threads: int, fixed: Mapping[str, Tensor] | None = None) -> Run:
    """The same by OpenVINO.

    Raises:
        ImportError: OpenVINO is not installed.
    """
    vino = openvino_alone()
    core = vino.Core()
    options = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": False,
    }
    compiled = core.compile_model(core.read_model(model), "CPU", options)
    request = compiled.create_infer_request()
    always = {name: tensor.numpy() for name, tensor in (fixed or {}).items()}
    names = [item.any_name for item in compiled.inputs]
    outputs = list(compiled.outputs)

    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        rest = iter(inputs)
        given = [always[name] if name in always else next(rest).contiguous().numpy() for name in names]
        results = request.infer(given, share_inputs=True, share_outputs=True)
        return tuple(torch.from_numpy(results[item]).clone() for item in outputs)

    return run


RUNTIMES: Mapping[str, Callable[[bytes | str, int, Mapping[str, Tensor] | None], Run]] = {
    "onnxruntime": onnxruntime,
    "openvino": openvino,
}


def installed(names: Sequence[str]) -> tuple[str, ...]:
    """Those of the back ends that are PyTorch's own, or that can be imported."""
    from importlib.util import find_spec

    return tuple(name for name in names if name not in RUNTIMES or find_spec(name) is not None)
