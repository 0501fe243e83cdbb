"""An operator: a name and its description; and a description applied to shapes.

`@operator("aten.mm")` turns a page of index notation into an `Operator`. Nothing is registered: the catalogue
collects the operators of its pages (`girih.ops.catalogue`). Applying an operator to a node's shapes gives a
`Description`: index variables with sizes, the affine reads of every input, the affine place of the output, and
the expression itself. Descriptions are cached by operator, shapes and attributes, so repeated layers cost once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from girih.ops.derive.linearity import Root, root_of
from girih.ops.derive.temporaries import Temporary
from girih.ops.expressions import (
    Affine,
    DescriptionError,
    Expression,
    OpaqueRead,
    Piecewise,
    Position,
    Read,
    Reduce,
    Reducer,
    walk,
)
from girih.ops.language import Over, TensorSymbol, Tracer, parameter_names


@dataclass(frozen=True)
class TensorType:
    """Shape and dtype of a tensor, without its name."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Piece:
    """One device's share of an operator's index space, as rules for attributes see it.

    starts, stops: of each index variable; sizes: of the whole. `cut` tells which are divided.
    inputs: for each tensor input and dimension the (start, stop) that the piece receives, before padding.
    output: (start, stop) for each dimension of the output that the piece makes; `dtype` is its type.
    """

    names: tuple[str, ...]
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    sizes: tuple[int, ...]
    inputs: tuple[tuple[tuple[int, int], ...], ...]
    output: tuple[tuple[int, int], ...]
    dtype: str = "float32"

    def cut(self, name: str) -> bool:
        """Is this index variable divided? False for a name that the description does not have."""
        if name not in self.names:
            return False
        number = self.names.index(name)
        return self.stops[number] - self.starts[number] != self.sizes[number]

    def start(self, name: str) -> int:
        return self.starts[self.names.index(name)]

    def length(self, name: str) -> int:
        number = self.names.index(name)
        return self.stops[number] - self.starts[number]

    def size(self, name: str) -> int:
        """The size of this index variable in the whole."""
        return self.sizes[self.names.index(name)]

    @property
    def output_shape(self) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in self.output)

    def input_shape(self, number: int) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in self.inputs[number])


Attributes = dict[str, Any]
PieceRule = Callable[[Attributes, Piece], "Attributes | tuple[str, Attributes]"]


