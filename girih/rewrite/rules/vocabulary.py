"""The operators of rules: what a name in a rule's text is in a graph.

A name is an operator that `girih.ops` describes: `mm` is `aten.mm`, `add` is `aten.add.Tensor`, `head_product` is
`girih.head_product`. Its arguments are the tensors of that operator, in the order of PyTorch's schema; a list of
tensors (of `cat`) takes all of them. Attributes are the schema's other arguments, by name, and default as they do
there; those of a convolution as in `torch.nn.functional.conv2d`. A number stands for a list of equal ones
(`stride=2`), and a symbol for whatever a node has (`stride=s`): the same in all places.

One operator is of rules alone: `split(x, dim=1)[0]` and `[1]` are the two sides of what was concatenated last along a
dimension. Split trees say where that was (TASO §2.3.1); in a graph both are slices.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Any, TypeAlias

from girih.graph import Argument, Ref
from girih.ops.catalogue import catalogue
from girih.rewrite.rules.extent import Extent
from girih.rewrite.rules.rule import Attribute, RuleError, Term

SPLIT = "split"
OVERLOADS = ("", ".Tensor", ".dim_IntList", ".dim", ".self")
INNER = ("_", "native_")
"""Before the name of what PyTorch computes by an operator of its own: `softmax` by `_softmax`."""
OF_CONVOLUTIONS = {
    "bias": None, "stride": 1, "padding": 0, "dilation": 1, "transposed": False, "output_padding": 0, "groups": 1,
}  # fmt: skip
OWN_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "aten.convolution": OF_CONVOLUTIONS,
    "aten._softmax": {"half_to_float": False},
    "aten._log_softmax": {"half_to_float": False},
}
"""Defaults of what PyTorch's schema wants to be told."""
MISSING = object()

Tree: TypeAlias = "int | tuple[Tree, Tree]"
"""How a dimension was concatenated: its length, or two parts."""
Symbols: TypeAlias = Mapping[str, Argument]
"""What symbols stand for: sizes, and attributes."""


@dataclass(frozen=True)
class Parameter:
    """One of an operator's schema. kind: `tensor`, `tensors` or `attribute`. many: is it a list of numbers?"""

    name: str
    kind: str
    default: Any
    many: bool = False


@dataclass(frozen=True)
class Operand:
    """A tensor that a term reads. trees: of each dimension."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    trees: tuple[Tree, ...]


@dataclass(frozen=True)
class Call:
    """A term as a node would have it. arguments: as of a Node, defaults left out."""

    operator: str
    arguments: tuple[tuple[str, Argument], ...]


def operands_and_attributes(call: Call) -> tuple[dict[str, int], dict[str, Argument]]:
    """Which operand each parameter takes (those of a list have its name with a number: `tensors.0`); and attributes.
    Operands are named by their numbers here."""
    operands: dict[str, int] = {}
    attributes: dict[str, Argument] = {}
    for name, argument in call.arguments:
        if isinstance(argument, Ref):
            operands[name] = int(argument.name)
        elif isinstance(argument, tuple) and any(isinstance(item, Ref) for item in argument):
            operands |= {f"{name}.{at}": int(item.name) for at, item in enumerate(argument) if isinstance(item, Ref)}
        else:
            attributes[name] = argument
    return operands, attributes


@cache
def operator_named(name: str) -> str:
    """The operator of graphs that a name in a rule is.

    Raises:
        RuleError: nobody has described one, with the names that are alike.
    """
    described = catalogue()
    public = [f"aten.{name}{overload}" for overload in OVERLOADS]
    for full in (*public, f"girih.{name}", name, *(f"aten.{prefix}{name}" for prefix in INNER)):
        if full in described:
            return full
    short = {key.removeprefix("aten.").removeprefix("girih.").partition(".")[0] for key in described}
    near = get_close_matches(name, sorted(short | {SPLIT}), n=3)
    raise RuleError(f"no operator {name!r} is described" + (f"; did you mean {' or '.join(near)}?" if near else ""))


@cache
def parameters(operator: str) -> tuple[Parameter, ...]:
    """The parameters of a graph's operator, in the order of its schema."""
    from girih.kernels.evaluate import resolve

    function: Any = resolve(operator)
    if operator.startswith("girih."):
        given = [
            (item.name, str(item.annotation), MISSING if item.default is item.empty else item.default)
            for item in inspect.signature(function).parameters.values()
        ]
    else:
        given = [
            (item.name, str(item.type), item.default_value if item.has_default_value() else MISSING)
            for item in function._schema.arguments
        ]
    own = OWN_DEFAULTS.get(operator, {})
    return tuple(
        Parameter(name, _kind(kind), own.get(name, default), "[" in kind and "Tensor" not in kind)
        for name, kind, default in given
        if name not in own or name != "bias"
    )


