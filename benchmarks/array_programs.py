"""Programs of arrays as Graphs, in Spartan's operators: random ones, alternating least squares, and hard ones.

`Program` writes Spartan's operators (Huang et al., *Spartan: A Distributed Array Framework with Smart Tiling*, USENIX
ATC 2015, §3.1) as nodes of ATen: `newarray` is an input of the graph, `map` an element-wise operator, `dot` the
join_update of two matrices, `fold` a sum, `scan` a cumulative sum, `swapaxis` a permutation. Operators are counted as
the paper counts them: a new array is one.

`random_program`: the programs of §5.2 (Fig. 10). `least_squares`: Fig. 3, two iterations, as Spartan's own example
computes it. `tiling_of_formula`: the reduction of NAE-3SAT to the choice of tilings, of the appendix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from math import prod

import numpy as np
from numpy.typing import NDArray

from girih.graph import Argument, Graph, Input, Node, Output, Ref, Value
from girih.layout import Layout, Mesh, full_layouts
from girih.ops.derive.passing import passages
from girih.ops.known import descriptions
from girih.partition.solver.elimination import Problem
from girih.partition.space.options import Rules, division_codes, layouts_of
from girih.partition.space.problem import Candidates, Objective, build

EXTREMES = ("aten.amax", "aten.amin")
DIMENSIONS = tuple(count * 1024 for count in (128, 192, 256, 320, 384, 448, 512))
"""Of the arrays of random programs: "randomly chosen from 128K to 512K"."""

Clause = tuple[int, int, int]
"""Three literals: variable n as n, its negation as -n; variables count from 1."""


class Program:
    """A graph under construction; each method adds one operator and returns the name of its array."""

    def __init__(self, dtype: str = "float64") -> None:
        self.dtype = dtype
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.inputs: list[Input] = []

    @property
    def operators(self) -> int:
        return len(self.nodes) + len(self.inputs)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape

    def newarray(self, *shape: int) -> str:
        name = f"a{len(self.inputs)}"
        self.values[name] = Value(name, shape, self.dtype)
        self.inputs.append(Input(name, "batch", str(len(self.inputs))))
        return name

    def emit(self, operator: str, shape: tuple[int, ...], /, dtype: str | None = None, **arguments: Argument) -> str:
        name = f"v{len(self.nodes)}"
        self.values[name] = Value(name, shape, dtype or self.dtype)
        self.nodes.append(Node(name, operator, tuple(arguments.items()), (name,)))
        return name

    def map(self, one: str, two: str | None = None, operator: str = "add") -> str:
        """Of one array or of two that broadcast."""
        if two is None:
            return self.emit("aten.exp", self.shape(one), self=Ref(one))
        shape = np.broadcast_shapes(self.shape(one), self.shape(two))
        name = f"aten.{operator}" if operator in ("maximum", "minimum") else f"aten.{operator}.Tensor"
        return self.emit(name, shape, self=Ref(one), other=Ref(two))

    def dot(self, one: str, two: str) -> str:
        """Of two matrices."""
        return self.emit("aten.mm", (self.shape(one)[0], self.shape(two)[1]), self=Ref(one), mat2=Ref(two))

    def swapaxis(self, array: str) -> str:
        """Of a matrix."""
        return self.emit("aten.permute", self.shape(array)[::-1], self=Ref(array), dims=(1, 0))

    def fold(self, array: str, axis: int) -> str:
        kept = tuple(size for dimension, size in enumerate(self.shape(array)) if dimension != axis)
        return self.emit("aten.sum.dim_IntList", kept, self=Ref(array), dim=(axis,))

    def extreme(self, array: str, axis: int, operator: str = "amax") -> str:
        kept = tuple(size for dimension, size in enumerate(self.shape(array)) if dimension != axis)
        return self.emit(f"aten.{operator}", kept, self=Ref(array), dim=(axis,), keepdim=False)

    def scan(self, array: str, axis: int) -> str:
        return self.emit("aten.cumsum", self.shape(array), self=Ref(array), dim=axis)

    def graph(self, *results: str) -> Graph:
        """The results leave; without any, whatever nobody reads."""
        read = {name for node in self.nodes for name in node.inputs}
        names = results or tuple(name for name in self.values if name not in read)
        return Graph(self.values, tuple(self.nodes), tuple(self.inputs), tuple(Output(n, "result") for n in names))


def random_program(
    random: np.random.Generator, operators: int, dimensions: Sequence[int] = DIMENSIONS, extremes: bool = False
) -> Graph:
    """A program of so many operators (at least 2), new arrays among them; arrays are read again and again.

    extremes: also maxima and minima of arrays, the larger and the smaller of two, and functions that keep the order or
    turn it round.
    """
    if operators < 2:
        raise ValueError(f"a program of {operators} operators: expected at least 2, a new array and what reads it")
    made = Program()

    def size() -> int:
        return int(random.choice(dimensions))

    def some(rank: int | None = None) -> str | None:
        known = [name for name in made.values if rank is None or len(made.shape(name)) == rank]
        return str(random.choice(known)) if known else None

    def fitting(*shape: int | None) -> str | None:
        """An array of this shape (None: any size), or a new one if there is still room for it and its reader."""
        known = [
            name
            for name in made.values
            if len(made.shape(name)) == len(shape)
            and all(want in (None, have) for want, have in zip(shape, made.shape(name), strict=True))
        ]
        if known and random.random() < 0.75:
            return str(random.choice(known))
        if made.operators + 2 <= operators:
            return made.newarray(*(size() if want is None else want for want in shape))
        return str(random.choice(known)) if known else None

    def map_() -> None:
        if (one := some()) is None:
            return
        shape = made.shape(one)
        two = None
        if random.random() < 0.8:
            two = fitting(*(shape[1:] if len(shape) == 2 and random.random() < 0.15 else shape))
        made.map(one, two, str(random.choice(["add", "sub", "mul"])))

    def dot() -> None:
        if (one := some(2)) is not None and (two := fitting(made.shape(one)[1], None)) is not None:
            made.dot(one, two)

    def swapaxis() -> None:
        if (one := some(2)) is not None:
            made.swapaxis(one)

    def fold() -> None:
        if (one := some(2)) is not None:
            made.fold(one, int(random.integers(2)))

    def scan() -> None:
        if (one := some(2)) is not None:
            made.scan(one, int(random.integers(2)))

    def extreme() -> None:
        if (one := some()) is not None and (shape := made.shape(one)):
            made.extreme(one, int(random.integers(len(shape))), str(random.choice(["amax", "amin"])))

    def larger() -> None:
        if (one := some()) is not None and (two := fitting(*made.shape(one))) is not None:
            made.map(one, two, str(random.choice(["maximum", "minimum"])))

    def ordered() -> None:
        if (one := some()) is not None:
            made.emit(f"aten.{random.choice(['relu', 'neg', 'tanh'])}", made.shape(one), self=Ref(one))

    made.newarray(size(), size())
    kinds = (map_, map_, map_, dot, dot, swapaxis, swapaxis, fold, scan)
    if extremes:
        kinds = (map_, dot, swapaxis, fold, extreme, extreme, extreme, larger, larger, ordered, ordered)
    while made.operators < operators:
        kinds[int(random.integers(len(kinds)))]()
    return made.graph()


def least_squares(users: int, movies: int, features: int, iterations: int = 2) -> Graph:
    """Alternating least squares (Fig. 3) of a rating matrix in which 0 says that nobody has rated.

    Movies' first features are their mean ratings, the others given. Each iteration solves every user's weighted
    regression from the user's whole row and all movies' features, then every movie's. With two iterations and the
    change of the last one: 14 operators.
    """
    made = Program("float32")
    ratings = made.newarray(users, movies)
    transposed = made.swapaxis(ratings)
    total = made.fold(ratings, 0)
    rated = made.emit("aten.ne.Scalar", (users, movies), "bool", self=Ref(ratings), other=0)
    count = made.emit("aten.sum.dim_IntList", (movies,), "int64", self=Ref(rated), dim=(0,))
    mean = made.map(total, count, "div")
    column = made.emit("aten.unsqueeze", (movies, 1), self=Ref(mean), dim=1)
    others = made.newarray(movies, features - 1)
    of_movies = made.emit("aten.cat", (movies, features), tensors=(Ref(column), Ref(others)), dim=1)
    before = of_movies
    for _ in range(iterations):
        before = of_movies
        of_users = _regressions(made, ratings, of_movies)
        of_movies = _regressions(made, transposed, of_users)
    change = made.map(of_movies, before, "sub")
    return made.graph(of_users, of_movies, change)


def _regressions(made: Program, ratings: str, features: str) -> str:
    shape = (made.shape(ratings)[0], made.shape(features)[1])
    return made.emit("girih.ridge_rows", shape, ratings=Ref(ratings), features=Ref(features), penalty=0.065)


def tiling_of_formula(clauses: Sequence[Clause], size: int) -> Graph:
    """The program whose least cost, in exchanges of a whole size × size array, is twice the clauses exactly where an
    assignment makes one literal of every clause true and one false (NAE-3SAT; appendix A.3).

    A variable is an array, true where its tiling is by rows; a negation is its swapaxis. A clause is six maps, each of
    the swapaxis of one literal with another literal; each swapaxis is one of its own, since a view is computed where
    it is read. All tilings alike: six exchanges; else two. On one mesh axis, where tilings are rows and columns.
    """
    made = Program()
    arrays: dict[int, str] = {}

    def literal(number: int, swapped: bool) -> str:
        name = arrays.get(abs(number)) or arrays.setdefault(abs(number), made.newarray(size, size))
        return made.swapaxis(name) if (number < 0) != swapped else name

    for clause in clauses:
        for one in range(3):
            for two in range(3):
                if one != two:
                    made.map(literal(clause[one], True), literal(clause[two], False))
    return made.graph()


def satisfiable(clauses: Sequence[Clause]) -> bool:
    """Does an assignment make one literal of every clause true and one false? By trying all: for small formulas."""
    numbers = sorted({abs(number) for clause in clauses for number in clause})
    for bits in range(1 << len(numbers)):
        true = {number: bits >> place & 1 for place, number in enumerate(numbers)}
        if all(len({true[abs(n)] ^ (n < 0) for n in clause}) == 2 for clause in clauses):
            return True
    return False


def renamed(graph: Graph, suffix: str) -> Graph:
    """The graph over other arrays: every name with a suffix, as in the next iteration of a loop."""

    def other(argument: Argument) -> Argument:
        if isinstance(argument, Ref):
            return Ref(argument.name + suffix)
        return tuple(map(other, argument)) if isinstance(argument, tuple) else argument

    values = {name + suffix: replace(value, name=name + suffix) for name, value in graph.values.items()}
    nodes = tuple(
        replace(
            node,
            name=node.name + suffix,
            arguments=tuple((key, other(argument)) for key, argument in node.arguments),
            outputs=tuple(name + suffix for name in node.outputs),
        )
        for node in graph.nodes
    )
    inputs = tuple(replace(item, name=item.name + suffix) for item in graph.inputs)
    outputs = tuple(
        replace(item, name=item.name + suffix, replaces=item.replaces and item.replaces + suffix)
        for item in graph.outputs
    )
    return Graph(values, nodes, inputs, outputs)


def brought_once(graph: Graph) -> list[tuple[Graph, tuple[str, ...]]]:
    """The graph, and every way to bring values that are read several times once to where several readers read them: as
    nodes `aten.clone`, whose names stand beside."""
    reads: dict[str, list[tuple[int, int]]] = {}
    for number, node in enumerate(graph.nodes):
        for operand, name in enumerate(node.inputs):
            reads.setdefault(name, []).append((number, operand))
    ways = [
        [(name, chosen) for count in (0, *range(2, len(places) + 1)) for chosen in combinations(places, count)]
        for name, places in reads.items()
    ]
    return [_brought(graph, {name: set(places) for name, places in way if places}) for way in product(*ways)]


def _brought(graph: Graph, places: dict[str, set[tuple[int, int]]]) -> tuple[Graph, tuple[str, ...]]:
    """places: of each value that is brought, which operands of which nodes read it there."""
    values, nodes = dict(graph.values), []
    for name in places:
        values[f"{name}.there"] = replace(values[name], name=f"{name}.there")

    def bring(name: str) -> None:
        if name in places:
            nodes.append(Node(f"{name}.there", "aten.clone", (("self", Ref(name)),), (f"{name}.there",)))

    for item in graph.inputs:
        bring(item.name)
    for number, node in enumerate(graph.nodes):
        operands = iter(range(len(node.inputs)))
        nodes.append(
            node.renamed(
                lambda name: f"{name}.there" if (number, next(operands)) in places.get(name, ()) else name  # noqa: B023
            )
        )
        for name in node.outputs:
            bring(name)
    return Graph(values, tuple(nodes), graph.inputs, graph.outputs), tuple(f"{name}.there" for name in places)


def least_bytes(graph: Graph, aim: Objective, most: int) -> float | None:
    """The least bytes over every layout of every value, partial sums, maxima and minima included, every division of
    every node, and every way to bring values once to a second layout; all are tried. None: they are more than `most`
    for one of the ways."""
    least = np.inf
    for whole, there in brought_once(graph):
        layouts, divisions = everything(whole, aim.machine.mesh)
        for number, node in enumerate(whole.nodes):
            if node.name in there:
                layouts[node.name] = full_layouts(whole.values[node.name].shape, aim.machine.mesh)
                divisions[number] = np.asarray(layouts[node.name], np.int64)
        single = build(whole, aim, Rules(partial=True), Candidates(layouts, divisions))
        if prod(single.problem.domains[: len(single.layouts)]) > most:
            return None
        least = min(least, exhaustive(single.problem, len(single.layouts)))
    return float(least)


def everything(graph: Graph, mesh: Mesh) -> tuple[dict[str, tuple[Layout, ...]], dict[int, NDArray[np.int64]]]:
    """Layouts by value, divisions by node: partial maxima and minima wherever they are possible, and not only where the
    search looks for them. None of a graph without maxima and minima, which are not made of sums."""
    if not any(node.operator in EXTREMES for node in graph.nodes):
        return {}, {}
    rules, both = Rules(partial=True), ("max", "min")
    stored = {item.name for item in (*graph.inputs, *graph.outputs)}
    layouts = {name: layouts_of(value, mesh, rules, name in stored, both) for name, value in graph.values.items()}
    divisions = {}
    for number, description in enumerate(descriptions(graph)):
        assert description is not None
        passed = tuple(place for place, one in enumerate(passages(description)) if one.takes in both)
        divisions[number] = division_codes(description, mesh, rules, passed)
    return layouts, divisions


def exhaustive(problem: Problem, values: int) -> float:
    """The least cost over all assignments of labels to the values, each node at its best division; all are tried.

    Memory: labels of all values multiplied, 8 bytes each.
    """
    shape = problem.domains[:values]
    total = np.zeros(shape)
    for variable, table in enumerate(problem.unary[:values]):
        if table >= 0:
            total += problem.tables[table].reshape([-1 if axis == variable else 1 for axis in range(values)])
    for node in range(values, len(problem.domains)):
        own = problem.unary[node]
        costs: dict[int, np.ndarray] = {}
        for variable, value, table in problem.pairs:
            if variable == node:
                costs[value] = costs.get(value, 0.0) + problem.tables[table]
        best = np.full([shape[axis] if axis in costs else 1 for axis in range(values)], np.inf)
        for division in range(problem.domains[node]):
            here = np.full([1] * values, problem.tables[own][division] if own >= 0 else 0.0)
            for value, table_of in costs.items():
                here = here + table_of[division].reshape([-1 if axis == value else 1 for axis in range(values)])
            np.minimum(best, here, out=best)
        total += best
    return float(total.min())
