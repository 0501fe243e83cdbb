"""A limit of memory is true of the process: what training under it takes, beside plain PyTorch and checkpointing.

What: one step after the other of 12 models (of many weights, of large activations, transformers, recurrent networks,
mixtures of experts), each in a process of its own: by plain PyTorch, by torch.utils.checkpoint around each layer, and
by `girih.fit` with `memory=` at 75, 50 and 35 % of what plain PyTorch takes beyond the program.
How: the most private memory of the process (RssAnon, asked of Linux every two milliseconds from outside) beyond what it
has with PyTorch, girih and a first small step loaded; while it plans, while it trains, and when the model is given
back. Under girih the system has a limit, too (RLIMIT_DATA): beyond the program it gives no more than the model and the
batch, 1.15 × the limit, and `SYSTEM` bytes, which are address space that libraries ask for and hardly touch.
Losses are compared with plain PyTorch's. Plans are made twice: kernels that Numba compiles once on a machine are not
counted. Floors: no process takes more than the model, the batch, 1.15 × its limit and `CONSTANT` bytes; none more than
plain PyTorch takes, while it trains (but with `--quick`: what the planner is made of takes more than these models); and
at 75 % each model has a plan.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import Benchmark, Report, Row, note

SHARES = 0.75, 0.5, 0.35
STEPS = 3
CONSTANT = 150_000_000
SYSTEM = 500_000_000
MB = 1_000_000


@dataclass(frozen=True)
class Case:
    """make: the layers of a model, called one after the other, and a batch's input and target. loss, optimizer: by
    their names in torch."""

    kind: str
    make: Callable[[], tuple[list[Any], Any, Any]]
    loss: str = "mse_loss"
    optimizer: str = "AdamW"


def mlp(width: int, depth: int, rows: int) -> Callable[[], tuple[list[Any], Any, Any]]:
    def make() -> tuple[list[Any], Any, Any]:
        import torch

        layers = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU()) for _ in range(depth)]
        return layers, torch.randn(rows, width), torch.randn(rows, width)

    return make


def convolutions(width: int, depth: int, images: int, size: int) -> Callable[[], tuple[list[Any], Any, Any]]:
    def make() -> tuple[list[Any], Any, Any]:
        import torch

        def layer(channels: int) -> Any:
            parts = torch.nn.Conv2d(channels, width, 3, padding=1), torch.nn.GroupNorm(8, width), torch.nn.ReLU()
            return torch.nn.Sequential(*parts)

        layers = [layer(3), *(layer(width) for _ in range(depth - 1))]
        head = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(width, 10))
        return [*layers, head], torch.randn(images, 3, size, size), torch.randint(10, (images,))

    return make


class Block:
    """A layer of a transformer; made where torch is loaded."""

    def __new__(cls, width: int, causal: bool, experts: int = 0) -> Any:
        import torch
        from torch.nn import functional

        class Experts(torch.nn.Module):
            """Each token by the two experts that a gate gives most weight; all compute all tokens."""

            def __init__(self) -> None:
                super().__init__()
                self.gate = torch.nn.Linear(width, experts)
                self.up = torch.nn.Parameter(torch.randn(experts, width, 2 * width) * width**-0.5)
                self.down = torch.nn.Parameter(torch.randn(experts, 2 * width, width) * width**-0.5)

            def forward(self, x: Any) -> Any:
                scores = self.gate(x).softmax(-1)
                least = scores.topk(2, dim=-1).values[..., -1:]
                gates = torch.where(scores >= least, scores, torch.zeros_like(scores))
                flat = x.reshape(-1, width)
                hidden = functional.gelu(torch.einsum("tw,ewh->eth", flat, self.up))
                return torch.einsum("eth,ehw,te->tw", hidden, self.down, gates.reshape(-1, experts)).view_as(x)

        class Layer(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
                self.project, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
                parts = torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
                self.feed = Experts() if experts else torch.nn.Sequential(*parts)

            def forward(self, x: Any) -> Any:
                rows, length, _ = x.shape
                parts = self.project(self.first(x)).view(rows, length, 3, width // 64, 64).unbind(2)
                query, key, value = (part.transpose(1, 2) for part in parts)
                seen = functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
                x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
                return x + self.feed(self.second(x))

        return Layer()


def transformer(
    width: int, depth: int, rows: int, length: int, *, words: int = 4096, causal: bool = True, experts: int = 0
) -> Callable[[], tuple[list[Any], Any, Any]]:
    def make() -> tuple[list[Any], Any, Any]:
        import torch

        layers = [Block(width, causal, experts) for _ in range(depth)]
        head = torch.nn.Sequential(torch.nn.LayerNorm(width), torch.nn.Linear(width, words), torch.nn.Flatten(0, 1))
        batch = torch.randint(words, (rows, length))
        return [torch.nn.Embedding(words, width), *layers, head], batch, torch.randint(words, (rows * length,))

    return make


def recurrent(width: int, rows: int, length: int, kind: str) -> Callable[[], tuple[list[Any], Any, Any]]:
    def make() -> tuple[list[Any], Any, Any]:
        import torch

        class Layer(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.cell = getattr(torch.nn, kind)(width, width)

            def forward(self, x: Any) -> Any:
                state, made = None, []
                for item in x.unbind(1):
                    state = self.cell(item, state)
                    made.append(state[0] if isinstance(state, tuple) else state)
                return torch.stack(made, 1)

        return [Layer(), Layer()], torch.randn(rows, length, width), torch.randn(rows, length, width)

    return make


CASES: dict[str, Case] = {
    "mlp-weights": Case("weights", mlp(2048, 6, 64)),
    "mlp-wide": Case("weights", mlp(4096, 2, 64)),
    "embedding": Case("weights", transformer(256, 1, 4, 64, words=32768), "cross_entropy"),
    "mlp-activations": Case("activations", mlp(256, 16, 16384), optimizer="SGD"),
    "convolutions": Case("activations", convolutions(64, 10, 16, 64), "cross_entropy", "SGD"),
    "convolutions-large": Case("activations", convolutions(32, 6, 4, 192), "cross_entropy", "SGD"),
    "decoder": Case("transformer", transformer(512, 6, 4, 256), "cross_entropy"),
    "encoder": Case("transformer", transformer(384, 6, 16, 128, causal=False), "cross_entropy"),
    "lstm": Case("recurrent", recurrent(1024, 128, 16, "LSTMCell")),
    "gru": Case("recurrent", recurrent(1024, 128, 16, "GRUCell")),
    "experts": Case("experts", transformer(256, 3, 8, 128, experts=8), "cross_entropy"),
    "experts-wide": Case("experts", transformer(512, 2, 2, 128, experts=8), "cross_entropy"),
}
QUICK: dict[str, Case] = {
    "mlp-weights": Case("weights", mlp(1024, 6, 16)),
    "mlp-activations": Case("activations", mlp(256, 12, 4096), optimizer="SGD"),
}


# ------------------------------------------------------------------------------------- in a process of its own


def say(phase: str, **figures: Any) -> None:
    print(json.dumps({"phase": phase, **figures}), flush=True)
    sys.stdin.readline()  # until it has been looked at


def train_alone(case: Case, way: str, cap: int) -> None:
    """Train in this process, and tell of each phase."""
    import torch

    import girih

    torch.manual_seed(0)
    layers, x, y = case.make()
    loss = getattr(torch.nn.functional, case.loss)
    small = torch.nn.Linear(64, 64)
    torch.nn.functional.mse_loss(small(torch.randn(8, 64)), torch.randn(8, 64)).backward()
    model = torch.nn.Sequential(*layers)
    options = {"lr": 0.01, "momentum": 0.9} if case.optimizer == "SGD" else {"lr": 1e-3}
    optimizer = getattr(torch.optim, case.optimizer)(model.parameters(), **options)
    held = sum(tensor.nbytes for tensor in (*model.parameters(), x, y))
    say("loaded", held=held)
    losses = []
    if way != "girih":
        from torch.utils.checkpoint import checkpoint_sequential

        for _ in range(STEPS):
            optimizer.zero_grad()
            made = model(x) if way == "plain" else checkpoint_sequential(model, len(layers), x, use_reentrant=False)
            value = loss(made, y)
            del made
            value.backward()
            optimizer.step()
            losses.append(float(value))
        say("trained", losses=losses)
        return
    limited(held + int(1.15 * cap) + SYSTEM)
    try:
        train = girih.fit(model, loss, optimizer, (x, y), memory=cap, compare=())
    except girih.PlanError as error:
        say("refused", why=str(error).partition(":")[0])
        return
    say("planned", peak=train.plan.peak, without=train.plan.no_arena)
    losses += [train(x, y) for _ in range(STEPS)]
    say("trained", losses=losses)
    train.close()
    say("closed")


def limited(more: int) -> None:
    """Have the system give this process so many bytes of private memory more than the program has, and no further."""
    import resource

    lines = Path("/proc/self/status").read_text().splitlines()
    has = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (has + more, has + more))


# -------------------------------------------------------------------------------------------------- from outside


def private_bytes(pid: int) -> int:
    """Private memory of a process, without a file behind it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")), 0)


