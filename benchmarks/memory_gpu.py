"""Training on a GPU within a cap of memory: how large a batch and a model, and how fast, beside PyTorch's own ways.

What: a wide ResNet-50 (images) and a GPT (words), trained with momentum on one GPU of which a process may take
`--memory` (12 GB). How: for each way the largest batch that trains, by bisection, the largest model at one batch,
wider or deeper, and images or words per second, medians of `--rounds` steps; each trial begins with an empty allocator,
under torch.cuda.set_per_process_memory_fraction, and one that PyTorch refuses memory does not fit. girih's plans are
simulated on the GPU's data sheet with copies to pinned host memory as fast as they are measured here. Against:
activation checkpointing of every block (torch.utils.checkpoint), torch.autograd.graph.save_on_cpu, the partitioner's
memory budget under torch.compile (the largest of several budgets that fits), and FSDP2's CPU offload, as it is and with
checkpointing; eager PyTorch is printed too. Floors: a batch, a model and, at the largest batch of each peer, a speed at
least as large as the peer's. Where there is no GPU nothing is measured, and it says so.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

from benchmarks.common import Benchmark, Report, Row, note
from benchmarks.memory_caps import checkpoint_blocks, training

GB = 10**9
ROOMS = (1.0, 0.97, 0.93, 0.88)
"""Of the cap: what girih plans for, as the allocator loses some to fragments; the first that runs."""
MEMORY = "12GB"
BUDGETS = (0.75, 0.5, 0.25, 0.1, 0.0)
"""Of activations that the partitioner keeps, the fastest first."""
WARM = 2
FINE = 16
"""The largest batch is found to one part in so many."""


@dataclass(frozen=True)
class Case:
    """A model with a size. name: of a size. units: in one sample, and what they are called. blocks: the class of the
    modules that are checkpointed. size: at which the batch grows; batch: at which the size does; most: size."""

    title: str
    name: Callable[[int], str]
    options: dict[str, Any]
    unit: str
    units: int
    blocks: str
    size: int
    batch: int
    most: int


CASES = (
    Case("wide ResNet-50", lambda size: f"wresnet-50-{size}", {}, "images", 1, "Bottleneck", 1, 16, 64),
    Case("GPT", lambda size: f"gpt-{size}-1024", {"sequence": 1024}, "words", 1024, "DecoderBlock", 12, 4, 512),
)


QUICK = Case(
    "GPT", lambda size: f"gpt-{size}-256", {"sequence": 128, "vocabulary": 1024}, "words", 128, "DecoderBlock", 2, 8, 8
)
QUICK_MEMORY = "250MB"
QUICK_PEERS = ("checkpointing", "save_on_cpu")


@dataclass
class Ready:
    """A training step that can be made, with its loss. close: gives everything back."""

    step: Callable[[], float]
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Outcome:
    """What a trial measured: seconds of a step, and the most bytes that were allocated."""

    seconds: float
    peak: int


class Place(Protocol):
    """Where is trained, and what may be taken there."""

    kind: str
    limit: int

    def machine(self) -> Any: ...

    def tried(self, build: Callable[[], Ready], rounds: int) -> Outcome | None:
        """Build, make steps, give back; None where it does not fit."""
        ...


@dataclass(frozen=True)
class Gpu:
    """The first GPU, of which a process takes at most `limit` bytes."""

    limit: int
    kind: str = "cuda"

    def machine(self) -> Any:
        return _machine(self.limit)

    def tried(self, build: Callable[[], Ready], rounds: int) -> Outcome | None:
        import torch

        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, self.limit / total))
        self._empty()
        ready = None
        try:
            ready = build()
            for _ in range(WARM):
                ready.step()
            seconds = []
            for _ in range(rounds):
                torch.cuda.synchronize()
                began = time.perf_counter()
                ready.step()
                torch.cuda.synchronize()
                seconds.append(time.perf_counter() - began)
            return Outcome(statistics.median(seconds), int(torch.cuda.max_memory_allocated()))
        except torch.OutOfMemoryError:
            return None
        finally:
            if ready is not None:
                ready.close()
            del ready
            self._empty()

    @staticmethod
    def _empty() -> None:
        import torch

        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


@cache
def _machine(limit: int) -> Any:
    """This GPU by its data sheet, or as an H100, with what copies to pinned memory and back are measured to take."""
    import torch

    from girih.machine import machine
    from girih.machine.machine import Tier
    from girih.machine.presets import DEVICES

    here = torch.cuda.get_device_name()
    device = next((item for name, item in DEVICES.items() if name in here), DEVICES["H100"])
    far = torch.empty(min(256 << 20, limit // 8), dtype=torch.uint8, pin_memory=True)
    near = torch.empty_like(far, device="cuda")
    rates = []
    for source, target in ((near, far), (far, near)):
        seconds = []
        for _ in range(5):
            torch.cuda.synchronize()
            began = time.perf_counter()
            target.copy_(source, non_blocking=True)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
        rates.append(far.nbytes / statistics.median(seconds))
    room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 8 // 10
    host = Tier("pinned host memory", room, *rates)
    return replace(machine("p3.2xlarge"), name=here, device=replace(device, memory_bytes=limit), host=host)


# ------------------------------------------------------------------------------------------------- ways to train

Way = Callable[[Case, int, int, Place], Iterable[Callable[[], Ready]]]
"""Ways to train a case of a size with a batch somewhere: the fastest first, of which the first that fits counts."""


def girih(case: Case, size: int, batch: int, place: Place) -> Iterable[Callable[[], Ready]]:
    """Plans for the cap and for a little less."""

    def planned(room: float) -> Ready:
        import torch

        from girih.api import plan
        from girih.plans.plan import PlanError
        from girih.run.errors import WorkerError
        from girih.run.training.session import start
        from girih.run.training.training import TrainingRun

        step, inputs = training(case.name(size), batch, case.options)
        try:
            own = plan(
                step, inputs, machine=place.machine(), memory=int(place.limit * room), compare=(), objective="bytes"
            )
        except PlanError as error:
            raise torch.OutOfMemoryError(str(error)) from error
        state = {path: tensor.detach() for path, tensor in (own.origin.state() if own.origin.state else {}).items()}
        begun = refused_as_memory(
            WorkerError, start, own.program, own.origin.initial, backend="threads", state=state, device=place.kind
        )
        run = TrainingRun(own, begun)
        return Ready(lambda: float(refused_as_memory(WorkerError, run.step, inputs)), run.close)

    return [lambda room=room: planned(room) for room in ROOMS]


def refused_as_memory(failure: type[Exception], work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The work's result; a failure of a worker that was refused memory is PyTorch's own error."""
    import torch

    try:
        return work(*arguments, **options)
    except failure as error:
        if "out of memory" in str(error).lower():
            raise torch.OutOfMemoryError(str(error)) from error
        raise


