"""Lazy array programs → Graph: expressions that share what is equal, and the graph of those that are needed.

An expression is an operator of the catalogue with attributes and inputs, an array in memory or elsewhere, or a number.
Equal ones are one object (hash-consing), so common subexpressions are shared by construction, also across evaluations:
what was evaluated stands for itself, as an input, as long as somebody holds it (Spartan §3.1).

Numbers are inputs of the graph, not constants in it: a loop that changes one asks for the same graph again.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import count
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from girih.capture.lazy.sources import Source, window
from girih.graph import Graph, Input, Node, Output, Ref, Value
from girih.ops.catalogue import catalogue

Operand: TypeAlias = "bool | int | float | str | Expression | tuple[Operand, ...] | None"

DATA, NUMBER, RESULT = "data", "number", "result"
"""The operators of leaves: an array in memory or a Source, and a number of some dtype; and one of several results."""

_serial = count()


class _Ending(threading.local):
    """What expressions that end have let go of. lets_go: further down in this thread one is taken after another."""

    def __init__(self) -> None:
        self.held: list[tuple[Any, ...]] = []
        self.lets_go = False


_ending = _Ending()
_known: WeakValueDictionary[Hashable, Expression] = WeakValueDictionary()
_forms: WeakValueDictionary[Hashable, Form] = WeakValueDictionary()


class Expression:
    """A value that can be computed: `shape` in elements, `dtype` by PyTorch's name.

    number: never used again, so that keys outlive what they name. arguments: by schema name, () of a leaf and of what
    was evaluated. content: of a leaf, its NumPy array or its Source. kept: where the workers hold the value, once they
    do; it is told when the expression ends. form: of a call, what it is apart from its inputs. holders: how
    many live arrays show it. users: how often expressions that are not evaluated read it. source: `file:line` of the
    program that made it. results: shape and dtype of each result, where there are several; the call then has no value
    of its own, each result is an expression that reads it, and is kept and let go by itself.
    """

    __slots__ = (
        "__weakref__", "arguments", "content", "dtype", "form", "holders", "inputs", "kept", "number", "operator",
        "results", "shape", "source", "users",
    )  # fmt: skip

    def __init__(
        self,
        operator: str,
        arguments: tuple[tuple[str, Operand], ...],
        shape: tuple[int, ...],
        dtype: str,
        source: str,
        content: Any = None,
        inputs: tuple[Expression, ...] = (),
        form: Form | None = None,
        results: tuple[tuple[tuple[int, ...], str], ...] = (),
    ) -> None:
        self.number = next(_serial)
        self.operator = operator
        self.arguments = arguments
        self.inputs = inputs
        self.form = form
        self.shape = shape
        self.dtype = dtype
        self.source = source
        self.content = content
        self.results = results
        self.kept: Any = None
        self.holders = self.users = 0
        for operand in inputs:
            operand.users += 1

    def __del__(self) -> None:
        if self.kept is not None:
            self.kept.let_go()
        self._let_go()

    def _let_go(self) -> None:
        """Let go of its operands. Those that nothing else holds end one after another: a long chain nests no calls."""
        if not self.inputs:
            self.arguments = ()
            return
        for operand in self.inputs:
            operand.users -= 1
        _ending.held.append((self.arguments, self.inputs))
        self.arguments = self.inputs = ()
        if _ending.lets_go:
            return
        _ending.lets_go = True
        try:
            while _ending.held:
                _ending.held.pop()  # operands that end put their own behind
        finally:
            _ending.lets_go = False

    @property
    def is_leaf(self) -> bool:
        """Does it enter a graph as an input?"""
        return self.kept is not None or self.content is not None

    def read_from(self, source: Source) -> None:
        """Its elements lie in a source: what it was made of is let go."""
        self.content = source
        self._let_go()

    def keep(self, kept: Any) -> None:
        """It was evaluated: what it was made of is let go."""
        self.kept = kept
        self._let_go()

    def __repr__(self) -> str:
        return f"<{self.operator} {self.dtype}{list(self.shape)} {self.source}>"


def _told_all(
    operator: str, attributes: tuple[tuple[str, Operand], ...], inputs: list[Expression]
) -> tuple[Hashable, ...]:
    """A call but for its inputs, which it puts into a list."""
    told: list[Hashable] = [operator]
    for name, item in attributes:
        kind = item.__class__
        if kind is Expression:
            inputs.append(item)  # type: ignore[arg-type]
            told += (name, ...)
        else:
            told += (name, item if kind is int or kind is str else _told(item, inputs))
    return tuple(told)


def _told(argument: Operand, inputs: list[Expression]) -> Hashable:
    """Equal for arguments that are equal but for the expressions in them, and only for them: 1, 1.0 and True differ, as
    do 0.0 and -0.0. inputs: gets those expressions, in their order."""
    if isinstance(argument, Expression):
        inputs.append(argument)
        return ...
    if isinstance(argument, tuple):
        return tuple([_told(item, inputs) for item in argument])
    if isinstance(argument, float):
        return argument.hex()
    return (argument,) if isinstance(argument, bool) else argument


class Form:
    """Stands for all that a call is but its inputs, or for what an input is. One object for all that are equal."""

    __slots__ = ("__weakref__",)


def _form(told: Hashable) -> Form:
    form = _forms.get(told)
    if form is None:
        form = _forms[told] = Form()
    return form


def _identity(item: Expression) -> Hashable:
    """What tells an operand from others. A number may be made anew while what was made of it lives on."""
    return (item.dtype, item.content.tobytes()) if item.operator == NUMBER else item.number


def _live(key: Hashable) -> Expression | None:
    """The expression with this key, unless its value was lost with the workers that held it."""
    reference = _known.get(key)
    lost = (
        reference is not None and reference.content is None and reference.kept is not None and not reference.kept.alive
    )
    return None if lost else reference


def call(
    operator: str, arguments: Mapping[str, Operand], shape: tuple[int, ...], dtype: str, source: str = ""
) -> Expression:
    """An operator applied to expressions and attributes; the same object for equal calls."""
    attributes, inputs = tuple(arguments.items()), list[Expression]()
    form = _form((_told_all(operator, attributes, inputs), shape, dtype))
    key = (form, *[_identity(item) for item in inputs])
    known = _live(key)
    if known is None:
        known = Expression(operator, attributes, shape, dtype, source, None, tuple(inputs), form)
        _known[key] = known
    return known


def several(
    operator: str,
    arguments: Mapping[str, Operand],
    results: tuple[tuple[tuple[int, ...], str], ...],
    source: str = "",
) -> tuple[Expression, ...]:
    """The results of an operator that has several; shape and dtype of each are given. Equal calls are one."""
    attributes, inputs = tuple(arguments.items()), list[Expression]()
    form = _form((_told_all(operator, attributes, inputs), results))
    key = (form, *[_identity(item) for item in inputs])
    reference = _known.get(key)
    if reference is None:
        reference = Expression(operator, attributes, (), "", source, None, tuple(inputs), form, results)
        _known[key] = reference
    expressions = []
    for position, (shape, dtype) in enumerate(results):
        own = (RESULT, reference.number, position)
        item = _live(own)
        if item is None:
            of = (("of", reference), ("position", position))
            form = _form((RESULT, position, shape, dtype))
            item = _known[own] = Expression(RESULT, of, shape, dtype, source, None, (reference,), form)
        expressions.append(item)
    return tuple(expressions)


def number(value: Any, dtype: np.dtype, name: str, source: str = "") -> Expression:
    """A number as an input without dimensions; the same object for equal ones. name: of the dtype."""
    content = np.asarray(value, dtype)
    key = (NUMBER, name, content.tobytes())
    reference = _known.get(key)
    if reference is None:
        reference = _known[key] = Expression(NUMBER, (), (), name, source, content)
    return reference


def data(content: np.ndarray | Source, name: str, source: str = "") -> Expression:
    """An array in memory, that nobody writes to from now on, or elsewhere; the same object for equal sources.

    name: of its dtype.
    """
    if isinstance(content, np.ndarray):
        return Expression(DATA, (), content.shape, name, source, content)
    key = (DATA, content.fingerprint)
    reference = _known.get(key)
    if reference is None:
        reference = _known[key] = Expression(DATA, (), content.shape, name, source, content)
    return reference


def is_one(item: Expression) -> bool:
    return item.operator == NUMBER and item.dtype.startswith("float") and item.content == 1


def _argument(item: Operand, names: Mapping[Expression, str]) -> Any:
    """An argument as a graph's node has it. No closure of `Needed.graph`: one that calls itself keeps what it sees
    alive until the garbage collector comes, and with it all tiles."""
    if isinstance(item, Expression):
        return Ref(names[item])
    return tuple(_argument(part, names) for part in item) if isinstance(item, tuple) else item


@dataclass(frozen=True)
class Needed:
    """What must be computed, in topological order, for some results.

    inputs: leaves. nodes: one expression each; a call with several results has them behind it. results: nodes whose
    values are kept, in the order of nodes.
    """

    inputs: tuple[Expression, ...]
    nodes: tuple[Expression, ...]
    results: tuple[Expression, ...]

    @cached_property
    def names(self) -> dict[Expression, str]:
        """Names of inputs and nodes, by their position, so that equal programs have equal graphs."""
        known = {item: f"x{position}" for position, item in enumerate(self.inputs)}
        for position, item in enumerate(self.nodes):
            if item.operator == RESULT:
                known[item] = _result_name(known[item.inputs[0]], item.arguments[1][1])
            else:
                known[item] = f"{item.operator.split('.')[1]}.{position}"
        return known

    @cached_property
    def structure(self) -> Hashable:
        """Equal where the graphs are equal: the form of each input and node, behind that of a node the places of what
        it reads."""
        positions: dict[Expression, int] = {}
        told: list[Form | int | None] = []
        ones = self._ones
        for item in self.inputs:
            positions[item] = len(positions)
            told.append(_form((item.operator == NUMBER, item.shape, item.dtype, item in ones)))
        for item in self.nodes:
            positions[item] = len(positions)
            told.append(item.form)
            for operand in item.inputs:
                told.append(positions[operand])
        return tuple(told), len(self.inputs), tuple([positions[item] for item in self.results])

    @property
    def ones(self) -> frozenset[str]:
        """The inputs that are the number 1 and are divided by something: of such rules speak. Another number there is
        another program; elsewhere a program may change its numbers and is planned once."""
        return frozenset(self.names[item] for item in self._ones)

    @property
    def _ones(self) -> frozenset[Expression]:
        divided = [item.arguments[0][1] for item in self.nodes if item.operator == "aten.div.Tensor"]
        return frozenset([item for item in divided if isinstance(item, Expression) and is_one(item)])

    def graph(self) -> Graph:
        """As a Graph: arrays enter as state, which stays with the workers, numbers as scalars."""
        names = self.names

        nodes_of = {item: self._made(item) for item in self.nodes if item.operator != RESULT}
        entering = (Value(names[item], item.shape, item.dtype) for item in self.inputs)
        values = {
            value.name: value for value in (*entering, *(value for entries in nodes_of.values() for value in entries))
        }
        nodes = tuple(
            Node(
                names[item],
                item.operator,
                tuple((name, _argument(argument, names)) for name, argument in item.arguments),
                tuple(value.name for value in entries),
                source=item.source,
            )
            for item, entries in nodes_of.items()
        )
        inputs = tuple(
            Input(names[item], "scalar" if item.operator == NUMBER else "state", names[item]) for item in self.inputs
        )
        return Graph(values, nodes, inputs, tuple(Output(names[item], "result") for item in self.results))

    def _made(self, item: Expression) -> tuple[Value, ...]:
        """The values of a node, those included that nobody asks for."""
        types = item.results or ((item.shape, item.dtype),)
        return tuple(
            Value(_result_name(self.names[item], position), shape, dtype)
            for position, (shape, dtype) in enumerate(types)
        )


def _result_name(call: str, position: Operand) -> str:
    """The first result has the name of its node."""
    return f"{call}.{position}" if position else call


def needed(wanted: Iterable[Expression], streams: Callable[[Source], bool] = lambda source: False) -> Needed:
    """What the wanted expressions need; results are the wanted ones, and whatever else will be asked for.

    That is what live arrays show, and what is read by expressions that are not evaluated now, unless it costs nothing
    to make again (a view, or something made from nothing): a loop may have let go of the array, but goes on from it.

    Of a source of which only slices are read nothing else is read: they become sources, and need no node. Slices that
    overlap do so where the source is too large to be held: workers then read each where it lies, where else they would
    exchange whole tiles. streams: whether a source is.

    Cost: linear in the expressions that are not evaluated yet.
    """
    goals = [item for item in wanted if not item.is_leaf]
    seen: set[Expression] = set()
    inputs: list[Expression] = []
    nodes: list[Expression] = []
    stack: list[Expression | None] = [*reversed(goals)]  # behind a None: what it needs is there
    while stack:
        item = stack.pop()
        if item is None:
            item = stack.pop()
            assert item is not None
            nodes.append(item)
            if item.results:  # made together: those that somebody has are kept, too
                beside = (_known.get((RESULT, item.number, position)) for position in range(len(item.results)))
                behind = [one for one in beside if one is not None and one not in seen and not one.is_leaf]
                seen.update(behind)
                nodes.extend(behind)
        elif item not in seen:
            seen.add(item)
            if item.kept is not None or item.content is not None:
                inputs.append(item)
            else:
                stack += (item, None)
                for operand in item.inputs[::-1]:
                    if operand not in seen:
                        stack.append(operand)
    for item in inputs:
        if item.kept is None and not isinstance(item.content, np.ndarray):  # a Source
            if _narrowed(nodes, streams):
                return needed(goals, streams)
            break
    asked = set(goals)
    inside: dict[Expression, int] = {}
    for item in nodes:
        for operand in item.inputs:
            inside[operand] = inside.get(operand, 0) + 1
    results = [
        item
        for item in nodes
        if item in asked
        or item.holders
        or (item.users > inside.get(item, 0) and item.inputs and not item.results and not is_view(item.operator))
    ]
    return Needed(tuple(inputs), tuple(nodes), tuple(results))


def _narrowed(nodes: Iterable[Expression], streams: Callable[[Source], bool]) -> bool:
    """Let slices of a source be sources, where nothing else of it is read; was there one?"""
    readers: dict[Expression, list[Expression]] = {}
    for item in nodes:
        for operand in item.inputs:
            if isinstance(operand.content, Source) and operand.kept is None:
                readers.setdefault(operand, []).append(item)
    changed = False
    for operand, items in readers.items():
        if all(item.operator == "aten.slice.Tensor" for item in items) and (
            sum(math.prod(item.shape) for item in items) <= math.prod(operand.shape) or streams(operand.content)
        ):
            for item in items:
                cut = (dict(item.arguments)[name] for name in ("dim", "start", "end", "step"))
                item.read_from(window(operand.content, *cut))  # type: ignore[arg-type]
            changed = True
    return changed


@cache
def is_view(operator: str) -> bool:
    described = catalogue().get(operator)
    return described is not None and described.view
