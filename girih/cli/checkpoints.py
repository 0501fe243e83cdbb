"""`girih checkpoint`: look into checkpoints, check them, and convert them."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from rich.table import Table

from girih.cli.terminal import BadInputError, TerminalProgress, check_output, clear_errors, show
from girih.machine.units import format_bytes

if TYPE_CHECKING:
    from girih.run.training.checkpoint import CheckpointManifest as Manifest

PLACES = {"show": 1, "verify": 1, "export": 2, "import": 2}
"""How many directories each action takes."""


def checkpoint(options: argparse.Namespace) -> int:
    """Do what is asked for; exit code 1 if a checkpoint that is verified is damaged."""
    needed = PLACES[options.action]
    if len(options.directories) != needed:
        names = "DIR" if needed == 1 else "DIR and NEW"
        raise BadInputError(f"{options.action} takes {names}, got {len(options.directories)} directories")
    if needed == 2:
        check_output(options.directories[1], folder=True)
    with clear_errors(), TerminalProgress() as progress:
        progress(options.action, 0.0)
        return {"show": _show, "verify": _verify, "export": _export, "import": _import}[options.action](options)


def _show(options: argparse.Namespace) -> int:
    from girih.run.training.checkpoint import read_manifest

    manifest = read_manifest(options.directories[0])
    if options.json:
        rows = {
            path: {"dtype": entry.dtype, "shape": entry.shape, "chunks": len(entry.chunks)}
            for path, entry in manifest.entries.items()
        }
        print(json.dumps({**_facts(manifest), "entries": rows}))
        return 0
    table = Table("tensor", "is", "bytes", "chunks", box=None, pad_edge=False)
    for path, entry in manifest.entries.items():
        table.add_row(path, f"{entry.dtype}{list(entry.shape)}", format_bytes(entry.bytes), str(len(entry.chunks)))
    show(table)
    print(_line(options.directories[0], manifest))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from girih.run.training.checkpoint import damages, read_manifest

    manifest = read_manifest(options.directories[0])
    damaged = damages(options.directories[0])
    if options.json:
        print(json.dumps({**_facts(manifest), "damages": damaged}))
    else:
        print("\n".join(damaged) if damaged else f"whole: {_line(options.directories[0], manifest)}")
    return 1 if damaged else 0


def _export(options: argparse.Namespace) -> int:
    from girih.run.training.dcp import export_dcp

    source, out = options.directories
    manifest = export_dcp(source, out)
    print(json.dumps(_facts(manifest)) if options.json else f"{_line(source, manifest)}; for PyTorch in {out}")
    return 0


def _import(options: argparse.Namespace) -> int:
    from girih.run.training.dcp import import_dcp

    source, directory = options.directories
    manifest, others = import_dcp(source, directory, options.step, options.seed)
    if options.json:
        print(json.dumps({**_facts(manifest), "left_out": others}))
        return 0
    print(_line(directory, manifest))
    if others:
        print(f"left out, no tensors: {', '.join(others)}")
    return 0


def _facts(manifest: Manifest) -> dict[str, int]:
    return {
        "step": manifest.step,
        "seed": manifest.seed,
        "tensors": len(manifest.entries),
        "bytes": sum(entry.bytes for entry in manifest.entries.values()),
        "files": len(manifest.files),
    }


def _line(directory: str, manifest: Manifest) -> str:
    facts = _facts(manifest)
    return f"{directory}: step {facts['step']}, {facts['tensors']} tensors, {format_bytes(facts['bytes'])}"
