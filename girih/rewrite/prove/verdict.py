"""What is known of a rule: it is proved, it is refuted, or neither."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from girih.rewrite.prove.terms import Proof
from girih.rewrite.rules.rule import Rule


@dataclass(frozen=True)
class Proved:
    """The rule holds for all tensors of its shapes. rule: with its side conditions, the shapes, declared. assumed: what
    sizes and attributes have to be, as text. forms: the normal form that both sides have, of each output."""

    rule: Rule
    proof: Proof
    assumed: tuple[str, ...]
    forms: tuple[str, ...]

    word = "proved"

    @property
    def text(self) -> str:
        """The proof, step by step."""
        steps = [f"{number:4d}  {step}" for number, step in enumerate(filter(None, self.proof.steps), 1)]
        forms = [f"  both sides are {form}" for form in self.forms]
        return "\n".join([*steps, *forms, f"  for all {', '.join(self.assumed) or 'values'}"])


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

    @property
    def text(self) -> str:
        """The tensors, and what the two sides make of them."""
        lines = [f"  with {', '.join(f'{name} = {value}' for name, value in self.symbols.items())}"] * bool(
            self.symbols
        )
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

    @property
    def text(self) -> str:
        return f"  {self.reason}"


Verdict: TypeAlias = "Proved | Refuted | Open"
