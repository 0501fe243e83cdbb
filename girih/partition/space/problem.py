"""A graph, a mesh and rules as one weighted constraint problem: variables, labels and tables of costs.

Every value is a variable whose labels are its layouts; every node is a variable whose labels are its divisions. A
node's own cost is the time of its largest piece (zero under `bytes`); between a node and a value that it reads stands
the cost of bringing the value from its layout to where the pieces read; between a node and a value that it makes the
cost of bringing the pieces, partial sums and all, to the value's layout. An input and the output that replaces it
share one variable: what goes round from step to step lies the same. The sum over all tables is exactly what lowering
emits (`girih.layout.transfer`). Equal operators on equal shapes share their tables, so repeated layers are priced once,
and equal pieces of different operators are, too (`girih.partition.space.pricing`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from girih.graph import Graph, Node
from girih.layout import Layout, Mesh, Submesh, Transfers
from girih.layout.budget import Budget
from girih.machine import Machine
from girih.ops import Description
from girih.ops.known import several_descriptions
from girih.partition.solver.elimination import Problem
from girih.partition.space.extremes import NO_EXTREMES, Extremes, extremes_of
from girih.partition.space.options import (
    APART,
    SECONDS,
    TOFU,
    WHOLE,
    NodeOptions,
    Rules,
    layouts_of,
    node_options,
    options_at,
    several_options,
    whole_options,
)
from girih.partition.space.pricing import WantedTable, priced
from girih.partition.strategy import FloatTable, Strategy

OBJECTIVES = ("bytes", "seconds", "time")


@dataclass(frozen=True)
class Objective:
    """What is minimised, and on which machine.

    name: `bytes`: all bytes that devices receive in a step; `seconds`: the roofline of the pieces plus transfers;
    `time`: the simulated step, in which computing and transfers overlap.
    budget: of work, which making tables and searching them spend; tables that it is too small for are not priced.
    None: they have to be.
    score: of `time`, the seconds of a strategy, infinite for one that may not be chosen. Tables, which cannot say what
    overlaps, are then those of `seconds`. judging: seconds of work that a call of the score takes.
    submeshes: of the machine, whose devices reduce and spread values among themselves (`girih.layout.Transfers`).
    """

    name: str
    machine: Machine
    budget: Budget | None = field(default=None, compare=False, repr=False)
    score: Callable[[Strategy], float] | None = field(default=None, compare=False, repr=False)
    judging: float = field(default=0.0, compare=False, repr=False)
    submeshes: tuple[Submesh, ...] = ()

    @property
    def unit(self) -> str:
        """What tables and certificates are written in: bytes or seconds."""
        return "bytes" if self.name == "bytes" else "seconds"

    @property
    def transfers(self) -> Transfers:
        return Transfers(self.machine.mesh, self.machine.links, self.unit, submeshes=self.submeshes)

    def node_costs(self, options: NodeOptions) -> FloatTable:
        """What each division costs besides transfers: [divisions]."""
        if self.unit == "bytes":
            return np.zeros(len(options.divisions))
        if options.operations == 0:
            return np.zeros(len(options.divisions))
        device = self.machine.device
        arithmetic = options.points * options.operations / device.flops(options.dtype)
        costs: FloatTable = np.maximum(arithmetic, options.bytes / device.memory_bytes_per_second)
        return costs + device.launch_seconds


SPACES = ("whole", "apart", "tofu")
"""What a search may choose from, by name."""


def rules_of(objective: Objective, space: str = "whole") -> Rules:
    """The rules of a space by name. By `bytes` in `apart` each reader fetches for itself what it lacks, and in `tofu`
    every sum is added where it is made, besides.

    By `bytes` all work is divided and every tensor held once in all: held by everybody, nothing would have to move.
    """
    if objective.unit == "seconds":
        return SECONDS
    return {"whole": WHOLE, "apart": APART, "tofu": TOFU}[space]


@dataclass(frozen=True)
class Candidates:
    """What a search may choose from, where it is narrower than the rules: layouts by value, divisions by node."""

    layouts: Mapping[str, tuple[Layout, ...]]
    divisions: Mapping[int, np.ndarray]


EVERYTHING = Candidates({}, {})
NODE, LABEL = 50_000.0, 500.0
"""Nanoseconds of making a problem, for each node, and for each different division on one device; without prices."""


@dataclass(frozen=True)
class PartitionProblem:
    """The constraint problem, and what its labels mean.

    variable: of each value (values that replace one another share theirs); nodes follow after the values. seconds: of
    work to make it, counted as a `Budget` does.
    """

    graph: Graph
    mesh: Mesh
    problem: Problem
    variable: dict[str, int]
    layouts: tuple[tuple[Layout, ...], ...]
    options: tuple[NodeOptions, ...]
    seconds: float = 0.0

    def strategy(self, labels: np.ndarray) -> Strategy:
        first_node = len(self.layouts)
        divisions = tuple(
            tuple(int(code) for code in options.divisions[labels[first_node + number]])
            for number, options in enumerate(self.options)
        )
        layouts = {name: self.layouts[number][labels[number]] for name, number in self.variable.items()}
        return Strategy.of_codes(self.mesh, divisions, layouts)

    def labels(self, strategy: Strategy) -> np.ndarray | None:
        """The labels of a strategy; None where it chooses what this problem does not have."""
        labels = np.zeros(len(self.problem.domains), np.int64)
        for name, number in self.variable.items():
            codes = strategy.layouts[name].even_codes
            if codes not in self.layouts[number]:
                return None
            labels[number] = self.layouts[number].index(codes)
        for number, (options, division) in enumerate(zip(self.options, strategy.divisions, strict=True)):
            same = np.flatnonzero((options.divisions == np.asarray(division.codes)).all(axis=1))
            if division.shares or not len(same):
                return None
            labels[len(self.layouts) + number] = same[0]
        return labels


def value_variables(graph: Graph) -> dict[str, int]:
    """The variable of each value; an update and the input that it replaces have one together."""
    leader = {name: name for name in graph.values}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for old, new in graph.updates.items():
        leader[find(new)] = find(old)
    numbers: dict[str, int] = {}
    return {name: numbers.setdefault(find(name), len(numbers)) for name in graph.values}


class _Tables:
    """Tables by meaning, so that equal ones are one object. Those of transfers are priced together, at the end."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self.numbers: dict[object, int] = {}
        self.wanted: dict[int, WantedTable] = {}

    def add(self, key: object, make: Callable[[], np.ndarray | WantedTable]) -> int:
        """The number of a table."""
        number = self.numbers.get(key)
        if number is not None:
            return number
        number = self.numbers[key] = len(self.arrays)
        if not isinstance(wanted := make(), WantedTable):
            self.arrays.append(wanted)
            return number
        contents = wanted.contents
        if contents is not None and (same := self.numbers.setdefault(contents, number)) != number:
            self.numbers[key] = same
            return same
        self.wanted[number] = wanted
        self.arrays.append(_NONE)
        return number

    def priced(self, transfers: Transfers, budget: Budget) -> tuple[np.ndarray, ...]:
        for number, table in zip(self.wanted, priced(list(self.wanted.values()), transfers, budget), strict=True):
            self.arrays[number] = table
        return tuple(self.arrays)


