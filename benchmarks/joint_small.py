"""The joint search on small random programs under caps, beside brute force over the whole joint space.

What: random programs of three and four operators over square matrices, on two devices with links and a large memory of
random speed; each without a cap, and at 80 and 60 % of what the free plan needs. Against: brute force over every graph
that girih's rules lead to, every order of its operators, every division of every operator and layout of every value,
and, where a cap is exceeded, every window of overlap, every pair of steps that come again, everything that may leave
between two uses and every time at which it may come back.

What cannot be faster is left out: strategies by what a device computes, packs and places, what a port receives, and the
longest path; strategies in an order by what exceeds the cap while a node computes, and has to go and come back;
sequences by that, and by the step without movements; movements by what each copier has to do. Each strategy's bound is
held against what is simulated, and what is found by rows against its Program: the benchmark breaks down where they
differ. The floor: the share of cases in which nothing is faster than what the joint search finds. In all cases its
bound is to hold, and the sequential composition is not to be faster. Cases with more than `--leaves` ways to hold that
the bounds leave, which are those in which a slow large memory makes movements take several times the step, are counted
as not ended; what was found until then is held against the plan and its bound as well. Caps that are refused are tried
out until something fits: a case in which something does counts as one that is not optimal. The sizes of the spaces, as
the bounds leave them, are printed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice, pairwise, product
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, clock, note, since

PROGRAMS, QUICK = 300, (6,)
"""How many random programs, and the one of the quick form, which brute force tries out in seconds."""
SHARES = (None, 0.8, 0.6)
SECONDS = 4.0
"""Of counted work of each joint search, which nothing else ends (`girih.layout.budget.PATIENCE`)."""
UNARY = ("aten.relu", "aten.tanh")
BINARY = ("aten.mm", "aten.mm", "aten.add.Tensor", "aten.mul.Tensor")
MOST_GRAPHS, MOST_AGAIN = 12, 2
LEAVES, HOLDING = 6_000, 20
"""Ways to hold that are tried for a case, at most, of which looking at one strategy in one order counts for so many."""
SIDES = ("in turn CPU", "joint CPU", "brute force CPU")
TOLD = 5
"""Programs after which the tallies so far are told."""
MISSES = ("above", "wrong bound", "slower", "wrongly refused")
TOLD_OF = ("optimal", *MISSES)
"""How a case may come out that is not optimal, and all ways in which its optimum, or a miss, is known."""
ROUNDED = 1e-10
"""Seconds by which what is rounded to the ticks of the simulator may differ."""


def random_program(random: np.random.Generator, operators: int) -> Any:
    """A graph in which most values are read once, so that it is a tree with a few shared values."""
    from girih.graph import Graph, Input, Node, Output, Ref, Value

    side = int(random.choice((16, 32)))
    values: dict[str, Any] = {}
    inputs, nodes = [], []

    def value(name: str) -> str:
        values[name] = Value(name, (side, side), "float32")
        return name

    for number in range(int(random.integers(2, 4))):
        inputs.append(Input(value(f"x{number}"), "batch", str(number)))
    known = [item.name for item in inputs]
    unread = list(known)

    def operand() -> Any:
        name = str(random.choice(unread if unread and random.random() < 0.6 else known))
        if name in unread:
            unread.remove(name)
        return Ref(name)

    for number in range(operators):
        if random.random() < 0.25:
            operator, arguments = str(random.choice(UNARY)), {"self": operand()}
        else:
            operator = str(random.choice(BINARY))
            arguments = {"self": operand(), ("mat2" if operator == "aten.mm" else "other"): operand()}
        name = value(f"v{number}")
        nodes.append(Node(name, operator, tuple(arguments.items()), (name,)))
        known.append(name)
        unread.append(name)
    read = {name for node in nodes for name in node.inputs}
    outputs = tuple(Output(node.name, "result") for node in nodes if node.name not in read)
    used = tuple(item for item in inputs if item.name in read)
    kept = {item.name for item in used} | {node.name for node in nodes}
    return Graph({name: item for name, item in values.items() if name in kept}, tuple(nodes), used, outputs)


def random_machine(random: np.random.Generator) -> Any:
    from girih.machine import Device, Level, Machine
    from girih.machine.machine import Tier

    link, host = (float(random.choice((5e7, 2e8, 1e9))) for _ in range(2))
    device = Device("small", 2e9, 10**9, 1e9, 1e-7)
    return Machine("small", device, (Level("links", (2,), link, 1e-7),), host=Tier("host", 10**9, host, host))


# ---------------------------------------------------------------------------------------------- the whole space


def every_graph(graph: Any) -> list[Any]:
    """The graphs that girih's rules lead to, this one among them."""
    from girih.plans.rewritten import rules
    from girih.rewrite.backtracking import fingerprint
    from girih.rewrite.passes.binary_joins import BinaryJoins, FlatJoins
    from girih.rewrite.passes.computed_once import ComputeOnce
    from girih.rewrite.rules.apply import NodeIndex, matches, replaced

    start = ComputeOnce().apply(BinaryJoins().apply(graph))
    found, waiting, known = [graph], [start], {fingerprint(start)}
    while waiting and len(found) < MOST_GRAPHS:
        current = waiting.pop(0)
        for rule in rules():
            for match in matches(rule, NodeIndex.of(current)):
                child = replaced(current, match)
                if child is not None and (key := fingerprint(child)) not in known:
                    known.add(key)
                    waiting.append(child)
                    found.append(FlatJoins().apply(child))
    return found