def _kind(annotation: str) -> str:
    if "Tensor" not in annotation:
        return "attribute"
    return "tensors" if "List" in annotation or "Sequence" in annotation else "tensor"


def call_of(term: Term, operands: Sequence[Operand], symbols: Symbols) -> Call:
    """What a term is for given operands.

    Raises:
        RuleError: an unknown operator or attribute, or operands that it does not take.
    """
    if term.operator == SPLIT:
        return _split(term, operands)
    operator, known = operator_named(term.operator), dict(term.attributes)
    arguments: list[tuple[str, Argument]] = []
    pending = list(operands)
    for item in parameters(operator):
        if item.kind == "tensor" and pending and item.name not in known:
            arguments.append((item.name, Ref(pending.pop(0).name)))
        elif item.kind == "tensors":
            arguments.append((item.name, tuple(Ref(operand.name) for operand in pending)))
            pending = []
        elif item.name in known or item.name in OWN_DEFAULTS.get(operator, ()):
            value = _value(known.pop(item.name, item.default), symbols)
            spatial = len(operands[0].shape) - 2 if operands else 1
            arguments.append((item.name, (value,) * spatial if item.many and isinstance(value, int) else value))
        elif item.default is MISSING:
            raise RuleError(f"{term}: {operator} needs {item.name!r}")
    if operator == "aten.convolution":
        arguments.insert(2, ("bias", None))
    if pending or known:
        what = f"{len(pending)} tensors more than it takes" if pending else f"no attribute {sorted(known)}"
        raise RuleError(f"{term}: {operator} has {what}")
    return Call(operator, tuple(arguments))


def _value(attribute: Attribute, symbols: Symbols) -> Argument:
    if isinstance(attribute, tuple):
        return tuple(_value(item, symbols) for item in attribute)
    if not isinstance(attribute, Extent):
        return attribute
    name = symbol_of(attribute)
    if name is not None and name in symbols:
        return symbols[name]
    return attribute.value({name: value for name, value in symbols.items() if isinstance(value, int)})


def symbol_of(attribute: Attribute) -> str | None:
    """The symbol that an attribute is, if it is nothing but that."""
    if isinstance(attribute, Extent) and len(attribute.terms) == 1:
        ((monomial, coefficient),) = attribute.terms
        if len(monomial) == 1 and coefficient == 1:
            return monomial[0]
    return None


def _split(term: Term, operands: Sequence[Operand]) -> Call:
    known = dict(term.attributes)
    dim = known.pop("dim", None)
    if not isinstance(dim, int) or known or term.result not in (0, 1) or len(operands) != 1:
        raise RuleError(f"{term}: a side of what was concatenated is written split(x, dim=1)[0] or [1]")
    (operand,) = operands
    if not -len(operand.shape) <= dim < len(operand.shape):
        raise RuleError(f"{term}: its operand has {len(operand.shape)} dimensions")
    dim %= len(operand.shape)
    tree = operand.trees[dim]
    if isinstance(tree, int):
        raise RuleError(f"{term}: its operand was not concatenated along dimension {dim}")
    middle = length(tree[0])
    start, stop = (0, middle) if term.result == 0 else (middle, operand.shape[dim])
    return Call(
        "aten.slice.Tensor", (("self", Ref(operand.name)), ("dim", dim), ("start", start), ("end", stop), ("step", 1))
    )


def length(tree: Tree) -> int:
    return tree if isinstance(tree, int) else length(tree[0]) + length(tree[1])


