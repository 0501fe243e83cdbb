"""Clusters of threads that all tests of a module share: 1 and 4 of them, in `make test-long` 2 too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from counts import but_long

import girih.array as gnp


@pytest.fixture(scope="module", params=but_long([1, 2, 4], [2]), ids=lambda workers: f"workers{workers}")
def cluster(request: pytest.FixtureRequest) -> Iterator[gnp.Cluster]:
    with gnp.cluster(workers=request.param, backend="threads", timeout=60.0) as made:
        yield made


@pytest.fixture(scope="module")
def two() -> Iterator[gnp.Cluster]:
    with gnp.cluster(workers=2, backend="threads", timeout=60.0) as made:
        yield made
