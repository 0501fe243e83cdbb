"""Rules generated, proved and listed: everything from the names of operators to verdicts (TASO §2.3 to §2.5).

Each rule is judged when it is found, before anything is pruned by it: first on random numbers between -1 and 1 (the
paper's second test), then by the prover, for all sizes and attributes. What is false or open prunes nothing, so that
what is pruned follows from proved rules alone; only of 5 operators, what would follow from an open candidate is not
judged, and so not found. What is open is never used. At the end, rules whose one side is a concatenation are also said
with two results: f(x, a), f(x, b) become the two sides of one f.

Cost: that of the table (`table`), one pass over it for each rule (`candidates`), and a few verdicts for each rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from multiprocessing import get_context
from time import monotonic

import numpy as np

from girih.rewrite.prove.judge import prove
from girih.rewrite.prove.refutation.instances import Instance, InvalidError, computed, one_thread
from girih.rewrite.prove.verdict import Proved, Verdict
from girih.rewrite.rules.rule import Expression, Rule, RuleError, Term, Variable, operators, walk
from girih.workshop.generate.candidates import FALSE, GENERAL, OPEN, SPECIAL, Answer, Candidate, Counts, Pruner
from girih.workshop.generate.general import generalised, renamed
from girih.workshop.generate.table import MOST_PARTS, TermTable
from girih.workshop.generate.vocabulary import (
    CONSTANTS,
    TABLE,
    Input,
    constant_term,
    inputs,
    symbols_of,
    templates,
    usual_inputs,
)

Observer = Callable[[str, float], None]
THRESHOLD = 1e-5
"""The paper's, for results that differ."""
TESTS = 8
RANGES = ((-1.0, 1.0), (-1.0, 1.0), (-1.0, 0.1), (-0.1, 1.0))
"""For each tensor one of them: among all numbers alike, the greatest in a window is rarely below zero."""
LARGE = 4
"""From this size on terms read fewer alike inputs, and concatenate two tensors in a row."""


@dataclass(frozen=True)
class Generation:
    """What is to be generated.

    operators: by name, or with attributes, as `cat(dim=1)`. size: the most operators of a side. limit: the most rules
    (0: all). inputs: variables with numbers for sizes, as text; "": those of `vocabulary`, of the ranks that the
    operators take. constants: as `vocabulary.CONSTANTS`. alike: how many inputs of one shape a term of `LARGE`
    operators or more reads (0: 3 for rules of 4 operators, 2 for 5); those of the last size that read more than `named`
    are looked at under one name each. seconds: after which no more is looked for (0: never). processes: that judge
    rules of `LARGE` operators, beside this one (0: this one does); a script that wants them needs
    `if __name__ == "__main__":`, as Python's multiprocessing does. The rules are the same.
    """

    operators: tuple[str, ...] = TABLE
    size: int = 4
    limit: int = 0
    inputs: str = ""
    constants: tuple[str, ...] = CONSTANTS
    alike: int = 0
    named: int = 3
    seconds: float = 0.0
    processes: int = 0

    def generate(self, observer: Observer | None = None) -> Generated:
        """All rules of up to `size` operators a side that do not follow from one another, proved.

        Raises:
            RuleError: an operator that nobody described, or inputs that are none.
        """
        if not 1 <= self.size <= 5:
            raise RuleError(f"rules have 1 to 5 operators a side, not {self.size}")
        observe = observer or (lambda what, share: None)
        ways = templates(self.operators)
        items = inputs(self.inputs or usual_inputs(ways), self.constants)
        table = TermTable(items, ways)
        alike = self.alike or (2 if self.size > LARGE else 3)
        pruner = Pruner(table)
        judges = _Judges(pruner, {item.name: item for item in items}, self.processes if self.size >= LARGE else 0)
        deadline = monotonic() + self.seconds if self.seconds else inf
        stopped = ""

        def in_time(what: str, share: float) -> None:
            if monotonic() > deadline:
                raise TimeoutError(what)
            observe(what, share)

        def found() -> Generator[Candidate]:
            for size in range(1, self.size + 1):
                large, last = size >= LARGE, size == self.size
                level = table.extend(
                    in_time, last, alike if large else len(items), self.named if last and large else len(items),
                    MOST_PARTS if not large else 2,
                )  # fmt: skip
                ahead, doubtful = judges.ahead if large else 1, last and size > LARGE
                yield from pruner.prune(level, size, judges, ahead, in_time, doubtful)

        with judges, one_thread():
            with closing(found()) as rules:
                try:
                    deque(islice(rules, self.limit or None), maxlen=0)
                except TimeoutError as error:
                    stopped = f"{self.seconds:.0f} seconds were over: {error}"
            kept = pruner.kept if stopped else pruner.minimal(table.levels)[: self.limit or None]
            proved = [judges.verdict(item) for item in kept]
            unproved = [judges.verdict(item) for item in pruner.unproved if judges.verdicts[item] is not None]
            joined = tuple(_joined(proved, self.size, observe))
        verdicts = (*proved, *(item for item in unproved if item.word == "open"))
        return Generated(tuple(pruner.counts), verdicts, joined, stopped)