def every_order(graph: Any) -> Iterator[tuple[int, ...]]:
    """The nodes in each order in which they can be computed."""
    nodes, entering = graph.nodes, {item.name for item in graph.inputs}

    def behind(order: tuple[int, ...], made: set[str]) -> Iterator[tuple[int, ...]]:
        if len(order) == len(nodes):
            yield order
        for number, node in enumerate(nodes):
            if number not in order and made.issuperset(node.inputs):
                yield from behind((*order, number), made.union(node.outputs))

    return behind((), entering)


def in_order(graph: Any, strategy: Any, order: tuple[int, ...]) -> tuple[Any, Any]:
    """The graph with its nodes in an order, and a strategy of it."""
    from girih.graph import Graph
    from girih.partition import Strategy

    ordered = Graph(graph.values, tuple(graph.nodes[number] for number in order), graph.inputs, graph.outputs)
    divisions = tuple(strategy.divisions[number] for number in order)
    return ordered, Strategy(strategy.mesh, divisions, strategy.layouts)


Ends = tuple[bytes, tuple[int, ...], bytes, tuple[int, ...], bool]


def handling(composer: Any, known: dict[Ends, float], node: int, name: str, ends: Sequence[Any], reads: bool) -> float:
    """Seconds in which a device packs, places and adds where a value goes from one placement to another."""
    from girih.layout.transfer import route
    from girih.program import TransferStep

    source, target = ends
    key = (source.regions.tobytes(), source.partial, target.regions.tobytes(), target.partial, reads)
    if key not in known:
        value, total = composer.graph.values[name], 0.0
        hops = route(composer.lowering.transfers, source, target, value.shape, value.item_bytes)
        same = source.partial == target.partial and bool((source.regions == target.regions).all())
        for place in hops or (() if reads or same else (target,)):
            step = TransferStep(name, node, "", "", source, place, "fetch", "sum")
            total += sum(float(part.min()) for part in composer.moving.priced(step, False))
            source = place
        known[key] = total
    return known[key]


@dataclass(frozen=True)
class Divided:
    """A strategy. least: seconds that no order of the nodes is below. computing: of each node, seconds in which a
    device computes; fetching, by what it reads, and storing: in which it packs and places. parts: by value, bytes that
    a device holds of it. pieces: of each node by what it reads, bytes that it reads, and whether these were moved;
    made: bytes that it makes."""

    least: float
    strategy: Any
    computing: list[float]
    fetching: list[dict[str, float]]
    storing: list[float]
    parts: dict[str, float]
    pieces: list[dict[str, tuple[float, bool]]]
    made: list[float]


def sizes_of(places: Any, item: int) -> list[float]:
    """Bytes of a device's part under each of these placements."""
    regions = places.regions
    found: list[float] = ((regions[..., 1] - regions[..., 0]).prod(axis=-1).min(axis=-1) * float(item)).tolist()
    return found


