"""The index notation in which operators are described (Tofu §4.1: TDL).

A description is a function from tensors and attributes to an index expression:

    lambda i, j: Sum(lambda k: a[i, k] * b[k, j])

Arguments of the outer lambda are the output's indices; reducers bring their own. Indices into tensors are
affine in the index variables, with integer coefficients: exactly what interval analysis can follow. What index
notation cannot say is `Opaque`. What is written becomes trees (`expressions`); everything else is derived from them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from girih.ops.expressions import (
    Affine,
    Applied,
    Choice,
    Constant,
    DescriptionError,
    Expression,
    OpaqueRead,
    Piecewise,
    Position,
    Read,
    Reduce,
    Reducer,
    affine,
    children,
    value_of,
    walk,
)

__all__ = [
    "Affine", "Applied", "Choice", "Concatenated", "Constant", "DescriptionError", "Expression", "LogSumExp", "Max",
    "Min", "Opaque", "OpaqueRead", "Over", "PendingReduce", "Piecewise", "Position", "Prod", "Read", "Reduce",
    "Reducer", "Select", "Sum", "TensorSymbol", "Tracer", "affine", "children", "equal", "fn", "parameter_names",
    "value_of", "walk",
]  # fmt: skip


def fn(name: str) -> Callable[..., Expression]:
    """A scalar function for descriptions: `exp = fn("exp")`."""
    return lambda *arguments: Applied(name, tuple(value_of(item) for item in arguments))


def Select(condition: Any, yes: Any, no: Any = 0) -> Expression:
    return Choice(value_of(condition), value_of(yes), value_of(no))


equal = fn("eq")


@dataclass(frozen=True)
class PendingReduce(Expression):
    """A reduction as written, before its index variables are numbered by `close`."""

    reducer: Reducer
    body: Callable[..., Any]
    sizes: tuple[int, ...] | None
    count: int | None


class Tracer:
    """Numbers the index variables of one description while it is read."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.sizes: list[int | None] = []

    def variable(self, name: str, size: int | None) -> Affine:
        self.names.append(name)
        self.sizes.append(size)
        return Affine(((len(self.names) - 1, 1),))

    def close(self, item: Any) -> Expression:
        """The expression with every reduction's index variables numbered."""
        expression = value_of(item)
        if isinstance(expression, PendingReduce):
            sizes = expression.sizes
            count = len(sizes) if sizes is not None else expression.count
            indices = [
                self.variable(name, sizes[number] if sizes is not None else None)
                for number, name in enumerate(parameter_names(expression.body, count))
            ]
            if not indices:
                return self.close(expression.body())
            variables = tuple(index.terms[0][0] for index in indices)
            return Reduce(expression.reducer, variables, self.close(expression.body(*indices)))
        if isinstance(expression, Applied):
            return Applied(expression.function, tuple(map(self.close, expression.arguments)))
        if isinstance(expression, Choice):
            return Choice(self.close(expression.condition), self.close(expression.yes), self.close(expression.no))
        if isinstance(expression, Piecewise):
            return Piecewise(expression.index, expression.bounds, tuple(map(self.close, expression.parts)))
        return expression


def parameter_names(function: Callable[..., Any], count: int | None) -> list[str]:
    """Names for a lambda's indices; `*k` takes what is left of `count` and names them k0, k1, …"""
    code = function.__code__  # of a lambda; `inspect.signature` takes ten times as long
    names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    if code.co_flags & inspect.CO_VARARGS:
        taken = code.co_varnames[len(names)]
        names[code.co_argcount : code.co_argcount] = [
            f"{taken}{number}" for number in range((count or 0) - code.co_argcount)
        ]
    return names


def _reducer(reducer: Reducer) -> Callable[..., Expression]:
    def reduce(
        body: Callable[..., Any], *, sizes: tuple[int, ...] | None = None, count: int | None = None
    ) -> Expression:
        return PendingReduce(reducer, body, sizes, count)

    reduce.__name__ = reducer.capitalize()
    reduce.__doc__ = (
        f"{reducer} over the indices of a lambda. Sizes come from the tensors that a bare index reads,\n"
        "or from `sizes`; `count` is the number of indices of a lambda with `*k`."
    )
    return reduce


Sum = _reducer("sum")
Max = _reducer("max")
Min = _reducer("min")
Prod = _reducer("prod")
LogSumExp = _reducer("logsumexp")


class Opaque:
    """`Opaque(a[b, :, :])[i, j]`: a function of whole slices of which only its batch indices are known.

    linear: the arguments (by number) in which it is linear, if any; a partial sum may then pass through.
    """

    def __init__(self, *arguments: Expression, linear: tuple[int, ...] = ()) -> None:
        if not all(isinstance(argument, Read) for argument in arguments):
            raise DescriptionError("Opaque takes slices of tensors, such as a[b, :, :]")
        self.arguments: tuple[Read, ...] = arguments  # type: ignore[assignment]
        self.linear = linear

    def __getitem__(self, index: Any) -> Expression:
        items = index if isinstance(index, tuple) else (index,)
        return OpaqueRead(self.arguments, tuple(affine(item) for item in items), self.linear)


def Concatenated(index: Affine, sizes: Sequence[int], part: Callable[[int, Affine], Any]) -> Expression:
    """Parts of the given sizes one after another along `index`: `part(number, index within the part)`."""
    bounds = tuple(accumulate(sizes, initial=0))
    parts = tuple(value_of(part(number, index - bound)) for number, bound in enumerate(bounds[:-1]))
    return Piecewise(index, bounds, parts)


@dataclass(frozen=True)
class TensorSymbol:
    """A tensor inside a description: it has a shape and a dtype and is read by indexing."""

    number: int
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __getitem__(self, index: Any) -> Expression:
        items = index if isinstance(index, tuple) else (index,)
        if len(items) != len(self.shape):
            raise DescriptionError(f"{self.name} has shape {list(self.shape)} but is read with {len(items)} indices")
        read = tuple(None if isinstance(item, slice) else affine(item) for item in items)
        return Read(self.number, read)

    def broadcast(self, indices: tuple[Affine, ...]) -> Expression:
        """The element that PyTorch's broadcasting reads at output position `indices`."""
        aligned = indices[len(indices) - self.rank :]
        return self[tuple(0 if size == 1 else index for size, index in zip(self.shape, aligned, strict=True))]


@dataclass(frozen=True)
class Over:
    """An output written at affine positions: for reshapes, whose index space is finer than the output's.

    sizes: of the index variables. body: from indices to (output position, expression).
    """

    sizes: tuple[int, ...]
    body: Callable[..., tuple[tuple[Any, ...], Any]]
