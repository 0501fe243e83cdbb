"""What a search proves of its answer, whatever it chooses: rewrites, divisions, movements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Certificate:
    """What a search proves of its answer.

    cost, bound: in `unit` (bytes of all devices together, or seconds); nothing in `space` costs less than bound.
    how: how the bound was found. stopped: why the search stopped: "time" where its counted work was over, "clock" where
    the machine was too slow or too busy for it (`girih.layout.budget`). statistics: sizes, times, counts.
    """

    cost: float
    bound: float
    unit: str
    how: str
    stopped: str
    space: str
    statistics: Mapping[str, float | int | str] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """cost / bound - 1; 0 where both are 0, infinite where nothing is known."""
        if self.cost <= self.bound:
            return 0.0
        return self.cost / self.bound - 1 if self.bound > 0 else float("inf")

    @property
    def work(self) -> float:
        """Seconds of counted work that the search has done (`girih.layout.budget.Budget`); 0 where it counts none."""
        return float(self.statistics.get("seconds of work", 0.0))

    def __str__(self) -> str:
        unit = "s" if self.unit == "seconds" else self.unit
        cost = f"{self.cost:.4g} {unit}"
        if self.gap == float("inf"):
            return f"{cost}; without a bound it is not known how far from the best of {self.space}"
        best = f"at most {self.gap:.2%} over the best of {self.space}"
        return f"{cost}, at least {self.bound:.4g} {unit} by {self.how}: {best}"


def together(parts: tuple[Certificate, ...]) -> Certificate:
    """The certificate of a graph whose parts were each searched by themselves: seconds, in which costs and bounds add
    up."""
    stopped = dict.fromkeys(part.stopped for part in parts)
    counts: dict[str, float | int | str] = {}
    for part in parts:
        for name, value in part.statistics.items():
            known = counts.get(name, 0)
            counts[name] = known + value if not isinstance(value, str) and not isinstance(known, str) else value
    return Certificate(
        sum(part.cost for part in parts),
        sum(part.bound for part in parts),
        "seconds",
        " and ".join(dict.fromkeys(part.how for part in parts)),
        "; ".join(stopped),
        f"{' and '.join(dict.fromkeys(part.space for part in parts))}, in each of {len(parts)} parts",
        counts,
    )
