"""Training on workers computes what training on one device computes: losses and all state after ten steps.

What: for the tiny variant of every family of the catalogue, in float64 and in float32: 10 steps with SGD with momentum
(another batch each step) on 4 worker processes under the plan of least communication, beside one device.
How: the same initial state goes to both. One device is (1) the captured graph, undivided, interpreted operator by
operator, with the same seeds of random operators; (2) for models that draw no random numbers, PyTorch itself: the
module, autograd and torch.optim.SGD. After the last step every parameter, buffer and momentum is fetched whole. The
difference of two tensors is the largest absolute difference over their scale; the scale is the largest element of the
tensor, but at least a thousandth of the largest of its kind (parameters, momenta, …) in the model: where a gradient
is 0 in exact arithmetic, as the bias of attention's keys has it, its momentum is rounding alone and has no scale of its
own. Losses are compared at every step, relative to themselves.
Against: 0 in exact arithmetic; sums are only associated otherwise. Floors: 1e-10 in float64 (`--floor`), 2e-4 in
float32 (2e6 times that). Some models amplify any rounding (normalisation over a batch of 8 images that have shrunk to
one pixel; a rectifier whose argument is 0 but for rounding). Where the workers' difference is above the floor, one
device is therefore run once more, from an initial state in which every element is changed by at most two units of
rounding; "sensitivity" is what that alone does. float64 is held to its floor whatever it says. float32 is held to
reassociation: to its floor, or where one device's own rounding moves the result further, to ten times that movement.
The networks with batch norm train with a small learning rate, so that ten steps do not multiply their sensitivity.
Tofu does not report a comparison of results.
"""

from __future__ import annotations

import argparse
import copy
import sys
from typing import Any

from benchmarks.common import Benchmark, Report, Row, cell, clock, note, seconds_option, since

REASSOCIATION = 10.0  # times one device's own sensitivity, in float32
FLOAT32 = 2e6  # times the floor of float64
QUICK = ("mlp-tiny", "gpt-tiny")
# Batch norm over a few images whose planes have shrunk to one pixel has no well-defined gradient in any precision.
BATCHES = {"wresnet-tiny": 32, "resnet-tiny": 32, "inception-tiny": 32}
LEARNING_RATES = {"wresnet-tiny": 1e-5, "resnet-tiny": 1e-5, "inception-tiny": 1e-5}

State = dict[str, Any]


def differ(got: Any, expected: Any, scale: float) -> float:
    """The largest difference over the scale; infinite where only one of the two is finite."""
    if not expected.numel():
        return 0.0
    left, right = got.double(), expected.double()
    if not bool((left.isfinite() == right.isfinite()).all()):
        return float("inf")
    return float((left - right).nan_to_num().abs().max()) / scale


def worst_difference(got: State, expected: State) -> tuple[float, str]:
    """(relative difference, path) of the tensor that differs most. Integers must be equal."""
    largest: dict[str, float] = {}
    for path, tensor in expected.items():
        kind = path.rpartition("/")[2] if "/" in path else ""
        size = float(tensor.double().abs().max()) if tensor.numel() else 0.0
        largest[kind] = max(largest.get(kind, 0.0), size)
    found = [(0.0, "")]
    for path, tensor in expected.items():
        kind = path.rpartition("/")[2] if "/" in path else ""
        own = float(tensor.double().abs().max()) if tensor.numel() else 0.0
        scale = max(own, largest[kind] * 1e-3, 1e-30)
        found.append((differ(got[path], tensor, scale), path))
    return max(found)


def convert(batch: Any, dtype: Any) -> Any:
    """The batch with its floating tensors in `dtype`."""
    if isinstance(batch, dict):
        return {name: convert(item, dtype) for name, item in batch.items()}
    if isinstance(batch, (tuple, list)):
        return type(batch)(convert(item, dtype) for item in batch)
    return batch.to(dtype) if batch.is_floating_point() else batch


def train_eagerly(module: Any, step: Any, batches: list[Any], lr: float) -> tuple[list[float], State]:
    """Losses and state with PyTorch alone."""
    import torch

    optimizer = torch.optim.SGD(module.parameters(), lr=lr, momentum=0.9)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = step(module, batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for path, parameter in module.named_parameters():
        momentum = optimizer.state.get(parameter, {}).get("momentum_buffer")
        if momentum is not None:
            state[f"{path}/momentum"] = momentum
    return losses, {path: tensor.detach() for path, tensor in state.items()}


def train_undivided(running: Any, state: State, batches: list[Any], lr: float) -> tuple[list[float], State]:
    """Losses and state of the captured graph, interpreted on this device; the workers have begun with `state`."""
    from girih.kernels.evaluate import interpret
    from girih.plans.inputs import flatten_batch
    from girih.run.worker.initial import key_of

    graph = running.plan.graph
    scalars = {item.name: lr for item in graph.inputs if item.role == "scalar"}
    losses = []
    for number, batch in enumerate(batches):
        inputs = running.run.whole_inputs(flatten_batch(batch), scalars, step=number)
        made = interpret(graph, {**{item.name: state[key_of(item)] for item in graph.state_inputs}, **inputs})
        losses += [float(made[output.name]) for output in graph.outputs if output.role == "loss"]
        state = {
            key_of(item): made[graph.updates[item.name]] if item.name in graph.updates else state[key_of(item)]
            for item in graph.state_inputs
        }
    return losses, state


def disturb(state: State) -> State:
    """The state with every floating element times 1 + 4u, u random between -0.5 and 0.5 units of rounding."""
    import torch

    generator = torch.Generator().manual_seed(0)
    disturbed = {}
    for path, tensor in state.items():
        if tensor.is_floating_point():
            noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) - 0.5
            tensor = (tensor.double() * (1 + 4 * torch.finfo(tensor.dtype).eps * noise)).to(tensor.dtype)
        disturbed[path] = tensor
    return disturbed


