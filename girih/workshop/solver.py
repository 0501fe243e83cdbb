"""A second judge of rules, that knows nothing of normal forms: Z3. Needs the extra `proofs`.

A proof by normal forms (`girih.rewrite.prove.judge`) holds for all sizes, and is believed because a small checker
replays it. This judge looks at few and small sizes, but leaves the tensors' elements open: each element of both sides
is written out, operator by operator as the descriptions say, as a formula over real unknowns, and Z3 is asked for
numbers that make two of them differ. Where it says that there are none, the rule holds for all tensors of these sizes
and attributes.

max, min, relu and whatever chooses are exact. Of exp, sqrt and other functions only that they are functions is known.
No divisor is 0. Numbers that Z3 finds are given to PyTorch, and refute the rule if its results differ too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from itertools import islice, product
from typing import Any

import numpy as np

from girih.ops import expressions as written
from girih.ops.describe import describe_call
from girih.ops.operator import Description, TensorType
from girih.rewrite.prove.refutation.instances import Instance, InvalidError, difference, instances
from girih.rewrite.prove.refutation.refute import refuted, smaller_tensors
from girih.rewrite.prove.verdict import Refuted
from girih.rewrite.rules.rule import Expression, Rule, RuleError, Variable, walk
from girih.rewrite.rules.vocabulary import Call, Operand, call_of, made, operands_and_attributes, trees_of

SEED = 1618
MOST = 256
"""Elements of a tensor, and places over which one element reduces."""
TRIES = 400
INSTANCES = 3
"""Small choices of sizes and attributes on which a rule is judged."""
SIMPLEST = 1 << 20
"""Numbers in descriptions are those with the smallest denominator near them: 1/9 is no binary fraction."""
NOTHING = object()
"""Below all numbers: what surrounds the data of a maximum."""

Number = Any  # a Fraction, a bool, NOTHING, or a formula of Z3's


class UndecidedError(ValueError):
    """What has no formula."""


@dataclass(frozen=True)
class Second:
    """What Z3 says of a rule. agreed: instances of which no tensors make the sides differ. refuted: the first of which
    some do. undecided: why nothing is known of another."""

    rule: Rule
    agreed: int
    refuted: Refuted | None = None
    undecided: str = ""

    @property
    def word(self) -> str:
        if self.refuted is not None:
            return "differs"
        return "agrees" if self.agreed and not self.undecided else "undecided"

    @property
    def text(self) -> str:
        """One line; where the sides differ, the tensors behind it."""
        if self.refuted is not None:
            return f"  Z3 finds tensors for which the sides differ\n{self.refuted.text}"
        of = f"the elements of {self.agreed} small choices of sizes and attributes"
        if self.undecided:
            return f"  Z3 cannot decide: {self.undecided}"
        return f"  Z3 agrees: no numbers make {of} differ"


def second_verdict(rule: Rule, seconds: float = 10.0) -> Second:
    """Asks Z3 of a rule whose shapes are declared (`Proved.rule`), on some small instances.

    seconds: for each of the elements that are compared.

    Raises:
        ModuleNotFoundError: Z3 is not installed.
        RuleError: none of many sizes and attributes fits the rule.
    """
    agreed, asked, undecided = 0, 0, ""
    for item in islice(_fitting(rule), INSTANCES):
        asked += 1
        try:
            found = _differing(rule, item, seconds)
        except UndecidedError as error:
            undecided = undecided or str(error)
        else:
            if found is not None:
                return Second(rule, agreed, refuted(rule, found))
            agreed += 1
    if not asked:
        raise RuleError(f"{rule}: no sizes and attributes of {TRIES} that were tried fit it")
    return Second(rule, agreed, undecided=undecided)


def _fitting(rule: Rule) -> Iterator[Instance]:
    """Small instances, each with other sizes or attributes, that both sides take."""
    seen = set()
    for item in instances(rule, np.random.default_rng(SEED), TRIES, most=2):
        key = tuple(item.symbols.items())
        if key in seen:
            continue
        seen.add(key)
        try:
            wrong = difference(rule, item)
        except InvalidError:
            continue
        if wrong is None or wrong.computable:
            yield item


def _differing(rule: Rule, item: Instance, seconds: float) -> Instance | None:
    """With numbers for which PyTorch's sides differ too; None if there are none."""
    import z3

    formulas = _Formulas()
    unknown = {
        name: formulas.tensor(tuple(tensor.shape), partial(_unknown, name)) for name, tensor in item.tensors.items()
    }
    sides = [_side(side, item, unknown, formulas) for side in (rule.source, rule.target)]
    solver = z3.Solver()
    solver.set("timeout", int(1000 * seconds))
    solver.add(*[divisor != 0 for divisor in formulas.divisors])
    for one, other in zip(*sides, strict=True):
        if one.shape != other.shape:
            return item
        for first, second in zip(one.flat, other.flat, strict=True):
            if first is second:
                continue
            apart = z3.simplify(formulas.real(first) - formulas.real(second), som=True)
            if z3.is_rational_value(apart) and apart.as_fraction() == 0:
                continue
            answer = solver.check(apart != 0)
            if answer == z3.unknown:
                raise UndecidedError(f"no answer within {seconds:g} s ({solver.reason_unknown()})")
            if answer == z3.sat:
                return _shown(rule, item, unknown, solver.model(), formulas)
    return None