def _loop(optimizer: Any, loss: Callable[[], Any]) -> Ready:
    """The eager training step."""

    def once() -> float:
        optimizer.zero_grad(set_to_none=True)
        now = loss()
        now.backward()
        optimizer.step()
        return float(now.detach())

    return Ready(once)


def _there(case: Case, size: int, batch: int, place: Place) -> tuple[Any, Any]:
    """(step, batch), the model and the batch on the device."""
    step, inputs = training(case.name(size), batch, case.options)
    step.model.to(place.kind)  # in place: the optimizer has the same parameters
    return step, _moved(inputs, place)


def _moved(inputs: Any, place: Place) -> Any:
    import torch
    from torch.utils._pytree import tree_map

    return tree_map(lambda item: item.to(place.kind) if isinstance(item, torch.Tensor) else item, inputs)


def eager(case: Case, size: int, batch: int, place: Place) -> Iterable[Callable[[], Ready]]:
    def build() -> Ready:
        step, inputs = _there(case, size, batch, place)
        return _loop(step.optimizer, lambda: step.step(step.model, inputs))

    return [build]


def checkpointing(case: Case, size: int, batch: int, place: Place) -> Iterable[Callable[[], Ready]]:
    def build() -> Ready:
        step, inputs = _there(case, size, batch, place)
        checkpoint_blocks(step.model, case.blocks)
        return _loop(step.optimizer, lambda: step.step(step.model, inputs))

    return [build]


