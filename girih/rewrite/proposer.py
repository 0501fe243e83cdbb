"""What a proposer is: it changes parts of a Choice, and does not judge what it proposes.

`girih.search.table` has all of them by name. Each kind has one verb: a search divides (`girih.partition.search`), a
search of rules rewrites (`girih.rewrite.backtracking`), an order sorts steps, and a way to hold moves tensors or
computes them again (`girih.search.memory`). A move reads a whole plan and may change any part (`girih.search.moves`).
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Proposer(ABC):
    """What changes parts of a Choice: a frozen dataclass of its options with one verb, which its kind says.

    It proposes and never judges: what an answer costs it is told, by tables or by a function that is its score.
    """

    name: ClassVar[str]
    """What the command line and plan files call it."""
    changes: ClassVar[tuple[str, ...]]
    """The fields of `girih.plans.choice.Choice` that it may change."""

    @classmethod
    def summary(cls) -> str:
        """What it does, in one line."""
        return (cls.__doc__ or "").partition("\n\n")[0].replace("\n    ", " ").rstrip(".")
