"""A graph is rewritten by proved rules before it is divided, and the plan keeps which, where, and what each saved.

Search: cost-based backtracking in parts of the graph (TASO §2.7), each node priced by the data sheet of the machine's
device. A rule that the prover does not prove is not used; one in a plan file is proved again when the file is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from girih.graph import Graph, Node
from girih.graph.graph import references
from girih.machine import Device, Machine
from girih.ops import first_description
from girih.ops.derive.arithmetic import floating_point_operations
from girih.ops.derive.kinds import CREATION, VIEW, dtype_of_products, kind_of
from girih.rewrite.backtracking import Backtracking
from girih.rewrite.rewriting import check
from girih.rewrite.rules.parts import with_parts
from girih.rewrite.rules.rule import Rule, RuleError, operators, parse

if TYPE_CHECKING:
    from girih.rewrite.prove.verdict import Verdict

MOST_RULES, MOST_OPERATORS, MOST_TEXT = 64, 16, 4096
"""What a plan file may have at most: different rules, operators on a side of one, letters of one."""


class ProofError(ValueError):
    """A rule of a plan that is not proved; the message names it."""


@dataclass(frozen=True)
class Rewrite:
    """One replacement. rule: as text. at: the values that were made otherwise. before, cost: seconds of the part of the
    graph that was searched, before and after, by the data sheet of a whole device: estimates."""

    rule: str
    at: tuple[str, ...]
    before: float
    cost: float


@dataclass(frozen=True)
class Rewriting:
    """alpha: how many times the cheapest a graph may cost to be looked at. seconds: to search. rules: girih's own
    where none are given."""

    alpha: float = 1.05
    seconds: float = 30.0
    rules: tuple[Rule, ...] = field(default=())

    def apply(
        self, graph: Graph, machine: Machine, spend: Callable[[float], None] = lambda nanoseconds: None
    ) -> tuple[Graph, tuple[Rewrite, ...]]:
        """The graph that computes the same for less on one device, and how it came about. spend: is told the
        nanoseconds of work.

        Raises:
            ProofError: a rule is not proved.
        """
        price = Prices(machine.device)
        search, state = Backtracking(self.alpha, seconds=self.seconds), [item.name for item in graph.state_inputs]
        better, found = search.in_parts(graph, state, self.rules or rules(), price)
        spend(sum(result.work for result in found) * 1e9)
        steps = []
        for result in found:
            before = result.before
            for applied in result.sequence:
                steps.append(Rewrite(str(applied.rule), applied.at, before, applied.cost))
                before = applied.cost
        if not steps:
            return graph, ()
        prove_all(steps)
        check(graph, better)
        return better, tuple(steps)


@cache
def rules() -> tuple[Rule, ...]:
    """Girih's own rules, in the order in which they are tried."""
    from girih.rewrite.rules.further import inference, training
    from girih.rewrite.rules.shipped import shipped

    return (*training(), *inference(), *shipped())


class Prices:
    """Seconds of a node on a device by its data sheet; views and constants cost nothing."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._known: dict[tuple[object, ...], float] = {}

    def __call__(self, graph: Graph, node: Node) -> float:
        shapes = tuple((graph.values[name].shape, graph.values[name].dtype) for name in (*node.inputs, *node.outputs))
        attributes = tuple((name, item) for name, item in node.arguments if not any(references(item)))
        key = (node.operator, shapes, attributes)
        if key not in self._known:
            self._known[key] = self._seconds(graph, node)
        return self._known[key]

    def _seconds(self, graph: Graph, node: Node) -> float:
        description = first_description(graph, node)
        operations, dtype = 0.0, "float32"
        if description is not None:
            if kind_of(description) in (VIEW, CREATION):
                return 0.0
            operations, dtype = floating_point_operations(description), dtype_of_products(description)
        moved = sum(graph.values[name].bytes for name in (*dict.fromkeys(node.inputs), *node.outputs))
        device = self.device
        return max(operations / device.flops(dtype), moved / device.memory_bytes_per_second) + device.launch_seconds


@cache
def verdict(rule: str) -> Verdict:
    """What the prover says of a rule. Inputs that are split are concatenations.

    Raises:
        RuleError: the text is none, or has more operators than a rule of a plan may.
    """
    from girih.rewrite.prove import prove

    if len(rule) > MOST_TEXT:
        raise RuleError(f"a rule of {len(rule)} letters: expected at most {MOST_TEXT}")
    parsed = parse(rule)
    if max(operators(parsed.source), operators(parsed.target)) > MOST_OPERATORS:
        raise RuleError(f"a rule of more than {MOST_OPERATORS} operators on a side")
    return prove(with_parts(parsed))


def prove_all(rewrites: Sequence[Rewrite]) -> dict[str, Verdict]:
    """The verdict on each rule, by its text.

    Raises:
        ProofError: one is refuted, open, or no rule; or there are more than a plan may have.
    """
    texts = list(dict.fromkeys(item.rule for item in rewrites))
    if len(texts) > MOST_RULES:
        raise ProofError(f"the graph was rewritten by {len(texts)} rules: expected at most {MOST_RULES}")
    verdicts = {}
    for text in texts:
        try:
            verdicts[text] = verdict(text)
        except RuleError as error:
            raise ProofError(f"the graph was rewritten by what is no rule: {error}") from error
        if verdicts[text].word != "proved":
            raise ProofError(f"the graph was rewritten by a rule that is {verdicts[text].word}: {text[:300]}")
    return verdicts