_NONE = np.empty(0)


def build(
    graph: Graph,
    objective: Objective,
    rules: Rules,
    candidates: Candidates = EVERYTHING,
) -> PartitionProblem:
    """The problem of dividing `graph` on the objective's machine.

    Raises:
        OutOfTimeError: the objective's budget is too small for the tables.
    """
    mesh = objective.machine.mesh
    variable = value_variables(graph)
    count = max(variable.values(), default=-1) + 1
    layouts: list[tuple[Layout, ...]] = [()] * count
    # What enters or leaves the step is never a partial result.
    stored = {item.name for item in graph.inputs} | {item.name for item in graph.outputs}
    extremes = extremes_of(graph, mesh, once=not rules.repeat) if rules.partial and not rules.even else NO_EXTREMES
    for name, number in variable.items():
        if layouts[number] and name not in candidates.layouts:
            continue
        value = graph.values[name]
        chosen = candidates.layouts.get(name)
        layouts[number] = (
            chosen
            if chosen is not None
            else layouts_of(value, mesh, rules, name in stored, extremes.values.get(name, ()))
        )
    tables = _Tables()
    options = _options(graph, mesh, rules, candidates, extremes)
    known: dict[tuple[Layout, ...], int] = {}
    alike = [known.setdefault(choices, number) for number, choices in enumerate(layouts)]  # hashed once each
    pairs: list[tuple[int, int, int]] = []
    unary: list[int] = [-1] * count
    for number, (node, choice) in enumerate(zip(graph.nodes, options, strict=True)):
        unary.append(tables.add((id(choice), "own"), lambda choice=choice: objective.node_costs(choice)))  # type: ignore[misc]
        for operand, name in enumerate(node.inputs):
            key = (id(choice), "in", operand, alike[variable[name]])
            table = tables.add(
                key,
                lambda: WantedTable(graph.values[name], layouts[variable[name]], choice.needs[operand], True),  # noqa: B023
            )
            pairs.append((count + number, variable[name], table))
        for result, name in enumerate(node.outputs):
            key = (id(choice), "out", result, alike[variable[name]])
            stays = choice.reducer if choice.reducer != "sum" else None  # sums may become partial maxima, too
            table = tables.add(
                key,
                lambda: WantedTable(graph.values[name], layouts[variable[name]], choice.makes[result], False, stays),  # noqa: B023
            )
            pairs.append((count + number, variable[name], table))
    domains = (*(len(choices) for choices in layouts), *(len(choice.divisions) for choice in options))
    budget = objective.budget or Budget(inf)
    before = budget.spent
    labels = sum(len(choice.divisions) for choice in {id(choice): choice for choice in options}.values())
    budget.spend(NODE * len(graph.nodes) + LABEL * labels * mesh.devices)
    arrays = tables.priced(replace(objective.transfers, keeps=rules.keeps), budget)
    problem = Problem(domains, tuple(unary), tuple(pairs), arrays)
    seconds = (budget.spent - before) / 1e9
    return PartitionProblem(graph, mesh, problem, variable, tuple(layouts), options, seconds)


