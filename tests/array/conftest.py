"""What all tests of arrays share: clusters of threads (1 and 4 of them, in `make test-long` 2 too), and the border of
small work.

Tests are of large arrays, whatever their size: the border is 0, and everything is left to the workers. What a test
says of values, dtypes and errors holds of small arrays as well: the files of `BOTH` run a second time with the border
at infinity, where NumPy computes everything at once; `of_large` and `of_small` (support/borders.py) name one side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from counts import but_long

import girih.array as gnp
from girih.array.core.evaluation import BORDER

BOTH = ("array/core/", "array/functions/", "array/linalg/", "array/standard/")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    sides = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "border" in metafunc.fixturenames and "border" not in sides:
        both = any(folder in metafunc.definition.nodeid for folder in BOTH)
        metafunc.parametrize("border", [0, math.inf] if both else [0], indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def border(request: pytest.FixtureRequest) -> Iterator[None]:
    BORDER.DEFAULT = request.param
    BORDER.put(None)
    yield
    del BORDER.DEFAULT  # the class has it
    BORDER.put(None)


@pytest.fixture(scope="module", params=but_long([1, 2, 4], [2]), ids=lambda workers: f"workers{workers}")
def cluster(request: pytest.FixtureRequest) -> Iterator[gnp.Cluster]:
    with gnp.cluster(workers=request.param, backend="threads", timeout=60.0) as made:
        yield made


@pytest.fixture(scope="module")
def two() -> Iterator[gnp.Cluster]:
    with gnp.cluster(workers=2, backend="threads", timeout=60.0) as made:
        yield made
