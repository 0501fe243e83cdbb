"""Plans that are exported as DTensor's placements train under torchrun, by PyTorch's DTensor, as one device does.

What: small models of the catalogue, planned for 2 and for 4 ranks for DTensor (`for_engine="dtensor"`, least
communication), exported by `plan.export("dtensor")`, and applied to the module by the page that stands beside it
(`dtensor_apply.py`), which needs PyTorch alone. torchrun runs the ranks over gloo.
How: 3 steps of SGD with momentum on random batches, beside PyTorch on one device. Bytes that ranks receive are counted
at the collectives below DTensor, for all ranks together, and put beside what the export states, and beside the plan's.
Mostly they are fewer: DTensor keeps for the backward pass what it has gathered, and a plan fetches some of it again.
All models of a number of ranks share one start of torchrun. (PyTorch's CommDebugMode counts the same calls, but fails
for a module that is called twice, as a shared dropout.)
Floor: how far a loss may be from PyTorch's, relative; and the bytes must be those that the export states, and no more
than 1.05 times the plan's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import girih
from benchmarks.common import Benchmark, Report, Row, clock, note, since
from benchmarks.export_fx import MODELS, QUICK, far, model, trained

FILE, SEEN = ".placements.json", ".seen.json"
"""What the names of files end with: what a rank reads, and what it leaves."""
MOST = 1.05
"""Of the plan's bytes, of a plan that is made for DTensor."""


def rank(folder: Path) -> None:
    """What each rank does: the module of each file, laid out, takes the steps; rank 0 leaves what it has seen.

    Forming groups and importing takes longer than the steps, so that all models of a number of ranks share one start,
    and modules whose meshes have the same axes share a mesh.
    """
    import torch.distributed as dist

    from girih.run.export import dtensor_apply as page

    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    meshes: dict[tuple[Any, ...], Any] = {}
    for file in sorted(folder.glob(f"*{FILE}")):
        exported = page.read(file)
        key = tuple(exported["mesh"]), exported["fully_sharded"]
        if key not in meshes:
            meshes[key] = page.mesh_of(exported)
        found = steps_of(exported, meshes[key])
        if dist.get_rank() == 0:
            file.with_name(file.name.replace(FILE, SEEN)).write_text(json.dumps(found))
    dist.destroy_process_group()


def steps_of(exported: Any, mesh: Any) -> dict[str, Any]:
    """The losses of a module that is laid out by placements, and bytes and collectives of its last step."""
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor

    from girih.run.export import dtensor_apply as page
    from girih.run.export.rehearsal import Received

    module, step, batches = model(exported["model"])
    page.apply(module, exported, mesh)
    optimizer = torch.optim.SGD(module.parameters(), 0.01, 0.9)
    losses, received, calls = [], 0, {}
    for batch in batches:
        optimizer.zero_grad()
        with Received() as got, page.training(exported, mesh):
            loss = step(module, page.batch_of(batch, exported, mesh))
            loss.backward()
            losses.append(float(loss.detach().full_tensor() if isinstance(loss, DTensor) else loss.detach()))
            optimizer.step()
        total = torch.tensor(got.bytes, dtype=torch.float64)
        dist.all_reduce(total)
        received = int(total)
        calls = dict(got.calls)
    return {"losses": losses, "received": received, "calls": calls}


