"""Attention whole, or by blocks of keys (`girih.rewrite.passes.attention`): each graph is searched, the cheaper stays.

A search over the graph by blocks divides keys, rows of the query, or both. Blocks that it leaves on one device are
taken back, and there are as many as are divided: a device holds the result of one block and not of several. By `bytes`
nothing is lost so, since blocks on one device send nothing. Cost: two or three searches of about the same graph, where
examples and heads are fewer than devices; else none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

from girih.graph import Graph, Ref
from girih.layout import kind_of
from girih.partition.strategy import SearchResult, Strategy
from girih.rewrite.passes.attention import BLOCKS, BLOCKS_BACKWARD, AttentionByKeys, key_blocks

SearchIn = Callable[[Graph, float], SearchResult]
"""Searches a graph for so many seconds of work."""
NEAR = 1 + 1e-9


def whole_or_by_keys(graph: Graph, devices: int, seconds: float, search: SearchIn) -> SearchResult:
    """The cheaper of what is found of the graph as it is, and of the graph by blocks of keys."""
    whole = search(graph, seconds)
    blocks = key_blocks(graph, devices)
    if not blocks:
        return whole
    keys = by_keys(graph, blocks, max(seconds - whole.certificate.work, 0.0), search)
    best = keys if keys.certificate.cost < whole.certificate.cost / NEAR else whole
    told, unit = best.certificate, best.certificate.unit
    costs = {"attention whole": whole, "attention by keys": keys}
    return replace(
        best,
        certificate=replace(
            told,
            bound=min(whole.certificate.bound, keys.certificate.bound, told.cost),
            stopped=told.stopped if whole.certificate.stopped == keys.certificate.stopped else "time",
            space=f"{told.space}; attention whole or by blocks of keys",
            statistics={
                **told.statistics,
                "seconds of work": round(whole.certificate.work + keys.certificate.work, 3),
                **{f"{unit}, {name}": result.certificate.cost for name, result in costs.items()},
            },
        ),
    )


def by_keys(graph: Graph, blocks: Mapping[str, int], seconds: float, search: SearchIn) -> SearchResult:
    """What is found of the graph by so many blocks of keys, written with as many as are divided."""
    written = AttentionByKeys(blocks).apply(graph)
    first = search(written, seconds)
    result = first if first.graph is not None else replace(first, graph=written)
    used = divided_blocks(result)
    if used == blocks:
        return result
    fewer = AttentionByKeys(used).apply(graph)
    again = search(fewer, max(seconds - first.certificate.work, 0.0))
    if used and again.certificate.cost > first.certificate.cost * NEAR:
        return result
    work = round(first.certificate.work + again.certificate.work, 3)
    bound = min(first.certificate.bound, again.certificate.cost)
    told = replace(again.certificate, bound=bound, statistics={**again.certificate.statistics, "seconds of work": work})
    return replace(again, certificate=told, graph=again.graph or fewer)


def divided_blocks(result: SearchResult) -> dict[str, int]:
    """Into how many parts blocks of keys are divided, by the name of the attention that they were, for those that are;
    as many as there are where parts are not equal."""
    assert result.graph is not None
    graph, strategy, found = result.graph, result.strategy, {}
    for number, node in enumerate(graph.nodes):
        name, cut, _ = node.name.partition(".attention_blocks")
        if cut and node.operator in (BLOCKS, BLOCKS_BACKWARD):
            parts = _parts(strategy, number)
            key, there = dict(node.arguments)["key"], node.attributes["blocks"]
            assert isinstance(key, Ref)
            assert isinstance(there, int)
            if parts > 1:
                found[name] = there if graph.values[key.name].shape[2] % parts else parts
    return found


def _parts(strategy: Strategy, number: int) -> int:
    """Into how many parts a node's first index variable is divided."""
    codes = strategy.divisions[number].codes
    return prod(size for code, size in zip(codes, strategy.mesh.sizes, strict=True) if kind_of(code) == 0)
