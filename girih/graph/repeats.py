"""Repeated layers and unrolled timesteps, recognised from the graph itself (Tofu §5.1: coalescing).

Tofu asks the framework which operators were unrolled from one cell. Here every node gets a fingerprint: operator,
attributes, shapes, and where its inputs come from, counted in nodes back; what a layer does then reads the same in
every copy of the layer. A repeat is a run of the fingerprints that follows itself (a tandem repeat). Found greedily
from the left, longest first. Cost: nodes times the number of different distances to the next equal fingerprint, each
compared as one array.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from girih.graph.graph import Graph


@dataclass(frozen=True)
class Repeat:
    """`count` copies of `period` consecutive nodes, from node `start` on."""

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        return self.start + self.period * self.count


def fingerprints(graph: Graph) -> NDArray[np.int64]:
    """[nodes]: equal numbers for nodes that do the same to the same shapes, fed from the same distances back.

    What comes from outside of a layer (parameters, saved activations, a node more than a few layers away) counts only
    by its shape: its distance differs from copy to copy.
    """
    known: dict[object, int] = {}
    numbers = np.empty(len(graph.nodes), np.int64)
    for position, node in enumerate(graph.nodes):
        sources = []
        for name in node.inputs:
            value = graph.values[name]
            maker = graph.producer.get(name)
            near = maker is not None and position - maker <= 8
            sources.append((value.shape, value.dtype, position - maker if near and maker is not None else None))
        outputs = tuple((graph.values[name].shape, graph.values[name].dtype) for name in node.outputs)
        attributes = tuple(sorted((name, str(value)) for name, value in node.attributes.items() if name != "stream"))
        key = (node.operator, node.phase, attributes, tuple(sources), outputs)
        numbers[position] = known.setdefault(key, len(known))
    return numbers


def repeats(graph: Graph, least: int = 8) -> tuple[Repeat, ...]:
    """Disjoint repeats in the order of the graph, each of at least `least` nodes a copy and two copies."""
    prints = fingerprints(graph)
    result: list[Repeat] = []
    position = 0
    while position < len(prints):
        best = _longest(prints, position, least)
        if best is None:
            position += 1
        else:
            result.append(best)
            position = best.stop
    return tuple(result)


def _longest(prints: NDArray[np.int64], start: int, least: int) -> Repeat | None:
    """The repeat from `start` that covers most nodes; of equal ones that of the shortest period."""
    again = np.flatnonzero(prints[start + least :] == prints[start]) + least
    best: Repeat | None = None
    for period in again.tolist():
        if start + 2 * period > len(prints):
            break
        if best is not None and best.count > 2 and period > best.period * 2:
            break  # a multiple of a period that was found
        differ = np.flatnonzero(prints[start : len(prints) - period] != prints[start + period :])
        length = int(differ[0]) if len(differ) else len(prints) - period - start
        count = 1 + length // period
        if count >= 2 and (best is None or count * period > best.count * best.period):
            best = Repeat(start, period, count)
    return best