@dataclass(frozen=True)
class Generated:
    """What was generated. counts: for each size, after each stage of pruning. verdicts: on the rules that are left,
    each with its symbols, and behind them on those that are open. joined: proved rules of two results. stopped: why not
    all was looked at; "" if it was."""

    counts: tuple[Counts, ...]
    verdicts: tuple[Verdict, ...]
    joined: tuple[Proved, ...] = ()
    stopped: str = ""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Those that are proved, named by their number."""
        proved = [item for item in (*self.verdicts, *self.joined) if isinstance(item, Proved)]
        return tuple(replace(item.rule, name=f"generated_{number}") for number, item in enumerate(proved, 1))

    def with_word(self, word: str) -> tuple[Verdict, ...]:
        return tuple(item for item in self.verdicts if item.word == word)


class _Judges:
    """Verdicts on candidates, by other processes where there are any; each is looked for once."""

    def __init__(self, pruner: Pruner, named: Mapping[str, Input], processes: int) -> None:
        self.pruner, self.named = pruner, named
        self.verdicts: dict[Candidate, Future[tuple[Verdict, bool]] | None] = {}
        context = get_context("spawn")
        self.pool = ProcessPoolExecutor(processes, context) if processes else None
        self.ahead = 2 * processes if processes else 1

    def __enter__(self) -> _Judges:
        return self

    def __exit__(self, *_: object) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)

    def __call__(self, candidate: Candidate) -> Answer:
        """What differs on random numbers is false."""
        if candidate not in self.verdicts:
            self.verdicts[candidate] = self._judged(candidate)
        future = self.verdicts[candidate]
        if future is None:
            return FALSE

        def answer() -> str:
            verdict, general = future.result()
            if verdict.word == "proved":
                return GENERAL if general else SPECIAL
            return OPEN if verdict.word == "open" else FALSE

        return answer() if future.done() else answer

    def _judged(self, candidate: Candidate) -> Future[tuple[Verdict, bool]] | None:
        rule = Rule((self.pruner.expression(candidate.source),), (self.pruner.expression(candidate.target),))
        if not passes(rule, self.named):
            return None
        named = {name: self.named[name] for name in rule.inputs}
        if self.pool is not None:
            return self.pool.submit(generalised, rule, named)
        future: Future[tuple[Verdict, bool]] = Future()
        future.set_result(generalised(rule, named))
        return future

    def verdict(self, candidate: Candidate) -> Verdict:
        future = self.verdicts[candidate]
        assert future is not None
        return future.result()[0]


def passes(rule: Rule, named: Mapping[str, Input]) -> bool:
    """Do both sides make the same of random numbers between -1 and 1, up to the threshold (TASO §2.3, step 2)?"""
    import torch

    random = np.random.default_rng(7)
    sides = [tuple(_with_constants(item, named) for item in side) for side in (rule.source, rule.target)]
    for _ in range(TESTS):
        tensors = {
            name: torch.from_numpy(random.uniform(*RANGES[random.integers(len(RANGES))], named[name].shape))
            for name in rule.inputs
            if not named[name].constant
        }
        try:
            one, other = (computed(side, Instance({}, tensors)) for side in sides)
        except InvalidError:
            return False
        for first, second in zip(one, other, strict=True):
            if first.shape != second.shape or not torch.allclose(first, second, rtol=0, atol=THRESHOLD):
                return False
    return True


def _with_constants(item: Expression, named: Mapping[str, Input]) -> Expression:
    if isinstance(item, Variable):
        found = named[item.name]
        if not found.constant:
            return item
        symbols = symbols_of(found.constant, found.shape)
        assert symbols is not None
        return renamed(constant_term(found.constant), symbols)
    return replace(item, arguments=tuple(_with_constants(argument, named) for argument in item.arguments))


# ------------------------------------------------------------------------------------------------ two results


def _joined(verdicts: Sequence[Verdict], size: int, observe: Observer) -> Iterator[Proved]:
    """Rules of two results, from those of which one side is a concatenation."""
    for verdict in verdicts:
        if not isinstance(verdict, Proved):
            continue
        for side, other in ((verdict.rule.source, verdict.rule.target), (verdict.rule.target, verdict.rule.source)):
            rule = split_in_two(side[0], other[0], verdict.rule)
            if rule is None or max(operators(rule.source), operators(rule.target)) > size:
                continue
            observe("proving rules of two results", 0.0)
            try:
                found = prove(rule)
            except RuleError:  # nothing says where the other side was joined
                continue
            if isinstance(found, Proved):
                yield found


def split_in_two(joined: Expression, whole: Expression, rule: Rule) -> Rule | None:
    """cat(p, q) = w as p, q = the two sides of w; None where nothing is gained by it: one of them is an input, or
    both are the same."""
    if not isinstance(joined, Term) or joined.operator != "cat" or not isinstance(whole, Term):
        return None
    one, other = joined.arguments
    if isinstance(one, Variable) or isinstance(other, Variable) or one == other or whole.operator == "cat":
        return None
    dim = dict(joined.attributes).get("dim", 0)
    halves = tuple(Term("split", (whole,), (("dim", dim),), result) for result in (0, 1))
    read = {item.name for item in walk((one, other)) if isinstance(item, Variable)}
    shapes = tuple((name, shape) for name, shape in rule.shapes if name in read)
    return Rule((one, other), halves, shapes) if len(shapes) == len(rule.shapes) else None