def trees_of(term: Term, operands: Sequence[Operand], shape: tuple[int, ...]) -> tuple[Tree, ...]:
    """The split trees of what a term makes. A dimension has that of the operands' dimension which is read in its place;
    a concatenation joins two, and a split takes one side."""
    if term.operator in (SPLIT, "cat"):
        dim = dict(term.attributes).get("dim", 0)
        assert isinstance(dim, int)
        dim %= len(shape)
        rest = list(operands[0].trees)
        if term.operator == SPLIT:
            side = rest[dim]
            assert isinstance(side, tuple)
            assert term.result is not None
            rest[dim] = side[term.result]
        else:
            first, *others = (operand.trees[dim] for operand in operands)
            for other in others:
                first = (first, other)
            rest[dim] = first
        return tuple(rest)
    if all(isinstance(tree, int) for operand in operands for tree in operand.trees):
        return shape
    trees: list[Tree] = list(shape)
    for dim, sources in enumerate(_sources(term, tuple(operand.shape for operand in operands), shape)):
        for number, source in sources:
            if isinstance(tree := operands[number].trees[source], tuple):
                trees[dim] = tree
    return tuple(trees)


@lru_cache(maxsize=4096)
def _sources(
    term: Term, shapes: tuple[tuple[int, ...], ...], shape: tuple[int, ...]
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """For each dimension of a result the (operand, dimension) that are read at the same place."""
    from girih.ops.describe import describe_call
    from girih.ops.operator import TensorType

    operator = operator_named(term.operator)
    names = [item.name for item in parameters(operator) if item.kind == "tensor"]
    tensors = {name: TensorType(item, "float32") for name, item in zip(names, shapes, strict=False)}
    operands = [Operand(f"operand {number}", item, "float32", item) for number, item in enumerate(shapes)]
    try:
        call = call_of(term, operands, _Any())
    except (RuleError, KeyError):
        return ((),) * len(shape)
    attributes = {name: value for name, value in call.arguments if name not in tensors}
    description = describe_call(operator, tensors, attributes, TensorType(shape, "float32"))
    if description is None or len(description.place) != len(shape):
        return ((),) * len(shape)
    every = []
    for dim, place in enumerate(description.place):
        every.append(
            tuple(
                (number, axis)
                for number, reads in enumerate(description.reads)
                for axis in range(len(shapes[number]))
                if reads and all(read[axis] == place for read in reads) and shapes[number][axis] == shape[dim]
            )
        )
    return tuple(every)


class _Any(dict[str, Argument]):
    """Symbols of attributes that do not matter for where something is read: 1."""

    def __missing__(self, name: str) -> Argument:
        return 1

    def __contains__(self, name: object) -> bool:
        return True


def made(call: Call, types: tuple[tuple[str, tuple[int, ...], str], ...]) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of what a call makes, as PyTorch says of tensors without memory. types: (name, shape, dtype) of
    its operands.

    Raises:
        RuleError: the operator does not take these shapes.
    """
    numbers = {name: str(number) for number, name in enumerate(dict.fromkeys(name for name, _, _ in types))}

    def numbered(argument: Argument) -> Argument:
        if isinstance(argument, Ref):
            return Ref(numbers[argument.name])
        return tuple(map(numbered, argument)) if isinstance(argument, tuple) else argument

    arguments = tuple((name, numbered(value)) for name, value in call.arguments)
    return _made(Call(call.operator, arguments), tuple((numbers[name], shape, dtype) for name, shape, dtype in types))


@lru_cache(maxsize=65536)
def _made(call: Call, types: tuple[tuple[str, tuple[int, ...], str], ...]) -> tuple[tuple[int, ...], str]:
    import torch

    from girih.kernels.evaluate import call as compute

    tensors = {name: torch.empty(shape, dtype=getattr(torch, dtype), device="meta") for name, shape, dtype in types}

    def fill(argument: Argument) -> Any:
        if isinstance(argument, Ref):
            return tensors[argument.name]
        return tuple(map(fill, argument)) if isinstance(argument, tuple) else argument

    try:
        result = compute(call.operator, {name: fill(value) for name, value in call.arguments})
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise RuleError(f"{call.operator} of {[list(shape) for _, shape, _ in types]}: {error}") from error
    if not isinstance(result, torch.Tensor):
        raise RuleError(f"{call.operator} makes several tensors: rules have operators that make one")
    return tuple(result.shape), str(result.dtype).removeprefix("torch.")
