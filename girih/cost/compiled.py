"""Libraries in C that are compiled where they run: once for each version of their text, into the user's cache.

A library is a file that is named after its own bytes: what is empty, damaged or somebody else's is compiled again.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from girih.cost.cache import others_may_write, usable_cache
from girih.store import places


class CompilerError(RuntimeError):
    """There is no compiler, or it fails; the message says why."""


def compiled(source: Path, folder: Path, options: Sequence[str] = (), version: str = "") -> Path:
    """The library of a text in C, in a folder that is the user's own. options: of the compiler that `CC` names, or
    `cc`. version: of what else the library depends on.

    Raises:
        CompilerError: it cannot be compiled, or not be kept there.
    """
    known = f"{_short_hash(source.read_bytes() + version.encode())}-{os.uname().machine}-"
    for built in sorted(folder.glob(f"{known}*.so")):
        with suppress(OSError):
            if not others_may_write(built) and built.name == f"{known}{_short_hash(built.read_bytes())}.so":
                return built
            built.unlink()
    compiler = os.environ.get("CC", "cc").split() or ["cc"]
    try:
        with tempfile.TemporaryDirectory() as scratch:
            own = Path(scratch) / "library.so"
            command = [*compiler, "-O2", "-shared", "-fPIC", "-o", str(own), str(source), *options]
            subprocess.run(command, check=True, capture_output=True, text=True)
            content = own.read_bytes()
        built = folder / f"{known}{_short_hash(content)}.so"
        places.exchange(str(built), content, places.OWN)
    except OSError as error:
        raise CompilerError(f"{' '.join(compiler)} cannot be run: {error}") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise CompilerError(f"{' '.join(compiler)} fails: {last}") from error
    return built


def extension(source: Path, room: str, include: str = "", version: str = "") -> ModuleType | None:
    """The module of Python's that a text in C is, compiled into a room of the cache. include: where its headers are,
    beside Python's. None: there is no C compiler, no header of Python's, or no cache, or it is not Linux."""
    header = Path(sys.base_prefix) / "include" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "Python.h"
    cache = usable_cache(room, say=False) if sys.platform == "linux" and header.exists() else None
    if cache is None:
        return None
    try:
        options = [f"-I{folder}" for folder in (header.parent, include) if folder]
        built = compiled(source, cache, options, f"{sys.implementation.cache_tag} {version}")
        loader = ExtensionFileLoader(source.stem, str(built))
        spec = spec_from_file_location(source.stem, built, loader=loader)
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
    except (CompilerError, ImportError):
        return None
    return module


def _short_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
