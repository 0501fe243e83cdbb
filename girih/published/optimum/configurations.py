"""A space of few choices: one configuration for each operator of the model, as FlexFlow's strategies are (§3.3).

An *operator* is a layer that does more than element-wise work (`layers_of`), with the activations, views and losses
that follow it, its backward pass and its update. Its *configuration* says for each mesh axis: it divides one dimension
of the operator's result (sample, attribute or parameter), or the work is placed on one coordinate, or repeated on all.
All else follows from the configuration alone, whatever the neighbours are: the operator's other nodes and tensors take
those divisions and layouts on the same devices that cost least in seconds, nothing overlapped, what comes from others
lying as suits it best, and a gradient as its value does. A tensor that one operator makes and others read lies as the
first of its readers wishes, whole.

So a strategy is one configuration for each operator, chosen independently, and the space is their product. FlexFlow's
own (§3.7.5) has in addition any assignment of parts to devices, and no repeated work. Strategies that are known from
elsewhere may be joined to it: then each operator may also be as in one of them. There gradients may cross operators as
partial sums, so that a configuration of a reader may not go with one of the maker: such choices count as strategies of
the space, and no program does them.
Cost: a small exact search (`girih.partition.solver.elimination`) for each operator and configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from girih.graph import Graph
from girih.layout import PARTIAL, REPLICATE, Layout, Mesh, Sharding, kind_of, sharding_of
from girih.ops import description_of
from girih.ops.derive.arithmetic import floating_point_operations
from girih.partition.searches.exact import NANOSECONDS
from girih.partition.solver.elimination import Problem, minimise
from girih.partition.space.layers import graph_makers, layers_of
from girih.partition.space.options import SOAP, Rules, division_codes
from girih.partition.space.problem import Objective, PartitionProblem, build
from girih.partition.strategy import REPEAT, Strategy

RULES = Rules(repeat=True, reductions=False, places=True)
SPACE = "one configuration for each operator: its dimensions over mesh axes, or placed, or repeated; all else follows"
JOINED = f"{SPACE}; or as in the plan of the search exact"


@dataclass(frozen=True)
class Operator:
    """name: of the layer. nodes: by position. main: of them. codes: the configurations, as divisions of the main node.

    divisions: for each configuration of each node; layouts: of each value whose layout the operator decides.
    """

    name: str
    nodes: tuple[int, ...]
    main: int
    codes: tuple[tuple[int, ...], ...]
    divisions: tuple[tuple[Sharding, ...], ...]
    layouts: tuple[dict[str, Sharding], ...]


@dataclass(frozen=True)
class Space:
    """All strategies of one configuration for each operator. decides: the operator that decides a value's layout."""

    graph: Graph
    mesh: Mesh
    operators: tuple[Operator, ...]
    decides: dict[str, int]

    @property
    def size(self) -> int:
        return prod(len(item.codes) for item in self.operators)

    @cached_property
    def operator_of(self) -> tuple[int, ...]:
        """The operator of each node."""
        numbers = [0] * len(self.graph.nodes)
        for number, item in enumerate(self.operators):
            for node in item.nodes:
                numbers[node] = number
        return tuple(numbers)

    def strategy(self, choice: Sequence[int]) -> Strategy:
        """The strategy of one configuration, by number, for each operator."""
        divisions = [Sharding(())] * len(self.graph.nodes)
        layouts: dict[str, Sharding] = {}
        for item, number in zip(self.operators, choice, strict=True):
            for node, division in zip(item.nodes, item.divisions[number], strict=True):
                divisions[node] = division
            layouts.update(item.layouts[number])
        return Strategy(self.mesh, tuple(divisions), {name: layouts[name] for name in self.graph.values})

    def choice(self, strategy: Strategy) -> tuple[int, ...] | None:
        """The configuration of each operator, by number, that makes this strategy; None if it is not of this space."""
        numbers = []
        for number, item in enumerate(self.operators):
            divisions, layouts = _restricted(strategy, item.nodes, self.decides, number)
            alike = (
                one
                for one in range(len(item.codes))
                if (item.divisions[one], item.layouts[one]) == (divisions, layouts)
            )
            numbers.append(next(alike, -1))
        return None if -1 in numbers else tuple(numbers)


