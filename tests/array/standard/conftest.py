"""`--examples N`: how many random calls of each of the standard's functions are tried (benchmarks.array_api)."""

from __future__ import annotations

from collections.abc import Iterator

import array_api_strict
import pytest
from counts import LONG

import girih.array as gnp


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--examples", type=int, default=None, help="random calls of each function of the array standard")


@pytest.fixture(scope="session")
def examples(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--examples", default=None) or (8 if LONG else 4)


@pytest.fixture(scope="module", autouse=True)
def version() -> Iterator[None]:
    """The oracle answers by the version of the standard that girih.array names."""
    array_api_strict.set_array_api_strict_flags(api_version=gnp.__array_api_version__)
    yield
    array_api_strict.reset_array_api_strict_flags()


@pytest.fixture(scope="module", params=[1, 3], ids=lambda workers: f"workers{workers}")
def cluster(request: pytest.FixtureRequest) -> Iterator[gnp.Cluster]:
    with gnp.cluster(workers=request.param, backend="threads", timeout=60.0) as made:
        yield made