def _shown(rule: Rule, item: Instance, unknown: dict[str, Any], model: Any, formulas: _Formulas) -> Instance:
    """The instance with the numbers of a model, if PyTorch's sides differ for them."""
    import torch

    tensors = {}
    for name, array in unknown.items():
        numbers = [_float(model, unknown) for unknown in array.flat]
        tensors[name] = torch.tensor(numbers, dtype=torch.float64).reshape(array.shape)
    found = Instance(item.symbols, tensors)
    if difference(rule, found) is not None:
        return smaller_tensors(rule, found, "")
    if formulas.opaque:
        names = ", ".join(sorted(formulas.opaque))
        raise UndecidedError(f"the sides are equal by what is known of {names}, if they are")
    raise UndecidedError("the formulas differ where PyTorch's results do not")


def _unknown(name: str, place: tuple[int, ...]) -> Any:
    import z3

    return z3.Real(f"{name}{list(place)}")


def _float(model: Any, unknown: Any) -> float:
    value = model.eval(unknown, model_completion=True)
    return float((value if hasattr(value, "as_fraction") else value.approx(20)).as_fraction())


def _side(side: Sequence[Expression], item: Instance, unknown: dict[str, Any], formulas: _Formulas) -> list[Any]:
    """The outputs of a side: arrays of formulas."""
    values: dict[Expression, Any] = {}
    operands: dict[Expression, Operand] = {}
    for expression in walk(tuple(side)):
        if isinstance(expression, Variable):
            values[expression] = unknown[expression.name]
            shape = tuple(values[expression].shape)
            operands[expression] = Operand("", shape, "float64", shape)
            continue
        read = [operands[argument] for argument in expression.arguments]
        read = [Operand(str(at), each.shape, each.dtype, each.trees) for at, each in enumerate(read)]
        call = call_of(expression, read, item.symbols)
        shape, dtype = made(call, tuple((each.name, each.shape, each.dtype) for each in read))
        described, order = _described(call, read, TensorType(shape, dtype))
        arrays = [values[expression.arguments[number]] for number in order]
        values[expression] = formulas.computed(described, arrays)
        operands[expression] = Operand("", shape, dtype, trees_of(expression, read, shape))
    return [values[expression] for expression in side]


def _described(call: Call, read: Sequence[Operand], output: TensorType) -> tuple[Description, list[int]]:
    """What a call computes, and which operands its description reads, in its order."""
    tensors, attributes = operands_and_attributes(call)
    types = {name: TensorType(read[number].shape, read[number].dtype) for name, number in tensors.items()}
    described = describe_call(call.operator, types, attributes, output)
    if described is None:
        raise UndecidedError(f"{call.operator} is not described")
    return described, list(tensors.values())


