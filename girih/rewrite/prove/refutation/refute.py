"""Refutations: sizes, attributes and integer tensors for which the two sides of a rule differ, as small as was found.

Random small ones are tried, then the first that differs is made smaller: each size and attribute by ones, then each
number of the tensors to 0 or to 1, as long as the sides still differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from girih.rewrite.prove.refutation.instances import (
    Instance,
    InvalidError,
    computed,
    difference,
    instance,
    instances,
    symbols_of,
)
from girih.rewrite.prove.verdict import Refuted
from girih.rewrite.rules.rule import Rule

SEED = 2718


def refute(rule: Rule, tries: int, fitting: int = 0) -> Refuted | None:
    """The counterexample, if one is found in so many tries. Where the target cannot be computed nothing is replaced,
    so that this refutes a rule only if it is so everywhere. fitting: after how many that fit to stop."""
    impossible: Instance | None = None
    computable, fitted = False, 0
    for item in instances(rule, np.random.default_rng(SEED), tries):
        try:
            wrong = difference(rule, item)
        except InvalidError:
            continue
        fitted += 1
        if fitting and fitted > fitting and impossible is None:
            return None
        computable = computable or wrong is None or wrong.computable
        if wrong is not None and not wrong.computable:
            impossible = impossible or item
        elif wrong is not None:
            item = smaller_tensors(rule, _smaller_symbols(rule, item, wrong.reason), wrong.reason)
            return refuted(rule, item)
    return refuted(rule, impossible) if impossible is not None and not computable else None


def misfits(rule: Rule, tries: int) -> str:
    """Why none of so many random choices of sizes and attributes fits the source; "" if one does."""
    why = "they are too many, or a tensor would be empty"
    for item in instances(rule, np.random.default_rng(SEED), tries):
        try:
            computed(rule.source, item)
        except InvalidError as error:
            why = str(error)
            continue
        return ""
    return why


def _differs(rule: Rule, item: Instance, reason: str) -> bool:
    """Do the sides still differ, in their values or, where there was a reason, for one?"""
    try:
        wrong = difference(rule, item)
    except InvalidError:
        return False
    return wrong is not None and bool(wrong.reason) == bool(reason) and wrong.computable


def refuted(rule: Rule, item: Instance) -> Refuted:
    """The verdict, with what the sides make of an instance for which they differ."""
    wrong = difference(rule, item)
    assert wrong is not None
    tensors = {name: plain(tensor) for name, tensor in item.tensors.items()}
    source, target = (None, None) if wrong.reason else (plain(wrong.source), plain(wrong.target))
    return Refuted(rule, dict(item.symbols), tensors, wrong.output, source, target, wrong.reason)


def _smaller_symbols(rule: Rule, item: Instance, reason: str) -> Instance:
    least, random = symbols_of(rule), np.random.default_rng(SEED)
    shrunk = True
    while shrunk:
        shrunk = False
        for name, low in least.items():
            for value in range(low, item.symbols[name]):
                for _ in range(3):
                    smaller = instance(rule, {**item.symbols, name: value}, random)
                    if smaller is not None and _differs(rule, smaller, reason):
                        item, shrunk = smaller, True
                        break
                if item.symbols[name] == value:
                    break
    return item


def smaller_tensors(rule: Rule, item: Instance, reason: str) -> Instance:
    """With 0 and 1 in the place of as many numbers as the sides go on to differ for."""
    for name in item.tensors:
        tensor = item.tensors[name]
        for place in range(tensor.numel()):
            for value in (0.0, 1.0):
                if tensor.view(-1)[place] == value:
                    break
                smaller = tensor.clone()
                smaller.view(-1)[place] = value
                candidate = Instance(item.symbols, {**item.tensors, name: smaller})
                if _differs(rule, candidate, reason):
                    item, tensor = candidate, smaller
                    break
    return item


def plain(tensor: Any) -> Any:
    """Nested lists; whole numbers as such."""

    def number(value: Any) -> Any:
        if isinstance(value, list):
            return [number(one) for one in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return number(tensor.tolist())
