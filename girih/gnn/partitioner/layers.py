"""What the layers of a network gather, seen by running it once on a graph of two vertices."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from girih.gnn.adjacency import Adjacency
from girih.gnn.partitioner.cost import Layer

FORWARDS = ("girih.neighbour_sum", "girih.neighbour_max", "girih.attention_sum")
BACKWARDS = ("girih.neighbour_sum", "girih.neighbour_max_gradient", "girih.attention_source_gradient")
"""Operators that gather a row of each neighbour: their first tensor."""


class _Record(TorchDispatchMode):
    """Notes, for each operator that is run, its name and the shapes of its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[torch.Size]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).rpartition(".")[0]
        self.seen.append((name, [item.shape for item in args if isinstance(item, torch.Tensor)]))
        return func(*args, **(kwargs or {}))


def layers_of(network: torch.nn.Module, features: int) -> tuple[Layer, ...]:
    """For a network that is called as network(x, graph), with `features` values of each vertex: what each of its sums
    over neighbours gathers, whether gradients are gathered too, and what products with matrices come with it.

    A product belongs to the sum before it, or, where it makes rows of the width that is gathered next, to the one
    behind; where both may be, the first belongs before and others behind. That decides the guess of a cost alone, not
    what is learned.

    Raises:
        ValueError: it sums over no neighbours.
    """
    graph = Adjacency.of_edges(np.array([0, 1]), np.array([1, 0]), 2)
    kind = next(network.parameters()).dtype
    with _Record() as forwards:
        out = network(torch.zeros(2, features, dtype=kind), graph)
    with _Record() as backwards:
        torch.autograd.grad(out.sum(), [item for item in network.parameters() if item.requires_grad], allow_unused=True)
    widths = [shapes[0][1:].numel() for name, shapes in forwards.seen if name in FORWARDS]
    if not widths:
        raise ValueError(f"{type(network).__name__} sums over no neighbours: expected a graph network")
    products = [0] * len(widths)
    number = -1
    for name, shapes in forwards.seen:
        if name in FORWARDS:
            number += 1
        elif name.endswith("mm"):  # mm, addmm, bmm
            taken, made = shapes[-1][-2:]
            makes_next = number + 1 < len(widths) and made == widths[number + 1]
            behind = number < 0 or (makes_next and (products[number] > 0 or taken != widths[number]))
            products[number + behind] += taken * made
    gathered = [shapes[0][1:].numel() for name, shapes in backwards.seen if name in BACKWARDS]
    back = [False] * len(widths)
    for number in range(len(widths) - 1, -1, -1):  # gradients come in the reverse order; the first layer's may not
        if gathered and gathered[0] == widths[number]:
            back[number] = bool(gathered.pop(0))
    return tuple(
        Layer(width, round(product / width), both) for width, product, both in zip(widths, products, back, strict=True)
    )
