"""`girih gnn …`: each action is a function from parsed options to an exit code."""

from __future__ import annotations

import argparse
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from girih.api import Plan
from girih.api import plan as make_plan
from girih.cli.terminal import BadInputError, TerminalProgress, check_output, clear_errors
from girih.gnn.data.data import SPLITS, Data
from girih.gnn.data.reading import load
from girih.gnn.data.stored import save
from girih.machine.units import format_count, format_seconds
from girih.store import places

KIND = "girih graph network 1"
LARGEST_MODEL = 1 << 34
OTHERS_ACTIONS = {
    "train": ("pieces", "cost", "order"),
    "infer": ("pieces", "cost", "order", "epochs", "resume", "save"),
    "info": ("pieces", "cost", "order", "epochs", "resume", "save", "weights"),
    "partition": ("epochs", "resume", "save", "weights"),
}
"""Options that an action does not take."""


def gnn(options: argparse.Namespace) -> int:
    for name in OTHERS_ACTIONS[options.action]:
        if getattr(options, name, None) is not None:
            raise BadInputError(f"girih gnn {options.action} takes no --{name}; see girih gnn --help")
    check_output(options.output)
    if options.action == "infer" and options.weights is None:
        raise BadInputError("girih gnn infer needs --weights FILE, as girih gnn train -o FILE writes it")
    if options.save is not None:
        from girih.run.training.saving import check_goal

        check_output(options.save, folder=True)
        with clear_errors():
            check_goal(Path(options.save))
    actions: dict[str, Callable[[argparse.Namespace, Data, Any], int]] = {
        "info": info, "train": train, "infer": infer, "partition": partition,
    }  # fmt: skip
    with clear_errors(), TerminalProgress() as progress:
        progress("read the graph", 0.0)
        data = load(
            options.data, x=options.features, labels=options.labels, vertices=options.vertices,
            undirected=options.undirected, self_loops=options.self_loops, duplicates=options.duplicates,
            memory=options.memory if options.memory not in (None, "unlimited") else "2GB",
        )  # fmt: skip
        return actions[options.action](options, data, progress)


def info(options: argparse.Namespace, data: Data, progress: TerminalProgress) -> int:
    """Prints what a graph has, and writes it as one file where asked."""
    progress("components", 0.5)
    degrees = data.graph.degrees
    numbers: dict[str, Any] = {
        "vertices": data.vertices, "edges": data.edges, "directed": data.directed, "components": data.components,
        "degree": {"least": int(degrees.min()), "mean": float(degrees.mean()), "most": int(degrees.max())},
        "isolated": int((degrees == 0).sum()), "self_loops": int((data.graph.neighbours == data.graph.readers).sum()),
        "weights": data.graph.weights is not None, "features": data.features, "classes": data.classes,
        "splits": {split: int(getattr(data, split).sum()) for split in SPLITS if getattr(data, split) is not None},
        "notes": list(data.notes),
    }  # fmt: skip
    if options.output:
        progress("write", 0.9)
        save(data, options.output)
    if options.json:
        print(json.dumps(numbers))
        return 0
    ways = "an edge without its reverse is there" if data.directed else "each edge has its reverse"
    print(f"{data.name}: {format_count(data.vertices)} vertices, {format_count(data.edges)} edges ({ways})")
    print(
        f"neighbours of a vertex: {degrees.min()} to {degrees.max()}, {degrees.mean():.1f} on average; "
        f"{numbers['isolated']} have none, {numbers['self_loops']} read themselves"
    )
    print(f"components: {data.components}")
    print(f"features: {data.features or 'none'}; weights of edges: {'yes' if numbers['weights'] else 'none'}")
    if data.labels is not None:
        counts = data.labels.sum(0) if data.labels.ndim == 2 else np.bincount(data.labels[data.labels >= 0])
        shown = ", ".join(f"{int(count)}" for count in counts[:12]) + (", …" if len(counts) > 12 else "")
        print(f"classes: {data.classes}, of {shown} vertices")
    if numbers["splits"]:
        print("split: " + ", ".join(f"{count} for {split}" for split, count in numbers["splits"].items()))
    for note in data.notes:
        print(f"mended: {note}")
    if options.output:
        print(f"written to {options.output}")
    return 0


