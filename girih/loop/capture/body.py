"""What is known of a loop: its iteration space, what its names are, and what its body does to what it shares."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from girih.loop.capture.errors import refusal, short
from girih.loop.capture.source import Source
from girih.loop.capture.values import Reference, Scalar, Value, Vector, View


@dataclass(frozen=True)
class ArrayRole:
    """A name that is an array of the loop."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class BufferRole:
    """A name whose writes reach an array later: they are no references. notes: only which rows are written counts."""

    shape: tuple[int, ...]
    dtype: str
    notes: bool = False


@dataclass(frozen=True)
class AccumulatorRole:
    """operation: `sum`, `min`, `max` or `product`."""

    operation: str
    dtype: str


@dataclass(frozen=True)
class Inherited:
    """Anything else that a body takes from outside; it is only read."""

    value: Any


Role = ArrayRole | BufferRole | AccumulatorRole | Inherited


@dataclass(frozen=True)
class KnownSpace:
    """What is known of the iteration space: the indices of each dimension, and whether entries have values.

    An index i of a dimension has starts ≤ i < shape; starts is 0 where nothing is given. values: what each column of
    the values holds in an entry. tuple_value: the value is a tuple of its columns.
    """

    shape: tuple[int, ...]
    values: tuple[Scalar | Vector, ...] = ()
    tuple_value: bool = False
    starts: tuple[int, ...] = ()

    def start(self, dim: int) -> int:
        return self.starts[dim] if self.starts else 0

    @property
    def dims(self) -> int:
        return len(self.shape)


@dataclass
class Notes:
    """What the lowering needs to know of nodes of the tree, by id.

    types: what is known of an expression's value. checks: for a subscript that is not proved to lie inside, the
    dimension's size, and whether it may count from the end. reductions of arrays are in `Body`.
    """

    types: dict[int, Value] = field(default_factory=dict)
    checks: dict[int, tuple[int, bool]] = field(default_factory=dict)


@dataclass(frozen=True)
class Body:
    """What a loop body does to what it shares.

    references: reads and writes of arrays. buffered, accumulated: names of buffers and accumulators that it uses.
    All of it holds for the values of inherited integers in roles. random: it calls `gl.random()`; generators: names of
    NumPy's Generators that it draws from.
    """

    source: Source
    space: KnownSpace
    roles: Mapping[str, Role]
    references: tuple[Reference, ...]
    buffered: tuple[str, ...]
    accumulated: tuple[str, ...]
    random: bool
    generators: tuple[str, ...]
    notes: Notes

    @property
    def draws(self) -> bool:
        """Does it need the iterations' numbers, by which they draw?"""
        return self.random or bool(self.generators)

    def of(self, array: str) -> tuple[Reference, ...]:
        return tuple(item for item in self.references if item.array == array)

    @property
    def written(self) -> tuple[str, ...]:
        return tuple(sorted({item.array for item in self.references if item.writes}))

    @property
    def reductions(self) -> tuple[str, ...]:
        """Arrays that are only added to: sums over iterations, whose order does not matter but for rounding."""
        return tuple(name for name in self.written if all(item.update for item in self.of(name)))


def key_and_value(source: Source, space: KnownSpace) -> tuple[str, str | None]:
    """The names of the parameters that are the key and, where entries have values, the value.

    Raises:
        LoopError: there are too few parameters.
    """
    wanted = 2 if space.values else 1
    if len(source.parameters) < wanted:
        names = "a key and a value" if wanted == 2 else "a key"
        raise refusal(
            source.file, source.tree.lineno, f"{source.tree.name} takes {len(source.parameters)} parameters",
            f"the loop gives it {names}, first",
        )  # fmt: skip
    return source.parameters[0], source.parameters[1] if space.values else None


def place_of_buffer(body: Body, name: str) -> str:
    """The line in which a body writes to a buffer first, and its text, for people."""
    for node in ast.walk(body.source.tree):
        if not (isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript)):
            continue
        if isinstance(base := node.target.value, ast.Name) and base.id == name:
            return f"{body.source.file}:{node.lineno}: `{short(node)}`"
    return f"{body.source.file}:{body.source.tree.lineno}: {name}"


def vector_of(value: Value, roles: Mapping[str, Role]) -> tuple[int, str] | None:
    """(length, dtype) of a value of one dimension whose length is known."""
    if isinstance(value, Vector):
        return None if value.length is None else (value.length, value.dtype)
    if isinstance(value, View) and value.open is not None and len(value.open) == 1 and not value.cut:
        role = roles[value.array]
        assert isinstance(role, ArrayRole)
        at = value.open[0]
        if value.subscripts[at].anywhere and at == len(role.shape) - 1:
            return role.shape[at], role.dtype
    return None


def lines_of(references: Sequence[Reference]) -> Iterator[str]:
    """`W[p0, :] read in line 12 (W[i])`, for people."""
    for item in references:
        yield f"{item} {'written' if item.writes else 'read'} in line {item.line}: {item.text}"
