"""PyTorch's exported program (`torch.export`), as a module that is captured, planned and optimised like any other.

A `.pt2` file is a program: PyTorch's reader unpickles tensors of it, evaluates its expressions of sizes as Python, and
compiles its checks of inputs. So such a file is read only where the user answers for its writer."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from girih.capture.errors import CaptureError

_UNKNOWN = re.compile(r"We failed to resolve (?:torch\.ops\.)?(\S+) to an operator")


class ExportedModule(nn.Module):
    """Called as the module was that was exported. It stays in evaluation: the mode is that of the export.

    example: what it was exported with, a tuple, or a mapping by name; None where the program has none. names: of the
    inputs, in the order of the tensors in a call. open: of each input that has some, its dimensions, by a name where
    they are open."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        module = program.module()
        for name in ("train", "eval"):  # which refuse any call
            module.__dict__.pop(name, None)
        self.program = module
        self.example = _example(program)
        held = {item.name: item.meta.get("val") for item in program.graph.nodes if item.op == "placeholder"}
        self.names = tuple(name for name in program.graph_signature.user_inputs if isinstance(name, str))
        self.open: Mapping[str, tuple[int | str, ...]] = {
            name: tuple(size if isinstance(size, int) else str(size) for size in held[name].shape)
            for name in self.names
            if isinstance(held.get(name), torch.Tensor)
        }
        self.eval()

    def forward(self, *batch: Any, **named: Any) -> Any:
        return self.program(*batch, **named)


def read_exported(program: ExportedProgram | str | Path, *, trust: bool = False) -> ExportedModule:
    """The module of an exported program, or of its file (`girih.read_exported`)."""
    if isinstance(program, ExportedProgram):
        return ExportedModule(program)
    path = Path(program)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CaptureError(f"there is no file {path} to read: {error.strerror}") from error
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise CaptureError(f"{path} is no exported program of PyTorch (a .pt2 is a zip archive), or damaged")
    if not trust:
        raise CaptureError(
            f"{path}: reading a .pt2 may run what its writer put there, since PyTorch unpickles and evaluates parts of "
            "it: if you trust whoever wrote it, read it with trust=True (--trust)"
        )
    try:
        return ExportedModule(_loaded(content))
    except CaptureError as error:
        raise CaptureError(f"{path}: {error}") from error


def _loaded(content: bytes) -> ExportedProgram:
    from torch.export.pt2_archive._package import load_pt2  # torch.export.load logs the cause, and raises another error

    try:
        programs = load_pt2(io.BytesIO(content)).exported_programs
    except Exception as error:
        if unknown := _UNKNOWN.search(str(error)):
            raise CaptureError(
                f"it calls the operator {unknown[1]}, which is not registered here: import the library that defines it"
            ) from error
        line = next(iter(str(error).strip().splitlines()), "")
        raise CaptureError(
            f"PyTorch {torch.__version__} cannot read it, it is damaged or of another version: "
            f"{type(error).__name__}: {line}"[:300]
        ) from error
    if len(programs) != 1:
        raise CaptureError(f"expected one program in it, found {len(programs)}: {', '.join(programs) or 'none'}")
    program: ExportedProgram = next(iter(programs.values()))
    return program


def _example(program: ExportedProgram) -> Any:
    """Raises CaptureError where some are given by position and others by name."""
    if program.example_inputs is None:
        return None
    batch, named = program.example_inputs
    if batch and named:
        raise CaptureError(
            f"it takes {len(batch)} inputs by position and {', '.join(named)} by name: export it with all by "
            "position, or all by name"
        )
    return dict(named) if named else tuple(batch)
