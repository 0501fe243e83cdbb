"""What rules are made of: operators by name, the inputs, and constant tensors (TASO's Table 2.1).

An operator joins by being named: how many tensors it takes and which attributes it has is what its schema says
(`rules.vocabulary`), what it computes is what `girih.ops` says. Attributes get values by their names, whoever has them:
`dim` is each dimension, `stride` is 1, `padding` keeps the size, `groups` is 1 and 2. `general` puts symbols in the
place of the numbers afterwards. A name with attributes, `cat(dim=1)`, is that one way to apply it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

from girih.ops.catalogue import catalogue
from girih.ops.derive.linearity import degree
from girih.ops.describe import describe_call
from girih.ops.expressions import DescriptionError
from girih.ops.operator import Description, TensorType
from girih.rewrite.rules.rule import Attribute, RuleError, Term, parse
from girih.rewrite.rules.vocabulary import (
    MISSING,
    SPLIT,
    Operand,
    Parameter,
    Tree,
    call_of,
    made,
    operands_and_attributes,
    operator_named,
    parameters,
    trees_of,
)

TABLE = ("add", "mul", "relu", "t", "mm", "convolution", "avg_pool2d", "max_pool", "constant_pad_nd", "cat", "split")
"""TASO's Table 2.1; scalar multiplication is `mul` by a tensor of one element, `constant_pad_nd` enlarges kernels, and
an activation is the operator behind a convolution."""
SAME = "same"
REDUCING = (".dim_IntList", ".dim")
"""Reductions along dimensions, of operators that reduce whole tensors under their plain name: `sum`, `mean`."""
WINDOW = 3
GROWING = 2
"""Only the first dimensions of a tensor are concatenated: those behind them are what windows slide over."""
CHOICES: dict[str, tuple[Any, ...]] = {
    "stride": (1,),
    "padding": (SAME,),
    "dilation": (1,),
    "groups": (1, 2),
    "kernel_size": ((WINDOW, WINDOW),),
    "pad": ((1, 1, 1, 1),),
    "keepdim": (True,),
    "half_to_float": (False,),
    "eps": (1e-5,),
}
"""By an attribute's name, for those that are not dimensions; others keep their defaults."""
MATRICES = "a[3, 3], b[3, 3], c[3, 3], d[3, 3], s[1]"
IMAGES = """x[1, 2, 5, 3], y[1, 2, 5, 3], k[2, 2, 3, 3], l[2, 2, 3, 3], p[2, 2, 1, 1], q[2, 2, 1, 1],
u[2, 1, 3, 3], v[2, 1, 3, 3]"""
"""Square matrices, a scalar, images, kernels of 3×3 and of 1×1, and kernels of two groups: of odd sizes, so that means
are whole numbers again. Equal ones are exchanged with one another."""
CONSTANTS = (
    "eye[n, n] = eye(n=n)",
    "ones[m, n] = ones(size=(m, n))",
    "pool[c, 1, a, b] = div(ones(size=(c, 1, a, b)), other=a*b)",
    "identity[c, c, 2*p + 1, 2*p + 1] = constant_pad_nd(view(eye(n=c), size=(c, c, 1, 1)), pad=(p, p, p, p))",
)
"""C_pool, I_conv, I_matmul, I_ewmul: the shape with symbols, and what makes such a tensor."""


@dataclass(frozen=True)
class Input:
    """A tensor that graphs read. constant: of which shape, and made by what; "" for a variable."""

    name: str
    shape: tuple[int, ...]
    constant: str = ""


