"""Captured models by name, kept in the user's cache: planning one again needs no capture, and no PyTorch.

A model by name is the same graph whenever it is captured by the same girih and PyTorch. A user's own program is not
kept: what it depends on is not known. The files are data; what cannot be read is captured again.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

from girih import __version__
from girih.graph import GraphError, check, format_graph, parse_graph
from girih.plans.inputs import Program

MOST_FILES = 64
LARGEST_BYTES = 64 << 20
FIELDS = ("initial", "scalars", "ranges", "keys", "constants")
DEPENDS_ON = ("capture", "graph", "models", "ops")


def cache_folder() -> Path:
    """The user's cache of girih."""
    cache_home = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache_home) if cache_home else Path.home() / ".cache") / "girih"


def file_of(model: str, batch: int | None, optimizer: str | None, micro_batches: int | None) -> Path:
    """Where the capture of a model by name is kept: named after all that it depends on."""
    key = json.dumps([model, batch, optimizer, micro_batches, _versions()])
    return cache_folder() / "captured" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json.gz"


@cache
def _versions() -> tuple[str, ...]:
    """Of girih, Python and PyTorch, and of each file of girih that a capture depends on its size and time."""
    root = Path(__file__).parent
    files = [f for room in DEPENDS_ON for f in sorted((root / room).rglob("*.py"))]
    stamps = [f"{f.relative_to(root)} {f.stat().st_size} {f.stat().st_mtime_ns}" for f in files]
    return (__version__, sys.version, version("torch"), *stamps)


def load(path: Path) -> Program | None:
    """What was kept there; None where nothing is, or nothing that can be read."""
    try:
        with gzip.open(path) as file:
            text = file.read(LARGEST_BYTES)
        data = json.loads(text)
        graph = parse_graph("\n".join(data["graph"]))
        check(graph)
        fields = {name: data[name] for name in FIELDS}
        fields["initial"] = {where: (str(kind), a, b) for where, (kind, a, b) in fields["initial"].items()}
        return Program(graph, str(data["model"]), **fields).in_parts(int(data["micro_batches"]))
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError, RecursionError, GraphError):
        return None


def save(path: Path, program: Program) -> None:
    """Keep a captured program; nothing where the folder cannot be written."""
    graph = program.undivided or program.graph  # which is cut again
    data = {"model": program.model, "graph": format_graph(graph).splitlines(), "micro_batches": program.micro_batches}
    data |= {name: getattr(program, name) for name in FIELDS}
    text = gzip.compress(json.dumps(data).encode(), compresslevel=1, mtime=0)
    if len(text) > LARGEST_BYTES:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
        for old in _oldest(path.parent):
            old.unlink()


def _oldest(folder: Path) -> Iterator[Path]:
    """Files beyond those that are kept, the ones that were written first."""
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)
    yield from files[MOST_FILES:]