def every_strategy(graph: Any, machine: Any, limit: float, composer: Any, known_work: dict[Ends, float],
                   cap: float = np.inf) -> Iterator[Divided]:  # fmt: skip
    """All strategies whose seconds, which no order of the nodes is below, are below the limit; in which a device has
    room for what it is given, and for what a node reads and makes.

    The seconds are the largest of what a device computes, packs and places, of what a port receives, and of the longest
    path: on two devices with even parts each device does the same. A message keeps a port without its latency, which it
    is under way beside others.
    """
    from girih.layout import Placements
    from girih.partition.space.options import SECONDS
    from girih.partition.space.problem import Objective, build

    direct = replace(machine, levels=tuple(replace(level, latency_seconds=0.0) for level in machine.levels))
    space, other = (build(graph, Objective("seconds", item), SECONDS) for item in (machine, direct))
    problem, values = space.problem, len(space.layouts)
    tables, kept = ([table.tolist() for table in item.problem.tables] for item in (space, other))
    pairs = zip(problem.pairs, other.problem.pairs, strict=True)

    def prices(node: int, name: str, pieces: Any, ends: Any, reads: bool) -> tuple[Any, ...]:
        """Of each division and layout, seconds on the way, of a port, and of the device."""
        (_, variable, table), (_, _, short) = ends
        lies = Placements.of(space.layouts[variable], graph.values[name].shape, machine.mesh)
        own = [
            [
                handling(composer, known_work, node, name, (layout, piece) if reads else (piece, layout), reads)
                if tables[table][label][number] < limit
                else 0.0
                for number, layout in enumerate(lies[item] for item in range(len(lies)))
            ]
            for label, piece in enumerate(pieces[item] for item in range(len(pieces)))
        ]
        return variable, tables[table], kept[short], own

    known: set[int] = set()
    turns: list[tuple[str, int, Any]] = []
    for number, node in enumerate(graph.nodes):
        options = space.options[number]
        reads = [
            prices(number, name, need, ends, True)
            for name, need, ends in zip(node.inputs, options.needs, islice(pairs, len(node.inputs)), strict=True)
        ]
        for variable, *_ in reads:
            if variable not in known:
                known.add(variable)
                turns.append(("given", variable, ()))
        turns.append(("node", values + number, reads))
        for name, made, ends in zip(node.outputs, options.makes, islice(pairs, len(node.outputs)), strict=True):
            variable, *priced = prices(number, name, made, ends, False)
            known.add(variable)
            turns.append(("made", variable, (values + number, *priced)))
    items = {name: value.item_bytes for name, value in graph.values.items()}
    parts = {
        name: sizes_of(Placements.of(space.layouts[space.variable[name]], value.shape, machine.mesh), value.item_bytes)
        for name, value in graph.values.items()
    }
    needs = [
        [sizes_of(need, items[name]) for name, need in zip(node.inputs, options.needs, strict=True)]
        for node, options in zip(graph.nodes, space.options, strict=True)
    ]
    makes = [
        sizes_of(options.makes[0], items[node.outputs[0]])
        for node, options in zip(graph.nodes, space.options, strict=True)
    ]
    name_of = {space.variable[name]: name for name in graph.values}

    def divided(least: float) -> Divided:
        """What the labels say."""
        pieces, computing, fetching = [], [], []
        storing = [0.0] * len(graph.nodes)
        for _, variable, more in (turn for turn in turns if turn[0] == "node"):
            number, label = variable - values, labels[variable]
            reads, handling = dict[str, tuple[float, bool]](), dict[str, float]()
            computing.append(own[variable][label])
            for operand, (value, table, _, handled) in enumerate(more):
                size, moved = needs[number][operand][label], table[label][labels[value]] > 0
                before = reads.get(name_of[value], (0.0, False))
                reads[name_of[value]] = max(before[0], size), before[1] or moved
                handling[name_of[value]] = handling.get(name_of[value], 0.0) + handled[label][labels[value]]
            pieces.append(reads)
            fetching.append(handling)
        for _, variable, (node, _, _, handled) in (turn for turn in turns if turn[0] == "made"):
            storing[node - values] += handled[labels[node]][labels[variable]]
        held = {name: sizes[labels[space.variable[name]]] for name, sizes in parts.items()}
        made = [sizes[labels[values + number]] for number, sizes in enumerate(makes)]
        strategy = space.strategy(np.asarray(labels))
        return Divided(least, strategy, computing, fetching, storing, held, pieces, made)

    takes = [may_take_over(graph, number) for number in range(len(graph.nodes))]
    own = [tables[table] if table >= 0 else [] for table in problem.unary]
    rest = [0.0] * (len(turns) + 1)  # seconds of computing that are to come, at least
    tail = [0.0] * len(problem.domains)  # and on the longest path behind each variable
    for at, (kind, variable, more) in reversed(list(enumerate(turns))):
        rest[at] = rest[at + 1] + (min(own[variable]) if kind == "node" else 0.0)
        if kind == "node":
            for value, *_ in more:
                tail[value] = max(tail[value], tail[variable] + min(own[variable]))
        elif kind == "made":
            tail[more[0]] = max(tail[more[0]], tail[variable])
    labels, ready = [0] * len(problem.domains), [0.0] * len(problem.domains)

    def below(at: int, computing: float, received: float, path: float, given: float) -> Iterator[Divided]:
        least = max(computing + rest[at], received, path)
        if least >= limit or given > cap:
            return
        if at == len(turns):
            yield divided(least)
            return
        kind, variable, more = turns[at]
        for label in range(problem.domains[variable]):
            labels[variable], begin, own_seconds, moved, handled = label, 0.0, 0.0, 0.0, 0.0
            if kind == "node":
                own_seconds, number = own[variable][label], variable - values
                read = {item[0]: needs[number][operand][label] for operand, item in enumerate(more)}
                if sum(read.values()) + (0.0 if takes[number] else makes[number][label]) > cap:
                    continue
                for value, table, short, work in more:
                    at_value = labels[value]
                    begin = max(begin, ready[value] + table[label][at_value] + work[label][at_value])
                    moved += short[label][at_value]
                    handled += work[label][at_value]
            elif kind == "made":
                node, table, short, work = more
                division = labels[node]
                moved, handled = short[division][label], work[division][label]
                begin = ready[node] + table[division][label] + handled
            ready[variable] = begin + own_seconds
            if moved < limit:
                longest = max(path, ready[variable] + tail[variable])
                more_given = given + (parts[name_of[variable]][label] if kind == "given" else 0.0)
                yield from below(at + 1, computing + own_seconds + handled, received + moved, longest, more_given)

    yield from below(0, 0.0, 0.0, 0.0, 0.0)


