"""`small.c`, compiled where it runs: the calls on small arrays that scripts make most, at NumPy's pace.

It is compiled by the first program that imports `girih.array`, in half a second, and kept in the user's cache
(`girih.cost.compiled`). Where there is no C compiler, no header of Python's, or no cache, Python does the same.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np

from girih.cost.cache import usable_cache
from girih.cost.compiled import CompilerError, compiled

SOURCE = Path(__file__).with_name("small.c")


@cache
def native() -> ModuleType | None:
    """The module, or None."""
    header = Path(sys.base_prefix) / "include" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "Python.h"
    folder = usable_cache("array", say=False) if sys.platform == "linux" and header.exists() else None
    if folder is None:
        return None
    options = [f"-I{header.parent}", f"-I{np.get_include()}"]
    try:
        built = compiled(SOURCE, folder, options, f"{sys.implementation.cache_tag} {np.__version__}")
        loader = ExtensionFileLoader("small", str(built))
        spec = spec_from_file_location("small", built, loader=loader)
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
    except (CompilerError, ImportError):
        return None
    return module
