"""A hard cap on memory: Lagrangian prices on the moments at which memory peaks.

The memory of a device at moment t (a node) is at least the sum of its parts of the values that live across t, which is
linear in the layouts; the transfer buffers of node t come on top. Putting a price λ(t) >= 0 on every byte at t moves
the cap into the objective: the priced problem is solved exactly, and

    min over all strategies (cost + Σ λ(t)·(memory(t) - cap))

is a lower bound on every strategy that meets the cap. Prices rise where the cap is exceeded (subgradient steps with
doubling) until a feasible plan is found, then settle between. The caller measures memory (lowering knows it exactly);
this file only proposes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from girih.graph import Graph
from girih.layout import regions_of
from girih.partition.elimination import cost_of
from girih.partition.exact import solve
from girih.partition.options import SECONDS, TOFU, layouts_of
from girih.partition.problem import EVERYTHING, Objective, build
from girih.partition.strategy import Certificate, FloatTable, SearchResult, Strategy


@dataclass(frozen=True)
class Measured:
    """Peak bytes of the device that needs most, and the node during which it peaks (-1: before the first)."""

    peak: int
    at: int


class CannotFitError(ValueError):
    """No strategy that was tried meets the cap; `smallest` is the least peak that was reached."""

    def __init__(self, smallest: int, best: SearchResult, bound: int) -> None:
        super().__init__(f"the least peak found is {smallest} bytes; at least {bound} bytes are needed")
        self.smallest = smallest
        self.best = best
        self.bound = bound


def live_at(graph: Graph, moment: int) -> list[str]:
    """The values that exist while node `moment` runs: made before, read then or later, or leaving the graph."""
    leaving = {output.name for output in graph.outputs}
    found = []
    for name in graph.values:
        made = graph.producer.get(name, -1)
        users = graph.consumers[name]
        last = len(graph.nodes) if name in leaving else (users[-1] if users else made)
        if made <= moment <= last:
            found.append(name)
    return found


def capped(
    graph: Graph,
    objective: Objective,
    cap: int,
    measure: Callable[[Strategy], Measured],
    *,
    first: SearchResult | None = None,
    rounds: int = 24,
    seconds: float = 60.0,
) -> SearchResult:
    """The cheapest strategy found whose measured peak is at most `cap` bytes, with a bound for that cap.

    Raises:
        CannotFitError: with the least peak that was reached.
    """
    mesh = objective.machine.mesh
    rules = SECONDS if objective.name == "seconds" else TOFU
    prices: dict[int, float] = {}
    best: SearchResult | None = None
    lowest: tuple[int, SearchResult] | None = None
    bound = 0.0
    tried = 0
    scale = 0.0
    for tried in range(1, rounds + 1):
        if first is not None and not prices:
            result, value = first, first.certificate.bound
        else:
            result, value = _priced(graph, objective, prices, cap, seconds)
        bound = max(bound, value)
        measured = measure(result.strategy)
        if lowest is None or measured.peak < lowest[0]:
            lowest = (measured.peak, result)
        if measured.peak <= cap:
            if best is None or result.certificate.cost < best.certificate.cost:
                best = result
            if not prices:
                break
            prices = {moment: price / 2 for moment, price in prices.items()}
            if tried > rounds // 2 or best.certificate.cost <= bound * 1.01:
                break
            continue
        scale = scale or max(result.certificate.cost, 1e-12) / max(measured.peak, 1)
        prices[measured.at] = prices.get(measured.at, 0.0) * 2 + scale * 0.05
    assert lowest is not None
    if best is None:
        raise CannotFitError(lowest[0], lowest[1], _floor(graph, mesh.devices, rules))
    bound = min(bound, best.certificate.cost)
    certificate = Certificate(
        best.certificate.cost,
        bound,
        objective.name,
        "Lagrangian dual of the memory cap" if prices else best.certificate.how,
        f"feasible after {tried} rounds of prices" if prices else best.certificate.stopped,
        best.certificate.space,
        {**best.certificate.statistics, "rounds of memory prices": tried},
    )
    return SearchResult(best.strategy, certificate)


def _floor(graph: Graph, devices: int, rules: object) -> int:
    """No device can need less than its share of what lives from step to step."""
    return sum(graph.values[item.name].bytes for item in graph.state_inputs) // devices


def _priced(
    graph: Graph, objective: Objective, prices: dict[int, float], cap: int, seconds: float
) -> tuple[SearchResult, float]:
    """The optimum under prices, with its real cost; and the dual value."""
    mesh = objective.machine.mesh
    rules = SECONDS if objective.name == "seconds" else TOFU
    stored = {item.name for item in (*graph.inputs, *graph.outputs)}
    costs: dict[str, FloatTable] = {}
    for moment, price in prices.items():
        for name in live_at(graph, moment):
            value = graph.values[name]
            regions = [
                regions_of(item, value.shape, mesh)[0] for item in layouts_of(value, mesh, rules, name in stored)
            ]
            held = np.asarray([float((part[:, 1] - part[:, 0]).prod()) for part in regions])
            costs[name] = costs.get(name, np.zeros(len(held))) + price * held * value.item_bytes
    plain = build(graph, objective, rules, EVERYTHING)
    problem = build(graph, objective, rules, EVERYTHING, value_costs=costs, node_prices=prices)
    solution = solve(problem.problem, objective, seconds)
    strategy = problem.strategy(solution.labels)
    cost = cost_of(plain.problem, solution.labels)
    dual = solution.bound - sum(prices.values()) * cap
    certificate = Certificate(
        cost, 0.0, objective.name, solution.how, solution.stopped, "strategies under a memory cap", solution.statistics
    )
    return SearchResult(strategy, certificate), dual