def may_take_over(graph: Any, number: int) -> bool:
    """May the result of a node lie where an operand lay?"""
    from girih.ops.derive.in_place import writes_over
    from girih.ops.known import descriptions

    description, node = descriptions(graph)[number], graph.nodes[number]
    return description is None or any(writes_over(description.operator, at) for at in range(len(node.inputs)))


@dataclass(frozen=True)
class Leaving:
    """What may be away while a step computes. ready: seconds before which it cannot go out; tail: seconds in which a
    device computes behind its coming back; again: in which it is made again instead, infinite where it cannot be."""

    bytes: float
    ready: float
    tail: float
    again: float = np.inf


def away(over: float, able: Sequence[Leaving], before: float, own: float, after: float, host: Any) -> float:
    """Seconds that no way to have so many bytes away while a step computes is below, infinite where there is none.

    What is away is whole. It went out before, one after the other, and comes back behind; or it is made again behind.
    before, own, after: seconds in which a device works before the step, in it, and behind it.
    """
    least = np.inf
    for chosen in (some for count in range(1, len(able) + 1) for some in combinations(able, count)):
        total = sum(item.bytes for item in chosen)
        if total < over or total - min(item.bytes for item in chosen) >= over:  # fewer would do
            continue
        for moved in product((True, False), repeat=len(chosen)):
            again = [item.again for item, moves in zip(chosen, moved, strict=True) if not moves]
            if len(again) > MOST_AGAIN or np.inf in again:
                continue
            goes = [item for item, moves in zip(chosen, moved, strict=True) if moves]
            out = _serial([(item.ready, host.copy_seconds(item.bytes, True), 0.0) for item in goes])
            back = _serial([(0.0, host.copy_seconds(item.bytes, False), item.tail) for item in goes])
            least = min(least, max(before, out) + own + max(after + sum(again), back))
    return least


@dataclass(frozen=True)
class Ordered:
    """A graph's nodes in an order. born, last: by value, the turns in which it is made (-1: before the first) and read
    the last time (behind all turns if it is a result). readers: by value, the turns that read it."""

    order: tuple[int, ...]
    born: dict[str, int]
    last: dict[str, int]
    readers: dict[str, list[int]]

    @staticmethod
    def of(graph: Any, order: tuple[int, ...]) -> Ordered:
        nodes, staying = [graph.nodes[number] for number in order], {output.name for output in graph.outputs}
        readers = {name: [at for at, node in enumerate(nodes) if name in node.inputs] for name in graph.values}
        last = {name: len(nodes) if name in staying else max(turns, default=-1) for name, turns in readers.items()}
        made = {name: at for at, node in enumerate(nodes) for name in node.outputs}
        return Ordered(order, {name: made.get(name, -1) for name in graph.values}, last, readers)