def phases(name: str, quick: bool, way: str, cap: int = 0) -> dict[str, dict[str, Any]]:
    """What a process tells of its phases, with the most private memory that it had in each."""
    command = [sys.executable, "-m", "benchmarks.process_memory", "--alone", name, "--way", way, "--cap", str(cap)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [*command, *(["--quick"] if quick else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        most, over = [0], threading.Event()

        def watch() -> None:
            while not over.wait(0.002):
                most[0] = max(most[0], private_bytes(process.pid))

        watching = threading.Thread(target=watch)
        watching.start()
        found = {}
        for line in process.stdout:
            told = json.loads(line)
            now = private_bytes(process.pid)
            found[told.pop("phase")] = {**told, "most": max(most[0], now), "now": now}
            most[0] = 0
            process.stdin.write("\n")
            process.stdin.flush()
        over.set()
        watching.join()
        if process.wait():
            errors.seek(0)
            found["died"] = {"why": (errors.read().strip().splitlines() or [f"exit code {process.returncode}"])[-1]}
    return found


def measure(options: argparse.Namespace) -> Report:
    cases = QUICK if options.quick else CASES
    names = options.models or list(cases)
    rows: list[Row] = []
    misses: list[str] = []
    for name in names:
        plain = phases(name, options.quick, "plain")
        again = phases(name, options.quick, "checkpoint")
        held, loaded = plain["loaded"]["held"], plain["loaded"]["now"]
        program = loaded - held
        needed = plain["trained"]["most"] - program
        base: Row = {"model": name, "plain MB": mega(needed), "checkpoint MB": mega(again["trained"]["most"] - program)}
        if not options.quick:
            phases(name, options.quick, "girih", int(SHARES[0] * needed))
        for share in SHARES[1:2] if options.quick else SHARES:
            cap = int(share * needed)
            row = {**base, "limit MB": mega(cap), "share": f"{share:.0%}"}
            promised = held + int(options.floor * cap) + CONSTANT
            missed = row_of(row, phases(name, options.quick, "girih", cap), plain, promised)
            if not options.quick and row["what"] == "trained" and row["train MB"] > row["plain MB"]:
                missed.append(f"{row['train MB']} MB, and plain PyTorch takes {row['plain MB']}")
            misses += [f"{name} at {share:.0%}: {words}" for words in missed]
            if "refused" in row["what"] and share == SHARES[0]:
                misses.append(f"{name} has no plan at {share:.0%}")
            rows.append(row)
            note(row)
    ran = [row for row in rows if row["what"] == "trained"]
    summary = f"{len(ran)} of {len(rows)} runs of {len(names)} models take what was promised, others are refused"
    if not ran:
        misses.append("none was trained")
    columns = tuple((key, key) for key in rows[0])
    notes = (f"promised: model and batch, {options.floor:g} × the limit, {CONSTANT // MB} MB",)
    return Report("Private memory of a process beyond the program", columns, tuple(rows), summary, tuple(misses), notes)


def row_of(row: Row, found: dict[str, Any], plain: dict[str, Any], promised: int) -> list[str]:
    """Fill a row with what girih took; what missed the floors."""
    row.update({"plan MB": "", "train MB": "", "end MB": "", "promised MB": mega(promised)})
    if "died" in found or "refused" in found:
        row["what"] = found["died"]["why"][:60] if "died" in found else f"refused: {found['refused']['why']}"[:60]
        return [f"it died: {found['died']['why']}"] if "died" in found else []
    program = found["loaded"]["now"] - found["loaded"]["held"]
    most = {phase: found[phase]["most"] - program for phase in ("planned", "trained", "closed")}
    row.update({"plan MB": mega(most["planned"]), "train MB": mega(most["trained"]), "end MB": mega(most["closed"])})
    missed = []
    if max(most.values()) > promised:
        missed.append(f"{mega(max(most.values()))} MB, where {mega(promised)} were promised")
    pairs = zip(found["trained"]["losses"], plain["trained"]["losses"], strict=True)
    if any(abs(ours - theirs) > 1e-4 * abs(theirs) for ours, theirs in pairs):
        missed.append(f"losses {found['trained']['losses']} for {plain['trained']['losses']}")
    row["what"] = "trained"
    return missed


def mega(size: float) -> int:
    return round(size / MB)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", help=f"of {', '.join(CASES)}")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--way", default="plain", help=argparse.SUPPRESS)
    parser.add_argument("--cap", type=int, default=0, help=argparse.SUPPRESS)


BENCHMARK = Benchmark(
    "process_memory", __doc__ or "", measure, 1.15, "× the limit, beside model, batch and constant", options=add_options
)


if __name__ == "__main__":
    if "--alone" in sys.argv:
        alone = argparse.ArgumentParser()
        for option, kind in (("--alone", str), ("--way", str), ("--cap", int)):
            alone.add_argument(option, type=kind)
        alone.add_argument("--quick", action="store_true")
        own = alone.parse_args()
        train_alone((QUICK if own.quick else CASES)[own.alone], own.way, own.cap)
        sys.exit(0)
    sys.exit(BENCHMARK.main())
