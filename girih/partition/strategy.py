"""The Strategy: how every node is divided and how every value lies. Nothing about time or addresses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from girih.graph import Graph
from girih.layout import Layout, Mesh
from girih.layout.mesh import MOST_COORDINATES

# A division says for each mesh axis what it does to a node: a number from 0 divides that index variable (an output's
# or a reduction's), REPEAT repeats the work, and PASS - n lets partial sums pass through the n-th linear set of inputs.
# As in layouts, a code may name the coordinates that take part (`girih.layout.among`).
REPEAT = -1
PASS = -2


class SearchError(ValueError):
    """A graph of which a search can make nothing; the message says what to do."""


def check_placeable(mesh: Mesh) -> None:
    """Can every device of the mesh be named in a code?

    Raises:
        SearchError: an axis is too long.
    """
    if max(mesh.sizes, default=1) > MOST_COORDINATES:
        raise SearchError(
            f"layers are placed on devices of axes of at most {MOST_COORDINATES}, the mesh is {mesh}: name the machine "
            "with more axes (512 devices as 16x32), or search without places"
        )


@dataclass(frozen=True)
class Strategy:
    """For each node (by position in the graph) its division, for each value its layout, on one mesh."""

    mesh: Mesh
    divisions: tuple[tuple[int, ...], ...]
    layouts: dict[str, Layout]


@dataclass(frozen=True)
class Certificate:
    """What a search proves of its answer.

    cost, bound: in `unit` (bytes of all devices together, or seconds); no strategy in `space` costs less than bound.
    how: how the bound was found. stopped: why the search stopped. statistics: sizes, times, counts.
    """

    cost: float
    bound: float
    unit: str
    how: str
    stopped: str
    space: str
    statistics: dict[str, float | int | str]

    @property
    def gap(self) -> float:
        """cost / bound - 1; 0 when both are 0."""
        if self.cost <= self.bound:
            return 0.0
        return self.cost / self.bound - 1 if self.bound > 0 else float("inf")


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    graph: what the strategy divides, where the search wrote the graph that it was given otherwise; else None.
    search: the name of the search whose answer it is, where one that composes several says it; else "".
    """

    strategy: Strategy
    certificate: Certificate
    graph: Graph | None = None
    search: str = ""


FloatTable = NDArray[np.float64]