def train(options: argparse.Namespace, data: Data, progress: TerminalProgress) -> int:
    """Trains a network, prints losses and accuracies, and writes the network."""
    import torch

    from girih.capture.torch.training import TrainingStep
    from girih.gnn.training import accuracy, loss, predict

    for name, own in (("features", data.x), ("labels", data.labels)):
        if own is None:
            raise BadInputError(f"{data.name} has no {name} to learn: give --{name} FILE")
    epochs = options.epochs or 200
    torch.manual_seed(options.seed)
    sizes = _sizes(options, data)
    network = _network(options.network, sizes) if options.weights is None else _read(options.weights, data)[0]
    optimizer = torch.optim.Adam(network.parameters(), lr=options.lr, weight_decay=options.weight_decay)
    step = TrainingStep(network, loss=loss, optimizer=optimizer)
    plan = _plan(step, data, options, progress)
    every = options.every or max(1, epochs // 10)
    rows: list[dict[str, Any]] = []
    with plan.start(backend=_backend(options, plan), resume=options.resume, seed=options.seed) as run:
        _say_plan(plan, options)
        begun = run.steps
        for epoch in range(1, epochs + 1):
            own = run.step()
            if epoch % every and epoch < epochs:
                progress(f"epoch {begun + epoch} of {begun + epochs}, loss {own:.4f}", epoch / epochs)
                continue
            network.load_state_dict(run.state_dict())
            shares = accuracy(predict(network, data), data)
            rows.append({"epoch": begun + epoch, "loss": own, **shares})
            if not options.json:
                scores = "".join(f"  {split} {share:.1%}" for split, share in shares.items())
                print(f"epoch {begun + epoch:>4}  loss {own:.4f}{scores}", flush=True)
        if hasattr(run, "partition") and not options.json:  # of several workers, each with its piece of the graph
            print(run.partition(), flush=True)
        if options.save:
            run.save(options.save)
    if options.output:
        _write(options.output, options.network, sizes, network)
    if options.json:
        print(json.dumps({"network": options.network, "parameters": _parameters(network), "epochs": rows}))
    elif options.output:
        print(f"network written to {options.output}")
    return 0


def infer(options: argparse.Namespace, data: Data, progress: TerminalProgress) -> int:
    """Prints how often a network is right, and writes its outputs or classes."""
    import torch

    from girih.capture.torch.training import Inference
    from girih.gnn.training import accuracy

    if options.output and Path(options.output).suffix not in (".npy", ".csv"):
        raise BadInputError(f"-o {options.output}: expected .npy, for the outputs, or .csv, for a class of each vertex")
    network, _ = _read(options.weights, data)
    plan = _plan(Inference(network.eval()), data, options, progress)
    progress("infer", 0.5)
    with plan.start(backend=_backend(options, plan)) as run:
        _say_plan(plan, options)
        output = torch.as_tensor(run.step()[0])
    shares = accuracy(output, data) if data.labels is not None else {}
    if options.output:
        _write_outputs(Path(options.output), output.numpy(), data)
    if options.json:
        print(json.dumps({"vertices": len(output), "accuracy": shares}))
        return 0
    counts = np.bincount(output.numpy().argmax(1), minlength=output.shape[1])
    print(f"{len(output)} vertices; classes given: {', '.join(map(str, counts.tolist()))}")
    if shares:
        print("right: " + ", ".join(f"{split} {share:.1%}" for split, share in shares.items()))
    if options.output:
        print(f"written to {options.output}")
    return 0


def partition(options: argparse.Namespace, data: Data, progress: TerminalProgress) -> int:
    """Prints a cut of the graph into pieces of equal cost."""
    from girih.gnn.partitioner.cost import CostModel
    from girih.gnn.partitioner.partition import partition as cut

    cost: Any = options.cost or "edges"
    progress("cut", 0.5)
    try:
        if cost not in ("edges", "vertices"):
            cost = CostModel.load(cost)
        found = cut(data.graph, options.pieces or 2, cost, (options.order or "given").split(","))
    except (ValueError, ImportError) as error:  # an order that there is not, or whose library is not installed
        raise BadInputError(str(error)) from error
    if options.output:
        order = np.argsort(np.concatenate([found.members(piece) for piece in range(found.pieces)]), kind="stable")
        owner = np.repeat(np.arange(found.pieces), found.vertices)[order]
        with places.replacing(options.output) as (write, _):
            buffer = io.BytesIO()
            np.save(buffer, owner.astype(np.int32))
            write(buffer.getvalue())
    if options.json:
        print(json.dumps({"pieces": found.pieces, "vertices": list(found.vertices), "imbalance": found.imbalance,
                          "cost": found.certificate.cost, "bound": found.certificate.bound}))  # fmt: skip
        return 0
    print(found)
    if options.output:
        print(f"piece of each vertex written to {options.output}")
    return 0


def _sizes(options: argparse.Namespace, data: Data) -> dict[str, Any]:
    sizes = {
        "features": data.features, "hidden": options.hidden, "classes": data.classes, "layers": options.layers,
        "dropout": options.dropout,
    }  # fmt: skip
    if options.heads is not None:
        if options.network != "gat":
            raise BadInputError(f"--heads is for --network gat, got {options.network}")
        sizes["heads"] = options.heads
    return sizes


def _network(name: str, sizes: dict[str, Any]) -> Any:
    from girih.gnn.models import NETWORKS

    try:
        return NETWORKS[name](**sizes)
    except ValueError as error:
        raise BadInputError(str(error)) from error


def _plan(step: Any, data: Data, options: argparse.Namespace, progress: TerminalProgress) -> Plan:
    return make_plan(step, data, machine=options.machine, memory=options.memory, compare=(), observe=progress)


def _say_plan(plan: Plan, options: argparse.Namespace) -> None:
    """Behind all that may be refused, so that nothing else is printed then."""
    if not options.json and plan.predicted.simulated:
        devices = plan.machine.devices
        where = "one device" if devices == 1 else f"{devices} devices"
        print(f"{where}: a step takes {format_seconds(plan.predicted.simulated)}, simulated", flush=True)


def _backend(options: argparse.Namespace, plan: Plan) -> str:
    return str(options.backend or ("threads" if plan.machine.devices == 1 else "processes"))


def _parameters(network: Any) -> int:
    return sum(item.numel() for item in network.parameters())


def _write(path: str, name: str, sizes: dict[str, Any], network: Any) -> None:
    import torch

    buffer = io.BytesIO()
    torch.save({"kind": KIND, "network": name, "sizes": sizes, "state": network.state_dict()}, buffer)
    places.exchange(path, buffer.getvalue())


def _read(path: str, data: Data) -> tuple[Any, str]:
    """The network that `train` wrote, for data of its sizes; read as data, no code of it runs."""
    import torch

    file = Path(path)
    if not file.is_file():
        raise BadInputError(f"there is no file {path}: girih gnn train -o FILE writes one")
    try:
        content = torch.load(io.BytesIO(file.read_bytes()), weights_only=True)
        known = isinstance(content, dict) and content.get("kind") == KIND
    except (RuntimeError, ValueError, EOFError, pickle.UnpicklingError, KeyError, OSError) as error:
        raise BadInputError(f"{path} is damaged, or no network of girih gnn train: {str(error)[:120]}") from error
    if not known:
        raise BadInputError(f"{path} is no network of girih gnn train")
    sizes = content["sizes"]
    if sizes["features"] != data.features:
        raise BadInputError(
            f"{path} reads {sizes['features']} features of each vertex, {data.name} has {data.features}: give the "
            "graph with those that it was trained on"
        )
    network = _network(content["network"], sizes)
    network.load_state_dict(content["state"])
    return network, content["network"]


def _write_outputs(path: Path, output: Any, data: Data) -> None:
    buffer = io.BytesIO()
    if path.suffix == ".npy":
        np.save(buffer, output)
    else:
        buffer.write(b"vertex,class\n")
        for vertex, own in enumerate(output.argmax(1).tolist()):
            name = data.names[own] if own < len(data.names) else own
            buffer.write(f"{vertex},{name}\n".encode())
    places.exchange(str(path), buffer.getvalue())
