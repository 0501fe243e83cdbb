"""A verdict on a rule: proved for all shapes by its normal forms, refuted by tensors, or open with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from girih.rewrite.prove.canonical import ProofError
from girih.rewrite.prove.checker import check, forms
from girih.rewrite.prove.expand import least_values
from girih.rewrite.prove.refutation.instances import one_thread
from girih.rewrite.prove.refutation.refute import misfits, refute
from girih.rewrite.prove.shapes import shaped
from girih.rewrite.prove.strategy import Searcher
from girih.rewrite.prove.symbolic import UnprovableError
from girih.rewrite.prove.terms import Proof, sum_text
from girih.rewrite.prove.verdict import Open, Proved, Verdict
from girih.rewrite.rules.extent import Extent
from girih.rewrite.rules.rule import Rule, RuleError, Term, walk
from girih.rewrite.rules.vocabulary import SPLIT, operator_named

FEW = 12


def prove(rule: Rule, tries: int = 200) -> Verdict:
    """The verdict on a rule. Inputs without declared shapes get the most general ones that its operators take.

    tries: random shapes and attributes on which a rule that has no proof is computed.

    Raises:
        RuleError: what is no rule: an unknown operator or attribute, or operands that no shapes fit.
    """
    with one_thread():
        verdict = attempt(rule, tries)
        return (isinstance(verdict, Open) and refute(verdict.rule, tries)) or verdict


def proved(rules: Sequence[Rule], tell: Callable[[int], object] = lambda number: None) -> tuple[Rule, ...]:
    """The rules, with the shapes for which they are proved. tell: called with the number of each before it is judged.

    Raises:
        RuleError: one of them is none, or is not proved.
    """
    found = []
    for number, rule in enumerate(rules):
        tell(number)
        verdict = prove(rule)
        if not isinstance(verdict, Proved):
            raise RuleError(f"{verdict.word}, so not used: {rule}")
        found.append(verdict.rule)
    return tuple(found)


def attempt(rule: Rule, tries: int = 200) -> Verdict:
    """The verdict without a long search for tensors: what is neither proved nor wrong on the first of them is open.

    tries: random shapes and attributes, of which the left side has to take some.

    Raises:
        RuleError: what is no rule.
    """
    for item in walk((*rule.source, *rule.target)):
        if isinstance(item, Term) and item.operator != SPLIT:
            operator_named(item.operator)  # an unknown one is no reason to call the rule false
    rule = shaped(rule)
    if misfit := misfits(rule, tries):
        raise RuleError(f"{rule}: its left side cannot be computed for any sizes up to 6: {misfit}")
    if wrong := refute(rule, FEW, FEW // 2):  # most of what is false is seen at once
        return wrong
    reason = ""
    for radix in (None, *radices(rule)):
        searcher = Searcher()
        try:
            pairs = forms(rule, radix, searcher)
        except (UnprovableError, ProofError) as error:
            reason = reason or str(error)
            continue
        if all(first == second for first, second in pairs):
            proof = Proof(rule, tuple(searcher.steps), radix)
            return Proved(rule, proof, assumed(rule), check(proof))
        first, second = next(pair for pair in pairs if pair[0] != pair[1])
        reason = reason or f"the normal forms differ: {sum_text(first)} and {sum_text(second)}"
    return Open(rule, reason)


def assumed(rule: Rule) -> tuple[str, ...]:
    return tuple(f"{name} >= {value}" for name, value in sorted(least_values(rule).items()))


def radices(rule: Rule) -> list[Extent]:
    """How outputs may be indexed in two parts: by the outputs of a group, for convolutions in groups."""
    found: dict[Extent, None] = {}
    for item in (*walk(rule.source), *walk(rule.target)):
        if isinstance(item, Term) and "groups" in dict(item.attributes):
            for _, shape in rule.shapes:
                for size in shape:
                    for monomial, _ in size.terms:
                        for name in monomial:
                            if len(monomial) > 1:
                                rest = list(monomial)
                                rest.remove(name)
                                found.setdefault(Extent(((tuple(rest), 1),)))
                                found.setdefault(Extent.of(name))
    return list(found)
