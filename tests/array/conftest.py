"""Clusters of 1, 2 and 4 threads that all tests of a module share, and a comparison with NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import girih.array as gnp


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda workers: f"workers{workers}")
def cluster(request: pytest.FixtureRequest) -> Iterator[gnp.Cluster]:
    with gnp.cluster(workers=request.param, backend="threads", timeout=60.0) as made:
        yield made


@pytest.fixture(scope="module")
def two() -> Iterator[gnp.Cluster]:
    with gnp.cluster(workers=2, backend="threads", timeout=60.0) as made:
        yield made