def worst_loss(got: list[float], expected: list[float]) -> float:
    return max(abs(a - b) / max(abs(b), 1e-30) for a, b in zip(got, expected, strict=True))


def compare(name: str, dtype: Any, workers: int, steps: int, floor: float, options: argparse.Namespace) -> Row:
    """One family in one dtype. The sensitivity is measured where the workers differ by more than the floor."""
    import torch

    import girih
    from girih.models import example, random_batch

    lr, size = LEARNING_RATES.get(name, 0.01), BATCHES.get(name)
    made = example(name, batch=size, device="cpu")
    module = made.module.to(dtype)
    batches = [convert(random_batch(name, batch=size, seed=1 + number), dtype) for number in range(steps)]
    twin = copy.deepcopy(module)
    training = girih.TrainingStep(
        module, step=made.step, optimizer=torch.optim.SGD(module.parameters(), lr=lr, momentum=0.9)
    )
    plan = girih.plan(
        training,
        batches[0],
        machine=f"local:{workers}",
        compare=(),
        search=f"exact:seconds={options.seconds}",
        objective=options.objective,
    )
    with plan.start(backend=options.backend or ("threads" if options.quick else "processes")) as running:
        first = {path: tensor.clone() for path, tensor in running.run.state().items()}
        began = clock()
        losses = [running.step(batch) for batch in batches]
        took = since(began)
        state = running.run.state()
        one_losses, one_state = train_undivided(running, first, batches, lr)
        difference, where = worst_difference(state, one_state)
        sensitivity = None
        if not difference <= floor:
            losses_there, state_there = train_undivided(running, disturb(first), batches, lr)
            sensitivity = max(worst_difference(state_there, one_state)[0], worst_loss(losses_there, one_losses))
    row: Row = {
        "model": name,
        "dtype": str(dtype).removeprefix("torch."),
        "workers": workers,
        "steps": steps,
        "loss": losses[-1],
        "loss difference": worst_loss(losses, one_losses),
        "state difference": difference,
        "worst": where,
        "sensitivity": sensitivity,
        "eager loss": None,
        "eager state": None,
        "eager worst": "draws random numbers",
        "wall per step": round(took.wall / steps, 3),
        "received": int(plan.bytes_received.sum()),
    }
    if not any(item.role == "seed" for item in plan.graph.inputs):
        eager_losses, eager_state = train_eagerly(twin, made.step, batches, lr)
        common = {path: tensor for path, tensor in eager_state.items() if path in state}
        row["eager state"], row["eager worst"] = worst_difference({path: state[path] for path in common}, common)
        row["eager loss"] = worst_loss(losses, eager_losses)
    return row


def measure(options: argparse.Namespace) -> Report:
    import torch

    from girih.models import tiny_names

    workers, steps = (2, 2) if options.quick else (4, 10)
    rows: list[Row] = []
    misses = []
    for name in options.models or (QUICK if options.quick else tiny_names()):
        for dtype in (torch.float64, torch.float32):
            floor = options.floor * (1 if dtype == torch.float64 else FLOAT32)
            row = compare(name, dtype, workers, steps, floor, options)
            rows.append(row)
            note(rows[-1])
            kinds = ("loss difference", "state difference", "eager loss", "eager state")
            allowed = floor if dtype == torch.float64 else max(floor, REASSOCIATION * (row["sensitivity"] or 0.0))
            over = {kind: row[kind] for kind in kinds if row[kind] is not None and not row[kind] <= allowed}
            if over:
                kind = max(over, key=lambda kind: over[kind])
                where = row["eager worst" if kind.startswith("eager") else "worst"] if "state" in kind else "loss"
                own = f", one device's own sensitivity {cell(row['sensitivity'])}"
                misses.append(f"{name} in {row['dtype']}: {kind} {over[kind]:.2g} ({where}), floor {floor:g}{own}")
    columns = (
        ("model", "model"),
        ("dtype", "dtype"),
        ("workers", "workers"),
        ("steps", "steps"),
        ("last loss", "loss"),
        ("losses, one device", "loss difference"),
        ("state", "state difference"),
        ("of", "worst"),
        ("sensitivity", "sensitivity"),
        ("losses, PyTorch", "eager loss"),
        ("state", "eager state"),
        ("of", "eager worst"),
        ("wall s / step", "wall per step"),
    )
    largest = {
        dtype: max((row["state difference"] for row in rows if row["dtype"] == dtype), default=0.0)
        for dtype in ("float64", "float32")
    }
    return Report(
        "Relative differences between the workers and one device (the undivided graph; PyTorch itself)",
        columns,
        tuple(rows),
        f"{len(rows) // 2} models; state differs by at most {largest['float64']:.1e} in float64 (floor "
        f"{options.floor:g}), {largest['float32']:.1e} in float32 (floor {options.floor * FLOAT32:g}, or ten times one "
        f"device's own sensitivity to rounding)",
        tuple(misses),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    seconds_option(parser)
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these (default: FAMILY-tiny of every family)")
    parser.add_argument("--backend", choices=("processes", "threads"), help="default: processes; --quick: threads")
    parser.add_argument("--objective", choices=("bytes", "seconds"), default="bytes")


BENCHMARK = Benchmark(
    "same_training", __doc__ or "", measure, 1e-10, "largest relative difference in float64", add_options
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
