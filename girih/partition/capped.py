"""A hard cap on memory: Lagrangian prices on the moments at which memory peaks.

The memory of a device while node t runs is at least a sum that is linear in single layouts and in pairs of a node's
division and a value's layout (`Held`). Putting a price λ(t) >= 0 on every byte of it moves the cap into the
objective: the priced problem is solved exactly, and

    min over all strategies (cost + Σ λ(t)·(memory(t) - cap))

is a lower bound on every strategy that meets the cap. Prices rise where the cap is exceeded (subgradient steps with
doubling) until a feasible plan is found, then settle between. The caller measures memory (lowering knows it exactly);
this file only proposes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from girih.graph import Graph
from girih.layout import regions_of
from girih.ops import description_of
from girih.partition.elimination import cost_of
from girih.partition.exact import solve
from girih.partition.options import SECONDS, TOFU, layouts_of
from girih.partition.problem import EVERYTHING, Objective, PartitionProblem, PiecePrice, build
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


@dataclass(frozen=True)
class Held:
    """What a device surely holds at one moment: never more than lowering and `memory_use` find.

    values: their parts under their layouts. pieces: by (node, operand) or (node, ~result) the part that the node
    reads or makes; True where it has a buffer of its own only if it is moved.
    """

    values: tuple[str, ...]
    pieces: dict[tuple[int, int], bool]


def last_uses(graph: Graph) -> dict[str, int]:
    """The node that reads each value last; the number of nodes for what stays until the end."""
    end = len(graph.nodes)
    staying = {output.name for output in graph.outputs}
    staying |= {item.name for item in graph.state_inputs if item.name not in graph.updates}
    staying |= {item.name for item in graph.inputs if not graph.consumers[item.name]}
    made = graph.producer
    return {
        name: end if name in staying else (users[-1] if users else made[name])
        for name, users in graph.consumers.items()
    }


def view_bases(graph: Graph) -> dict[str, str | None]:
    """The value in whose storage each value may lie: itself, unless a view operator makes it.

    None: behind an expand, whose storage is smaller than what it shows.
    """
    bases: dict[str, str | None] = {item.name: item.name for item in graph.inputs}
    for node in graph.nodes:
        description = description_of(graph, node)
        is_view = description is not None and description.operator.view and len(node.inputs) == 1
        for name in node.outputs:
            expands = is_view and graph.values[name].elements > graph.values[node.inputs[0]].elements
            bases[name] = (None if expands else bases[node.inputs[0]]) if is_view else name
    return bases


def held_at(graph: Graph, moment: int) -> Held:
    """What a device holds before the first node (-1), or while a node computes or stores its result.

    Views share a storage, so of each base at most one value is counted. An operand that is read for the last time may
    be freed before its copy is used: its piece is counted, wherever it lies. Computing and storing are two moments;
    the one is taken that holds more if nothing is divided.
    """
    if moment < 0:
        return Held(tuple(item.name for item in graph.inputs), {})
    last, bases, node = last_uses(graph), view_bases(graph), graph.nodes[moment]
    counted: dict[str, str] = {}
    for name, value in graph.values.items():
        base = bases[name]
        if base is None or not graph.producer.get(name, -1) < moment < last[name]:
            continue
        before = counted.get(base)
        if before is None or (before != base and (name == base or value.bytes > graph.values[before].bytes)):
            counted[base] = name
    own = [result for result, name in enumerate(node.outputs) if bases[name] == name]
    dying = {bases[name]: graph.values[name].bytes for name in node.inputs if bases[name] not in counted}
    pieces = {(moment, ~result): False for result in own}
    if sum(dying.values()) < sum(graph.values[node.outputs[result]].bytes for result in own):
        # Storing: the pieces that were made, where they must move, and the result.
        made = tuple(node.outputs[result] for result in own)
        return Held((*counted.values(), *made), dict.fromkeys(pieces, True))
    seen: set[str | None] = {None, *counted}
    for operand, name in enumerate(node.inputs):
        pieces[moment, operand] = bases[name] in seen
        seen.add(bases[name])
    return Held(tuple(counted.values()), pieces)


STALE = 6  # rounds of rising prices without a lower peak after which a cap is given up


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
    prices: dict[int, float] = {}
    best: SearchResult | None = None
    lowest: tuple[int, SearchResult] | None = None
    bound = 0.0
    tried, stale, scale, floor = 0, 0, 0.0, 0
    until = time.monotonic() + seconds
    for tried in range(1, rounds + 1):
        if first is not None and not prices:
            result, value = first, first.certificate.bound
        else:
            result, value = _priced(graph, objective, prices, cap, seconds)
        bound = max(bound, value)
        measured = measure(result.strategy)
        floor = max(floor, _floor(graph, mesh.devices, measured.at))
        stale += 1
        if lowest is None or measured.peak < lowest[0]:
            lowest, stale = (measured.peak, result), 0
        if best is None and (floor > cap or stale > STALE or time.monotonic() > until):
            break
        if measured.peak <= cap:
            if best is None or result.certificate.cost < best.certificate.cost:
                best = result
            if not prices:
                break
            prices = {moment: price / 2 for moment, price in prices.items()}
            if tried > rounds // 2 or best.certificate.cost <= bound * 1.01:
                break
            continue
        scale = scale or max(result.certificate.cost / max(measured.peak, 1), _byte(objective))
        prices[measured.at] = prices.get(measured.at, 0.0) * 2 + scale * 0.05
    assert lowest is not None
    if best is None:
        raise CannotFitError(lowest[0], lowest[1], floor)
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


def _byte(objective: Objective) -> float:
    """What it costs to fetch a byte, for plans that cost nothing as long as they may use all memory."""
    return 1.0 if objective.name == "bytes" else max(objective.machine.links.seconds_per_byte, default=1e-9)


def _floor(graph: Graph, devices: int, moment: int) -> int:
    """No plan can need less: some device has at least its share of what must exist at that moment."""
    return sum(graph.values[name].bytes for name in held_at(graph, moment).values) // devices


def priced_problem(graph: Graph, objective: Objective, prices: Mapping[int, float]) -> PartitionProblem:
    """The problem with a price on every byte of the last device at some moments.

    Of parts that differ by one element the last device has the largest.
    """
    mesh = objective.machine.mesh
    rules = SECONDS if objective.name == "seconds" else TOFU
    stored = {item.name for item in graph.inputs} | {item.name for item in graph.outputs}
    costs: dict[str, FloatTable] = {}
    pieces: dict[tuple[int, int], PiecePrice] = {}
    for moment, price in prices.items():
        present = held_at(graph, moment)
        pieces.update({place: PiecePrice(price, moved) for place, moved in present.pieces.items()})
        for name in present.values:
            value = graph.values[name]
            regions = [
                regions_of(item, value.shape, mesh)[-1] for item in layouts_of(value, mesh, rules, name in stored)
            ]
            held = np.asarray([float((part[:, 1] - part[:, 0]).prod()) for part in regions])
            costs[name] = costs.get(name, np.zeros(len(held))) + price * held * value.item_bytes
    return build(graph, objective, rules, EVERYTHING, value_costs=costs, piece_prices=pieces)


def _priced(
    graph: Graph, objective: Objective, prices: dict[int, float], cap: int, seconds: float
) -> tuple[SearchResult, float]:
    """The optimum under prices, with its real cost; and the dual value."""
    problem = priced_problem(graph, objective, prices)
    plain = priced_problem(graph, objective, {})
    solution = solve(problem.problem, objective, seconds)
    strategy = problem.strategy(solution.labels)
    cost = cost_of(plain.problem, solution.labels)
    dual = solution.bound - sum(prices.values()) * cap
    certificate = Certificate(
        cost, 0.0, objective.name, solution.how, solution.stopped, "strategies under a memory cap", solution.statistics
    )
    return SearchResult(strategy, certificate), dual