def operators_of(graph: Graph) -> tuple[int, ...]:
    """The number of the operator of each node, in the order of their first nodes."""
    layers = layers_of(graph)
    makers = graph_makers(graph)
    members: dict[int, list[int]] = {}
    for node, layer in enumerate(layers):
        members.setdefault(layer, []).append(node)
    joined = {layer: layer for layer in members}
    alone = {layer for layer, nodes in members.items() if not _works(graph, nodes)}
    for layer in sorted(alone):  # an activation joins what it follows, earlier in the order
        sources = [makers[name] for name in graph.nodes[members[layer][0]].inputs if name in makers]
        if sources and graph.nodes[members[layer][0]].scope:
            joined[layer] = joined[layers[sources[0]]]
            alone.discard(layer)
    readers: dict[str, list[int]] = {}
    for number, reader in enumerate(graph.nodes):
        for name in reader.inputs:
            readers.setdefault(name, []).append(number)
    while True:  # what begins from nothing joins those who read it
        before = dict(joined)
        for layer in sorted(alone):
            uses = [
                use for node in members[layer] for name in graph.nodes[node].outputs for use in readers.get(name, ())
            ]
            others = [joined[layers[use]] for use in uses if layers[use] != layer]
            known = [other for other in others if other not in alone]
            if known:
                joined[layer] = known[0]
                alone.discard(layer)
        if joined == before:
            break
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(joined[layer], len(numbers)) for layer in layers)


def _works(graph: Graph, nodes: Sequence[int]) -> bool:
    """Is there forward work in a module that is neither element-wise nor a view?"""
    for number in nodes:
        node = graph.nodes[number]
        if node.scope and node.phase == "forward":
            description = description_of(graph, node)
            if description is None or not (description.operator.elementwise or description.operator.view):
                return True
    return False


def space_of(graph: Graph, objective: Objective, also: Sequence[Strategy] = ()) -> Space:
    """The space of a graph on the objective's machine. also: strategies that are joined to it.

    Raises:
        ValueError: the objective is not `seconds`.
    """
    if objective.unit != "seconds":
        raise ValueError(f"objective {objective.name}: configurations are completed by seconds")
    item = build(graph, objective, SOAP)
    completer = _Completer(item, operators_of(graph))
    operators = tuple(completer.operator(number) for number in range(max(completer.of, default=-1) + 1))
    space = Space(graph, item.mesh, operators, completer.decides)
    for strategy in also:
        space = _joined(space, strategy)
    return space


def _restricted(
    strategy: Strategy, nodes: Sequence[int], decides: dict[str, int], operator: int
) -> tuple[tuple[Sharding, ...], dict[str, Sharding]]:
    """What a strategy does with an operator's nodes and the values whose layouts it decides."""
    divisions = tuple(strategy.divisions[node] for node in nodes)
    return divisions, {name: strategy.layouts[name] for name, decider in decides.items() if decider == operator}


def _joined(space: Space, strategy: Strategy) -> Space:
    """The space with a configuration more for each operator that does otherwise in the strategy."""
    operators = []
    for number, item in enumerate(space.operators):
        divisions, layouts = _restricted(strategy, item.nodes, space.decides, number)
        if (divisions, layouts) not in zip(item.divisions, item.layouts, strict=True):
            code = divisions[item.nodes.index(item.main)].codes
            item = replace(
                item,
                codes=(*item.codes, code),
                divisions=(*item.divisions, divisions),
                layouts=(*item.layouts, layouts),
            )
        operators.append(item)
    return replace(space, operators=tuple(operators))


