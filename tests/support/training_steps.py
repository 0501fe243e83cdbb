"""Cost problems shaped like training steps: forward, backward and update, with the tables of repeated layers shared.

An operator is written `"ik,kj->ij"`; its strategies send each mesh axis (of two devices) to an index, a value's
layouts send each mesh axis to a dimension. A table holds, in elements, what the devices must fetch: the region
needed less what is held, summed over the devices; a split reduction makes each part fetch its partial sums.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np

from girih.partition.solver.elimination import Problem


def _splits(dimensions: int, axes: int, replicate: bool) -> list[tuple[int, ...]]:
    """Every way to send each mesh axis to one of the dimensions, or to none (-1)."""
    return list(itertools.product(range(-1 if replicate or dimensions == 0 else 0, dimensions), repeat=axes))


def _parts(split: tuple[int, ...], dimensions: int) -> np.ndarray:
    """[device, dimension, 2]: the interval, in units of the whole, that each device holds under the split."""
    axes = len(split)
    out = np.zeros((2**axes, dimensions, 2))
    for device in range(2**axes):
        for d in range(dimensions):
            low, width = 0.0, 1.0
            for axis, target in enumerate(split):
                if target == d:
                    width /= 2
                    low += width * (device >> axis & 1)
            out[device, d] = low, low + width
    return out


def _fetch(needs: list[tuple[int, ...]], haves: list[tuple[int, ...]], dims: int, copies: list[int]) -> np.ndarray:
    """[need, have]: the share of the tensor that the devices fetch, `copies[have]` partial sums of each element."""
    need = np.stack([_parts(s, dims) for s in needs])
    have = np.stack([_parts(s, dims) for s in haves])
    low = np.maximum(need[:, None, :, :, 0], have[None, :, :, :, 0])
    high = np.minimum(need[:, None, :, :, 1], have[None, :, :, :, 1])
    overlap = np.clip(high - low, 0, None).prod(3).sum(2)
    wanted = (need[..., 1] - need[..., 0]).prod(2).sum(1)
    return wanted[:, None] * np.asarray(copies, float)[None, :] - overlap


def _halo(held: list[tuple[int, ...]], shape: tuple[int, ...], node_halo: bool) -> np.ndarray:
    """[strategy, 1]: the share that the devices fetch besides, of the rows next to theirs, where space is split."""
    shares = [
        sum(2 / size * (1 - 2.0 ** -s.count(d)) for d, size in enumerate(shape) if d >= 2) * 2.0 ** len(s)
        / 2.0 ** sum(i >= 0 for i in s) * node_halo * 2.0 ** max(s.count(2), s.count(3))
        for s in held
    ]  # fmt: skip
    return np.array(shares)[:, None]


@dataclass
class Step:
    """A graph under construction, its gradients, and at last the cost problem."""

    axes: int
    replicate: bool = False
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    nodes: list[tuple[list[tuple[str, int]], str, int]] = field(default_factory=list)

    def value(self, *shape: int) -> int:
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def op(self, notation: str, *inputs: int) -> int:
        sources, out = notation.split("->")
        names = sources.split(",")
        size = {i: n for name, v in zip(names, inputs, strict=True) for i, n in zip(name, self.shapes[v], strict=True)}
        result = self.value(*(size[i] for i in out))
        self.nodes.append((list(zip(names, inputs, strict=True)), out, result))
        return result

    def differentiate(self, loss: int, weights: list[int]) -> None:
        """Appends the backward nodes of all nodes, then a momentum update of each weight."""
        forward = list(self.nodes)
        gradient = {loss: self.value(*self.shapes[loss])}
        for inputs, out, result in reversed(forward):
            if result not in gradient:
                continue
            for place, (name, v) in enumerate(inputs):
                others = [(n, w) for p, (n, w) in enumerate(inputs) if p != place]
                if len(inputs) == 1 or name == out:  # a pointwise function: its derivative needs its argument
                    others = [(name, v)] if len(inputs) == 1 else others
                names = [out, *(n for n, _ in others)]
                if not set(name) <= set("".join(names)):
                    names, others = [*names, name], [*others, (name, v)]
                share = self.op(f"{','.join(names)}->{name}", gradient[result], *(w for _, w in others))
                old = gradient.get(v)
                gradient[v] = share if old is None else self.op(f"{name},{name}->{name}", old, share)
        for w in weights:
            name = "abcdef"[: len(self.shapes[w])]
            momentum = self.op(f"{name},{name}->{name}", self.value(*self.shapes[w]), gradient[w])
            self.op(f"{name},{name}->{name}", w, momentum)

    def problem(self) -> Problem:
        tables: list[np.ndarray] = []
        known: dict[object, int] = {}

        def keep(key: object, table: np.ndarray) -> int:
            known[key] = len(tables)
            tables.append(table)
            return known[key]

        layouts = [_splits(len(shape), self.axes, self.replicate) for shape in self.shapes]
        domains = [len(x) for x in layouts]
        unary = []
        for shape in self.shapes:
            key = ("memory", shape)
            if self.replicate and key not in known:
                share = [2.0 ** s.count(-1) for s in _splits(len(shape), self.axes, True)]
                keep(key, np.floor(np.prod(shape) * np.array(share) / 4) if shape else np.zeros(1))
            unary.append(known[key] if self.replicate else -1)
        pairs = []
        for number, (inputs, out, result) in enumerate(self.nodes):
            node = len(self.shapes) + number
            indices = "".join(dict.fromkeys("".join(n for n, _ in inputs) + out))
            strategies = _splits(len(indices), self.axes, self.replicate)
            domains.append(len(strategies))
            sizes = {i: n for name, v in inputs for i, n in zip(name, self.shapes[v], strict=True)}
            if self.replicate:
                key = ("work", tuple(sizes[i] for i in indices))
                if key not in known:
                    work = np.prod([float(sizes[i]) for i in indices]) / 64
                    keep(key, np.floor(work * np.array([2.0 ** s.count(-1) for s in strategies])))
                unary.append(known[key])
            else:
                unary.append(-1)
            for name, v, is_out in [(n, v, False) for n, v in inputs] + [(out, result, True)]:
                shape = self.shapes[v]
                where = tuple(name.find(i) for i in indices)
                key = (where, shape, is_out)
                if key not in known:
                    held = [tuple(where[i] if i >= 0 else -1 for i in s) for s in strategies]
                    layout = layouts[v]
                    if is_out:
                        copies = [2 ** sum(i >= 0 and where[i] < 0 for i in s) for s in strategies]
                        table = _fetch(layout, held, len(shape), copies).T
                    else:
                        table = _fetch(held, layout, len(shape), [1] * len(layout))
                    if "x" in indices and not is_out:
                        table = table + _halo(held, shape, node_halo=shape[-1] > 3 and sizes["x"] > 1)
                    keep(key, np.ascontiguousarray(np.round(table * np.prod(shape)) * 4.0))
                pairs.append((node, v, known[key]))
        return Problem(tuple(domains), tuple(unary), tuple(pairs), tuple(tables))


def perceptron(axes: int, layers: int = 36, replicate: bool = False, batch: int = 256, width: int = 1024) -> Problem:
    step = Step(axes, replicate)
    x, weights = step.value(batch, width), []
    for _ in range(layers):
        weights.append(step.value(width, width))
        x = step.op("ij->ij", step.op("ik,kj->ij", x, weights[-1]))
    step.differentiate(x, weights)
    return step.problem()


def _normalise(step: Step, x: int, weights: list[int], name: str, kept: str) -> int:
    """Mean, centred, variance, scaled, with a gain and an offset: the pieces of a batch or layer normalisation."""
    size = dict(zip(name, step.shapes[x], strict=True))
    gain, offset = (step.value(*(size[i] for i in name if i in ("c", "d"))) for _ in range(2))
    last = "".join(i for i in name if i in ("c", "d"))
    weights += [gain, offset]
    centred = step.op(f"{name},{kept}->{name}", x, step.op(f"{name}->{kept}", x))
    variance = step.op(f"{name}->{kept}", centred)
    scaled = step.op(f"{name},{kept}->{name}", centred, step.op(f"{kept}->{kept}", variance))
    return step.op(f"{name},{last}->{name}", step.op(f"{name},{last}->{name}", scaled, gain), offset)


def residual(axes: int, blocks: tuple[int, ...] = (3, 8, 36, 3), replicate: bool = False, wide: int = 4) -> Problem:
    """A (wide) residual network of bottleneck blocks: 152 layers with the blocks (3, 8, 36, 3)."""
    step, weights = Step(axes, replicate), []

    def layer(x: int, filters: int, kernel: int, active: bool = True) -> int:
        w = step.value(filters, step.shapes[x][1], kernel, kernel)
        weights.append(w)
        y = step.op("nchw,dcxy->ndhw", x, w)
        y = _normalise(step, y, weights, "nchw", "c")
        return step.op("nchw->nchw", y) if active else y

    x = step.value(32, 64 * wide, 64, 64)
    for stage, count in enumerate(blocks):
        width, out = 64 * 2**stage * wide, 256 * 2**stage * wide
        for number in range(count):
            y = layer(layer(layer(x, width, 1), width, 3), out, 1, False)
            if number == 0:
                x = layer(x, out, 1, False)
            x = step.op("nchw->nchw", step.op("nchw,nchw->nchw", x, y))
        n, c, h, w = step.shapes[x]
        smaller = step.value(n, c, h // 2, w // 2)
        step.nodes.append(([("nchw", x)], "nchw", smaller))  # pooling keeps the splits
        x = smaller
    step.differentiate(x, weights)
    return step.problem()


def recurrent(axes: int, layers: int = 10, steps: int = 20, replicate: bool = False, width: int = 4096) -> Problem:
    step, batch = Step(axes, replicate), 512
    gates = [[(step.value(width, width), step.value(width, width), step.value(width)) for _ in range(4)]
             for _ in range(layers)]  # fmt: skip
    hidden = [step.value(batch, width) for _ in range(layers)]
    cell = [step.value(batch, width) for _ in range(layers)]
    outs = []
    for _ in range(steps):
        x = step.value(batch, width)
        for layer in range(layers):
            i, f, o, g = (
                step.op("bh->bh", step.op("bh,h->bh", step.op("bh,bh->bh", step.op("bk,kh->bh", x, w),
                        step.op("bk,kh->bh", hidden[layer], u)), b))
                for w, u, b in gates[layer]
            )  # fmt: skip
            kept, new = step.op("bh,bh->bh", f, cell[layer]), step.op("bh,bh->bh", i, g)
            cell[layer] = step.op("bh,bh->bh", kept, new)
            hidden[layer] = x = step.op("bh,bh->bh", o, step.op("bh->bh", cell[layer]))
        outs.append(x)
    total = outs[0]
    for x in outs[1:]:
        total = step.op("bh,bh->bh", total, x)
    step.differentiate(total, [w for layer in gates for gate in layer for w in gate])
    return step.problem()


def transformer(axes: int, layers: int = 48, replicate: bool = False, width: int = 1024) -> Problem:
    step, weights = Step(axes, replicate), []
    batch, length, heads, size = 16, 1024, 16, width // 16

    def weight(*shape: int) -> int:
        weights.append(step.value(*shape))
        return weights[-1]

    x = step.value(batch, length, width)
    for _ in range(layers):
        y = _normalise(step, x, weights, "btd", "bt")
        q, k, v = (
            step.op("bthe,he->bthe", step.op("btd,dhe->bthe", y, weight(width, heads, size)), weight(heads, size))
            for _ in range(3)
        )
        scores = step.op("bhts->bhts", step.op("bthe,bshe->bhts", q, k))
        total = step.op("bhts->bht", scores)
        attention = step.op("bhts,bht->bhts", scores, total)
        mixed = step.op("bhts,bshe->bthe", attention, v)
        out = step.op("btd,d->btd", step.op("bthe,hed->btd", mixed, weight(heads, size, width)), weight(width))
        x = step.op("btd,btd->btd", x, out)
        y = _normalise(step, x, weights, "btd", "bt")
        y = step.op("bte->bte", step.op("bte,e->bte", step.op("btd,de->bte", y, weight(width, 4 * width)),
                    weight(4 * width)))  # fmt: skip
        y = step.op("btd,d->btd", step.op("bte,ed->btd", y, weight(4 * width, width)), weight(width))
        x = step.op("btd,btd->btd", x, y)
    step.differentiate(x, weights)
    return step.problem()
