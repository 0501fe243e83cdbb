"""The cheapest graph in an e-graph, by integer programming, and a bound on what any graph in it costs.

One variable for each way to compute each node, one for each conversion between layouts, one for each node that is
computed within the kernel before it:

    minimise    Σ seconds · way + Σ seconds · conversion - Σ seconds · joined
    each output has a way that makes it; each class at most one way
    what a way reads, in its layout, is made so or converted (the ways of a class that read a class count together)
    a conversion needs that its value is made in the layout from which it converts
    joined: the way and one that it can join are both taken, and nothing else reads what is between

Some classes are needed by all that makes another: a class that is made needs them made. Integers obey that of
themselves, fractions do not: eight products that each want a ninth of a tensor would pay for a ninth of it. So it is
said, in rows of its own (the landmarks of planning, Zhu and Givan, ICAPS 2003), and what each output needs is taken.
Circles are cut off where a solution has one: of the classes on a circle not all may be made from their next. Pairs that
read each other are cut off beforehand. The bound is the solver's dual bound of the program with the cuts, so it holds
for all graphs in the e-graph. Cost: HiGHS's branch and cut; programs of a thousand variables take about a second.

No clock ends it, so that a busy machine finds the same later. HiGHS can be told how many branches it may look at, and
not how much work it may do before the first, at the root: which programs are solved at all is told by their size.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np

from girih.graph import Graph, Node, Ref, Value
from girih.layout.budget import PATIENCE, Budget
from girih.rewrite.saturation.egraph import RESULT, SLICE, EGraph
from girih.rewrite.ways import ROWS, Costing, Way, measuring

NODE = 100_000.0
"""Nanoseconds of finding the ways of a node and writing their rows."""
ROOT, BRANCH = 500_000.0, 50_000.0
"""Nanoseconds for each entry of a program's rows: of solving it at the root, and in each branch after it. (A program of
2,790 variables and 17,407 entries, of a BERT of twelve layers, took 9.2 seconds for root and one branch, 530,000 for
each entry; those of a hundred variables take 10,000 to 30,000.)
"""


@dataclass(frozen=True)
class Extracted:
    """graph: None where the work ran out before a graph without circles was found. bound: no graph of the e-graph costs
    less. exact: is there none cheaper than `graph`? cuts: circles that were cut off."""

    graph: Graph | None
    bound: float
    exact: bool
    variables: int
    constraints: int
    cuts: int
    seconds: float


@dataclass(frozen=True)
class _Taken:
    """A variable: a way to compute a node of a class."""

    of: str
    node: Node
    way: Way


class _Program:
    """Rows and columns of an integer program as they are written."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.rows: list[dict[int, float]] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def variable(self, cost: float) -> int:
        self.costs.append(cost)
        return len(self.costs) - 1

    def at_most(self, terms: dict[int, float], limit: float) -> None:
        self.rows.append(terms)
        self.low.append(-np.inf)
        self.high.append(limit)

    def at_least(self, terms: dict[int, float], limit: float) -> None:
        self.rows.append(terms)
        self.low.append(limit)
        self.high.append(np.inf)

    def solve(self, budget: Budget) -> tuple[np.ndarray | None, float, bool]:
        """(values, dual bound, optimal?). The root is solved to its end, and as many branches as the budget allows.
        None, 0 and False of a program whose root would take `PATIENCE` times the seconds that are left."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        if not self.costs:
            return np.zeros(0), 0.0, True
        scale = max(map(abs, self.costs)) or 1.0
        entries = sum(map(len, self.rows))
        if ROOT * entries > PATIENCE * budget.seconds * 1e9:
            return None, 0.0, False
        budget.spend(ROOT * entries)
        branches = int(budget.seconds * 1e9 / (BRANCH * max(entries, 1)))
        at = [(row, column, value) for row, terms in enumerate(self.rows) for column, value in terms.items()]
        row, column, value = (np.array(part) for part in zip(*at, strict=True))
        matrix = csr_array((value, (row, column)), shape=(len(self.rows), len(self.costs)))
        result = milp(
            np.array(self.costs) / scale,
            integrality=np.ones(len(self.costs)),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix, np.array(self.low), np.array(self.high)),
            options={"node_limit": 1 + branches, "mip_rel_gap": 1e-9},
        )
        budget.spend(BRANCH * entries * max((result.get("mip_node_count") or 0) - 1, 0))
        bound = result.mip_dual_bound
        bound = 0.0 if bound is None or not np.isfinite(bound) else max(float(bound), 0.0) * scale
        return result.x, bound, result.status == 0


def extract(
    egraph: EGraph, costing: Costing, known: Collection[str], *, seconds: float = 10.0, ends: Collection[str] = ()
) -> Extracted:
    """The cheapest graph. known: inputs that are constants. seconds: of counted work. ends: layouts besides rows in
    which inputs come, and in which, if there are any, outputs may leave."""
    began, budget = time.monotonic(), Budget(seconds)
    shapes = egraph.as_graph()
    constant = egraph.constants(known)
    entering = {egraph.find(item.name) for item in egraph.graph.inputs}
    roots = list(dict.fromkeys(egraph.roots.values()))
    taken = _variables(egraph, costing, shapes, constant, roots, budget)
    if taken is None:
        return Extracted(None, 0.0, False, 0, 0, 0, time.monotonic() - began)
    needed = _needed(taken, constant | entering)
    taken = _without_their_own(taken, needed)
    program = _Program()
    by_class: dict[str, list[int]] = {}
    for item in taken:
        by_class.setdefault(item.of, []).append(program.variable(item.way.seconds))
    for name in by_class:
        program.at_most(dict.fromkeys(by_class[name], 1.0), 1)
    free = constant | entering
    conversions: dict[tuple[str, str, str], int] = {}

    def supply(name: str, layout: str) -> dict[int, float] | None:
        """What makes a class in a layout; None where it is there."""
        if name in constant or (name in entering and layout in (ROWS, *ends)):
            return None
        terms = {column: 1.0 for column in by_class.get(name, []) if taken[column].way.makes == layout}
        layouts = {taken[column].way.makes for column in by_class.get(name, [])}
        for source in sorted((layouts | {ROWS} if name in entering else layouts) - {layout}):
            key = (name, source, layout)
            if key not in conversions:
                conversions[key] = program.variable(costing.conversion(egraph.values[name], source, layout))
                if name not in entering:
                    made = {column: -1.0 for column in by_class[name] if taken[column].way.makes == source}
                    program.at_most({conversions[key]: 1.0, **made}, 0)
            terms[conversions[key]] = 1.0
        return terms

    readers: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for column, item in enumerate(taken):
        for name, layout in zip(item.node.inputs, item.way.reads, strict=True):
            if name not in constant:
                readers.setdefault((name, layout), {}).setdefault(item.of, {})[column] = 1.0
    for (name, layout), classes in readers.items():
        made = supply(name, layout)
        if made is not None:
            for terms in classes.values():
                program.at_most({**terms, **{key: -value for key, value in made.items()}}, 0)
    for name in roots:
        if name in constant and name not in by_class:
            continue
        if ends:
            program.at_least(dict.fromkeys(by_class[name], 1.0), 1)
        elif (made := supply(name, ROWS)) is not None:
            program.at_least(made, 1)
        else:
            program.at_least(dict.fromkeys(by_class[name], 1.0), 1)
    _join(egraph, costing, shapes, constant, taken, by_class, conversions, program, roots)
    _make_what_is_needed(needed, taken, by_class, [name for name in roots if name not in free], program)
    _slice_what_is_no_slice(egraph, taken, by_class, free, program)
    _cut_pairs(taken, free, program)
    bound, cuts, graph, exact = 0.0, 0, None, False
    while not budget.over:
        found, dual, optimal = program.solve(budget)
        bound = max(bound, dual)
        if found is None:
            break
        chosen = _chosen(found, taken, by_class)
        circle = _circle(chosen, roots, free)
        if circle is None:
            graph, exact = _graph(egraph, chosen, constant, known), optimal
            break
        edges = set(zip(circle, [*circle[1:], circle[0]], strict=True))
        terms = {column: 1.0 for column, item in enumerate(taken)
                 if any((item.of, name) in edges for name in item.node.inputs)}  # fmt: skip
        program.at_most(terms, len(circle) - 1)
        cuts += 1
    return Extracted(graph, bound, exact, len(program.costs), len(program.rows), cuts, time.monotonic() - began)


def _variables(
    egraph: EGraph, costing: Costing, shapes: Graph, constant: Collection[str], roots: Collection[str], budget: Budget
) -> list[_Taken] | None:
    """All ways to compute what the outputs may need. A node that reads its own class is part of no graph. None where
    the budget is over before all are priced, which may mean to measure them."""
    measured = measuring(costing)
    taken: list[_Taken] = []
    entering = {egraph.find(item.name) for item in egraph.graph.inputs}
    waiting, seen = list(roots), set(roots)
    while waiting:
        name = waiting.pop()
        if (name in constant or name in entering) and name not in roots:
            continue
        for node in egraph.nodes[name].values():
            if name in node.inputs:
                continue
            if budget.over:
                return None
            budget.spend(NODE + (measuring(costing) - measured) * 1e9)
            measured = measuring(costing)
            for way in _ways(egraph, costing, shapes, constant, node):
                taken.append(_Taken(name, node, way))
            for read in node.inputs:
                if read not in seen:
                    seen.add(read)
                    waiting.append(read)
    return taken


def _needed(taken: list[_Taken], free: Collection[str]) -> dict[str, set[str]]:
    """By class, the classes that every way to it goes through, itself too: the greatest solution of

        needed(class) = {class} ∪ ⋂ over its nodes ⋃ over what a node reads  needed(read)

    By induction over a graph without circles, from what reads nothing upwards, each solution holds in it; and that D is
    needed for C, in that C cannot be computed where D is not there, solves it, so that nothing is missed. A class that
    no graph without circles makes needs all classes. Cost: linear in nodes × classes / 64, for each round until nothing
    changes; classes are numbered from the leaves upwards, so rounds are few.
    """
    nodes: dict[str, dict[int, tuple[str, ...]]] = {}
    for item in taken:
        reads = tuple(dict.fromkeys(name for name in item.node.inputs if name not in free))
        nodes.setdefault(item.of, {})[id(item.node)] = reads
    classes = list(nodes)
    place = {name: number for number, name in enumerate(classes)}
    every = (1 << len(classes)) - 1
    known = dict.fromkeys(classes, every)
    changed = True
    while changed:
        changed = False
        for name in reversed(classes):
            common = every
            for reads in nodes[name].values():
                union = 0
                for read in reads:
                    union |= known.get(read, every)
                common &= union
            common |= 1 << place[name]
            if common != known[name]:
                known[name], changed = common, True
    return {name: {classes[number] for number, bit in enumerate(reversed(f"{bits:b}")) if bit == "1"}
            for name, bits in known.items()}  # fmt: skip


def _without_their_own(taken: list[_Taken], needed: dict[str, set[str]]) -> list[_Taken]:
    """The ways but for those that can only be computed of their own class: such as the join of two slices of a value,
    in the class of that value, where nothing else makes the slices. They are part of no graph without circles."""
    return [item for item in taken if not any(item.of in needed.get(name, ()) for name in item.node.inputs)]


def _make_what_is_needed(
    needed: dict[str, set[str]], taken: list[_Taken], by_class: dict[str, list[int]], roots: list[str],
    program: _Program,
) -> None:  # fmt: skip
    """A class is made at most as much as each that it needs, and what outputs need is made.

    No graph is lost: of one without circles, what its outputs do not need can be left out, and then the rest obeys. Of
    what is needed, the nearest are enough, which need the others themselves.
    """
    for name in roots:
        program.at_least(dict.fromkeys(by_class.get(name, []), 1.0), 1)
    for name, columns in by_class.items():
        below = needed.get(name, set()) - {name}
        further = {other for item in below for other in needed[item] if other != item}
        for other in below - further:
            if not all(other in taken[column].node.inputs for column in columns):  # else that is said already
                makers = dict.fromkeys(by_class.get(other, []), -1.0)
                program.at_most({**dict.fromkeys(columns, 1.0), **makers}, 0)


def _slice_what_is_no_slice(
    egraph: EGraph, taken: list[_Taken], by_class: dict[str, list[int]], free: Collection[str], program: _Program
) -> None:
    """A slice of a slice is left out where the same is there as one slice, in the same layouts, no dearer.

    No graph is lost but such as have another beside them that costs no more: the one slice in the place of the outer
    brings no circle, as what it reads lies behind the outer one already, and a slice is computed within no other
    kernel. Each replacement makes a chain shorter, so they come to an end.
    """
    direct: dict[tuple[object, ...], float] = {}
    for item in taken:
        if (at := _slice(egraph, item)) is not None:
            key = (item.of, item.node.inputs[0], *at, item.way.reads, item.way.makes)
            direct[key] = min(item.way.seconds, direct.get(key, np.inf))
    for column, item in enumerate(taken):
        at = _slice(egraph, item)
        if at is None:
            continue
        dim, start, end = at
        (name,) = item.node.inputs
        refused = []
        for other in by_class.get(name, []):
            inner = _slice(egraph, taken[other])
            if inner is None or inner[0] != dim or taken[other].way.makes != item.way.reads[0]:
                continue
            reads = taken[other].way.reads
            as_one = (item.of, taken[other].node.inputs[0], dim, inner[1] + start, inner[1] + end, reads)
            if direct.get((*as_one, item.way.makes), np.inf) <= item.way.seconds:
                refused.append(other)
        if refused and name not in free:
            others = set(by_class[name]) - set(refused)
            program.at_most({column: 1.0, **dict.fromkeys(sorted(others), -1.0)}, 0)


def _slice(egraph: EGraph, item: _Taken) -> tuple[int, int, int] | None:
    """(dimension, first, behind the last) of a slice without gaps that costs nothing."""
    at = item.node.attributes
    dim, start = at.get("dim", 0), at.get("start") or 0
    if item.node.operator != SLICE or at.get("step", 1) != 1 or item.way.seconds > 0:
        return None
    if not isinstance(dim, int) or not isinstance(start, int) or dim < 0 or start < 0:
        return None
    return dim, start, start + egraph.values[item.of].shape[dim]


def _ways(egraph: EGraph, costing: Costing, shapes: Graph, constant: Collection[str], node: Node) -> tuple[Way, ...]:
    if node.operator == RESULT:
        return (Way("", (ROWS,), ROWS, 0.0),)
    if node.name in constant:
        return (Way("", (ROWS,) * len(node.inputs), ROWS, 0.0),)
    several = egraph.several_of(node)
    if several is not None:
        node = replace(node, outputs=several.outputs)
        extra = {name: egraph.graph.values[name] for name in several.outputs}
        shapes = replace(shapes, values={**shapes.values, **extra})
    return costing.ways(shapes, node, constant)


def _join(
    egraph: EGraph, costing: Costing, shapes: Graph, constant: Collection[str], taken: list[_Taken],
    by_class: dict[str, list[int]], conversions: dict[tuple[str, str, str], int], program: _Program, roots: list[str],
) -> None:  # fmt: skip
    """Nodes within the kernel before them: the first of what they read that is so."""
    reading: dict[str, dict[str, list[int]]] = {}
    for column, item in enumerate(taken):
        for name in set(item.node.inputs):
            reading.setdefault(name, {}).setdefault(item.of, []).append(column)
    pairs: dict[tuple[int, str], bool] = {}

    def can(node: Node, before: Node, name: str) -> bool:
        key = (id(node), str(id(before)))
        if key not in pairs:
            pairs[key] = costing.joins(shapes, node, before, constant)
        return pairs[key]

    for column, item in enumerate(list(taken)):
        if item.way.seconds <= 0 or item.node.operator == RESULT:
            continue
        options = []
        for name, layout in dict(zip(item.node.inputs, item.way.reads, strict=True)).items():
            if name in constant or name in roots:
                continue
            able = [
                other for other in by_class.get(name, [])
                if taken[other].way.makes == layout and can(item.node, taken[other].node, name)
            ]  # fmt: skip
            if not able:
                continue
            joined = program.variable(-item.way.seconds)
            options.append(joined)
            program.at_most({joined: 1.0, **dict.fromkeys(able, -1.0)}, 0)
            for of, columns in reading[name].items():
                if of != item.of:
                    program.at_most({joined: 1.0, **dict.fromkeys(columns, 1.0)}, 1)
            for (value, _, _), converted in conversions.items():
                if value == name:
                    program.at_most({joined: 1.0, converted: 1.0}, 1)
        if options:
            program.at_most({**dict.fromkeys(options, 1.0), column: -1.0}, 0)


def _cut_pairs(taken: list[_Taken], free: Collection[str], program: _Program) -> None:
    """Two classes, each made of the other."""
    edges: dict[tuple[str, str], list[int]] = {}
    for column, item in enumerate(taken):
        for name in set(item.node.inputs):
            edges.setdefault((item.of, name), []).append(column)
    for (of, name), columns in edges.items():
        if of < name and (name, of) in edges and not {of, name} & set(free):
            program.at_most(dict.fromkeys([*columns, *edges[name, of]], 1.0), 1)


def _chosen(found: np.ndarray, taken: list[_Taken], by_class: dict[str, list[int]]) -> dict[str, _Taken]:
    return {
        name: taken[column] for name, columns in by_class.items() for column in columns if found[column] > 0.5
    }  # fmt: skip


def _circle(chosen: dict[str, _Taken], roots: Iterable[str], free: Collection[str]) -> list[str] | None:
    """The classes of a circle in what the outputs need, each made of the next; None where there is none."""
    done: set[str] = set()
    for root in roots:
        if root not in chosen:
            continue
        path: list[str] = []
        on: set[str] = set()
        stack: list[tuple[str, bool]] = [(root, False)]
        while stack:
            name, left = stack.pop()
            if left:
                path.pop()
                on.discard(name)
                done.add(name)
                continue
            if name in done or name not in chosen or (name in free and name != root):
                continue
            if name in on:
                return path[path.index(name) :]
            path.append(name)
            on.add(name)
            stack.append((name, True))
            for read in dict.fromkeys(chosen[name].node.inputs):
                if read in on and read not in free:
                    return path[path.index(read) :]
                stack.append((read, False))
    return None


def _graph(egraph: EGraph, chosen: dict[str, _Taken], constant: Collection[str], known: Collection[str]) -> Graph:
    """What was chosen, as a graph: outputs under the names that they have, each behind what it needs."""
    graph = egraph.graph
    nodes: list[Node] = []
    values: dict[str, Value] = {item.name: graph.values[item.name] for item in graph.inputs}
    made: dict[str, str] = {egraph.find(item.name): item.name for item in graph.inputs}
    of_constants = _of_constants(egraph, constant, known)
    leaving: dict[str, str] = {}
    for output in graph.outputs:
        leaving.setdefault(egraph.find(output.name), output.name)
    reserved = {output.name for output in graph.outputs} | set(values)

    def named(name: str) -> str:
        called = leaving.get(name) if name not in made else None
        return called or (f"{name}.e" if name in reserved else name)

    def node_of(name: str) -> Node:
        return chosen[name].node if name in chosen and name not in constant else of_constants[name]

    def write(name: str) -> None:
        stack = [name]
        while stack:
            at = stack[-1]
            node = None if at in made else node_of(at)
            missing = [] if node is None else [read for read in node.inputs if read not in made]
            stack.extend(missing)
            if not missing:
                stack.pop()
            if node is not None and not missing:
                made[at] = emit(at, node, named(at))

    def emit(name: str, node: Node, called: str) -> str:
        several = egraph.several_of(node)
        if node.operator == RESULT:
            of, number = (value for _, value in sorted(node.arguments, reverse=True))
            assert isinstance(of, Ref)
            assert isinstance(number, int)
            return made[of.name].split("\0")[number]
        renamed = node.renamed(lambda read: made[read])
        if several is not None:
            names = tuple(map(named, egraph.results_of(name, len(several.outputs))))
            nodes.append(replace(several, arguments=renamed.arguments, outputs=names))
            for old, new in zip(several.outputs, names, strict=True):
                values[new] = replace(graph.values[old], name=new)
            return "\0".join(names)
        nodes.append(replace(renamed, name=called, outputs=(called,)))
        values[called] = replace(egraph.values[name], name=called)
        return called

    for output in graph.outputs:
        name = egraph.find(output.name)
        node = chosen[name].node
        if name not in made:
            write(name)
        if made[name] != output.name:  # another output is the same, or it is an input
            for read in node.inputs:
                write(read)
            if node.operator == RESULT:
                node = Node(name, "aten.clone", (("self", Ref(name)),), (name,))
            emit(name, node, output.name)
    return replace(graph, nodes=tuple(nodes), values=values)


def _of_constants(egraph: EGraph, constant: Collection[str], known: Collection[str]) -> dict[str, Node]:
    """A node for each class of constants, the nearest to what is known."""
    at = {egraph.find(name) for name in known}
    found: dict[str, Node] = {}
    waiting = [node for node in egraph.every() if node.name in constant and node.inputs]
    while waiting:
        ready = [node for node in waiting if node.name in at or at.issuperset(node.inputs)]
        if not ready:
            break
        new = {node.name: node for node in reversed(ready) if node.name not in at}
        found.update(new)
        waiting = [node for node in waiting if node.name not in at and node.name not in new]
        at.update(new)
    return found
