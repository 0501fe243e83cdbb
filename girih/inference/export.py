"""A module as an ONNX model, written by PyTorch's own exporter. Needs the extra `onnx`.

The exporter goes by ATen operators, so a graph is made a module first (`module_of`), with whole operators where the
libraries that run ONNX have them (`girih.rewrite.passes.whole`).
"""

from __future__ import annotations

import logging
import re
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
    open: Sequence[Mapping[int, str]] = (),
) -> Any:
    """The module as `torch.onnx.ONNXProgram`, for inputs of these shapes; inputs, outputs: their names. open: names of
    dimensions of the inputs, one mapping for each, that may have any size.

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
            sizes: dict[str, Any] = {name: torch.export.Dim(f"size{i}") for i, name in enumerate(_names(open))}
            shapes = tuple({dim: sizes[name] for dim, name in names.items()} for names in open)
            dynamic: dict[str, Any] = {}
            if sizes:
                dynamic["dynamic_shapes"] = dict(zip(named, shapes, strict=True)) if named else shapes
            program = torch.export.export(module, tuple(arguments), dict(named or {}), **dynamic)
            written = torch.onnx.export(
                program, input_names=inputs, output_names=outputs, dynamo=True, optimize=True, verbose=False
            )
            _name_sizes(written, open)
            return written
    except Exception as error:
        line = next(iter(str(error).strip().splitlines()), "")
        raise ExportError(f"PyTorch's exporter writes no ONNX of it: {type(error).__name__}: {line}"[:300]) from error


def _names(open: Sequence[Mapping[int, str]]) -> list[str]:
    return list(dict.fromkeys(name for names in open for name in names.values()))


def _name_sizes(program: Any, open: Sequence[Mapping[int, str]]) -> None:
    """Open dimensions get the names that they came with, instead of PyTorch's symbols."""
    import onnx_ir

    graph = program.model.graph
    named = {
        str(value.shape[dim]): name
        for value, names in zip(graph.inputs, open, strict=False)
        for dim, name in names.items()
    }
    for value in (*graph.inputs, *(result for node in graph for result in node.outputs)) if named else ():
        if value.shape is not None:
            sizes = (size if isinstance(size, int) else _named(str(size), named) for size in value.shape)
            value.shape = onnx_ir.Shape(sizes)


def _named(size: str, names: Mapping[str, str]) -> str:
    """An expression of sizes by other names: `2*s0 + 1` becomes `2*batch + 1`."""
    return re.sub(r"[A-Za-z_]\w*", lambda found: names.get(found[0], found[0]), size)


def write(program: Any, path: str | Path) -> None:
    """Write a program as one file; weights that are too large for it lie in a second one beside it (`NAME.data`)."""
    import onnx

    save(program, path)
    onnx.checker.check_model(Path(path))


def copy(source: Path, path: Path) -> None:
    """A model's file under another name, with its weights as `write` stores them."""
    import onnx

    model = onnx.load(source)
    large = model.ByteSize() > LARGEST
    onnx.save(model, path, save_as_external_data=large, location=f"{path.name}.data")


def save(program: Any, path: str | Path) -> None:
    """Write as `write` does, without ONNX's check of the file."""
    weights = sum(item.const_value.nbytes for item in program.model.graph.initializers.values())
    with _quiet():
        program.save(Path(path), external_data=weights > LARGEST)


@contextmanager
def _quiet() -> Iterator[None]:
    """While open, the exporter prints nothing of libraries that it does not need, of its own deprecations, and of
    constants that its optimiser could not fold: the program is right without."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