def _options(
    graph: Graph, mesh: Mesh, rules: Rules, candidates: Candidates, extremes: Extremes
) -> tuple[NodeOptions, ...]:
    """The options of each node. Equal descriptions are mostly the same objects, and are looked up as such first."""
    items = {name: value.item_bytes for name, value in graph.values.items()}
    known: dict[tuple[object, ...], NodeOptions] = {}
    options = []
    for number, (node, several) in enumerate(zip(graph.nodes, several_descriptions(graph), strict=True)):
        if not several:
            options.append(_whole(graph, node, mesh))
            continue
        chosen = candidates.divisions.get(number)
        each = tuple([items[name] for name in (*node.inputs, *node.outputs)])
        passed = extremes.passed.get(number, ())
        key = (*map(id, several), None if chosen is None else id(chosen), each, passed)
        if key not in known:
            known[key] = _options_of(several, each, chosen, mesh, rules, passed)
        options.append(known[key])
    return tuple(options)


def _options_of(
    several: tuple[Description, ...],
    items: tuple[int, ...],
    chosen: np.ndarray | None,
    mesh: Mesh,
    rules: Rules,
    passed: tuple[int, ...],
) -> NodeOptions:
    if chosen is not None:
        return options_at(several, tuple(map(tuple, chosen.tolist())), items, mesh)
    if len(several) > 1:
        return several_options(several, items, mesh, rules)
    return node_options(several[0], items, mesh, rules, passed)


def _whole(graph: Graph, node: Node, mesh: Mesh) -> NodeOptions:
    values = graph.values
    return whole_options(
        tuple(values[name] for name in node.inputs), tuple(values[name] for name in node.outputs), mesh
    )
