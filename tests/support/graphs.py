"""Graphs for tests: random ones of described operators, and a hand-made training step of a perceptron."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
from hypothesis import reject

from girih.graph import Argument, Graph, Input, Node, Output, Ref, Value, parse_graph
from girih.machine import Device, Level, Machine
from girih.partition.solver.elimination import cost_of, minimise
from girih.partition.space.problem import PartitionProblem

DEVICE = Device("test", 1e9, 10**9, 1e8, 1e-6)


def machine_of(sizes: tuple[int, ...]) -> Machine:
    """One level for each axis, the outer ones slower."""
    levels = tuple(Level(f"level {n}", (size,), 1e6 * 4.0**n, 1e-5 / 2**n) for n, size in enumerate(sizes))
    return Machine("test " + "x".join(map(str, sizes)), DEVICE, levels)


class Maker:
    """A graph under construction; `emit` names what it makes `v0`, `v1`, …"""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.inputs: list[Input] = []

    def input(self, shape: tuple[int, ...], role: str = "batch", dtype: str = "float32") -> str:
        name = f"in{len(self.inputs)}"
        self.values[name] = Value(name, shape, dtype)
        self.inputs.append(Input(name, role, str(len(self.inputs))))  # type: ignore[arg-type]
        return name

    def emit(self, operator: str, shape: tuple[int, ...], dtype: str = "float32", /, **arguments: Argument) -> str:
        name = f"v{len(self.nodes)}"
        self.values[name] = Value(name, shape, dtype)
        self.nodes.append(Node(name, operator, tuple(arguments.items()), (name,)))
        return name

    def graph(self, outputs: list[Output]) -> Graph:
        return Graph(self.values, tuple(self.nodes), tuple(self.inputs), tuple(outputs))


def random_graph(
    random: np.random.Generator, nodes: int, sizes: tuple[int, ...] = (1, 2, 3, 4, 6), most: int = 144
) -> Graph:
    """Matrix products, element-wise, reductions, reshapes, halos and an operator that nobody has described.

    sizes: of the inputs' dimensions; most: elements of the largest value.
    """
    make = Maker()

    def size() -> int:
        return int(random.choice(sizes))

    def some(rank: int | None = None) -> str:
        known = [n for n, v in make.values.items() if rank is None or len(v.shape) == rank]
        if not known or random.random() < 0.15:
            shape = tuple(size() for _ in range(int(random.integers(1, 4)) if rank is None else rank))
            return make.input(shape, str(random.choice(["batch", "parameter"])))
        late = known[-4:]
        return str(random.choice(late))

    def product() -> None:
        a = some(2)
        i, k = make.values[a].shape
        fits = [n for n, v in make.values.items() if len(v.shape) == 2 and v.shape[0] == k and i * v.shape[1] <= most]
        b = str(random.choice(fits)) if fits and random.random() < 0.7 else make.input((k, size()), "parameter")
        make.emit("aten.mm", (i, make.values[b].shape[1]), self=Ref(a), mat2=Ref(b))

    def unary() -> None:
        x = some()
        make.emit(str(random.choice(["aten.relu", "aten.neg"])), make.values[x].shape, self=Ref(x))

    def binary() -> None:
        x = some()
        shape = make.values[x].shape
        alike = [n for n, v in make.values.items() if v.shape == shape]
        if random.random() < 0.3 and shape:
            other = make.input(shape[-1:], "parameter")
        else:
            other = str(random.choice(alike))
        make.emit(str(random.choice(["aten.add.Tensor", "aten.mul.Tensor"])), shape, self=Ref(x), other=Ref(other))

    def permute() -> None:
        x = some()
        shape = make.values[x].shape
        order = tuple(int(d) for d in random.permutation(len(shape)))
        make.emit("aten.permute", tuple(shape[d] for d in order), self=Ref(x), dims=order)

    def reshape() -> None:
        x = some()
        left, shape = prod(make.values[x].shape), []
        for _ in range(int(random.integers(0, 3))):
            shape.append(int(random.choice([d for d in range(1, left + 1) if left % d == 0])))
            left //= shape[-1]
        shape.append(left)
        make.emit("aten.reshape", tuple(shape), self=Ref(x), shape=tuple(shape))

    def reduce() -> None:
        x = some(int(random.integers(1, 4)))
        shape = make.values[x].shape
        dim = int(random.integers(len(shape)))
        keepdim = bool(random.random() < 0.5)
        kept = tuple(1 if d == dim else n for d, n in enumerate(shape) if d != dim or keepdim)
        name = str(random.choice(["aten.sum.dim_IntList", "aten.mean.dim", "aten.amax"]))
        make.emit(name, kept, self=Ref(x), dim=(dim,), keepdim=keepdim)

    def slice_() -> None:
        x = some(int(random.integers(1, 4)))
        shape = make.values[x].shape
        dim = int(random.integers(len(shape)))
        start = int(random.integers(shape[dim]))
        end = int(random.integers(start, shape[dim])) + 1
        step = int(random.integers(1, 3))
        cut = (*shape[:dim], len(range(start, end, step)), *shape[dim + 1 :])
        make.emit("aten.slice.Tensor", cut, self=Ref(x), dim=dim, start=start, end=end, step=step)

    def convolution() -> None:
        length, channels, filters = int(random.choice([4, 5, 8])), size(), size()
        x = make.input((2, channels, length))
        w = make.input((filters, channels, 3), "parameter")
        options: dict[str, Argument] = {"stride": (1,), "padding": (1,), "dilation": (1,), "transposed": False}
        options |= {"output_padding": (0,), "groups": 1}
        make.emit("aten.convolution", (2, filters, length), input=Ref(x), weight=Ref(w), bias=None, **options)

    def unknown() -> None:
        x = some()
        make.emit("test.unknown", make.values[x].shape, self=Ref(x))

    kinds = [product, product, product, unary, binary, binary, permute, reshape, reduce, slice_, convolution, unknown]
    chances = np.asarray([1.0] * 11 + [0.4])
    while len(make.nodes) < nodes:
        kinds[int(random.choice(len(kinds), p=chances / chances.sum()))]()
    return make.graph(_outputs(make, random))


def _outputs(make: Maker, random: np.random.Generator) -> list[Output]:
    """What nobody reads leaves; where shapes agree, a value replaces a parameter."""
    read = {name for node in make.nodes for name in node.inputs}
    results = [n for node in make.nodes for n in node.outputs if n not in read]
    outputs = [Output(name, "result") for name in results]
    parameters = [item.name for item in make.inputs if item.role == "parameter"]
    for number, name in enumerate(results):
        fits = [p for p in parameters if make.values[p].shape == make.values[name].shape]
        if fits and random.random() < 0.7:
            parameters.remove(fits[0])
            outputs[number] = Output(name, "update", fits[0])
    return outputs


def perceptron(layers: int = 3, batch: int = 64, width: int = 256) -> Graph:
    """One training step of `layers` square matrices with relu between, in the graphs' own text form."""
    whole, square = f"float32[{batch}, {width}]", f"float32[{width}, {width}]"
    lines = ["graph", f'  input %x: {whole}  batch  "0"']
    lines += [f'  input %w{n}: {square}  parameter  "w{n}"' for n in range(layers)]
    last = "x"
    for n in range(layers):
        lines.append(f"  %z{n}: {whole} = aten.mm(self=%{last}, mat2=%w{n})  # forward")
        lines.append(f"  %h{n}: {whole} = aten.relu(self=%z{n})  # forward")
        last = f"h{n}"
    gradient = last
    for n in reversed(range(layers)):
        before = f"h{n - 1}" if n else "x"
        lines.append(f"  %gz{n}: {whole} = aten.mul.Tensor(self=%{gradient}, other=%h{n})  # backward")
        lines.append(f"  %t{n}: float32[{width}, {batch}] = aten.permute(self=%{before}, dims=[1, 0])  # backward")
        lines.append(f"  %gw{n}: {square} = aten.mm(self=%t{n}, mat2=%gz{n})  # backward")
        if n:
            lines.append(f"  %u{n}: {square} = aten.permute(self=%w{n}, dims=[1, 0])  # backward")
            lines.append(f"  %g{n}: {whole} = aten.mm(self=%gz{n}, mat2=%u{n})  # backward")
            gradient = f"g{n}"
    for n in range(layers):
        lines.append(f"  %n{n}: {square} = aten.add.Tensor(self=%w{n}, other=%gw{n}, alpha=-0.01)  # update")
    updates = ", ".join(f"%n{n} update replaces %w{n}" for n in range(layers))
    lines.append(f"  return %{last} result, {updates}")
    return parse_graph("\n".join(lines))


