"""Libraries that run a whole ONNX model: ONNX Runtime and OpenVINO, as functions of NumPy arrays. Both are optional.

They compute in float32, as PyTorch does (OpenVINO in bfloat16 where that is asked for), with as many threads as are
given; neither keeps its threads on cores of their own, since other candidates run beside. Nothing here needs PyTorch,
so that a process to try them in starts fast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from threading import Lock
from typing import Any

Array = Any
Run = Callable[..., list[Array]]
Library = Callable[..., Run]
"""What makes a run of a model: its bytes or the name of its file, a number of threads, and the inputs that are always
these, by name. The others are given in order at each call."""


def onnxruntime(model: bytes | str, threads: int, fixed: Mapping[str, Array]) -> Run:
    """Raises ImportError where ONNX Runtime is not installed."""
    import onnxruntime as runtime

    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs() if item.name not in fixed]
    results = [item.name for item in session.get_outputs()]
    compute = getattr(session, "_sess", session).run  # without its check of names at each call, which takes as long
    # as a small model does: they are the file's own
    if len(names) == 1 and not fixed:
        (name,) = names
        return lambda array: compute(results, {name: array}, None)

    def run(*inputs: Array) -> list[Array]:
        found: list[Array] = compute(results, {**dict(zip(names, inputs, strict=True)), **fixed}, None)
        return found

    return run


def openvino_alone() -> Any:
    """The module `openvino`, without the package by which it reports each import to its makers: nothing that girih does
    sends anything to anybody, and the report is sent by a process forked from one with threads."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # as if it were not installed
    return import_module("openvino")


def openvino(model: bytes | str, threads: int, fixed: Mapping[str, Array], short: bool = False) -> Run:
    """short: in bfloat16, where the processor computes in it. Raises ImportError where OpenVINO is not installed."""
    vino = openvino_alone()
    core = vino.Core()
    options = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "bf16" if short else "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": False,
    }
    compiled = core.compile_model(core.read_model(model), "CPU", options)
    request, turn = compiled.create_infer_request(), Lock()
    names = [item.any_name for item in compiled.inputs]
    free = [place for place, name in enumerate(names) if name not in fixed]
    tensor, set_input, infer = vino.Tensor, request.set_input_tensor, request.infer
    for place, name in enumerate(names):
        if name in fixed:
            set_input(place, tensor(fixed[name], shared_memory=True))

    def run(*inputs: Array) -> list[Array]:
        """Inputs are set one by one: what `infer` does with those that it is given takes as long as a small model."""
        given = [tensor(array, shared_memory=True) for array in inputs]
        with turn:  # a request serves one call at a time
            for place, item in zip(free, given, strict=True):
                set_input(place, item)
            return [array.copy() for array in infer(share_outputs=True).to_tuple()]

    run.keep = fixed  # type: ignore[attr-defined]  # whose numbers OpenVINO reads where they lie
    return run


LIBRARIES: dict[str, Library] = {"onnxruntime": onnxruntime, "openvino": openvino}