def save_on_cpu(case: Case, size: int, batch: int, place: Place) -> Iterable[Callable[[], Ready]]:
    def build() -> Ready:
        from torch.autograd.graph import save_on_cpu as saving

        step, inputs = _there(case, size, batch, place)

        def loss() -> Any:
            with saving(pin_memory=place.kind == "cuda"):
                return step.step(step.model, inputs)

        return _loop(step.optimizer, loss)

    return [build]


def memory_budget(backend: str = "inductor") -> Way:
    """Under torch.compile with this back end."""

    def ways(case: Case, size: int, batch: int, place: Place) -> Iterable[Callable[[], Ready]]:
        def build(budget: float) -> Ready:
            import torch
            import torch._functorch.config as functorch

            step, inputs = _there(case, size, batch, place)
            fast = torch.compile(step.step, backend=backend)

            def loss() -> Any:
                with functorch.patch(activation_memory_budget=budget):  # is read when the first call is compiled
                    return fast(step.model, inputs)

            return _loop(step.optimizer, loss)

        return [lambda budget=budget: build(budget) for budget in BUDGETS]

    return ways


def fsdp_offload(checkpoints: bool) -> Way:
    def ways(case: Case, size: int, batch: int, place: Place) -> Iterable[Callable[[], Ready]]:
        def build() -> Ready:
            import torch
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

            _one_rank(place.kind)
            step, inputs = training(case.name(size), batch, case.options)
            rule = step.optimizer.defaults
            mesh = init_device_mesh(place.kind, (1,))
            policy = CPUOffloadPolicy(pin_memory=place.kind == "cuda")
            if checkpoints:
                checkpoint_blocks(step.model, case.blocks)
            for module in step.model.modules():
                if type(module).__name__ == case.blocks:
                    fully_shard(module, mesh=mesh, offload_policy=policy)
            fully_shard(step.model, mesh=mesh, offload_policy=policy)
            for module in step.model.modules():  # what is no parameter is not FSDP's to move
                for name, buffer in list(module.named_buffers(recurse=False)):
                    setattr(module, name, buffer.to(place.kind))
            # The step's own optimizer has parameters that are not the model's any more.
            optimizer = torch.optim.SGD(step.model.parameters(), lr=rule["lr"], momentum=rule["momentum"])
            there = _moved(inputs, place)
            return _loop(optimizer, lambda: step.step(step.model, there))

        return [build]

    return ways


def _one_rank(kind: str) -> None:
    import torch.distributed as distributed

    if not distributed.is_initialized():
        backend = "nccl" if kind == "cuda" else "gloo"
        distributed.init_process_group(backend, store=distributed.HashStore(), rank=0, world_size=1)


PEERS: dict[str, Way] = {
    "checkpointing": checkpointing,
    "save_on_cpu": save_on_cpu,
    "memory budget": memory_budget(),
    "FSDP2 offload": fsdp_offload(False),
    "FSDP2 offload, checkpointing": fsdp_offload(True),
}
SHOWN: dict[str, Way] = {"eager": eager}
"""Beside them, without a floor."""


# ------------------------------------------------------------------------------------------------- what fits


