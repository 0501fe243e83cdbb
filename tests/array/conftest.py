"""What all tests of arrays share: clusters of threads (1 and 4 of them, in `make test-long` 2 too), and the border of
small work.

Tests are of large arrays, whatever their size: the border is 0, and everything is left to the workers. What a test
says of values, dtypes and errors holds of small arrays as well: the files of `BOTH` run a second time with the border
at infinity, where NumPy computes everything at once; `of_large` and `of_small` (support/borders.py) name one side.
Files that `IN_CHAINS` names run a third time, in which NumPy computes everything that it can in chains (`CHAINED`), of
blocks of a few rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from counts import but_long

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
    given = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "border" in metafunc.fixturenames and "border" not in given:
        both = any(folder in metafunc.definition.nodeid for folder in BOTH)
        chained = any(name in metafunc.definition.nodeid for name in IN_CHAINS)
        sides = [0, math.inf, *([CHAINED] if chained else [])] if both else [0]
        metafunc.parametrize("border", sides, indirect=True, scope="module")


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
