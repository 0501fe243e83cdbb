"""Repeated layers as the page folds them: `girih.graph.repeats`, shifted so that a copy is one layer of the model.

A repeat may begin anywhere in a layer, since it is found from the left by equal fingerprints. Where the module paths
of its copies differ in one component (`blocks.0`, `blocks.1`), the copies begin where that component changes,
within the stretch whose operators repeat.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from girih.graph import Graph, Repeat, repeats


@dataclass(frozen=True)
class Fold:
    """`count` copies of `period` nodes from `start` on; first, last: the module path of these copies, or ""."""

    start: int
    period: int
    count: int
    first: str = ""
    last: str = ""

    @property
    def stop(self) -> int:
        return self.start + self.period * self.count


def folds(graph: Graph) -> tuple[Fold, ...]:
    """Disjoint, in the order of the graph."""
    result: list[Fold] = []
    free = 0
    for repeat in repeats(graph):
        fold = _aligned(graph, repeat, free)
        if fold is not None:
            result.append(fold)
            free = fold.stop
    return tuple(result)


def _aligned(graph: Graph, repeat: Repeat, free: int) -> Fold | None:
    """As many copies of the stretch that repeats as begin with a layer; None if less than two are left."""
    period = repeat.period
    low, high = _stretch(graph, repeat, free)
    start, count = max(repeat.start, low), (min(repeat.stop, high) - max(repeat.start, low)) // period
    depth = _counting_component(graph, low, high, period)
    if depth is None:
        return Fold(start, period, count) if count > 1 else None
    begins = [begin for begin in range(low, min(low + period, high)) if _is_layer(graph, begin, period, depth)]
    if begins:
        start = max(begins, key=lambda begin: (high - begin) // period)
        count = (high - start) // period
    if count < 2:
        return None
    last = start + period * (count - 1)
    return Fold(start, period, count, _prefix(graph, start, depth), _prefix(graph, last, depth))


def _stretch(graph: Graph, repeat: Repeat, free: int) -> tuple[int, int]:
    """The longest run of nodes around a repeat whose operators and shapes come again after one period."""
    low, high = max(repeat.start, free), repeat.stop
    while low > free and _alike(graph, low - 1, low - 1 + repeat.period):
        low -= 1
    while high < len(graph.nodes) and _alike(graph, high - repeat.period, high):
        high += 1
    return low, high


def _alike(graph: Graph, first: int, second: int) -> bool:
    a, b = graph.nodes[first], graph.nodes[second]
    if (a.operator, a.phase, len(a.outputs)) != (b.operator, b.phase, len(b.outputs)):
        return False
    pairs = zip(a.outputs, b.outputs, strict=True)
    return all(graph.values[one].shape == graph.values[other].shape for one, other in pairs)


def _counting_component(graph: Graph, low: int, high: int, period: int) -> int | None:
    """The component of the module paths that counts the copies: a number that differs from copy to copy."""
    numbers: Counter[int] = Counter()
    for position in range(low, high - period):
        pairs = zip(_path(graph, position), _path(graph, position + period), strict=False)
        differs = [depth for depth, (a, b) in enumerate(pairs) if a != b and a.isdigit() and b.isdigit()]
        numbers.update(differs[:1])
    return numbers.most_common(1)[0][0] if numbers else None


def _is_layer(graph: Graph, begin: int, period: int, depth: int) -> bool:
    """Do the nodes of one period all belong to one layer, and does the node before belong to another?"""
    prefix = _prefix(graph, begin, depth)
    if begin + period > len(graph.nodes) or (begin and _prefix(graph, begin - 1, depth) == prefix):
        return False
    return all(_prefix(graph, position, depth) in (prefix, "") for position in range(begin, begin + period))


def _path(graph: Graph, position: int) -> list[str]:
    return graph.nodes[position].scope.split(".")


def _prefix(graph: Graph, position: int, depth: int) -> str:
    return ".".join(_path(graph, position)[: depth + 1])