def crowded(graph: Any, order: tuple[int, ...], item: Divided, cap: float, host: Any) -> float:
    """Seconds that no way to hold a strategy in this order of the nodes is below.

    While a node computes, what is alive and exceeds the cap is away (`away`). Of a value that nodes read later a device
    holds its part, or what it is made as, or what one of these has fetched already. Packing and placing may overlap
    with other nodes: they count before or behind the node only where they cannot be on its other side. 0 where views
    share what they show.
    """
    from girih.ops.known import descriptions

    if any(known is None or known.operator.view for known in descriptions(graph)):
        return 0.0
    turns = Ordered.of(graph, order)
    born, last, readers = turns.born, turns.last, turns.readers
    computing = [item.computing[number] for number in order]
    fetching = [item.fetching[number] for number in order]
    storing = [item.storing[number] for number in order]
    done = [0.0]  # seconds of what is computed and fetched before each turn
    for own, fetched in zip(computing, fetching, strict=True):
        done.append(done[-1] + own + sum(fetched.values()))
    read_at = {born[name]: min(turns, default=len(order)) for name, turns in readers.items()}
    tails = [sum(computing[at:]) for at in range(len(order) + 1)]
    longest = 0.0
    for at, number in enumerate(order):
        pieces = item.pieces[number]
        held, able = 0.0 if may_take_over(graph, number) else item.made[number], []
        for name, part in item.parts.items():
            if not born[name] < at <= last[name]:
                continue
            size, moved = pieces.get(name, (0.0, False))
            if name in pieces and last[name] == at:
                held += size
                continue
            later = [item.pieces[order[turn]][name][0] for turn in readers[name] if turn > at]
            if later and last[name] < len(order):
                part = min(part, *later)
            if born[name] >= 0:
                part = min(part, item.made[order[born[name]]])
            held += part + (size if moved else 0.0)
            if name not in pieces or moved:
                ready, again = 0.0, np.inf
                if (maker := born[name]) >= 0:
                    ready, again = done[maker + 1], computing[maker]
                able.append(Leaving(part, ready, tails[min((t for t in readers[name] if t > at), default=-1)], again))
        if held > cap:
            before = done[at] + sum(fetching[at].values())
            before += sum(storing[turn] for turn in range(at) if read_at[turn] <= at)
            after = tails[at + 1] + sum(storing[at:])
            after += sum(
                seconds for turn in range(at + 1, len(order)) for name, seconds in fetching[turn].items()
                if born[name] >= at
            )  # fmt: skip
            longest = max(longest, away(held - cap, able, before, computing[at], after, host))
    return longest


def sequences(steps: Sequence[Any]) -> Iterator[tuple[int, ...]]:
    """The steps as they are, and with one or two that compute coming again before a later reader."""
    from girih.program import ComputeStep

    again = [
        (maker, reader)
        for maker, step in enumerate(steps)
        if isinstance(step, ComputeStep)
        for reader in range(maker + 2, len(steps))
        if not set(step.targets).isdisjoint(steps[reader].sources)
    ]
    for count in range(MOST_AGAIN + 1):
        for chosen in combinations(again, count):
            order: list[int] = []
            for number in range(len(steps)):
                order += [maker for maker, reader in chosen if reader == number]
                order.append(number)
            yield tuple(order)


@dataclass(frozen=True)
class Gap:
    """Between two steps that touch a storage, with others between them."""

    storage: int
    left: int
    right: int


def residencies(lives: Any, cap: int, begins: Sequence[float], tails: Sequence[float], host: Any, limit: Any
                ) -> Iterator[list[list[int]]]:  # fmt: skip
    """The stays of all storages for everything that may leave between two uses, and every time at which it may come
    back, that keep the cap, where copies and computing alone do not take as long as the limit, which is asked for.

    begins: of each step, without movements. tails: seconds that a device computes from each step on. What is away while
    no step runs is left out: nothing would have more memory. So are times that would be such.
    """
    storages, end = lives.storages, len(lives.steps)
    gaps = [
        Gap(number, left, right)
        for number, item in enumerate(storages)
        if item.movable
        for left, right in pairwise(item.touched)
        if right >= left + 2
    ]
    need = [int(used) - cap for used in lives.touches.used]
    able = [[0] * (end + 1)]  # bytes that the gaps from one on can free in each step
    for gap in reversed(gaps):
        size = storages[gap.storage].bytes
        able.append([most + size * (gap.left < at < gap.right) for at, most in enumerate(able[-1])])
    able.reverse()

    def below(at: int, need: list[int], cuts: tuple[tuple[Gap, int], ...], outs: Any, ins: Any) -> Iterator[Any]:
        if any(more > most for more, most in zip(need, able[at], strict=True)):
            return
        if cuts and max(_serial(outs), _serial(ins)) >= limit() + ROUNDED:
            return
        if at == len(gaps):
            if cuts:
                yield cuts
            return
        gap = gaps[at]
        yield from below(at + 1, need, cuts, outs, ins)
        size, begin = storages[gap.storage].bytes, begins[gap.left + 1]
        fresh = all(other.storage != gap.storage for other, _ in cuts)
        back, gone = host.copy_seconds(size, False), host.copy_seconds(size, True) if fresh else 0.0
        out = (*outs, (begin, gone, back + tails[gap.right])) if fresh else outs
        for start in range(gap.left + 2, gap.right + 1):
            left = [more - size * (gap.left < step < start) for step, more in enumerate(need)]
            come = (*ins, (max(begins[start], begin + gone), back, tails[gap.right]))
            yield from below(at + 1, left, (*cuts, (gap, start)), out, come)

    for cuts in below(0, need, (), (), ()):
        stays = []
        for number, item in enumerate(storages):
            mine = [(gap, start) for gap, start in cuts if gap.storage == number]
            ends = [*(gap.left for gap, _ in mine), item.touched[-1]]
            begun = [(item.touched[0],) * 2, *((start, gap.right) for gap, start in mine)]
            for rank, ((start, first), last) in enumerate(zip(begun, ends, strict=True)):
                final = rank == len(ends) - 1
                stays.append([number, start, first, last, rank == 0, rank == 0 and bool(mine), final and item.lasts])
        yield sorted(stays, key=lambda stay: (stay[1], stay[2], stay[0]))


