"""The joint search, by name: its options, and what it says of itself. `girih.search.joint.jointly` has what it does."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from girih.plans.choice import Choice
from girih.search.portfolio import Portfolio


@dataclass(frozen=True)
class Joint(Portfolio):
    """Rewrites, micro-batches, divisions, orders and memory chosen together, from what is found with each in turn.

    It spends what the portfolio leaves of the seconds, half of them at least. As a search of strategies alone it is the
    portfolio.
    """

    name: ClassVar[str] = "joint"
    changes: ClassVar[tuple[str, ...]] = tuple(item.name for item in fields(Choice))
