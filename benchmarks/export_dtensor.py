"""Plans that are exported as DTensor's placements train under torchrun, by PyTorch's DTensor, as one device does.

What: small models of the catalogue, planned for 2 and for 4 ranks for DTensor (`for_engine="dtensor"`, least
communication), exported by `plan.export("dtensor")`, and applied to the module by the page that stands beside it
(`dtensor_apply.py`), which needs PyTorch alone. torchrun runs the ranks over gloo.
How: 3 steps of SGD with momentum on random batches, beside PyTorch on one device. Bytes that ranks receive are counted
at the collectives below DTensor, for all ranks together, and put beside what the export states, and beside the plan's.
They differ from the plan's where DTensor goes another way between the borders of modules, and where gloo, which DTensor
asks for no all-to-all, gathers instead. (PyTorch's CommDebugMode counts the same calls, but fails for a module that is
called twice, as a shared dropout.)
Floor: how far a loss may be from PyTorch's, relative; and the bytes must be those that the export states.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import Benchmark, Report, Row, clock, note, since
from benchmarks.export_fx import MODELS, QUICK, far, model, trained


def rank(folder: Path) -> None:
    """What each rank does: the module, laid out, takes the steps; rank 0 leaves what it has seen."""
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor

    from girih.run.export import dtensor_apply as page
    from girih.run.export.rehearsal import Received

    dist.init_process_group("gloo")
    exported = page.read(folder / "placements.json")
    mesh = page.mesh_of(exported)
    module, step, batches = model(exported["model"])
    page.apply(module, exported, mesh)
    optimizer = torch.optim.SGD(module.parameters(), 0.01, 0.9)
    losses, received, calls = [], 0, {}
    for batch in batches:
        optimizer.zero_grad()
        with Received() as got, page.training():
            loss = step(module, page.batch_of(batch, exported, mesh))
            loss.backward()
            losses.append(float(loss.detach().full_tensor() if isinstance(loss, DTensor) else loss.detach()))
            optimizer.step()
        total = torch.tensor(got.bytes, dtype=torch.float64)
        dist.all_reduce(total)
        received = int(total)
        calls = dict(got.calls)
    if dist.get_rank() == 0:
        (folder / "seen.json").write_text(json.dumps({"losses": losses, "received": received, "calls": calls}))
    dist.destroy_process_group()


def measure(options: argparse.Namespace) -> Report:
    import torch

    import girih

    rows: list[Row] = []
    misses: list[str] = []
    for name in options.models or (MODELS[:QUICK] if options.quick else MODELS):
        for ranks in options.ranks or ((2,) if options.quick else (2, 4)):
            began, what = clock(), f"{name} on {ranks}"
            module, step, batches = model(name)
            training = girih.TrainingStep(module, step=step, optimizer=torch.optim.SGD(module.parameters(), 0.01, 0.9))
            given: dict[str, Any] = {"search": options.search} if options.search else {"for_engine": "dtensor"}
            row: Row = {"model": name, "ranks": ranks}
            try:
                plan = girih.plan(
                    training, batches[0], machine=f"local:{ranks}", objective="bytes", compare=(), **given
                )
                exported = plan.export("dtensor")
                seen = launched(exported, name, ranks)
            except (girih.PlanError, RuntimeError) as error:
                misses.append(f"{what}: {error}"[-3000:])
                rows.append({**row, "refused": str(error).splitlines()[0][:100]})
                note(rows[-1])
                continue
            expected = trained(module, step, torch.optim.SGD(module.parameters(), 0.01, 0.9), batches)
            stated, planned = exported.received, exported.planned
            row |= {
                "search": plan.search, "to PyTorch": far(seen["losses"], expected), "received": seen["received"],
                "stated": stated, "planned": planned,
                "ratio": round(seen["received"] / planned, 3) if planned else None,
                "calls": ", ".join(f"{count} {kind}" for kind, count in seen["calls"].items()),
                "seconds": str(since(began)),
            }  # fmt: skip
            rows.append(row)
            note(row)
            if not row["to PyTorch"] <= options.floor:
                misses.append(f"{what}: a loss is {row['to PyTorch']:.1e} from PyTorch's")
            if seen["received"] != stated:
                misses.append(f"{what}: ranks received {seen['received']} bytes, the export states {stated}")
    ratios = [row["ratio"] for row in rows if row.get("ratio")]
    return Report(
        "Exported as placements of DTensor, by torchrun over gloo",
        (
            ("model", "model"), ("ranks", "ranks"), ("search", "search"), ("losses to PyTorch's", "to PyTorch"),
            ("bytes received", "received"), ("stated", "stated"), ("the plan's", "planned"),
            ("received / planned", "ratio"),
            ("calls of a step", "calls"), ("CPU / wall seconds", "seconds"), ("refused", "refused"),
        ),
        tuple(rows),
        f"{len(rows)} modules under DTensor: losses within {options.floor:g} of PyTorch's, "
        f"bytes as stated, {min(ratios, default=0):g} to {max(ratios, default=0):g} times the plans'",
        tuple(misses),
    )  # fmt: skip


def launched(exported: Any, name: str, ranks: int, seconds: float = 300.0) -> Any:
    """What rank 0 has seen.

    Raises:
        RuntimeError: a rank failed; the message has what it said.
    """
    import os

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "placements.json"
        exported.save(file)
        file.write_text(json.dumps({**json.loads(file.read_text()), "model": name}))
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        told = subprocess.run(
            [*command, "-m", "benchmarks.export_dtensor", "--rank-of", folder],
            env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=seconds,
        )  # fmt: skip
        if told.returncode:
            own = [line for line in told.stderr.splitlines() if line.startswith("[rank0]")]
            raise RuntimeError("a rank failed:\n" + ("\n".join(own) or told.stderr)[-4000:])
        return json.loads(file.with_name("seen.json").read_text())


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
