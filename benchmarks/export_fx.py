"""Plans that are exported as FX graphs train under torchrun, by PyTorch alone, as one device does.

What: small models of the catalogue, planned for 2 and for 4 ranks with least communication (objective bytes: all work
is divided), exported by `plan.export("fx")` to one file each, which torchrun runs over gloo in processes in which girih
cannot be imported.
How: 3 steps of SGD with momentum on random batches. The same steps are made by girih's own workers, from the same
state, and by PyTorch: the module, autograd and torch.optim on one device. The file counts the bytes that its
collectives receive. `--compiler NAME` runs it under torch.compile, too (`inductor` needs a C++ compiler).
Floor: how far a loss may be from PyTorch's, relative; and the bytes must be the plan's, to the byte.
"""

from __future__ import annotations

import argparse
import copy
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import Benchmark, Report, Row, clock, note, since

MODELS = (
    "mlp-tiny", "gpt-tiny", "lenet-tiny", "bert-tiny", "llama-tiny", "rnn-tiny", "transformer-tiny", "wresnet-tiny",
    "squeezenet-tiny", "nmt-tiny", "candle-uno-tiny", "dlrm-tiny",
)  # fmt: skip
QUICK, STEPS = 2, 3
LOSS = re.compile(r"step \d+: loss (\S+); ranks received (\d+) bytes, of (\d+)")


def trained(module: Any, step: Any, optimizer: Any, batches: list[Any]) -> list[float]:
    """Losses of PyTorch alone."""
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = step(module, batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def launched(file: Path, ranks: int, *options: str, seconds: float = 300.0) -> str:
    """What torchrun prints of an exported program, in processes in which girih cannot be imported.

    Raises:
        RuntimeError: a rank failed; the message has what it said.
    """
    import os

    none = file.parent / "without" / "girih"
    none.mkdir(parents=True, exist_ok=True)
    (none / "__init__.py").write_text('raise ImportError("an exported program imports girih")\n')
    around = {**os.environ, "PYTHONPATH": str(none.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    told = subprocess.run(
        [*command, str(file), *options], env=around, cwd=file.parent, capture_output=True, text=True, timeout=seconds
    )
    if told.returncode:
        raise RuntimeError(f"torchrun {file.name} failed:\n{told.stdout[-2000:]}{told.stderr[-4000:]}")
    return told.stdout


def model(name: str) -> tuple[Any, Any, list[Any]]:
    """(module, step, batches) of a model of the catalogue, with numbers."""
    import torch

    from girih.models import example, random_batch

    torch.manual_seed(0)
    made = example(name, device="cpu")
    return made.module, made.step, [random_batch(name, seed=number) for number in range(STEPS)]


def measure(options: argparse.Namespace) -> Report:
    import torch

    import girih

    rows: list[Row] = []
    misses: list[str] = []
    models = options.models or (MODELS[:QUICK] if options.quick else MODELS)
    for name in models:
        module, step, batches = model(name)
        for ranks in options.ranks or ((2,) if options.quick else (2, 4)):
            began, what = clock(), f"{name} on {ranks}"
            own = copy.deepcopy(module)
            training = girih.TrainingStep(own, step=step, optimizer=torch.optim.SGD(own.parameters(), 0.01, 0.9))
            try:
                plan = girih.plan(training, batches[0], machine=f"local:{ranks}", objective="bytes", compare=())
                with tempfile.TemporaryDirectory() as folder:
                    file = Path(folder) / "step.py"
                    plan.export("fx").save(file)
                    torch.save(batches, file.with_name("batches.pt"))
                    arguments = ("--batches", "batches.pt", "--steps", str(STEPS))
                    found = LOSS.findall(launched(file, ranks, *arguments))
                    lines = len(file.read_text().splitlines())
                    told = (
                        ""
                        if not options.compiler
                        else launched(file, ranks, *arguments, "--compiler", options.compiler)
                    )
                with plan.start(backend="threads") as run:
                    workers = [run.step(*batch if isinstance(batch, tuple) else (batch,)) for batch in batches]
            except (girih.PlanError, RuntimeError) as error:
                misses.append(f"{what}: {error}"[-3000:])
                rows.append({"model": name, "ranks": ranks, "refused": str(error).splitlines()[0][:100]})
                note(rows[-1])
                continue
            alone = copy.deepcopy(module)
            expected = trained(alone, step, torch.optim.SGD(alone.parameters(), 0.01, 0.9), batches)
            losses = [float(loss) for loss, _, _ in found]
            received, planned = (max((int(row[at]) for row in found), default=-1) for at in (1, 2))
            row = {
                "model": name, "ranks": ranks, "lines": lines, "received": received, "planned": planned,
                "to PyTorch": far(losses, expected), "to workers": far(losses, workers), "seconds": str(since(began)),
            }  # fmt: skip
            if options.compiler:
                row["compiled"] = far([float(word) for word in re.findall(r"loss (\S+)", told)], expected)
            rows.append(row)
            note(row)
            for key in ("to PyTorch", "compiled"):
                if not row.get(key, 0.0) <= options.floor:
                    misses.append(f"{what}: a loss is {row[key]:.1e} from PyTorch's ({key})")
            if received != planned:
                misses.append(f"{what}: ranks received {received} bytes, the plan says {planned}")
    return Report(
        "Exported as FX graphs, by torchrun over gloo without girih",
        (
            ("model", "model"), ("ranks", "ranks"), ("lines", "lines"), ("bytes received", "received"),
            ("planned", "planned"), ("losses to PyTorch's", "to PyTorch"), ("to the workers'", "to workers"),
            ("compiled", "compiled"), ("CPU / wall seconds", "seconds"), ("refused", "refused"),
        ),
        tuple(rows),
        f"{len(rows)} programs without girih: losses within {options.floor:g} of PyTorch's, bytes equal to the plans'",
        tuple(misses),
    )  # fmt: skip


def far(losses: list[float], others: list[float]) -> float:
    """The largest relative difference; infinite where there are not as many."""
    if len(losses) != len(others):
        return float("inf")
    return max(abs(one - other) / max(abs(other), 1e-30) for one, other in zip(losses, others, strict=True))


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ranks", nargs="*", type=int, metavar="N", help="only on so many (default: 2 and 4; --quick: 2)"
    )
    parser.add_argument("--models", nargs="*", metavar="MODEL", help="only these")
    parser.add_argument("--compiler", help="run the files under torch.compile too, with this backend")


BENCHMARK = Benchmark(
    "export_fx",
    __doc__ or "",
    measure,
    floor=1e-5,
    floor_help="most relative difference of a loss to PyTorch's",
    options=_options,
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
