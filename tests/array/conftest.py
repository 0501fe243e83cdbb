"""What all tests of arrays share: clusters of threads (1 and 4 of them, in `make test-long` 2 too), and the border of
small work.

Tests are of large arrays, whatever their size: the border is 0, and everything is left to the workers. What a test
says of values, dtypes and errors holds of small arrays as well: the files of `BOTH` run a second time with the border
at infinity, where NumPy computes everything at once; `of_large` and `of_small` (support/borders.py) name one side.
Files that `IN_CHAINS` names run a third time, in which NumPy computes everything that it can in chains (`CHAINED`), of
blocks of a few rows.

In `make test` each case is tried by the most workers. Of the same cases by fewer workers, and where NumPy computes at
once, a fifth of each test is tried.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Iterator

import pytest
from counts import LONG, but_long

import girih.array as gnp
from girih.array.core.evaluation import BORDER

CHAINED = 1e18
"""A border above everything, with chains of whatever size."""
IN_CHAINS = (
    "core/test_views", "core/test_as_numpy", "functions/test_random_e", "functions/test_numpys",
    "functions/test_scripts", "functions/test_writ", "functions/test_functions",
)  # fmt: skip
BOTH = ("array/core/", "array/functions/", "array/linalg/", "array/standard/")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "border" in metafunc.fixturenames and not names_a_side(metafunc.definition):
        both = any(folder in metafunc.definition.nodeid for folder in BOTH)
        chained = any(name in metafunc.definition.nodeid for name in IN_CHAINS)
        sides = [0, math.inf, *([CHAINED] if chained else [])] if both else [0]
        metafunc.parametrize("border", sides, indirect=True, scope="module")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make test` leaves cases out by their names, the same in every run, and keeps one of each group at least. Where
    NumPy computes at once the number of workers is nothing to it: one number of them is enough."""
    groups: dict[tuple[str, float], dict[int, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in () if LONG else items:
        given = item.callspec.params if hasattr(item, "callspec") else {}
        if "border" in given:
            workers = given.get("cluster", 0)
            groups[item.nodeid.partition("[")[0], given["border"]][workers].append(item)
    left_out: set[pytest.Item] = set()
    for (_, border), by_workers in groups.items():
        most = max(by_workers)
        for workers, cases in by_workers.items():
            first, *others = sorted(cases, key=by_name)
            if border != 0 and workers < most:
                left_out.update((first, *others))
            elif workers < most or (border == math.inf and not names_a_side(first)):
                left_out.update(item for item in others if by_name(item) % 5)
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def by_name(item: pytest.Item) -> int:
    return zlib.crc32(item.nodeid.encode())


def names_a_side(item: pytest.Item) -> bool:
    return any(mark.args[0] == "border" for mark in item.iter_markers("parametrize"))


@pytest.fixture(scope="module", autouse=True)
def border(request: pytest.FixtureRequest) -> Iterator[None]:
    BORDER.DEFAULT = request.param
    if request.param == CHAINED:
        BORDER.QUICK = BORDER.CHAINS = 0
        BORDER.BLOCK = 32
    BORDER.put(None)
    yield
    for name in list(vars(BORDER)):
        if name.isupper():
            delattr(BORDER, name)  # the class has it
    BORDER.put(None)


@pytest.fixture(scope="module", params=but_long([1, 2, 4], [2]), ids=lambda workers: f"workers{workers}")
def cluster(request: pytest.FixtureRequest) -> Iterator[gnp.Cluster]:
    with gnp.cluster(workers=request.param, backend="threads", timeout=60.0) as made:
        yield made


@pytest.fixture(scope="module")
def two() -> Iterator[gnp.Cluster]:
    with gnp.cluster(workers=2, backend="threads", timeout=60.0) as made:
        yield made
