"""Graphs of any size, made edge by edge from a seed: R-MAT, Barabási-Albert, grids, communities; and the karate club.

Edges are made in blocks and compressed like a file's (`edges.py`), so that memory is bounded by `memory`; features that
are larger lie in a temporary file. The same arguments give the same graph, whatever the memory.

R-MAT (Chakrabarti, Zhan, Faloutsos 2004): at each bit of both numbers, one of four quadrants by probabilities a, b, c.
Barabási-Albert (1999), as Batagelj and Brandes (2005) draw it: an end of an edge is a copy of an end of an earlier one,
drawn by a hash of its position (Sanders and Schulz 2016), so that no list of ends is held.
Communities: the planted partition; a class has a centre, and a vertex's features are it and noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.gnn.data.data import Data
from girih.gnn.data.edges import Block, Edges, Mending, compress, room_for
from girih.gnn.data.errors import DataError

Array = NDArray[Any]
BLOCK = 1 << 20
MOST_VERTICES = 2**40
DEFAULT = Mending(self_loops="drop", duplicates="drop", undirected=True)

KARATE = (
    (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 17, 19, 21, 31), (2, 3, 7, 13, 17, 19, 21, 30),
    (3, 7, 8, 9, 13, 27, 28, 32), (7, 12, 13), (6, 10), (6, 10, 16), (16,), (), (30, 32, 33), (33,), (), (), (), (33,),
    (32, 33), (32, 33), (), (), (32, 33), (33,), (32, 33), (), (32, 33), (25, 27, 29, 32, 33), (25, 27, 31), (31,),
    (29, 33), (33,), (31, 33), (32, 33), (32, 33), (32, 33), (33,), (),
)  # fmt: skip
"""Zachary (1977): of each member, those of larger number with whom they met outside of the club."""
KARATE_LABELS = (
    1, 1, 1, 1, 3, 3, 3, 1, 0, 1, 3, 1, 1, 1, 0, 0, 3, 1, 0, 1, 0, 1, 0, 0, 2, 2, 0, 0, 2, 0, 0, 2, 0, 0,
)  # fmt: skip
"""The four communities of Brandes et al. (2008), numbered as torch_geometric does."""
KARATE_TRAIN = (0, 4, 8, 24)


def karate() -> Data:
    """Zachary's karate club: 34 vertices, 156 edges, four communities; one vertex of each for training."""
    read = np.concatenate([np.asarray(row, np.int64) for row in KARATE])
    reading = np.repeat(np.arange(len(KARATE)), [len(row) for row in KARATE])
    graph, _, _ = compress(Edges("karate", [(read, reading, None)], len(KARATE)), DEFAULT)
    train = np.zeros(len(KARATE), bool)
    train[list(KARATE_TRAIN)] = True
    x, labels = np.eye(len(KARATE), dtype=np.float32), np.array(KARATE_LABELS, np.int64)
    return Data(graph, x, labels, train, None, ~train, name="karate")


def rmat(
    vertices: int,
    edges: int,
    *,
    a: float = 0.57,
    b: float = 0.19,
    c: float = 0.19,
    features: int = 0,
    classes: int = 0,
    seed: int = 0,
    mending: Mending = DEFAULT,
) -> Data:
    """A graph of a few vertices with very many edges, and many with few, as the web has them.

    edges: how many are drawn, of which loops and duplicates are dropped, and the rest count in both directions.
    features, classes: random numbers and labels without any pattern, to measure speed with.

    Raises:
        DataError: sizes or probabilities are none.
    """
    _check("rmat", vertices=vertices, edges=edges)
    if min(a, b, c) < 0 or not 0 < a + b + c <= 1:
        raise DataError(f"rmat: probabilities a={a}, b={b}, c={c}: expected them from 0, at most 1 together")
    levels = max(1, math.ceil(math.log2(vertices)))

    def blocks() -> Iterator[Block]:
        for number, size in _sizes(edges):
            random, left = np.random.default_rng((seed, number)), size
            while left:
                read, reading = np.zeros(left, np.int64), np.zeros(left, np.int64)
                for _ in range(levels):
                    drawn = random.random(left, np.float32)
                    lower = drawn >= np.float32(a + b)
                    right = ((drawn >= np.float32(a)) & ~lower) | (drawn >= np.float32(a + b + c))
                    reading, read = 2 * reading + lower, 2 * read + right
                inside = (read < vertices) & (reading < vertices)
                yield read[inside], reading[inside], None
                left -= int(inside.sum())

    return _with_features(Edges("rmat", blocks(), vertices), features, classes, seed, mending)