class _Formulas:
    """Elements as formulas. divisors: what is taken not to be 0. opaque: functions of which nothing is known."""

    def __init__(self) -> None:
        self.divisors: list[Any] = []
        self.opaque: set[str] = set()

    def tensor(self, shape: tuple[int, ...], element: Callable[[tuple[int, ...]], Number]) -> Any:
        result = np.empty(shape, dtype=object)
        for place in np.ndindex(*shape):
            result[place] = element(place)
        return result

    def computed(self, item: Description, operands: Sequence[Any]) -> Any:
        """The result by its description, element by element."""
        if np.prod(item.output.shape, dtype=int) > MOST or np.prod(item.sizes[item.outputs :], dtype=int) > MOST:
            raise UndecidedError(f"{item.operator.name} has too many elements for formulas")
        result = self.tensor(item.output.shape, lambda place: Fraction(0))
        for index in product(*map(range, item.sizes[: item.outputs])):
            known = dict(enumerate(index))
            place = tuple(_value(each, known) for each in item.place)
            result[place] = self.formula(item.body, operands, known, item)
        return result

    def formula(
        self, item: written.Expression, operands: Sequence[Any], known: dict[int, int], of: Description
    ) -> Number:
        def inner(each: written.Expression, more: dict[int, int] | None = None) -> Number:
            return self.formula(each, operands, known | (more or {}), of)

        match item:
            case written.Constant(value):
                return _number(value)
            case written.Position(index):
                return Fraction(_value(index, known))
            case written.Read(tensor, places):
                if any(place is None for place in places):
                    raise UndecidedError(f"{of.operator.name} reads a whole dimension at once")
                return _read(operands[tensor], [_value(place, known) for place in places if place is not None], of)
            case written.Applied(function, arguments):
                return self.applied(function, [inner(each) for each in arguments])
            case written.Choice(condition, yes, no):
                return self.choice(inner(condition), lambda: inner(yes), lambda: inner(no))
            case written.Piecewise(index, bounds, parts):
                at = _value(index, known)
                number = max(number for number, bound in enumerate(bounds[: len(parts)]) if number == 0 or at >= bound)
                return inner(parts[number])
            case written.Reduce(reducer, variables, body):
                ranges = [range(of.sizes[variable]) for variable in variables]
                terms = [inner(body, dict(zip(variables, index, strict=True))) for index in product(*ranges)]
                if reducer == "logsumexp":
                    terms = [self.applied("exp", [term]) for term in terms]
                    return self.applied("log", [reduce(lambda a, b: self.applied("add", [a, b]), terms)])
                function = {"sum": "add", "prod": "mul"}.get(reducer, reducer)
                return reduce(lambda a, b: self.applied(function, [a, b]), terms)
        raise UndecidedError(f"{of.operator.name} is opaque")

    def applied(self, function: str, given: list[Number]) -> Number:
        import z3

        if NOTHING in [each if each is NOTHING else None for each in given]:
            if function != "max":
                raise UndecidedError(f"{function} of what surrounds a maximum's data")
            return given[1] if given[0] is NOTHING else given[0]
        a, b = (*given, None)[:2]
        match function:
            case "add":
                return a + b
            case "sub":
                return a - b
            case "mul":
                return a * b
            case "neg":
                return -a
            case "div":
                return self.quotient(a, b)
            case "reciprocal":
                return self.quotient(Fraction(1), a)
            case "rsqrt":
                return self.quotient(Fraction(1), self.applied("sqrt", [a]))
            case "sigmoid":
                return self.quotient(Fraction(1), 1 + self.applied("exp", [-a]))
            case "max":
                return self.choice(a >= b, lambda: a, lambda: b)
            case "min":
                return self.choice(a <= b, lambda: a, lambda: b)
            case "abs":
                return self.choice(a >= 0, lambda: a, lambda: -a)
            case "lt" | "le" | "gt" | "ge" | "eq" | "ne":
                return getattr(operator, function)(a, b)
            case "and" | "or":
                if isinstance(a, bool) and isinstance(b, bool):
                    return (a and b) if function == "and" else (a or b)
                return z3.And(a, b) if function == "and" else z3.Or(a, b)
            case "not":
                return not a if isinstance(a, bool) else z3.Not(a)
            case "pow" if isinstance(b, Fraction) and b.denominator == 1 and 0 <= b <= 8:
                return reduce(lambda x, y: x * y, [a] * int(b), Fraction(1))
        self.opaque.add(function)
        real = z3.RealSort()
        return z3.Function(function, *[real] * len(given), real)(*map(self.real, given))

    def quotient(self, a: Number, b: Number) -> Number:
        if isinstance(b, Fraction):
            if b == 0:
                raise UndecidedError("a division by 0")
            return a * (1 / b) if isinstance(a, Fraction) else a / self.real(b)
        self.divisors.append(b)
        return self.real(a) / b

    def choice(self, condition: Any, yes: Callable[[], Number], no: Callable[[], Number]) -> Number:
        import z3

        if isinstance(condition, (bool, np.bool_, Fraction)):
            return yes() if condition else no()
        return z3.If(condition, self.real(yes()), self.real(no()))

    def real(self, item: Number) -> Any:
        import z3

        if item is NOTHING:
            raise UndecidedError("a choice of what surrounds a maximum's data")
        if isinstance(item, (Fraction, bool)):
            return z3.Q(Fraction(item).numerator, Fraction(item).denominator)
        return z3.If(item, z3.RealVal(1), z3.RealVal(0)) if z3.is_bool(item) else item


def _number(value: float | int | bool) -> Number:
    if isinstance(value, bool):
        return value
    if value == -np.inf:
        return NOTHING
    if not np.isfinite(value):
        raise UndecidedError(f"{value} is no number of Z3's")
    return Fraction(value).limit_denominator(SIMPLEST)


def _value(index: written.Affine, known: dict[int, int]) -> int:
    return index.constant + sum(factor * known[variable] for variable, factor in index.terms)


def _read(array: Any, place: list[int], of: Description) -> Number:
    if all(0 <= at < size for at, size in zip(place, array.shape, strict=True)):
        return array[tuple(place)]
    if of.operator.padding is None:
        raise UndecidedError(f"{of.operator.name} reads outside of its operand")
    return _number(of.operator.padding)