def largest(fits: Callable[[int], bool], first: int, most: int, fine: int = FINE) -> int:
    """The largest number up to `most` that fits, to one part in `fine`; 0 where not even 1 does. What is larger than
    what does not fit, does not either."""
    low, high = 0, most + 1
    number = min(first, most)
    while low < most and high - low > max(1, low // fine):
        if fits(number):
            low = number
        else:
            high = number
        number = min(2 * low, most) if high > most else (low + high) // 2
    return low


class Trials:
    """Trials of one case somewhere, each made once."""

    def __init__(self, case: Case, place: Place, rounds: int) -> None:
        self.case, self.place, self.rounds = case, place, rounds
        self._known: dict[tuple[Way, int, int], Outcome | None] = {}

    def tried(self, way: Way, size: int, batch: int) -> Outcome | None:
        key = way, size, batch
        if key not in self._known:
            builds = way(self.case, size, batch, self.place)
            outcomes = (self.place.tried(build, self.rounds) for build in builds)
            self._known[key] = next((outcome for outcome in outcomes if outcome is not None), None)
        return self._known[key]

    def batch(self, way: Way) -> int:
        case = self.case
        return largest(lambda batch: self.tried(way, case.size, batch) is not None, case.batch, 1 << 16)

    def size(self, way: Way) -> int:
        case = self.case
        return largest(lambda size: self.tried(way, size, case.batch) is not None, case.size, case.most)

    def speed(self, way: Way, batch: int) -> float | None:
        """Units per second; None where it does not fit."""
        outcome = self.tried(way, self.case.size, batch) if batch else None
        return None if outcome is None else batch * self.case.units / outcome.seconds


def compared(trials: Trials, ours: Way, peers: dict[str, Way], shown: dict[str, Way]) -> list[Row]:
    """A row for each way: its own figures, and ours over them."""
    unit = trials.case.unit
    own_batch, own_size = trials.batch(ours), trials.size(ours)
    rows: list[Row] = []
    for name, way in {"girih": ours, **peers, **shown}.items():
        batch, size = trials.batch(way), trials.size(way)
        theirs, beside = trials.speed(way, batch), trials.speed(ours, batch)
        outcome = trials.tried(way, trials.case.size, batch) if batch else None
        rows.append(
            {
                "model": trials.case.title,
                "way": name,
                "largest batch": batch,
                "largest model": trials.case.name(size) if size else "none",
                "per second": None if theirs is None else round(theirs, 1),
                "of": unit,
                "peak GB": None if outcome is None else round(outcome.peak / GB, 3),
                "batch / theirs": round(own_batch / batch, 3) if batch else None,
                "model / theirs": round(own_size / size, 3) if size else None,
                "speed / theirs": round(beside / theirs, 3) if beside and theirs else None,
            }
        )
        note(rows[-1])
    return rows


def missed(rows: Iterable[Row], peers: Iterable[str], floor: float) -> list[str]:
    """Where we are behind a peer; one that trains nothing is behind us, and we behind one that we do not reach."""
    misses = []
    for row in rows:
        if row["way"] not in peers:
            continue
        trains = row["largest batch"] > 0, row["largest model"] != "none", row["largest batch"] > 0
        for ratio, theirs in zip(("batch", "model", "speed"), trains, strict=True):
            value = row[f"{ratio} / theirs"]
            if theirs and (value is None or value < floor):
                misses.append(f"{row['model']}: {ratio} {value} × that of {row['way']}, floor {floor:g}")
    return misses


def measure(options: argparse.Namespace) -> Report:
    import torch

    if not torch.cuda.is_available():
        return Report(
            "Training within a cap on a GPU",
            (("measured", "measured"),),
            ({"measured": "nothing: PyTorch sees no GPU here"},),
            "there is no GPU here, so nothing was measured",
        )
    from girih.machine.units import parse_bytes

    memory = options.memory or (QUICK_MEMORY if options.quick else MEMORY)
    place = Gpu(parse_bytes(memory))
    peers = {name: PEERS[name] for name in QUICK_PEERS} if options.quick else PEERS
    rows: list[Row] = []
    for case in (QUICK,) if options.quick else CASES:
        rows += compared(Trials(case, place, options.rounds), girih, peers, SHOWN)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    torch.cuda.set_per_process_memory_fraction(1.0)  # what is measured next in this process has no cap
    return report_of(rows, f"{torch.cuda.get_device_name()}, {memory}", options.floor)


def report_of(rows: list[Row], where: str, floor: float) -> Report:
    misses = missed(rows, PEERS, floor)
    least = {
        ratio: min((row[f"{ratio} / theirs"] or 0.0 for row in rows if row["way"] in PEERS), default=0.0)
        for ratio in ("batch", "model", "speed")
    }
    return Report(
        f"Training within a cap, {where}",
        tuple((key, key) for key in rows[0]),
        tuple(rows),
        "at least " + ", ".join(f"{value:.2f} × the {ratio}" for ratio, value in least.items()) + " of every peer",
        tuple(misses),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--memory", help=f"that a process may take of the GPU (default {MEMORY}; --quick: {QUICK_MEMORY})"
    )
    parser.add_argument("--rounds", type=int, default=5, help="steps that are timed (default 5)")


BENCHMARK = Benchmark(
    "memory_gpu", __doc__ or "", measure, 1.0, "least batch, model and speed over a peer's", add_options
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