def random_labels(problem: PartitionProblem, random: np.random.Generator) -> np.ndarray:
    """Random labels; nodes then take random divisions among those that are allowed with their values' layouts."""
    item = problem.problem
    labels = np.asarray([random.integers(size) for size in item.domains], np.int64)
    for node in range(len(problem.layouts), len(item.domains)):
        allowed = np.ones(item.domains[node], bool)
        for a, b, table in item.pairs:
            if a == node:
                allowed &= np.isfinite(item.tables[table][:, labels[b]])
        if allowed.any():
            labels[node] = random.choice(np.flatnonzero(allowed))
    return labels


def fitting_labels(problem: PartitionProblem, random: np.random.Generator) -> np.ndarray:
    """Random labels that fit together: of five draws the first that does or, where none does, as often in a step of
    training, the labels that cost least at random prices.

    Hypothesis draws another example where no labels fit together."""
    item = problem.problem
    for _ in range(5):
        labels = random_labels(problem, random)
        if np.isfinite(cost_of(item, labels)):
            return labels
    possible = [np.where(np.isfinite(table), 0.0, np.inf) for table in item.tables]
    prices = [random.random(n) + (possible[t] if t >= 0 else 0) for n, t in zip(item.domains, item.unary, strict=True)]
    unary = tuple(range(len(possible), len(possible) + len(prices)))
    try:
        return minimise(replace(item, unary=unary, tables=(*possible, *prices))).labels
    except ValueError as error:
        assert "infeasible" in str(error)  # noqa: PT017
        reject()
