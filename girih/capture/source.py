"""The user's place in the program: the innermost frame that is not PyTorch's or ours."""

from __future__ import annotations

import linecache
import os
import sys
from functools import cache
from importlib.util import find_spec
from types import CodeType, FrameType, TracebackType
from typing import Any

_TORCH = os.path.dirname(getattr(find_spec("torch"), "origin", None) or "") + os.sep  # which is not loaded for that
_LAYERS = _TORCH + "nn" + os.sep, _TORCH + "optim" + os.sep
_GIRIH = os.path.dirname(os.path.dirname(__file__)) + os.sep
_MODELS = _GIRIH + "models" + os.sep
_ENTRY = os.path.join(os.path.dirname(__file__), "torch", "trace.py")
_OTHERS = (frozenset(sys.stdlib_module_names) | {"torch", "numpy", "girih"}) - {"__main__"}


@cache
def _is_outside(name: str) -> bool:
    own = name.startswith(_GIRIH) and not name.startswith(_MODELS)
    return not (own or name.startswith((_TORCH, "<")) or name.endswith(("contextlib.py", "functools.py", "copy.py")))


@cache
def _place(name: str, line: int) -> str:
    return f"{short_path(name)}:{line}"


def short_path(path: str) -> str:
    """A file as people name it: from its package for installed ones, else from the working directory."""
    _, installed, inside = path.partition("site-packages" + os.sep)
    if installed:
        return inside
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def find_source(frame: FrameType | None) -> str:
    """`file:line` of the innermost frame of the program outside PyTorch and this room, or "".

    Who asked for the capture is no part of the program.
    """
    while frame is not None:
        code = frame.f_code
        if _is_outside(code.co_filename):
            return _place(code.co_filename, frame.f_lineno)
        if code.co_name == "capture" and _is_entry(code):
            break
        frame = frame.f_back
    return ""


def find_asker() -> str:
    """`file:line` of who asked for the capture that is under way, or "": for what has no place in the program."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_entry(frame.f_code):
        frame = frame.f_back
    while frame is not None:
        if _is_outside(frame.f_code.co_filename):
            return _place(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return ""


def _is_entry(code: CodeType) -> bool:
    return code.co_name == "capture" and code.co_filename == _ENTRY


def source_of_error(error: BaseException) -> tuple[str, str]:
    """(`file:line`, that line's text) of the innermost frame outside PyTorch that the error came through.

    Where it came through none, as in a model of PyTorch's own layers alone: of the innermost frame of those layers, or
    of PyTorch's optimizers.
    """
    innermost = layer = ("", "")
    trace: TracebackType | Any = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if _is_outside(name) or name.startswith(_LAYERS):
            text = linecache.getline(name, trace.tb_lineno).strip()
            place = (_place(name, trace.tb_lineno), text)
            if _is_outside(name):
                innermost = place
            else:
                layer = place
        trace = trace.tb_next
    return innermost if innermost[0] else layer


def lines_of_error(error: BaseException) -> str:
    """The text of all lines that the error came through."""
    lines = []
    trace = error.__traceback__
    while trace is not None:
        lines.append(linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return "".join(lines)


@cache
def is_users(module: str | None) -> bool:
    """Is code of this module a part of the user's program, and not of a package that is installed?"""
    file = str(getattr(sys.modules.get(str(module)), "__file__", None))
    installed = "site-packages" in file or "dist-packages" in file
    return not is_of_libraries(module) and not installed and not is_of_cython(module)


def is_of_cython(module: str | None) -> bool:
    """Is it the module of methods that Cython compiles, as those of NumPy's generators?"""
    return str(module).startswith("_cython_")


def is_of_libraries(module: str | None) -> bool:
    """Is it one of Python's, PyTorch's, NumPy's or ours?"""
    return str(module).partition(".")[0] in _OTHERS
