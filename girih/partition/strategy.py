"""The Strategy: how every node is divided and how every value lies. Nothing about time or addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from girih.graph import Graph
from girih.layout import Layout, Mesh, Sharding, Submesh, own_mesh, parse_sharding, sharding_of
from girih.layout.mesh import MOST_COORDINATES
from girih.rewrite.certificate import Certificate

# Solvers write a division as they write a layout, a code for each mesh axis: a number from 0 divides that index
# variable (an output's or a reduction's), REPEAT repeats the work, and PASS - n lets partial sums pass through the n-th
# linear set of inputs. A code may name the coordinates that take part (`girih.layout.among`).
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
    divisions: tuple[Sharding, ...]
    layouts: dict[str, Sharding]

    def __hash__(self) -> int:
        return hash((self.mesh, self.divisions))  # layouts are a dict, which has no hash; equal ones have equal hashes

    @cached_property
    def submeshes(self) -> tuple[Submesh, ...]:
        """The submeshes, of several devices each, on which nodes are computed in which other devices have no share: the
        stages of a pipeline, where these are divided."""
        each = [tuple(axis.on for axis in division.axes) for division in dict.fromkeys(self.divisions)]
        some = [submesh for submesh in dict.fromkeys(each) if any(on is not None for on in submesh)]
        return tuple(submesh for submesh in some if own_mesh(submesh, self.mesh).devices > 1)

    @staticmethod
    def of_texts(mesh: Mesh, divisions: Iterable[str], layouts: Mapping[str, str]) -> Strategy:
        """A strategy written by hand: `("S0[7:3]",), {"x": "S0[7:3]", "w": "R", "y": "S0[7:3]"}`.

        Raises:
            ValueError: a text is no sharding.
        """
        return Strategy(
            mesh, tuple(map(parse_sharding, divisions)), {name: parse_sharding(text) for name, text in layouts.items()}
        )

    @staticmethod
    def of_codes(mesh: Mesh, divisions: Iterable[Layout], layouts: Mapping[str, Layout]) -> Strategy:
        """What a solver found."""
        return Strategy(
            mesh, tuple(map(sharding_of, divisions)), {name: sharding_of(codes) for name, codes in layouts.items()}
        )


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    graph: what the strategy divides, where the search wrote the graph that it was given otherwise; else None.
    schedule: the order of the work, where the search asks for another than the graph's (`girih.program.schedule`).
    search: the name of the search whose answer it is, where one that composes several says it; else "".
    """

    strategy: Strategy
    certificate: Certificate
    graph: Graph | None = None
    schedule: str = "graph"
    search: str = ""


FloatTable = NDArray[np.float64]
