"""What a search proves of its answer, whatever it chooses: rewrites, divisions, movements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from girih.machine.units import format_bytes, format_gap, format_seconds


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

    @property
    def tried(self) -> dict[str, float]:
        """What each proposal that was judged costs, by the name of who made it; the cheapest first."""
        costs = {
            name.removeprefix(f"{self.unit}, "): float(cost)
            for name, cost in self.statistics.items()
            if name.startswith(f"{self.unit}, ")
        }
        return dict(sorted(costs.items(), key=lambda item: item[1]))

    def amount(self, cost: float) -> str:
        """A cost with its unit, for people."""
        known = {"bytes": format_bytes, "seconds": format_seconds}
        return known[self.unit](cost) if self.unit in known else f"{cost:,.0f} {self.unit}"

    @property
    def words(self) -> str:
        """The cost and what is proved of it: `cost 5.66 KB, bound 5.66 KB, gap 0 % (proved) (elimination; optimal)`."""
        return (
            f"cost {self.amount(self.cost)}, bound {self.amount(self.bound)}, gap {format_gap(self.gap)} "
            f"({self.how}; {self.stopped})"
        )

    def __str__(self) -> str:
        return f"{self.words}, in: {self.space}"


def explained(certificate: Certificate) -> list[str]:
    """Why an answer was taken, as lines: what it costs, what is proved, and what else was tried with what it costs. All
    reports of what was chosen begin with these: of plans, arrays, optimised models and loops."""
    tried = [f"{certificate.amount(cost)} by {name}" for name, cost in certificate.tried.items() if cost < float("inf")]
    return [certificate.words, *([f"tried: {'; '.join(tried)}"] if len(tried) > 1 else [])]


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
