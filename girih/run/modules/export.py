"""A module as an ONNX model, written by PyTorch's own exporter. Needs the extra `onnx`.

The exporter goes by ATen operators, so a graph is made a module first (`module_of`), with whole operators where the
libraries that run ONNX have them (`girih.rewrite.passes.whole`).
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

LARGEST = 1_900_000_000
"""Bytes of weights that one file holds: protobuf's limit is 2 GB."""


class ExportError(ValueError):
    """A module that cannot be written as ONNX; the message says why."""


def exported(
    module: torch.nn.Module,
    arguments: Sequence[Any],
    named: Mapping[str, Any] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> Any:
    """The module as `torch.onnx.ONNXProgram`, for inputs of these shapes; inputs, outputs: their names.

    Raises:
        ExportError: a library is missing, or an operator has no equal in ONNX.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ExportError(f"writing ONNX needs {error.name}: pip install 'girih[onnx]'") from error
    try:
        with _quiet(), torch.no_grad():
            program = torch.export.export(module, tuple(arguments), dict(named or {}))
            return torch.onnx.export(
                program, input_names=inputs, output_names=outputs, dynamo=True, optimize=True, verbose=False
            )
    except Exception as error:
        line = next(iter(str(error).strip().splitlines()), "")
        raise ExportError(f"PyTorch's exporter writes no ONNX of it: {type(error).__name__}: {line}"[:300]) from error


def write(program: Any, path: str | Path) -> None:
    """As one file; with its weights in a second one beside it (`NAME.data`) where they are more than a file holds."""
    import onnx

    save(program, path)
    onnx.checker.check_model(Path(path))


def save(program: Any, path: str | Path) -> None:
    """As `write`, unchecked."""
    weights = sum(item.const_value.nbytes for item in program.model.graph.initializers.values())
    with _quiet():
        program.save(Path(path), external_data=weights > LARGEST)


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter tells of libraries that it does not need, and of its own deprecations."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