@dataclass(frozen=True)
class Operator:
    """A name, its index notation, and the few facts that index notation cannot say.

    describe: tensors by position, attributes by keyword; returns an index expression.
    elementwise: `describe` is written for scalars and holds at every (broadcast) position.
    piece: how the attributes (and perhaps the operator) change for a piece of the index space: given the node's
        attributes, with the description's defaults filled in, and the Piece, it returns the attributes, or
        `(operator, attributes)` to compute the piece by another operator. That one is called with the tensors
        in the node's order under its own parameters' names, those that are never read left out. It is asked
        for every piece, also one whose index variables are all whole, because inputs arrive cut to what is
        read (a slice's piece begins at 0). Without a rule, index variables whose position matters cannot be
        divided.
    padding: the value that reads outside of an input give, or None where there are no such reads, or where they
        are masked by the description. A dimension of an input that is read through a divided index variable
        is padded with it by the worker, to the whole region that the piece reads; the rule then takes that
        padding out of the attributes. Other dimensions are left to the operator's own padding.
    view: the result shares its input's storage.
    scan: each element follows from the one before it and takes about as long as one of an element-wise function.
    condition: `(tensors by schema name, attributes) -> bool`, for which the description holds; elsewhere the
        node counts as undescribed.
    result: which result is described, for operators that return several.
    results: how many are described: `describe` then returns one meaning for each. What can be divided must be the
        same index variables of all of them, their first ones.
    temporary: bytes that the kernel holds while it runs, beside its operands and its result; None: nothing; `Measured`:
        only a measurement on the processor can tell.
    walked: the number of the input that the kernel goes through from end to end for whatever part of the result it
        makes (the indices of a scatter, a matrix that is factored): a division pays only where it cuts this input.
    scan: it goes through a dimension once, with an addition or multiplication for each element: for what is made of
        files that takes less than to write it down and read it again.
    order_of: the number of the input in whose order the result lies where that is channels last; else, and without, it
        is contiguous (element-wise operators keep any order).
    numpy: computes it with NumPy, for dtypes for which PyTorch has no kernel: tensors come by position, as arrays, and
        attributes by keyword. None: the description is evaluated, unless it leaves something open, or has an index
        space far larger than the tensors.
    module: what has to be imported so that PyTorch knows the operator; "": it is PyTorch's or girih's own.
    """

    name: str
    describe: Callable[..., Any]
    elementwise: bool = False
    piece: PieceRule | None = None
    padding: float | None = None
    view: bool = False
    scan: bool = False
    condition: Callable[..., bool] | None = None
    result: int | None = None
    temporary: Temporary | None = None
    results: int = 1
    walked: int | None = None
    scan: bool = False
    numpy: Callable[..., Any] | None = None
    module: str = ""
    order_of: int | None = None

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of `describe`, by name."""
        return inspect.signature(self.describe).parameters


def operator(*names: str, **facts: Any) -> Callable[[Callable[..., Any]], tuple[Operator, ...]]:
    """Describe one operator, or several that share their index notation. facts: fields of `Operator`, by name."""
    return lambda describe: tuple(Operator(name, describe, **facts) for name in names)


@dataclass(frozen=True, eq=False)
class Description:
    """An operator's meaning for given shapes.

    names, sizes: of the index variables; the first `outputs` of them place the output.
    place: for each dimension of the output its affine position.
    reads: for each tensor input its reads, each an affine position (None: whole) for each dimension.
    body: the expression; `reducer` is the reduction at its root, if any.
    tensors: the schema names of the inputs, `a` or `tensors.0` for an element of a list.
    result: which one, of an operator with several described results.
    """

    operator: Operator
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    outputs: int
    place: tuple[Affine, ...]
    body: Expression
    inputs: tuple[TensorType, ...]
    output: TensorType
    tensors: tuple[str, ...] = ()
    result: int | None = None

    @cached_property
    def reads(self) -> tuple[tuple[tuple[Affine | None, ...], ...], ...]:
        every: list[dict[tuple[Affine | None, ...], None]] = [{} for _ in self.inputs]
        for expression in walk(self.body):
            if isinstance(expression, Read):
                every[expression.tensor][expression.index] = None
        return tuple(tuple(reads) for reads in every)

    @cached_property
    def _rooted(self) -> Root | None:
        return root_of(self.body, [kind.dtype for kind in self.inputs])

    @property
    def root(self) -> Reduce | None:
        """The reduction that pieces of it can be combined by: at the root, scaled by constants (a mean), or with terms
        added to it (`alongside`)."""
        return self._rooted.reduction if self._rooted is not None else None

    @property
    def alongside(self) -> frozenset[int]:
        """The inputs that must be held as partial sums, one for each piece, where the root's reduction is divided."""
        return self._rooted.alongside if self._rooted is not None else frozenset()

    @property
    def reducer(self) -> Reducer | None:
        return self.root.reducer if self.root is not None else None

    @cached_property
    def positions(self) -> frozenset[int]:
        """Index variables whose value, not only whose range, matters."""
        return frozenset(
            variable
            for expression in walk(self.body)
            if isinstance(expression, Position)
            for variable, _ in expression.index.terms
        )

    @cached_property
    def undivided(self) -> frozenset[int]:
        """Index variables that cannot be divided.

        Those inside opaque functions, under inner reductions, and concatenated; and those by which a dimension is
        read in one place but not in another: softmax reads its row at i and also whole, so that every piece of i
        would need, and compute, the whole row.
        """
        fixed: set[int] = set()
        allowed = set(range(self.outputs)) | set(self.root.variables if self.root is not None else ())
        for expression in walk(self.body):
            if isinstance(expression, Reduce):
                fixed.update(variable for variable in expression.variables if variable not in allowed)
            elif isinstance(expression, OpaqueRead):
                fixed.update(variable for index in expression.index for variable, _ in index.terms)
            elif isinstance(expression, Piecewise):
                fixed.update(variable for variable, _ in expression.index.terms)
        for reads in self.reads:
            for indices in zip(*reads, strict=True):
                used = [{variable for variable, _ in index.terms} if index is not None else set() for index in indices]
                fixed |= set.union(*used) - set.intersection(*used)
        if self.operator.piece is None:
            fixed.update(self.positions)
        return frozenset(fixed)

    @property
    def rank(self) -> int:
        return len(self.sizes)


