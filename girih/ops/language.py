"""The index notation in which operators are described (Tofu §4.1: TDL).

A description is a function from tensors and attributes to an index expression:

    lambda i, j: Sum(lambda k: a[i, k] * b[k, j])

Arguments of the outer lambda are the output's indices; reducers bring their own. Indices into tensors are
affine in the index variables, with integer coefficients: exactly what interval analysis can follow. What index
notation cannot say is `Opaque`. Expressions are immutable trees; everything else is derived from them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, TypeAlias

Reducer: TypeAlias = Literal["sum", "max", "min", "prod", "logsumexp"]


class DescriptionError(ValueError):
    """A description that does not fit the shapes it is applied to."""


# ------------------------------------------------------------------------------------------- index arithmetic


@dataclass(frozen=True)
class Affine:
    """Σ coefficient · index variable + constant. `terms` maps the number of an index variable to its coefficient."""

    terms: tuple[tuple[int, int], ...]
    constant: int = 0

    def _combine(self, other: Affine | int, sign: int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.constant + sign * other)
        terms = dict(self.terms)
        for variable, coefficient in other.terms:
            terms[variable] = terms.get(variable, 0) + sign * coefficient
        kept = tuple(sorted((v, c) for v, c in terms.items() if c))
        return Affine(kept, self.constant + sign * other.constant)

    def __add__(self, other: Any) -> Any:
        return self._combine(other, 1) if isinstance(other, (Affine, int)) else value_of(self) + other

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._combine(other, -1) if isinstance(other, (Affine, int)) else value_of(self) - other

    def __rsub__(self, other: Any) -> Any:
        return (self * -1) + other

    def __mul__(self, factor: Any) -> Any:
        if isinstance(factor, bool) or not isinstance(factor, int):
            return value_of(self) * factor
        return Affine(tuple((v, c * factor) for v, c in self.terms if c * factor), self.constant * factor)

    __rmul__ = __mul__

    def __neg__(self) -> Affine:
        return Affine(tuple((v, -c) for v, c in self.terms), -self.constant)

    @property
    def variable(self) -> int | None:
        """The index variable, if this is one bare variable."""
        if self.constant == 0 and len(self.terms) == 1 and self.terms[0][1] == 1:
            return self.terms[0][0]
        return None


Whole = slice(None)
IndexLike: TypeAlias = Affine | int | slice

# ------------------------------------------------------------------------------------------- expressions


class Expression:
    """A scalar expression over index variables and tensor elements."""

    def __add__(self, other: Any) -> Expression:
        return Call("add", (self, value_of(other)))

    def __radd__(self, other: Any) -> Expression:
        return Call("add", (value_of(other), self))

    def __sub__(self, other: Any) -> Expression:
        return Call("sub", (self, value_of(other)))

    def __rsub__(self, other: Any) -> Expression:
        return Call("sub", (value_of(other), self))

    def __mul__(self, other: Any) -> Expression:
        return Call("mul", (self, value_of(other)))

    def __rmul__(self, other: Any) -> Expression:
        return Call("mul", (value_of(other), self))

    def __truediv__(self, other: Any) -> Expression:
        return Call("div", (self, value_of(other)))

    def __rtruediv__(self, other: Any) -> Expression:
        return Call("div", (value_of(other), self))

    def __pow__(self, other: Any) -> Expression:
        return Call("pow", (self, value_of(other)))

    def __rpow__(self, other: Any) -> Expression:
        return Call("pow", (value_of(other), self))

    def __neg__(self) -> Expression:
        return Call("neg", (self,))

    def __lt__(self, other: Any) -> Expression:
        return Call("lt", (self, value_of(other)))

    def __le__(self, other: Any) -> Expression:
        return Call("le", (self, value_of(other)))

    def __gt__(self, other: Any) -> Expression:
        return Call("gt", (self, value_of(other)))

    def __ge__(self, other: Any) -> Expression:
        return Call("ge", (self, value_of(other)))

    def __and__(self, other: Any) -> Expression:
        return Call("and", (self, value_of(other)))

    def __or__(self, other: Any) -> Expression:
        return Call("or", (self, value_of(other)))

    def __bool__(self) -> bool:
        raise DescriptionError("an index expression has no truth value: use Select(condition, yes, no) and equal(a, b)")


@dataclass(frozen=True)
class Constant(Expression):
    value: float | int | bool


@dataclass(frozen=True)
class Position(Expression):
    """An index used as a number: `lambda i: i` is arange. Its pieces must be told where they begin."""

    index: Affine


@dataclass(frozen=True)
class Read(Expression):
    """One element of tensor number `tensor`; a dimension read whole (`:`) has index None."""

    tensor: int
    index: tuple[Affine | None, ...]


@dataclass(frozen=True)
class Call(Expression):
    """A scalar function applied to scalars, by name: add, mul, exp, erf, …"""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Choice(Expression):
    """`yes` where `condition` holds, else `no`."""

    condition: Expression
    yes: Expression
    no: Expression


@dataclass(frozen=True)
class Reduce(Expression):
    """`reducer` over the index variables numbered `variables`."""

    reducer: Reducer
    variables: tuple[int, ...]
    body: Expression


@dataclass(frozen=True)
class OpaqueRead(Expression):
    """Element `index` of an opaque function of whole slices. Index variables in `index` cannot be divided.

    linear: the numbers of the arguments in which the function is linear, each with the others held fixed.
    """

    arguments: tuple[Read, ...]
    index: tuple[Affine, ...]
    linear: tuple[int, ...] = ()


@dataclass(frozen=True)
class Piecewise(Expression):
    """A concatenation along one index: `parts[p]` holds where `bounds[p] <= index < bounds[p+1]`.

    Each part reads with an index shifted to its own start; the index cannot be divided, all others can.
    """

    index: Affine
    bounds: tuple[int, ...]
    parts: tuple[Expression, ...]


def value_of(item: Any) -> Expression:
    if isinstance(item, Expression):
        return item
    if isinstance(item, Affine):
        return Position(item)
    if isinstance(item, (bool, int, float)):
        return Constant(item)
    raise DescriptionError(f"{item!r} is no index expression: expected a tensor element, an index or a number")


def children(expression: Expression) -> tuple[Expression, ...]:
    if isinstance(expression, Call):
        return expression.arguments
    if isinstance(expression, Choice):
        return (expression.condition, expression.yes, expression.no)
    if isinstance(expression, Reduce):
        return (expression.body,)
    if isinstance(expression, OpaqueRead):
        return expression.arguments
    if isinstance(expression, Piecewise):
        return expression.parts
    return ()


def walk(expression: Expression) -> Iterator[Expression]:
    yield expression
    for child in children(expression):
        yield from walk(child)


def root_reduction(body: Expression) -> Reduce | None:
    """The reduction by which pieces can be combined: at the root, for sums also under scaling by constants."""
    if isinstance(body, Reduce):
        return body
    if isinstance(body, Call) and body.function in ("mul", "div", "neg"):
        tensors = [item for item in body.arguments if not isinstance(item, Constant)]
        scaled = body.function != "div" or not isinstance(body.arguments[0], Constant)
        if len(tensors) == 1 and scaled:
            inner = root_reduction(tensors[0])
            return inner if inner is not None and inner.reducer == "sum" else None
    return None


# ------------------------------------------------------------------------------------------- writing descriptions


def fn(name: str) -> Callable[..., Expression]:
    """A scalar function for descriptions: `exp = fn("exp")`."""
    return lambda *arguments: Call(name, tuple(value_of(item) for item in arguments))


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
        if isinstance(expression, Call):
            return Call(expression.function, tuple(map(self.close, expression.arguments)))
        if isinstance(expression, Choice):
            return Choice(self.close(expression.condition), self.close(expression.yes), self.close(expression.no))
        if isinstance(expression, Piecewise):
            return Piecewise(expression.index, expression.bounds, tuple(map(self.close, expression.parts)))
        return expression


def parameter_names(function: Callable[..., Any], count: int | None) -> list[str]:
    """Names for a lambda's indices; `*k` takes what is left of `count` and names them k0, k1, …"""
    names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}{number}" for number in range((count or 0) - len(names))]
        else:
            names.append(parameter.name)
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


def affine(item: Any) -> Affine:
    if isinstance(item, Affine):
        return item
    if isinstance(item, int) and not isinstance(item, bool):
        return Affine((), item)
    raise DescriptionError(f"{item!r} cannot index a tensor: indices are affine in index variables")


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