@dataclass(frozen=True)
class Template:
    """A way to apply an operator. attributes: `SAME` stands for the padding that keeps the size. arity: how many
    tensors. result: of a split."""

    operator: str
    attributes: tuple[tuple[str, Attribute], ...] = ()
    arity: int = 1
    result: int | None = None

    def term(self, arguments: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> Term:
        """Applied to operands of these shapes."""
        window = dict(self.attributes).get("kernel_size") or (shapes[1][2:] if len(shapes) > 1 else (1,))
        same: Attribute = tuple((size - 1) // 2 for size in window)  # type: ignore[operator, union-attr]
        if "kernel_size" not in dict(self.attributes) and len(set(same)) == 1:  # type: ignore[arg-type]
            same = same[0]  # type: ignore[index]
        attributes = tuple((name, same if value == SAME else value) for name, value in self.attributes)
        return Term(self.operator, tuple(arguments), attributes, self.result)  # type: ignore[arg-type]

    def __str__(self) -> str:
        text = ", ".join(f"{name}={value}" for name, value in self.attributes)
        result = "" if self.result is None else f"[{self.result}]"
        return f"{self.operator}({text}){result}" if text else self.operator + result


def templates(names: Sequence[str]) -> tuple[Template, ...]:
    """All ways to apply the named operators.

    Raises:
        RuleError: no such operator is described, or one of its attributes has no value.
    """
    every: dict[Template, None] = {}
    for name in names:
        every.update(dict.fromkeys(_templates(name)))
    return tuple(every)


def _templates(name: str) -> Iterator[Template]:
    given: dict[str, Attribute] = {}
    if "(" in name:
        term = parse(f"{name.replace('(', '(x, ', 1)} == x").source[0]
        assert isinstance(term, Term)
        name, given = term.operator, dict(term.attributes)
    if name == SPLIT:
        for dim in [given["dim"]] if "dim" in given else range(GROWING):
            for result in (0, 1):
                yield Template(SPLIT, (("dim", dim),), 1, result)
        return
    full = operator_named(name)
    ways = {name: parameters(full)}
    if "." not in name and not any(item.name in ("dim", "dims") for item in ways[name]):
        for overload in REDUCING:
            if f"{full}{overload}" in catalogue():
                ways[name + overload] = parameters(full + overload)
    fitting = {key: items for key, items in ways.items() if set(given) <= {item.name for item in items}}
    if not fitting:
        known = [item.name for item in next(iter(ways.values())) if item.kind == "attribute"]
        raise RuleError(
            f"{name} has no attribute {min(set(given) - set(known))!r}: it has {', '.join(known) or 'none'}"
        )
    for key, items in fitting.items():
        yield from _ways(key, items, given)


def _ways(name: str, items: Sequence[Parameter], given: dict[str, Attribute]) -> Iterator[Template]:
    given = {key: _spread(value, items, key) for key, value in given.items()}
    arity = sum(2 if item.kind == "tensors" else item.kind == "tensor" and item.default is MISSING for item in items)
    choices: dict[str, list[Attribute]] = {}
    for item in items:
        if item.kind != "attribute":
            continue
        if item.name in given:
            choices[item.name] = [given[item.name]]
        elif item.name in ("dim", "dims"):
            choices[item.name] = [(dim,) if item.many else dim for dim in range(GROWING)]
        elif item.name in CHOICES:
            values = list(CHOICES[item.name])
            if any(other.name == "kernel_size" for other in items):
                values = [(value,) * 2 if isinstance(value, int) else value for value in values]
            choices[item.name] = values
        elif item.default is MISSING:
            raise RuleError(f"{name}: which {item.name!r}? Say it, as in {name}({item.name}=…)")
    if name == "convolution":
        choices = {key: choices[key] for key in ("stride", "padding", "groups")} | {
            key: choices[key] for key in given if key in choices
        }
    for chosen in product(*choices.values()):
        yield Template(name, tuple(sorted(zip(choices, chosen, strict=True))), arity)


def usual_inputs(ways: Sequence[Template]) -> str:
    """Matrices; and images with kernels, where an operator slides windows over them."""
    slides = any(SAME in dict(item.attributes).values() for item in ways)
    return f"{MATRICES}, {IMAGES}" if slides else MATRICES


def _spread(value: Attribute, items: Sequence[Parameter], name: str) -> Attribute:
    """A number for each dimension of a window, where one stands for all, as PyTorch takes it: kernel_size=2."""
    many = any(item.name == name and item.many for item in items) and isinstance(CHOICES.get(name, (0,))[0], tuple)
    return (value,) * len(CHOICES[name][0]) if many and not isinstance(value, tuple) else value


def inputs(text: str, constants: Sequence[str] = ()) -> tuple[Input, ...]:
    """Variables by shape, and constants in the shapes of variables that they fit.

    Raises:
        RuleError: what declares no inputs.
    """
    if not isinstance(text, str):
        raise RuleError(f"inputs are a text, as 'a[3, 3], s[1]', got {text!r}")
    declared = parse(f"{' '.join(text.split())}: x == x").shapes
    if not declared:
        raise RuleError(f"inputs {text!r} declare none: expected names with sizes, as 'a[3, 3], s[1]'")
    variables = []
    for name, shape in declared:
        sizes = tuple(size.number for size in shape)
        if any(size is None for size in sizes):
            raise RuleError(f"{name}: the inputs that terms are computed on have numbers for sizes, as in a[3, 3]")
        variables.append(Input(name, tuple(size or 0 for size in sizes)))
    made_of: list[Input] = []
    for constant in constants:
        for sizes_ in dict.fromkeys(item.shape for item in variables):
            if symbols_of(constant, sizes_) is not None:
                made_of.append(Input(f"{constant.partition('[')[0]}{len(made_of)}", sizes_, constant))
    return (*variables, *made_of)


def symbols_of(constant: str, shape: tuple[int, ...]) -> dict[str, int] | None:
    """The numbers for which a constant has this shape; None for another shape."""
    ((_, sizes),) = parse(f"{constant.partition(' = ')[0]}: x == x").shapes
    if len(sizes) != len(shape):
        return None
    found: dict[str, int] = {}
    for size, number in zip(sizes, shape, strict=True):
        if size.number is not None:
            if size.number != number:
                return None
            continue
        (name,) = size.symbols
        (step,) = (by for monomial, by in size.terms if monomial)
        rest = number - sum(by for monomial, by in size.terms if not monomial)
        if rest % step or rest // step < 0 or found.setdefault(name, rest // step) != rest // step:
            return None
    return found


def constant_term(constant: str) -> Term:
    """What makes a constant, with symbols."""
    term = parse(f"{constant.partition(' = ')[2]} == x").source[0]
    assert isinstance(term, Term)
    return term


@dataclass(frozen=True)
class TensorKind:
    """Shape and split trees of a tensor."""

    shape: tuple[int, ...]
    trees: tuple[Tree, ...]

    @property
    def elements(self) -> int:
        return prod(self.shape)


def kind_of(shape: tuple[int, ...]) -> TensorKind:
    return TensorKind(shape, shape)


@lru_cache(maxsize=65536)
def application(template: Template, kinds: tuple[TensorKind, ...]) -> tuple[Description, TensorKind] | None:
    """What the template makes of operands of these kinds; None if it does not take them."""
    if not _slides(template, kinds) or not _joins(template, kinds):
        return None
    operands = [Operand(str(number), kind.shape, "float64", kind.trees) for number, kind in enumerate(kinds)]
    term = template.term([f"x{number}" for number in range(len(kinds))], [kind.shape for kind in kinds])
    try:
        call = call_of(term, operands, {})
        shape, dtype = made(call, tuple((operand.name, operand.shape, operand.dtype) for operand in operands))
        trees = trees_of(term, operands, shape)
    except (RuleError, KeyError, IndexError, AssertionError):  # the last by which PyTorch refuses shapes
        return None
    numbers, attributes = operands_and_attributes(call)
    tensors = {name: TensorType(kinds[number].shape, "float64") for name, number in numbers.items()}
    try:
        description = describe_call(call.operator, tensors, attributes, TensorType(shape, dtype))
    except DescriptionError:
        return None
    if description is None or dtype != "float64" or not _alike(description, kinds):
        return None
    if description.operator.elementwise and len({kind.trees for kind in kinds if kind.shape == shape}) > 1:
        trees = shape  # only what was concatenated alike is split again
    return description, TensorKind(shape, trees)


def _slides(template: Template, kinds: tuple[TensorKind, ...]) -> bool:
    """Windows slide over what is larger than they are: kernels are no images."""
    if SAME not in dict(template.attributes).values():
        return True
    sizes = [max(kind.shape[GROWING:], default=0) for kind in kinds]
    return sizes[0] > WINDOW and all(size <= WINDOW for size in sizes[1:])


def _joins(template: Template, kinds: tuple[TensorKind, ...]) -> bool:
    """The one channel of a kernel of groups is not concatenated with others: it would be no kernel of groups then."""
    dim = dict(template.attributes).get("dim", 0)
    return (
        template.operator != "cat"
        or not isinstance(dim, int)
        or dim == 0
        or all(len(kind.shape) <= dim or kind.shape[dim] > 1 for kind in kinds)
    )


def _alike(description: Description, kinds: tuple[TensorKind, ...]) -> bool:
    """Element-wise operators take operands of one shape; or one with a single dimension, such as a bias; or a scalar
    in whose place an operator is linear in the rest."""
    if not description.operator.elementwise:
        return True
    largest = max(range(len(kinds)), key=lambda number: kinds[number].elements)
    shape = kinds[largest].shape
    for kind in kinds:
        if kind.shape != shape and sum(size > 1 for size in kind.shape) > 1:
            return False
        if len(kind.shape) != len(shape) and degree(description.body, frozenset({largest})) != 1:
            return False
    return len(shape) > 1