def describe(
    item: Operator,
    tensors: tuple[TensorType, ...],
    names: tuple[str, ...],
    attributes: Attributes,
    output: TensorType,
    result: int | None = None,
) -> Description:
    """Apply an operator to shapes.

    names: the schema names of the tensor inputs, `a` or `tensors.0` for an element of a list. result: which of several
    described results `output` is.

    Raises:
        DescriptionError: naming the operator and its shapes, where the description does not fit them.
    """
    tracer = Tracer()
    symbols = [
        TensorSymbol(number, name, tensor.shape, tensor.dtype)
        for number, (name, tensor) in enumerate(zip(names, tensors, strict=True))
    ]
    try:
        place, body, outputs = _trace(item, tracer, symbols, attributes, output, result)
        _infer_sizes(tracer, body, symbols)
    except DescriptionError as error:
        shapes = ", ".join(f"{symbol.name}: {symbol.dtype}{list(symbol.shape)}" for symbol in symbols)
        raise DescriptionError(f"{item.name}({shapes}) with {attributes}: {error}") from error
    sizes = tuple(size if size is not None else 1 for size in tracer.sizes)
    return Description(item, tuple(tracer.names), sizes, outputs, place, body, tensors, output, names, result)


def _arguments(item: Operator, symbols: list[TensorSymbol], attributes: Attributes) -> Attributes:
    """Tensors and attributes as the description's parameters; what it does not name is left out."""
    grouped: Attributes = {}
    for symbol in symbols:
        base, dot, position = symbol.name.partition(".")
        if dot:  # an element of a list, in which absent tensors (x[:, i] has none for its first dimension) are None
            items = grouped.setdefault(base, [])
            items += [None] * (int(position) + 1 - len(items))
            items[int(position)] = symbol
        else:
            grouped[base] = symbol
    grouped.update(attributes)
    parameters = item.parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return grouped
    # Descriptions may call the tensor `self` of ATen's schemas `x`: names are matched with this one exception.
    if "self" in grouped and "self" not in parameters and "x" in parameters:
        grouped["x"] = grouped.pop("self")
    missing = [
        name
        for name, parameter in parameters.items()
        if name not in grouped and parameter.default is inspect.Parameter.empty
    ]
    if missing:
        raise DescriptionError(f"the description needs {missing}, the node has {sorted(grouped)}")
    return {name: grouped[name] for name in parameters if name in grouped}


def _trace(
    item: Operator,
    tracer: Tracer,
    symbols: list[TensorSymbol],
    attributes: Attributes,
    output: TensorType,
    result: int | None,
) -> tuple[tuple[Affine, ...], Expression, int]:
    arguments = _arguments(item, symbols, attributes)
    if item.elementwise:
        indices = tuple(tracer.variable(f"i{number}", size) for number, size in enumerate(output.shape))
        scalars = {
            name: value.broadcast(indices) if isinstance(value, TensorSymbol) else value
            for name, value in arguments.items()
        }
        body = item.describe(**scalars)
        return indices, tracer.close(body if result is None else body[result]), len(indices)
    meaning = item.describe(**arguments)
    if result is not None:
        meaning = meaning[result]
    if isinstance(meaning, Over):
        variables = [
            tracer.variable(name, size)
            for name, size in zip(parameter_names(meaning.body, len(meaning.sizes)), meaning.sizes, strict=True)
        ]
        position, body = meaning.body(*variables)
        place = tuple(index if isinstance(index, Affine) else Affine((), index) for index in position)
        return place, tracer.close(body), len(variables)
    names = parameter_names(meaning, len(output.shape))
    if len(names) != len(output.shape):
        raise DescriptionError(f"{len(names)} output indices for an output of shape {list(output.shape)}")
    indices = tuple(tracer.variable(name, size) for name, size in zip(names, output.shape, strict=True))
    return indices, tracer.close(meaning(*indices)), len(indices)


def _infer_sizes(tracer: Tracer, body: Expression, symbols: list[TensorSymbol]) -> None:
    """A reduction index without a size gets it from the tensor dimension that it alone reads."""
    for expression in walk(body):
        if not isinstance(expression, Read):
            continue
        shape = symbols[expression.tensor].shape
        for index, size in zip(expression.index, shape, strict=True):
            if index is not None and index.variable is not None and tracer.sizes[index.variable] is None:
                tracer.sizes[index.variable] = size
    for name, known in zip(tracer.names, tracer.sizes, strict=True):
        if known is None:
            raise DescriptionError(f"the size of index {name!r} follows from no tensor: give `sizes` to the reducer")
