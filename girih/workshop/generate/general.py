"""Rules for all sizes and attributes, from terms that are equal on tensors of certain ones.

Sizes become symbols: the most general ones that the operators take (`prove.shapes`). Strides, paddings, dilations and
windows become symbols too, and so do groups; where a rule does not hold for all of them it is tried with fewer, down to
the numbers on which it was found. Constants are written with the symbols of the place where they stand.

Cost: a handful of verdicts for each rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from girih.rewrite.prove.expand import least_values
from girih.rewrite.prove.judge import attempt
from girih.rewrite.prove.refutation.instances import one_thread
from girih.rewrite.prove.refutation.refute import refute
from girih.rewrite.prove.shapes import unified
from girih.rewrite.prove.symbolic import UnprovableError
from girih.rewrite.prove.terms import put
from girih.rewrite.prove.verdict import Open, Proved, Verdict
from girih.rewrite.rules.extent import Extent
from girih.rewrite.rules.rule import Attribute, Expression, Rule, RuleError, Term, Variable, parse, walk
from girih.workshop.generate.vocabulary import Input, constant_term

SIZES = "mnkqrtuvwabcfij"
"""Letters of sizes; those of attributes are others."""
FIXED = frozenset(("s", "p", "d", "e", "g", "h1", "v1", "o1"))
TRIES = 60


@dataclass(frozen=True)
class Scheme:
    """Which attributes become symbols. windows: of operators whose kernel is larger than one; points: of the others;
    groups: as a symbol, or as many as there are channels. alike: inputs that were of one shape stay so."""

    windows: bool
    points: bool
    pools: bool
    groups: str = "g"
    alike: bool = False

    @property
    def symbols(self) -> bool:
        """Does any window, point or pool have symbols?"""
        return self.windows or self.points or self.pools


def generalised(rule: Rule, inputs: Mapping[str, Input]) -> tuple[Verdict, bool]:
    """The verdict on the most general rule that is proved, and whether that is as general as its operators allow; else
    the verdict on the rule as it was found.

    inputs: by the names that the rule has for them.
    """
    general, *others = _schemes(rule)
    special = [scheme for scheme in others if not scheme.symbols]
    known: dict[Rule, Verdict] = {}

    def verdict(scheme: Scheme) -> Verdict:
        try:
            candidate = _declared(_symbolic(rule, scheme), inputs, scheme)
            if candidate is None:
                return Open(rule, "a constant does not fit")
            if candidate not in known:
                known[candidate] = attempt(candidate, TRIES)
            return known[candidate]
        except (RuleError, UnprovableError) as error:
            return Open(rule, str(error))

    def last(found: Verdict) -> Verdict:
        """With all tries, for what is open and computes something."""
        return (isinstance(found, Open) and found.rule in known and refute(found.rule, TRIES)) or found

    with one_thread():
        found = verdict(general)
        if isinstance(found, Proved):
            return found, True
        if not others:
            return last(found), False
        proved = next(_proved(map(verdict, special)), None)
        if proved is None:
            others = [replace(scheme, alike=True) for scheme in others if scheme.groups == "2"]
            proved = next(_proved(verdict(scheme) for scheme in others if not scheme.symbols), None)
        if proved is None:  # what does not hold for the numbers themselves holds for no symbols
            least = (last(verdict(scheme)) for scheme in special)
            return next((item for item in least if item.word == "refuted"), None) or last(found), False
        return next(_proved(verdict(scheme) for scheme in others if scheme.symbols), proved), False


def _proved(verdicts: Iterable[Verdict]) -> Iterator[Proved]:
    return (item for item in verdicts if isinstance(item, Proved))


def _schemes(rule: Rule) -> Iterator[Scheme]:
    terms = [item for item in (*walk(rule.source), *walk(rule.target)) if isinstance(item, Term)]
    operators = {item.operator for item in terms}
    grouped = any(dict(item.attributes).get("groups", 1) != 1 for item in terms)
    slides = any("stride" in dict(item.attributes) for item in terms)
    if not slides:
        yield Scheme(False, False, False)
        return
    pools = bool(operators & {"avg_pool2d", "max_pool"})
    seen = set()
    for groups in ("g", "depthwise", "2") if grouped else ("g",):
        for windows, points, some in (
            (True, True, True), (True, False, True), (False, True, True), (True, True, False),
            (False, False, True), (True, False, False), (False, False, False),
        ):  # fmt: skip
            scheme = Scheme(windows, points, some and pools, groups)
            if scheme not in seen:
                seen.add(scheme)
                yield scheme


def _symbolic(rule: Rule, scheme: Scheme) -> Rule:
    """With symbols for attributes, as the scheme says."""
    used = {item.operator for item in (*walk(rule.source), *walk(rule.target)) if isinstance(item, Term)}
    enlarges, pools = "constant_pad_nd" in used, bool(used & {"avg_pool2d", "max_pool"})
    s, p, d, e = (Extent.of(name) for name in ("s", "p", "d", "e"))
    groups: Attribute = 2 if scheme.groups == "2" else Extent.of("g")

    def attributes(term: Term) -> tuple[tuple[str, Attribute], ...]:
        known = dict(term.attributes)
        if term.operator == "convolution":
            point = known["padding"] == 0
            symbols = scheme.points if point else scheme.windows
            known.pop("groups") if known["groups"] == 1 else known.update(groups=groups)
            if symbols:
                known |= {"stride": s} if pools else {"stride": s, "dilation": d}
                more = e if pools else d * e
                known["padding"] = p if point or not enlarges else p + more
            else:
                known = {key: value for key, value in known.items() if key != "stride"}
        elif "kernel_size" in known:
            if scheme.pools:
                pair: tuple[Attribute, Attribute] = (Extent.of("h1"), Extent.of("v1"))
                known |= {"kernel_size": pair, "stride": (s, s), "padding": (p, p)}
        elif term.operator == "constant_pad_nd" and (scheme.windows or scheme.points):
            known["pad"] = (e, e, e, e)
        return tuple(sorted(known.items()))

    return replace(
        rule,
        source=tuple(_mapped(item, attributes) for item in rule.source),
        target=tuple(_mapped(item, attributes) for item in rule.target),
    )


def _mapped(item: Expression, attributes: Callable[[Term], tuple[tuple[str, Attribute], ...]]) -> Expression:
    if isinstance(item, Variable):
        return item
    arguments = tuple(_mapped(argument, attributes) for argument in item.arguments)
    return Term(item.operator, arguments, attributes(item), item.result)


def _declared(rule: Rule, inputs: Mapping[str, Input], scheme: Scheme) -> Rule | None:
    """With the most general shapes of its inputs, and constants written out; None where no shapes fit."""
    taken = {*least_values(rule), *rule.inputs}
    fresh = (f"{letter}{number or ''}" for number in range(9) for letter in SIZES)
    symbols = (Extent.of(name) for name in fresh if name not in taken)
    kernels = _kernels(rule)
    of_shape: dict[tuple[int, ...], list[Extent]] = {}
    joined = _joined(rule)  # two groups, of which each is a kernel: of any size
    shapes: list[tuple[str, tuple[Extent, ...]]] = []
    for name in rule.inputs:
        item = inputs[name]
        if item.shape == (1,):
            shapes.append((name, (Extent.of(1),)))
            continue
        sizes = [next(symbols) for _ in item.shape]
        if scheme.alike:
            sizes = list(of_shape.setdefault(item.shape, sizes))
        if kernels.get(name) and not (scheme.alike and name in joined):
            if scheme.groups == "depthwise":
                sizes[:2] = [Extent.of("g"), Extent.of(1)]
            else:
                sizes[0] = Extent.of("g" if scheme.groups == "g" else 2) * sizes[0]
        if len(item.shape) == 4 and name in kernels and not scheme.points and item.shape[2:] == (1, 1):
            sizes[2:] = [Extent.of(1)] * 2
        if len(item.shape) == 4 and name in kernels and not scheme.windows and item.shape[2:] == (3, 3):
            sizes[2:] = [Extent.of(3)] * 2
        shapes.append((name, tuple(sizes)))
    candidate = replace(rule, shapes=tuple(shapes))
    return _with_constants(unified(candidate, FIXED), inputs)


def _joined(rule: Rule) -> set[str]:
    """The inputs of which kernels of groups are concatenated."""
    found: set[str] = set()
    for item in (*walk(rule.source), *walk(rule.target)):
        if isinstance(item, Term) and item.operator == "convolution" and "groups" in dict(item.attributes):
            kernel = item.arguments[1]
            if isinstance(kernel, Term) and kernel.operator == "cat":
                found |= {part.name for part in walk((kernel,)) if isinstance(part, Variable)}
    return found


def _kernels(rule: Rule) -> dict[str, bool]:
    """The inputs of which kernels are made: of groups?"""
    found: dict[str, bool] = {}
    for item in (*walk(rule.source), *walk(rule.target)):
        if isinstance(item, Term) and item.operator == "convolution":
            grouped = "groups" in dict(item.attributes)
            for part in walk((item.arguments[1],)):
                if isinstance(part, Variable):
                    found[part.name] = found.get(part.name, False) or grouped
    return found


def _with_constants(rule: Rule, inputs: Mapping[str, Input]) -> Rule | None:
    """Constants as the terms that make them; sizes that a constant has to have are put into the other shapes."""
    shapes = dict(rule.shapes)
    for name in [name for name in rule.inputs if inputs[name].constant]:
        constant = inputs[name].constant
        ((_, wanted),) = parse(f"{constant.partition(' = ')[0]}: x == x").shapes
        names: dict[str, Extent] = {}
        for size, pattern in zip(shapes[name], wanted, strict=True):
            solved = _solve(size, pattern, names, shapes)
            if solved is None:
                return None
            shapes = solved
        term = constant_term(constant)
        term = renamed(term, names)
        shapes.pop(name)
        rule = replace(
            rule,
            source=tuple(_put(item, name, term) for item in rule.source),
            target=tuple(_put(item, name, term) for item in rule.target),
        )
    return replace(rule, shapes=tuple(shapes.items()))


def _solve(
    size: Extent, pattern: Extent, names: dict[str, Extent], shapes: dict[str, tuple[Extent, ...]]
) -> dict[str, tuple[Extent, ...]] | None:
    """Makes a size what the pattern says: names of the pattern get values, or symbols of the sizes do."""
    symbols = sorted(pattern.symbols)
    if symbols and symbols[0] not in names and pattern == Extent.of(symbols[0]):
        names[symbols[0]] = size
        return shapes
    if symbols and symbols[0] not in names:  # 2·p + 1: the size has to be odd
        if size.number is not None:
            rest = size.number - 1
            if rest < 0 or rest % 2:
                return None
            names[symbols[0]] = Extent.of(rest // 2)
            return shapes
        names[symbols[0]] = Extent.of("o1")
    value = put(pattern, names)
    if value == size:
        return shapes
    for one, other in ((size, value), (value, size)):
        if (
            len(one.symbols) == 1
            and one == Extent.of(symbol := next(iter(one.symbols)))
            and symbol not in other.symbols
        ):
            changed = {symbol: other}
            names.update({key: put(item, changed) for key, item in names.items()})
            return {key: tuple(put(item, changed) for item in shape) for key, shape in shapes.items()}
    return None


def renamed(term: Term, names: Mapping[str, Extent | int]) -> Term:
    """With values for the symbols of its attributes; whole numbers are written as such."""
    values = {name: Extent.of(value) for name, value in names.items()}

    def value(item: Attribute) -> Attribute:
        if isinstance(item, tuple):
            return tuple(map(value, item))
        if isinstance(item, Extent):
            extent = put(item, values)
            return extent.number if extent.number is not None else extent
        return item

    attributes = tuple((name, value(item)) for name, item in term.attributes)
    arguments = tuple(renamed(item, names) if isinstance(item, Term) else item for item in term.arguments)
    return Term(term.operator, arguments, attributes, term.result)


def _put(item: Expression, name: str, term: Term) -> Expression:
    if isinstance(item, Variable):
        return term if item.name == name else item
    return replace(item, arguments=tuple(_put(argument, name, term) for argument in item.arguments))