class _Completer:
    """Completes configurations. of: the operator of each node; decides: of each value whose layout, by operator."""

    def __init__(self, item: PartitionProblem, of: tuple[int, ...]) -> None:
        self.item = item
        self.graph = item.graph
        self.of = of
        self.tables = tuple(table * NANOSECONDS for table in item.problem.tables)
        self.pairs: list[list[tuple[int, int, int]]] = [[] for _ in range(max(of, default=-1) + 1)]
        first = len(item.layouts)
        for node, variable, table in item.problem.pairs:
            self.pairs[of[node - first]].append((node, variable, table))
        self.maker = {name: of[number] for name, number in graph_makers(self.graph).items()}
        self.readers: dict[str, list[int]] = {}
        for number, reader in enumerate(self.graph.nodes):
            for name in reader.inputs:
                self.readers.setdefault(name, []).append(of[number])
        self.shared = {
            entering.name for entering in self.graph.inputs if len(set(self.readers.get(entering.name, ()))) != 1
        }
        self.decides = {name: self.decider(name) for name in self.graph.values}

    def decider(self, name: str) -> int:
        """The operator that decides where a value lies."""
        new = self.graph.updates.get(name, name)
        maker = self.maker.get(new)
        others = [reader for reader in self.readers.get(name, ()) if reader != maker]
        if maker is not None and (new != name or name in self.graph.updates.values()):
            return maker
        return others[0] if others else (maker or 0)

    def operator(self, number: int) -> Operator:
        nodes = tuple(node for node, operator in enumerate(self.of) if operator == number)
        main = self.main(nodes)
        description = description_of(self.graph, self.graph.nodes[main])
        if description is None:
            wanted = [tuple(row) for row in self.item.options[main].divisions.tolist()]
        else:
            wanted = [tuple(row) for row in division_codes(description, self.item.mesh, RULES).tolist()]
        alike = [node for node in nodes if self.alike(node, main)]
        known: dict[object, None] = {}
        codes, divisions, layouts = [], [], []
        for code in wanted:
            done = self.complete(number, nodes, alike, code)
            if done is None:
                continue
            key = (done[0], tuple(done[1].items()))
            if key not in known:
                known[key] = None
                codes.append(code)
                divisions.append(done[0])
                layouts.append(done[1])
        scope = self.graph.nodes[main].scope or self.graph.nodes[main].name
        return Operator(scope, nodes, main, tuple(codes), tuple(divisions), tuple(layouts))

    def main(self, nodes: Sequence[int]) -> int:
        """The forward node with most arithmetic; of equals the first."""

        def work(node: int) -> float:
            described = description_of(self.graph, self.graph.nodes[node])
            if described is None or described.operator.view:
                return 0.0
            return float(floating_point_operations(described))

        forward = [node for node in nodes if self.graph.nodes[node].phase == "forward"] or list(nodes)
        return max(forward, key=work)

    def alike(self, node: int, main: int) -> bool:
        """The same call of the module's forward pass: a cell that is unrolled is divided alike in every step."""
        one, other = self.graph.nodes[node], self.graph.nodes[main]
        same = (one.operator, one.phase, one.scope) == (other.operator, other.phase, other.scope)
        return node == main or (same and self.item.options[node] is self.item.options[main])

    def complete(
        self, number: int, nodes: tuple[int, ...], alike: Sequence[int], code: tuple[int, ...]
    ) -> tuple[tuple[Sharding, ...], dict[str, Sharding]] | None:
        """The divisions of the nodes and the layouts that the operator decides; None where it cannot be done."""
        item, first = self.item, len(self.item.layouts)
        pairs = self.pairs[number]
        variables = sorted({node + first for node in nodes} | {variable for _, variable, _ in pairs})
        place = {variable: position for position, variable in enumerate(variables)}
        kept = {}
        for variable in variables:
            if variable >= first and variable - first in alike:
                kept[variable] = np.flatnonzero((item.options[variable - first].divisions == code).all(axis=1))
            elif variable >= first:
                kept[variable] = _same_devices(item.options[variable - first].divisions, code)
            else:
                kept[variable] = self.layouts(variable, number, code)
            if not len(kept[variable]):
                return None
        tables: list[np.ndarray] = []
        unary = []
        for variable in variables:
            known = item.problem.unary[variable]
            unary.append(-1 if known < 0 else len(tables))
            if known >= 0:
                tables.append(self.tables[known][kept[variable]])
        joined = []
        for node, variable, index in pairs:
            joined.append((place[node], place[variable], len(tables)))
            tables.append(self.tables[index][np.ix_(kept[node], kept[variable])])
        for gradient, value in self.ties(number):
            joined.append((place[gradient], place[value], len(tables)))
            equal = _equal(item.layouts[gradient], item.layouts[value])
            tables.append(equal[np.ix_(kept[gradient], kept[value])])
        domains = tuple(len(kept[variable]) for variable in variables)
        try:
            labels = minimise(Problem(domains, tuple(unary), tuple(joined), tuple(tables)), seconds=10.0).labels
        except ValueError:
            return None
        chosen = {variable: int(kept[variable][label]) for variable, label in zip(variables, labels, strict=True)}
        divisions = tuple(
            sharding_of(tuple(item.options[node].divisions[chosen[node + first]].tolist())) for node in nodes
        )
        layouts = {
            name: sharding_of(item.layouts[variable][chosen[variable]])
            for name, variable in item.variable.items()
            if self.decides[name] == number and variable in chosen
        }
        return divisions, layouts

    def layouts(self, variable: int, number: int, code: tuple[int, ...]) -> np.ndarray:
        """The labels that an operator may give a value: what it reads of others comes whole.

        Inputs that several operators read (learning rates) lie everywhere.
        """
        codes = np.asarray(self.item.layouts[variable], np.int64).reshape(-1, self.item.mesh.axes)
        names = self.names[variable]
        if any(name in self.shared for name in names):
            return np.flatnonzero((codes == REPLICATE).all(axis=1))
        able = _same_devices(codes, code)
        if any(self.decides[name] == number and self.maker.get(name, number) != number for name in names):
            able = able[(kind_of(codes[able]) > PARTIAL).all(axis=1)]
        return able

    def ties(self, number: int) -> list[tuple[int, int]]:
        """Pairs of variables of an operator: a gradient that it exchanges with another, and the value of that shape."""
        forward: dict[tuple[tuple[int, ...], str], dict[bool, int]] = {}
        backward: list[tuple[tuple[tuple[int, ...], str], bool, int]] = []
        phases = {name: node.phase for node in self.graph.nodes for name in node.outputs}
        for name, maker in self.maker.items():
            readers = self.readers.get(name, [])
            here = maker == number
            if not (any(reader != number for reader in readers) if here else number in readers):
                continue
            value = self.graph.values[name]
            key = (value.shape, value.dtype)
            if phases[name] == "forward":
                forward.setdefault(key, {}).setdefault(here, self.item.variable[name])
            else:
                backward.append((key, here, self.item.variable[name]))
        ties = []
        for key, here, variable in backward:
            if key in forward:  # what is made here is the gradient of what is read here, and the other way round
                ties.append((variable, forward[key].get(not here, next(iter(forward[key].values())))))
        return ties

    @cached_property
    def names(self) -> list[list[str]]:
        """The values of each variable."""
        names: list[list[str]] = [[] for _ in self.item.layouts]
        for name, variable in self.item.variable.items():
            names[variable].append(name)
        return names


def _same_devices(codes: np.ndarray, code: tuple[int, ...]) -> np.ndarray:
    """Which divisions or layouts [count, axes] keep to the devices of a configuration: the same coordinates where it is
    placed, copies where it repeats, and where it divides a dimension anything but a place.

    What cannot be placed, or divided (scalars), is repeated.
    """
    good = np.ones(len(codes), np.bool_)
    for axis, wanted in enumerate(code):
        column = codes[:, axis]
        if wanted == REPEAT:
            good &= column == REPEAT
        elif kind_of(wanted) != wanted:
            placed = column == wanted
            good &= placed if (good & placed).any() else column == REPEAT
        else:
            good &= kind_of(column) == column
    return np.flatnonzero(good)


def _equal(first: Sequence[Layout], second: Sequence[Layout]) -> np.ndarray:
    """[first, second]: 0 where the layouts are the same, else infinite."""
    where = {layout: number for number, layout in enumerate(second)}
    costs = np.full((len(first), len(second)), np.inf)
    for number, layout in enumerate(first):
        if layout in where:
            costs[number, where[layout]] = 0.0
    return costs