def barabasi_albert(
    vertices: int, degree: int, *, features: int = 0, classes: int = 0, seed: int = 0, mending: Mending = DEFAULT
) -> Data:
    """A graph that grows: each new vertex has `degree` edges to others, more likely to those that have many.

    Raises:
        DataError: sizes are none.
    """
    _check("barabasi_albert", vertices=vertices, degree=degree)
    salt = int(np.random.SeedSequence((seed, 1)).generate_state(1, np.uint64)[0])

    def blocks() -> Iterator[Block]:
        # End 2e of edge e is the vertex e // degree, end 2e + 1 is a copy of an end before it, drawn by its hash.
        for first in range(0, vertices * degree, BLOCK):
            edge = np.arange(first, min(first + BLOCK, vertices * degree), dtype=np.uint64)
            end = 2 * edge + 1
            going = np.ones(len(end), bool)
            while going.any():
                own = end[going]
                end[going] = _hash(own ^ np.uint64(salt)) % own  # below itself, so that this ends at an even one
                going = end % 2 == 1
            yield (end // 2 // degree).astype(np.int64), (edge // degree).astype(np.int64), None

    return _with_features(Edges("barabasi_albert", blocks(), vertices), features, classes, seed, mending)


def grid(
    rows: int, columns: int, *, features: int = 0, classes: int = 0, seed: int = 0, mending: Mending = DEFAULT
) -> Data:
    """Vertices in rows and columns; each has its up to four neighbours.

    Raises:
        DataError: sizes are none.
    """
    _check("grid", rows=rows, columns=columns, vertices=rows * columns)

    def blocks() -> Iterator[Block]:
        for first in range(0, rows * columns, BLOCK):
            vertex = np.arange(first, min(first + BLOCK, rows * columns))
            right, below = vertex[vertex % columns < columns - 1], vertex[vertex < (rows - 1) * columns]
            yield np.concatenate([right + 1, below + columns]), np.concatenate([right, below]), None

    return _with_features(Edges("grid", blocks(), rows * columns), features, classes, seed, mending)


def community(
    vertices: int,
    *,
    classes: int = 4,
    degree: float = 10.0,
    mixing: float = 0.2,
    features: int = 16,
    noise: float = 1.0,
    seed: int = 0,
    mending: Mending = DEFAULT,
) -> Data:
    """Communities to learn: vertex v has the label v modulo classes, and most of its edges within its class.

    degree: edges of a vertex, on average, before duplicates go. mixing: the share of edges that go anywhere. noise: the
    standard deviation of features around the centre of their class, whose own is 1. The split is random: 60 %, 20 % and
    20 %.

    Raises:
        DataError: sizes or shares are none.
    """
    _check("community", vertices=vertices, classes=classes, features=features)
    if not (degree > 0 and 0 <= mixing <= 1 and noise >= 0) or classes > vertices:
        raise DataError(
            f"community: degree={degree}, mixing={mixing}, noise={noise} with {classes} classes: expected a degree of "
            "more than 0, a share from 0 to 1, no negative noise, and no more classes than vertices"
        )

    def blocks() -> Iterator[Block]:
        for number, size in _sizes(max(1, round(vertices * degree / 2))):
            random = np.random.default_rng((seed, number))
            reading = random.integers(0, vertices, size)
            own = reading % classes
            same = (vertices - own + classes - 1) // classes  # members of the class
            inside = (random.random(size) * same).astype(np.int64) * classes + own
            anywhere = random.integers(0, vertices, size)
            yield np.where(random.random(size) < mixing, anywhere, inside), reading, None

    graph, _, _ = compress(Edges("community", blocks(), vertices), mending)
    labels = np.arange(vertices, dtype=np.int64) % classes
    random = np.random.default_rng((seed, 2**32))
    centres = random.standard_normal((classes, features), np.float32)
    x = _normal(vertices, features, random, mending)
    for first in range(0, vertices, BLOCK // 16):
        rows = slice(first, first + BLOCK // 16)
        x[rows] = np.float32(noise) * x[rows] + centres[labels[rows]]
    return Data(graph, x, labels, name="community").split(seed=seed)


GENERATORS: dict[str, Callable[..., Data]] = {
    "karate": karate,
    "rmat": rmat,
    "barabasi_albert": barabasi_albert,
    "grid": grid,
    "community": community,
}


def by_name(text: str, mending: Mending | None = None) -> Data | None:
    """The data of a generator's name and options, `"rmat:vertices=1000,edges=5000"`; None: there is no such name.

    Raises:
        DataError: an option is none of the generator's, or missing, or no number.
    """
    name, _, rest = text.partition(":")
    if name not in GENERATORS:
        return None
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, _, value = item.partition("=")
        try:
            options[key.strip()] = float(value) if any(mark in value for mark in ".e") else int(value)
        except ValueError:
            raise DataError(f"{text}: expected {name}:option=number,…, got {item!r}") from None
    if mending is not None and name != "karate":
        options["mending"] = replace(DEFAULT, memory=mending.memory, folder=mending.folder)
    try:
        return GENERATORS[name](**options)
    except TypeError as error:
        raise DataError(f"{text}: {error}".replace(f"{name}()", name)) from error


def _check(name: str, **sizes: Any) -> None:
    for key, size in sizes.items():
        if not (isinstance(size, int | np.integer) and 1 <= size <= MOST_VERTICES):
            raise DataError(f"{name}: {key}={size}: expected a whole number from 1 to 2^40")


def _sizes(edges: int) -> Iterator[tuple[int, int]]:
    """(number, edges) of each block."""
    for number, first in enumerate(range(0, edges, BLOCK)):
        yield number, min(BLOCK, edges - first)


def _hash(numbers: Array) -> Array:
    """SplitMix64's last step: 64 bits that look random."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(numbers ^ (numbers >> np.uint64(31)))


def _normal(rows: int, columns: int, random: np.random.Generator, mending: Mending) -> Array:
    x = room_for((rows, columns), np.float32, mending)
    for first in range(0, rows, max(1, BLOCK // columns)):
        part = x[first : first + max(1, BLOCK // columns)]
        part[...] = random.standard_normal(part.shape, np.float32)
    return x


def _with_features(edges: Edges, features: int, classes: int, seed: int, mending: Mending) -> Data:
    """Data of edges, with features and labels that follow no pattern."""
    graph, _, _ = compress(edges, mending)
    random = np.random.default_rng((seed, 2**32))
    x = _normal(graph.vertices, features, random, mending) if features else None
    labels = random.integers(0, classes, graph.vertices) if classes else None
    names = tuple(map(str, range(classes)))
    data = Data(graph, x, labels, names=names, name=edges.name)
    return data.split(seed=seed) if classes else data
