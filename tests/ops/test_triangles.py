"""Triangular systems by SciPy's BLAS: that they are right, which they are, and that its threads are as before."""

from __future__ import annotations

import pytest
import torch

from girih.ops import triangles
from girih.ops.products import single
from girih.ops.triangles import BLAS, solve_right


@pytest.fixture
def by_scipy(monkeypatch: pytest.MonkeyPatch):
    """Types of the systems that SciPy solved, on a processor for which MKL is not made."""
    if single(BLAS) is None:
        pytest.skip("SciPy's BLAS is no OpenBLAS")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(triangles, "foreign_mkl", lambda: True)
    found = []
    function = triangles._function

    def watched(dtype):
        found.append(dtype)
        return function(dtype)

    monkeypatch.setattr(triangles, "_function", watched)
    yield found
    torch.set_num_threads(before)


def lower(size: int, dtype: torch.dtype) -> torch.Tensor:
    """What is above the diagonal is not to be read."""
    generator = torch.Generator().manual_seed(size)
    made = torch.randn(size, size, dtype=dtype, generator=generator) + 4 * size * torch.eye(size, dtype=dtype)
    return made.tril() + torch.full((size, size), float("nan"), dtype=dtype).triu(1)


def system(rows: int, columns: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """X, and B = X·Lᴴ."""
    x = torch.randn(rows, columns, dtype=dtype, generator=torch.Generator().manual_seed(rows))
    return x, x @ lower(columns, dtype).tril().mH


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (7, 3), (3, 20), (400, 50)])
def test_systems_of_floats_are_scipys(by_scipy, rows, columns, dtype):
    x, b = system(rows, columns, dtype)
    factor = lower(columns, dtype)
    for kind in (factor, factor.mT.contiguous().mT):  # rows in order, and columns as LAPACK has them
        wide = torch.zeros(rows, columns + 5, dtype=dtype)
        solve_right(kind, b, out=wide[:, 2 : columns + 2])
        torch.testing.assert_close(wide[:, 2 : columns + 2], x)
        assert wide[:, :2].eq(0).all()
        assert wide[:, columns + 2 :].eq(0).all()
    assert by_scipy == [dtype, dtype]


def test_others_are_pytorchs(by_scipy, monkeypatch):
    x, b = system(6, 4, torch.complex128)
    out = torch.empty_like(b)
    solve_right(lower(4, torch.complex128), b, out)
    torch.testing.assert_close(out, x)
    torch.set_num_threads(2)
    x, b = system(6, 4)
    out = torch.empty_like(b)
    solve_right(lower(4, torch.float64), b, out)
    torch.testing.assert_close(out, x)
    torch.set_num_threads(1)
    monkeypatch.setattr(triangles, "foreign_mkl", lambda: False)
    solve_right(lower(4, torch.float64), b, out)
    with pytest.raises(RuntimeError):
        solve_right(lower(3, torch.float64), b, out)
    assert by_scipy == []


def test_scipys_threads_are_as_before(by_scipy):
    numbers = pytest.importorskip("threadpoolctl").threadpool_info
    before = [item["num_threads"] for item in numbers()]
    _, b = system(6, 4)
    solve_right(lower(4, torch.float64), b, torch.empty_like(b))
    assert [item["num_threads"] for item in numbers()] == before
