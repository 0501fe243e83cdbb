"""Verdicts on rules: proved for all shapes, refuted by tensors, or open.

In the order of the data: `shapes` (the most general shapes of inputs that are not declared), `expand` (both sides in
index notation, as `girih.ops` describes their operators, with sizes that are symbols: `symbolic`, `notation`),
`strategy` (finds the steps to a normal form), `checker` (replays them, with `canonical` and `arithmetic`, and knows
nothing of who found them), `refutation` (random integer tensors, as small as possible), `judge` (all of it).
"""

from girih.rewrite.prove.canonical import ProofError
from girih.rewrite.prove.checker import check
from girih.rewrite.prove.judge import prove, proved
from girih.rewrite.prove.verdict import Open, Proved, Refuted, Verdict

__all__ = ["Open", "ProofError", "Proved", "Refuted", "Verdict", "check", "prove", "proved"]