def measure(options: argparse.Namespace) -> Report:
    import torch

    rows: list[Row] = []
    misses: list[str] = []
    for ranks in options.ranks or ((2,) if options.quick else (2, 4)):
        exports: dict[str, Any] = {}
        for name in options.models or (MODELS[:QUICK] if options.quick else MODELS):
            began = clock()
            row: Row = {"model": name, "ranks": ranks}
            rows.append(row)
            try:
                plan, exports[name] = exported_plan(name, ranks, options.search)
            except girih.PlanError as error:
                misses.append(f"{name} on {ranks}: {error}"[-3000:])
                row["refused"] = str(error).splitlines()[0][:100]
                continue
            row |= {"search": plan.search, "seconds": str(since(began))}
            note({**row, "stated": exports[name].received, "planned": exports[name].planned})
        seen = launched(exports, ranks)
        for row in rows:
            name = row["model"]
            if row["ranks"] != ranks or name not in exports:
                continue
            exported, found, what = exports[name], seen[name], f"{name} on {ranks}"
            if isinstance(found, str):
                misses.append(f"{what}: {found}"[-3000:])
                row["refused"] = found.splitlines()[-1][:100]
                continue
            module, step, batches = model(name)
            expected = trained(module, step, torch.optim.SGD(module.parameters(), 0.01, 0.9), batches)
            stated, planned = exported.received, exported.planned
            row |= {
                "to PyTorch": far(found["losses"], expected), "received": found["received"],
                "stated": stated, "planned": planned,
                "ratio": round(found["received"] / planned, 3) if planned else None,
                "calls": ", ".join(f"{count} {kind}" for kind, count in found["calls"].items()),
            }  # fmt: skip
            note(row)
            if not row["to PyTorch"] <= options.floor:
                misses.append(f"{what}: a loss is {row['to PyTorch']:.1e} from PyTorch's")
            if found["received"] != stated:
                misses.append(f"{what}: ranks received {found['received']} bytes, the export states {stated}")
            if not options.search and found["received"] > MOST * planned:
                misses.append(f"{what}: ranks received {found['received']} bytes, {row['ratio']} times the plan's")
    ratios = [row["ratio"] for row in rows if row.get("ratio")]
    return Report(
        "Exported as placements of DTensor, by torchrun over gloo",
        (
            ("model", "model"), ("ranks", "ranks"), ("search", "search"), ("losses to PyTorch's", "to PyTorch"),
            ("bytes received", "received"), ("stated", "stated"), ("the plan's", "planned"),
            ("received / planned", "ratio"),
            ("calls of a step", "calls"), ("CPU / wall seconds of planning", "seconds"), ("refused", "refused"),
        ),
        tuple(rows),
        f"{len(rows)} modules under DTensor: losses within {options.floor:g} of PyTorch's, "
        f"bytes as stated, {min(ratios, default=0):g} to {max(ratios, default=0):g} times the plans'",
        tuple(misses),
    )  # fmt: skip


def exported_plan(name: str, ranks: int, search: str | None) -> tuple[girih.Plan, Any]:
    """A plan of a model for DTensor, or by a search, and its export.

    Raises:
        PlanError: there is none that DTensor runs.
    """
    import torch

    module, step, batches = model(name)
    training = girih.TrainingStep(module, step=step, optimizer=torch.optim.SGD(module.parameters(), 0.01, 0.9))
    given: dict[str, Any] = {"search": search} if search else {"for_engine": "dtensor"}
    plan = girih.plan(training, batches[0], machine=f"local:{ranks}", objective="bytes", compare=(), **given)
    return plan, plan.export("dtensor")


def launched(exports: dict[str, Any], ranks: int, seconds: float = 300.0) -> dict[str, Any]:
    """By model what rank 0 has seen, or as a text why a rank failed. Behind one that fails, the others start anew."""
    import os

    found: dict[str, Any] = {}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    with tempfile.TemporaryDirectory() as folder:
        while left := [name for name in exports if name not in found]:
            for number, name in enumerate(left):
                file = Path(folder) / f"{number:02}{FILE}"
                file.write_text(json.dumps({**exports[name].data, "model": name}))
            told = subprocess.run(
                [*command, "-m", "benchmarks.export_dtensor", "--rank-of", folder],
                env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=seconds,
            )  # fmt: skip
            for number, name in enumerate(left):
                file = Path(folder) / f"{number:02}{SEEN}"
                if not file.exists():
                    own = [line for line in told.stderr.splitlines() if line.startswith("[rank0]")]
                    found[name] = "a rank failed:\n" + ("\n".join(own) or told.stderr)[-4000:]
                    break
                found[name] = json.loads(file.read_text())
            for old in Path(folder).iterdir():
                old.unlink()
    return found


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", nargs="*", metavar="MODEL", help="only these")
    parser.add_argument("--ranks", nargs="*", type=int, metavar="N", help="only on so many (default 2 and 4)")
    parser.add_argument("--search", help="plan by this search, such as megatron, instead of for DTensor")


BENCHMARK = Benchmark(
    "export_dtensor",
    __doc__ or "",
    measure,
    floor=1e-5,
    floor_help="most relative difference of a loss to PyTorch's",
    options=_options,
)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank-of"]:
        rank(Path(sys.argv[2]))
    else:
        sys.exit(BENCHMARK.main())
