"""What is known of a rule: it is proved, it is refuted, or neither."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from girih.rewrite.prove.terms import Step
from girih.rewrite.rules.extent import Extent
from girih.rewrite.rules.rule import Rule


@dataclass(frozen=True)
class Proof:
    """Steps that bring both sides of a rule to one form. radix: by which output dimensions that are multiples of it
    are indexed in two parts. `check` replays it."""

    rule: Rule
    steps: tuple[Step | None, ...]
    radix: Extent | None = None

    def __str__(self) -> str:
        return "\n".join(f"{number:4d}  {step}" for number, step in enumerate(filter(None, self.steps), 1))


@dataclass(frozen=True)
class Proved:
    """The rule holds for all tensors of its shapes. rule: with its side conditions, the shapes, declared. assumed: what
    sizes and attributes have to be, as text."""

    rule: Rule
    proof: Proof
    assumed: tuple[str, ...]

    word = "proved"


@dataclass(frozen=True)
class Refuted:
    """The rule is false. symbols: sizes and attributes. tensors: the inputs, nested lists of numbers. source, target:
    the output (by number) in which the sides differ; None where one side cannot be computed or has another shape."""

    rule: Rule
    symbols: dict[str, Any]
    tensors: dict[str, Any]
    output: int
    source: Any
    target: Any
    reason: str = ""

    word = "refuted"

    def __str__(self) -> str:
        lines = [f"  with {', '.join(f'{name} = {value}' for name, value in self.symbols.items())}"] * bool(self.symbols)
        lines += [f"  {name} = {value}" for name, value in self.tensors.items()]
        if self.reason:
            lines.append(f"  {self.reason}")
        else:
            lines.append(f"  {self.rule.source[self.output]} = {self.source}")
            lines.append(f"  {self.rule.target[self.output]} = {self.target}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Open:
    """Neither proved nor refuted, and never used."""

    rule: Rule
    reason: str

    word = "open"


Verdict: TypeAlias = "Proved | Refuted | Open"
