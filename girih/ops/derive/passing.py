"""What partial results pass through: sums through what is linear, maxima and minima through what keeps the order.

Where a value is the largest of several terms, a function that never falls may be applied to each term instead: the
largest result is that of the largest term. So the function is applied before the terms are combined, as with partial
sums. Where it never rises, the least result is that of the largest term: maxima become minima.

A term is any number that its dtype has, the one below all included, with which a device begins that holds nothing. So a
function counts only where it keeps the order of all of them, and makes NaN of NaN. Several terms that follow from one
value may meet in a maximum, but not in a minimum, and a constant may be added, but no tensor: where that is infinite,
-inf + inf is NaN although the largest sum is inf. Of integers only what cannot wrap around counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Literal, TypeAlias

from girih.ops.derive.divisions import passing_sets
from girih.ops.derive.linearity import is_floating
from girih.ops.expressions import Applied, Choice, Constant, Expression, Piecewise, Position, Read, Reduce
from girih.ops.operator import Description

Extreme: TypeAlias = Literal["max", "min"]
OPPOSITE: Mapping[Extreme, Extreme] = {"max": "min", "min": "max"}

ROUNDING = frozenset({"floor", "ceil", "round", "trunc"})
RISING = ROUNDING | {"exp", "exp2", "expm1", "sinh", "asinh", "tanh", "atan", "sigmoid", "erf", "once"}
FALLING = frozenset({"neg", "erfc"})
RISING_FROM_BELOW = frozenset({"sqrt", "log", "log2", "log10", "log1p", "acosh"})
"""Of numbers that are too small these make NaN. Minima pass: none of their terms is smaller than they are."""
TRUTHS: Mapping[Extreme, frozenset[str]] = {"max": frozenset({"or", "bit_or"}), "min": frozenset({"and", "bit_and"})}
NOT = frozenset({"not", "bit_not"})
MOST_INPUTS = 6
"""Up to so many inputs, every set of them is tried. Of more, as concatenations have: all together, and each alone."""
LEAST, MOST = 2.0**-14, 65504.0
"""Numbers that are neither 0 nor infinite in any floating-point type with which PyTorch computes."""

Carried: TypeAlias = Extreme | Literal[""] | None
"""What an expression is of terms of its inputs: their combination by this reducer; "" where it reads none of them; None
where it is no combination."""


@dataclass(frozen=True)
class Passage:
    """A set of inputs that let partial results pass: where all of them are held as those of `takes`, pieces make those
    of `makes`."""

    inputs: frozenset[int]
    takes: str
    makes: str


@lru_cache(maxsize=16384)
def passages(description: Description) -> tuple[Passage, ...]:
    """All sets of inputs through which partial results pass. A node's division names one by its number: those of sums
    come first."""
    return (*passages_of_sums(description), *_extremes(description, "max"), *_extremes(description, "min"))


def passages_of_sums(description: Description) -> tuple[Passage, ...]:
    """The first of `passages`."""
    return tuple([Passage(members, "sum", "sum") for members in passing_sets(description)])


def _extremes(description: Description, takes: Extreme) -> list[Passage]:
    """The largest sets: what else is in one becomes partial for nothing, where it is whole or split."""
    output = description.output.dtype
    able = [
        number
        for number, kind in enumerate(description.inputs)
        if description.reads[number] and not kind.dtype.startswith("complex")
        if kind.dtype == output or is_floating(output)
    ]
    found: list[Passage] = []
    sizes = range(len(able), 0, -1) if len(able) <= MOST_INPUTS else (len(able), 1)
    for chosen in (frozenset(some) for size in sizes for some in combinations(able, size)):
        if any(chosen <= known.inputs for known in found):
            continue
        dtypes = {description.inputs[number].dtype for number in chosen}
        makes = _Walk(chosen, takes, all(map(is_floating, dtypes)), dtypes == {"bool"}).carried(description.body)
        if makes:
            found.append(Passage(chosen, takes, makes))
    return found


@dataclass(frozen=True)
class _Walk:
    """inputs: the tensors whose terms are partial by `takes`. floating, truths: are all of this kind?"""

    inputs: frozenset[int]
    takes: Extreme
    floating: bool
    truths: bool

    def carried(self, expression: Expression) -> Carried:
        if isinstance(expression, (Constant, Position)):
            return ""
        if isinstance(expression, Read):
            return self.takes if expression.tensor in self.inputs else ""
        if isinstance(expression, Applied):
            return self.applied(expression, [self.carried(item) for item in expression.arguments])
        if isinstance(expression, Choice):
            if isinstance(expression.condition, Constant):  # the other branch gives only its shape
                return self.carried(expression.yes if expression.condition.value else expression.no)
            both = [self.carried(expression.yes), self.carried(expression.no)]
            return _common(both) if self.carried(expression.condition) == "" else None
        if isinstance(expression, Piecewise):
            return _common([self.carried(part) for part in expression.parts])
        if isinstance(expression, Reduce):
            inside = self.carried(expression.body)
            return inside if inside in ("", expression.reducer) else None
        arguments = getattr(expression, "arguments", ())
        return "" if all(self.carried(item) == "" for item in arguments) else None

    def applied(self, expression: Applied, arguments: list[Carried]) -> Carried:
        function = expression.function
        if all(item == "" for item in arguments):
            return ""
        if None in arguments:
            return None
        if function in ("max", "min"):
            return self.meeting(arguments, "max" if function == "max" else "min")
        if self.truths:
            return self.of_truths(expression, arguments)
        if not self.floating:
            return None
        if function in RISING:
            return arguments[0]
        if function in FALLING:
            return _turned(arguments[0])
        if function in RISING_FROM_BELOW:
            return "min" if arguments[0] == "min" else None
        return self.with_constant(expression, arguments)

    def meeting(self, arguments: list[Carried], function: Extreme) -> Carried:
        """Terms of several inputs meet in the larger one if they are maxima; with what is no term, in either."""
        terms = [item for item in arguments if item]
        return terms[0] if len(terms) == 1 or set(terms) == {function} else None

    def of_truths(self, expression: Applied, arguments: list[Carried]) -> Carried:
        for extreme, functions in TRUTHS.items():
            if expression.function in functions:
                return self.meeting(arguments, extreme)
        if expression.function in NOT:
            return _turned(arguments[0])
        if expression.function in ("ne", "eq") and expression.arguments[1] == Constant(0):
            return arguments[0] if expression.function == "ne" else _turned(arguments[0])
        return None

    def with_constant(self, expression: Applied, arguments: list[Carried]) -> Carried:
        """A number is added, or multiplied by."""
        function = expression.function
        if function not in ("add", "sub", "mul", "div") or all(arguments):
            return None
        place = 0 if arguments[0] else 1
        other, terms = expression.arguments[1 - place], arguments[place]
        if not isinstance(other, Constant) or not (other.value == 0 or LEAST <= abs(other.value) <= MOST):
            return None
        if function in ("add", "sub"):
            return _turned(terms) if function == "sub" and place == 1 else terms
        if other.value == 0 or (function == "div" and place == 1):
            return None
        return terms if other.value > 0 else _turned(terms)


def _turned(terms: Carried) -> Carried:
    return OPPOSITE[terms] if terms else terms


def _common(terms: list[Carried]) -> Carried:
    """Of alternatives: terms of one kind, and what is no term, which is the largest and the least of itself."""
    kinds = {item for item in terms if item}
    return None if None in terms or len(kinds) > 1 else (kinds.pop() if kinds else "")
