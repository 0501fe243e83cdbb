"""What a search for rewrites proves of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Certificate:
    """cost: seconds of the graph that was found. bound: no graph in `space` costs less. how: the way to the bound.
    space: the graphs of which that is said. stopped: why the search ended. statistics: sizes, counts, seconds."""

    cost: float
    bound: float
    how: str
    space: str
    stopped: str
    statistics: Mapping[str, float | int | str] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """cost / bound - 1; 0 where both are 0, infinite where nothing is known."""
        if self.cost <= self.bound:
            return 0.0
        return self.cost / self.bound - 1 if self.bound > 0 else float("inf")

    def __str__(self) -> str:
        if self.gap == float("inf"):
            return f"{self.cost:.4g} s; without a bound it is not known how far from the best of {self.space}"
        return (
            f"{self.cost:.4g} s, at least {self.bound:.4g} s by {self.how}: at most {self.gap:.2%} over the best of "
            f"{self.space}"
        )


def together(parts: tuple[Certificate, ...]) -> Certificate:
    """Of a graph in parts, each searched by itself: costs and bounds add up."""
    stopped = dict.fromkeys(part.stopped for part in parts)
    counts: dict[str, float | int | str] = {}
    for part in parts:
        for name, value in part.statistics.items():
            known = counts.get(name, 0)
            counts[name] = known + value if not isinstance(value, str) and not isinstance(known, str) else value
    return Certificate(
        sum(part.cost for part in parts),
        sum(part.bound for part in parts),
        " and ".join(dict.fromkeys(part.how for part in parts)),
        f"{' and '.join(dict.fromkeys(part.space for part in parts))}, in each of {len(parts)} parts",
        "; ".join(stopped),
        counts,
    )
