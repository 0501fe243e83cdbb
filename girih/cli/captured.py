"""Captured models by name, kept in the user's cache: planning one again needs no capture, and no PyTorch.

A model by name is the same graph whenever it is captured by the same girih and PyTorch. A user's own program is not
kept: what it depends on is not known. The files are data, and pass the gate that plan files pass: what would not be
planned from a file, and what cannot be read, is captured again.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import sys
import zlib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

from girih import __version__
from girih.cost.cache import cache_folder, others_may_write, usable_cache
from girih.graph import GraphError, check, format_graph, parse_graph
from girih.plans.check import check_gate
from girih.plans.inputs import Program
from girih.plans.plan import Origin
from girih.plans.schema import read_captured
from girih.store import places

MOST_FILES = 64
LARGEST_BYTES = 64 << 20
FIELDS = ("initial", "scalars", "ranges", "keys", "constants")
DEPENDS_ON = ("capture", "graph", "models", "ops")


def file_of(model: str, batch: int | None, optimizer: str | None, micro_batches: int | None, precision: str) -> Path:
    """Where the capture of a model by name is kept: named after all that it depends on."""
    key = json.dumps([model, batch, optimizer, micro_batches, precision, _versions()])
    return cache_folder() / "captured" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json.gz"


@cache
def _versions() -> tuple[str, ...]:
    """Versions of girih, Python and PyTorch; size and time of each file of girih that a capture depends on."""
    root = Path(__file__).parents[1]
    files = [f for room in DEPENDS_ON for f in sorted((root / room).rglob("*.py"))]
    stamps = [f"{f.relative_to(root)} {f.stat().st_size} {f.stat().st_mtime_ns}" for f in files]
    return (__version__, sys.version, version("torch"), *stamps)


def load(path: Path) -> Program | None:
    """What was kept there; None where nothing is, nothing that can be read, or what others may have written."""
    try:
        if usable_cache("captured") is None or others_may_write(path):
            return None
        with gzip.open(path) as file:
            data = read_captured(file.read(LARGEST_BYTES))
        graph = parse_graph("\n".join(data.graph))
        check_gate(graph, str(path))
        check(graph)
        origin = Origin(data.model, **{name: getattr(data, name) for name in FIELDS})
        return Program(graph, origin).in_parts(data.micro_batches)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError, GraphError):  # PlanError is a ValueError
        return None


def save(path: Path, program: Program) -> None:
    """Keep a captured program; nothing where the folder cannot be written."""
    origin, graph = program.origin, program.origin.undivided or program.graph  # which is cut again
    data = {"model": origin.model, "graph": format_graph(graph).splitlines(), "micro_batches": program.micro_batches}
    data |= {name: getattr(origin, name) for name in FIELDS}
    text = gzip.compress(json.dumps(data).encode(), compresslevel=1, mtime=0)
    if len(text) > LARGEST_BYTES or usable_cache("captured") is None:
        return
    with contextlib.suppress(OSError):
        places.exchange(str(path), text, places.OWN)
        for old in _oldest(path.parent):
            old.unlink()


def _oldest(folder: Path) -> Iterator[Path]:
    """Files beyond those that are kept, the ones that were written first."""
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)
    yield from files[MOST_FILES:]