def _serial(copies: Sequence[tuple[float, float, float]]) -> float:
    """One copier makes these, one after the other: each begins at the earliest, takes, and has something behind it."""
    longest = 0.0
    for begin, _, _ in copies:
        for _, _, behind in copies:
            some = [took for first, took, tail in copies if first >= begin and tail >= behind]
            longest = max(longest, begin + sum(some) + behind if some else 0.0)
    return longest


def moved_at_least(lives: Any, cap: int, begins: Sequence[float], tails: Sequence[float], host: Any) -> float:
    """Seconds of a sequence, at least, in which everything that exceeds the cap is away (`away`). begins, tails: as in
    `residencies`."""
    longest = 0.0
    for at, over in enumerate((lives.used - cap).tolist()[:-1]):
        if over > 0:
            able = [
                Leaving(item.bytes, begins[left + 1], tails[right])
                for item in lives.storages
                if item.movable
                for left, right in pairwise(item.touched)
                if left < at < right
            ]
            longest = max(longest, away(over, able, begins[at], tails[at] - tails[at + 1], tails[at + 1], host))
    return longest


class TooManyError(Exception):
    """More ways to hold are left than are tried."""


class FitsError(Exception):
    """Something keeps the limit, which is all that was asked."""


@dataclass
class Search:
    """The least seconds so far, of which only `limit` and more is known at first; ways to hold that are left to try;
    whether anything that keeps the limit is enough; counts of what was looked at; whether all ways were tried."""

    least: float
    left: int
    any_fits: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    ended: bool = False

    def found(self, seconds: float) -> None:
        """A plan that keeps the limit takes so long."""
        self.least = min(self.least, seconds)
        if self.any_fits:
            raise FitsError

    def count(self, what: str, many: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + many


def fastest(graph: Any, machine: Any, cap: int | None, limit: float, leaves: int) -> Search:
    """What brute force finds that takes less than the limit; where that is infinite, the first that keeps the cap. Not
    ended where there are more than so many ways to hold whose bounds are below the limit."""
    search = Search(limit * (1 - 1e-6), leaves, any_fits=limit == np.inf)
    try:
        try_out(graph, machine, cap, search)
        search.ended = True
    except FitsError:
        search.ended = True
    except TooManyError:
        pass
    return search


def try_out(graph: Any, machine: Any, cap: int | None, search: Search) -> None:
    """Every way to write a graph, every strategy, and every order of the nodes.

    Raises:
        TooManyError: more ways to hold are left than are tried.
        FitsError: something keeps the cap, and anything is enough.
    """
    from girih.partition.space.problem import Objective
    from girih.plans.choice import Choice
    from girih.plans.plan import Goal, Plan
    from girih.rewrite.certificate import Certificate
    from girih.search.composed import Composer, nodes_of
    from girih.search.memory.limit import WINDOWS

    certificate = Certificate(float("inf"), 0.0, "seconds", "none", "", "")
    handled = dict[Ends, float]()
    for written in every_graph(graph):
        search.count("graphs")
        transfers = Objective("time", machine).transfers
        composer = Composer(written, machine, transfers, WINDOWS[0])
        orders = list(every_order(written))
        nodes: dict[tuple[int, ...], Any] = {}
        search.count("orders", len(orders))
        limited = np.inf if cap is None else float(cap)
        for item in every_strategy(written, machine, search.least, composer, handled, limited):
            least, strategy = item.least, item.strategy
            if least >= search.least:
                continue
            search.count("strategies")
            chosen = composer.variants(strategy)
            if chosen is None:
                continue
            for order in orders:
                if cap is not None and crowded(written, order, item, cap, machine.host) >= search.least:
                    continue
                if order not in nodes:
                    nodes[order] = nodes_of(in_order(written, strategy, order)[0])
                seconds = composer.makespan([chosen[number] for number in order], nodes[order])
                search.count("simulated")
                if seconds < least - ROUNDED:
                    raise AssertionError(f"{seconds} s are below the bound of the strategy, {least} s: {strategy}")
                if seconds >= search.least:
                    continue
                if cap is None:
                    search.found(seconds)
                    continue
                ordered, divided = in_order(written, strategy, order)
                choice = Choice(divided, overlap=WINDOWS[0])
                _hold(Plan(ordered, machine, choice, certificate, Goal("joint", "time", cap)), cap, search)


def _hold(plan: Any, cap: int, search: Search) -> None:
    """Every way to hold one strategy in one order of its nodes."""
    from girih.cost.prices import Prices
    from girih.plans.predict import predict, priced_on
    from girih.program import FreeStep, ProgramError, StartStep, overlapped
    from girih.program.moves.residency import Residency, floor
    from girih.search.memory.held_steps import HeldRows
    from girih.search.memory.limit import WINDOWS
    from girih.simulate.ticks import TICKS_PER_SECOND

    search.left -= HOLDING
    if search.left <= 0:
        raise TooManyError
    plain = plan.but(overlap=WINDOWS[-1])
    priced = priced_on(plain, plain.machine, None, "processes")
    prices = dict(
        zip(plain.lowered.steps, zip(priced.priced.prices.before, priced.priced.prices.after, strict=True), strict=True)
    )
    known: list[tuple[Any, ...]] = []
    for window in WINDOWS:
        program = overlapped(plain.lowered, window)
        if program.steps in known:
            continue
        known.append(program.steps)
        both = [
            prices[step.transfer if isinstance(step, StartStep) else step]
            if not isinstance(step, FreeStep)
            else (np.zeros(plan.machine.devices),) * 2
            for step in program.steps
        ]
        before, after = (np.asarray([seconds[way] for seconds in both]) for way in (0, 1))
        own = plan.but(overlap=window).knowing(lowered=program)
        rows = HeldRows(own.lifetimes, Prices(before, after), priced.simulated, cap)
        steps = [step for step in program.steps if not isinstance(step, FreeStep)]
        if rows.simulated(range(len(steps))).seconds >= search.least:
            continue
        if int(own.lifetimes.used.max()) <= cap and own.peak <= cap:
            search.found(rows.simulated(range(len(steps))).seconds)
            continue
        computing = [
            rows.before[row, 0] / TICKS_PER_SECOND if row >= 0 and rows.kind[row] == 0 else 0.0 for row in rows.row
        ]
        for sequence in sequences(steps):
            free = rows.simulated(sequence)
            search.count("sequences")
            if free.seconds >= search.least:
                if len(sequence) == len(steps):  # with steps that come again it does not take less
                    break
                continue
            tails = [0.0]
            for number in reversed(sequence):
                tails.append(tails[-1] + computing[number])
            tails.reverse()
            again = own.but(sequence=sequence) if len(sequence) > len(steps) else own
            search.count("lifetimes")
            try:
                lives = again.lifetimes
            except ProgramError:  # what stays when the program has ended comes once
                continue
            if floor(lives)[0] > cap:
                continue
            if again is not own and int(lives.used.max()) <= cap and again.peak <= cap:
                search.found(free.seconds)
                continue
            if lives.views or not rows.able:
                raise TooManyError
            if moved_at_least(lives, cap, free.clock.tolist(), tails, own.machine.host) >= search.least:
                continue
            for stays in residencies(lives, cap, free.clock.tolist(), tails, own.machine.host, lambda: search.least):
                search.count("held")
                search.left -= 1
                if search.left <= 0:
                    raise TooManyError
                residency = Residency.of(stays)
                seconds = rows.simulated(sequence, lives, residency).seconds
                if seconds < search.least:
                    moved = again.but(residency=(residency,), room=cap)
                    if (written := predict(moved, memory=False).seconds) != seconds:
                        raise AssertionError(f"simulated by rows {seconds} s, by its Program {written} s")
                    if moved.peak <= cap:
                        search.found(seconds)


# ---------------------------------------------------------------------------------------------- what is measured


def one(seed: int, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What came out of a program under each cap."""
    from girih.api import plan_graph
    from girih.plans.plan import PlanError

    random = np.random.default_rng(seed)
    graph, machine = random_program(random, 3 + seed % 2), random_machine(random)
    free = plan_graph(graph, machine=machine, compare=())
    for share in SHARES[:2] if options.quick else SHARES:
        cap = None if share is None else int(share * free.peak)
        found: dict[str, Any] = {"program": seed, "memory": "all" if share is None else f"{share:.0%}"}
        began = clock()
        turn = free.certificate.cost
        if cap is not None:
            try:
                turn = plan_graph(graph, machine=machine, memory=cap, compare=()).certificate.cost
            except PlanError:
                turn = float("inf")
        found["in turn CPU"], began = since(began).cpu, clock()
        try:
            joint = f"joint:seconds={SECONDS}"
            told = plan_graph(graph, machine=machine, memory=cap, search=joint, compare=()).certificate
        except PlanError:
            found["came out"] = "above"
            if turn == float("inf"):
                began = clock()
                search = fastest(graph, machine, cap, turn, options.leaves)
                found |= {"brute force CPU": since(began).cpu, "fits": search.least, **search.counts}
                right = "refused" if search.ended else "refused, not ended"
                found["came out"] = right if search.least == float("inf") else "wrongly refused"
            yield {**found, "in turn": turn}
            continue
        found["joint CPU"], began = since(began).cpu, clock()
        cost = told.cost
        bound = max(float(part) for name, part in told.statistics.items() if name.startswith("bound, "))
        found |= {"joint": cost, "in turn": turn, "bound": bound, "by": told.statistics["found by"]}
        search = fastest(graph, machine, cap, cost, options.leaves)
        slower = search.least < cost * (1 - 1e-6)
        least = search.least if slower else cost
        found |= {"least": least, **search.counts, "brute force CPU": since(began).cpu}
        came_out = "slower" if slower else "optimal" if search.ended else "not ended"
        if bound > least * (1 + 1e-6) + ROUNDED:
            came_out = "wrong bound"
        yield {**found, "came out": "above" if cost > turn else came_out}


def tallied(cases: Sequence[dict[str, Any]], programs: int) -> Row:
    """The row of the table for the cases so far."""
    counts = Counter(case["came out"] for case in cases)
    tried = [case for case in cases if case["came out"] in TOLD_OF]
    faster = [
        case["in turn"] / case["joint"] for case in cases if case.get("joint", np.inf) < case["in turn"] * (1 - 1e-6)
    ]
    known = [ratio for ratio in faster if np.isfinite(ratio)]
    optimal, ended = counts["optimal"], len(tried)
    row: Row = {"programs": programs, "cases": ended, "optimal": optimal, "share": f"{optimal / max(ended, 1):.1%}"}
    row |= {"refused": counts["refused"], "wrongly": counts["wrongly refused"]}
    row |= {"open": counts["refused, not ended"], "not ended": counts["not ended"]}
    row |= {"wrong": counts["wrong bound"] + counts["above"], "faster": len(faster)}
    row |= {"mean": f"{float(np.exp(np.mean(np.log(known or [1.0])))):.3f}"}
    for side in SIDES:
        row[side] = round(sum(case.get(side, 0.0) for case in cases), 1)
    spaces = []
    for what in ("graphs", "orders", "strategies", "simulated", "sequences", "held"):
        found = [case.get(what, 0) for case in tried] or [0]
        spaces.append(f"{float(np.median(found)):g} to {max(found)} {what}")
    row["spaces"] = ", ".join(spaces)
    return row


def measure(options: argparse.Namespace) -> Report:
    from girih.layout import budget

    budget.PATIENCE = float("inf")
    cases: list[dict[str, Any]] = []
    seeds = QUICK if options.quick else range(options.first, options.first + options.programs)
    for number, seed in enumerate(seeds, start=1):
        for case in one(seed, options):
            cases.append(case)
            if options.cases or case["came out"] not in ("optimal", "refused"):
                note(case)
        if number % TOLD == 0 or number == len(seeds):
            note({"first": seeds[0], **tallied(cases, number)})
    row = tallied(cases, len(seeds))
    misses = [
        f"program {case['program']}, memory {case['memory']}: {case['came out']}: "
        + ", ".join(f"{what} {case.get(what, np.nan):.6g} s" for what in ("joint", "in turn", "least", "fits", "bound"))
        for case in cases
        if case["came out"] in MISSES
    ]
    share = row["optimal"] / max(row["cases"], 1)
    hard = [miss for miss in misses if ": slower: " not in miss and ": wrongly refused: " not in miss]
    columns = (
        ("programs", "programs"),
        ("cases with a verdict", "cases"),
        ("optimal", "optimal"),
        ("share", "share"),
        ("refused, and nothing fits", "refused"),
        ("refused, and something fits", "wrongly"),
        ("refused, brute force did not end", "open"),
        ("brute force did not end", "not ended"),
        ("wrong bounds, or above the sequential", "wrong"),
        ("faster than the sequential", "faster"),
        ("× of these, geometric mean", "mean"),
        *((side, side) for side in SIDES),
    )
    return Report(
        "The joint search on small random programs under caps, beside brute force over the whole space",
        columns,
        (row,),
        f"{row['share']} of {row['cases']} cases optimal",
        tuple(misses if share < options.floor else hard),
        (f"what the bounds left of a space, median to largest: {row['spaces']}", *misses),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--programs", type=int, default=PROGRAMS, help=f"random programs (default {PROGRAMS})")
    parser.add_argument("--first", type=int, default=0, help="the first of them: all can be run in slices (default 0)")
    parser.add_argument("--leaves", type=int, default=LEAVES, help="ways to hold that are tried for a case, at most")
    parser.add_argument("--cases", action="store_true", help="print every case, on the error stream")


BENCHMARK = Benchmark("joint_small", __doc__ or "", measure, 0.95, "share of small cases that are optimal", add_options)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
