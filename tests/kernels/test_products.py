"""Matrix products by NumPy's BLAS: which, that they are right, and that NumPy has its threads again behind them."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from girih.kernels import products
from girih.kernels.products import product, single, vector_product


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def by_numpy(monkeypatch, one_thread):
    """Shapes of the products that NumPy computed, on a processor for which MKL is not made."""
    if single() is None:
        pytest.skip("NumPy's BLAS is no OpenBLAS")
    monkeypatch.setattr(products, "foreign_mkl", lambda: True)
    found = []
    matmul = np.matmul

    def watched(a, b, out):
        found.append((a.shape, b.shape))
        return matmul(a, b, out=out)

    monkeypatch.setattr(products.np, "matmul", watched)
    return found


def near(found: torch.Tensor, known: torch.Tensor) -> None:
    """Up to the order of the sums."""
    torch.testing.assert_close(found, known, rtol=1e-4, atol=1e-2 if found.dtype == torch.float32 else 1e-9)


def tensor(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        (tensor(3000, 200), tensor(200, 20)),
        (tensor(3000, 200).T, tensor(3000, 20)),
        (tensor(1000, 100), tensor(50, 100).T),
        (tensor(5000, 40)[:, 3:33], tensor(30, 10)),
        (tensor(5, 2000, 20), tensor(5, 20, 20)),
        (tensor(5, 2000, 20).mT, tensor(1, 2000, 20).expand(5, -1, -1)),
        (tensor(100_000, 60), tensor(60, 3)),
    ],
)
def test_long_products_of_floats_are_numpys(by_numpy, a, b, dtype):
    a, b = (x.to(dtype) if x.dtype != dtype else x for x in (a, b))
    near(product(a, b), a @ b)
    assert by_numpy == [(a.shape, b.shape)]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (tensor(20, 20), tensor(20, 20)),  # short
        (tensor(4, 100_000), tensor(100_000, 50)),  # few rows
        (tensor(100_000, 4), tensor(4, 50)),  # few terms
        (tensor(100_000, 64), tensor(5, 64).T),  # few columns, transposed
        (tensor(2000, 400)[:, ::2], tensor(200, 20)),  # NumPy would copy it
        (tensor(2000, 200).int(), tensor(200, 20).int()),
        (tensor(2000, 200).to(torch.complex128), tensor(200, 20).to(torch.complex128)),
        (torch.conj(tensor(2000, 200, dtype=torch.complex128)).imag, tensor(200, 20)),
    ],
)
def test_others_are_pytorchs(by_numpy, a, b):
    assert torch.equal(product(a, b), a @ b)
    assert by_numpy == []


@pytest.mark.parametrize(
    ("matrix", "by_numpy_s"),
    [
        (tensor(20_000, 100), True),
        (tensor(900, 900)[:, 20:], True),
        (tensor(200, 300), False),  # short
        (tensor(100_000, 10), False),  # short rows
        (tensor(10, 100_000), False),  # few of them
        (tensor(900, 900).T, False),
    ],
)
def test_long_matrices_times_vectors_are_numpys(by_numpy, matrix, by_numpy_s):
    for vector in (tensor(matrix.shape[1]), tensor(2 * matrix.shape[1])[::2]):
        near(vector_product(matrix, vector), matrix @ vector)
    assert by_numpy == [(matrix.shape, matrix.shape[1:])] * by_numpy_s


def test_a_vector_that_does_not_fit_is_refused_as_by_pytorch(by_numpy):
    with pytest.raises(RuntimeError, match="size mismatch"):
        vector_product(tensor(20_000, 100), tensor(99))


@pytest.mark.parametrize("foreign", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_matrix_times_its_own_transpose_is_symmetric(by_numpy, monkeypatch, foreign, dtype):
    """Bit for bit: half of it is computed."""
    monkeypatch.setattr(products, "foreign_mkl", lambda: foreign)
    for x in (tensor(20_000, 30, dtype=dtype), tensor(20_000, 40, dtype=dtype)[5000:, 2:36], tensor(3, 9000, 10)):
        made = product(x.mT, x)
        near(made, x.mT @ x)
        assert torch.equal(made, made.mT)
    wide = tensor(30, 20_000, dtype=dtype)
    near(product(wide, wide.T), wide @ wide.T)
    assert len(by_numpy) == 4


def test_an_intel_processor_keeps_mkl(by_numpy, monkeypatch):
    monkeypatch.setattr(products, "foreign_mkl", lambda: False)
    product(tensor(3000, 200), tensor(200, 20))
    assert by_numpy == []


def test_a_worker_of_several_threads_keeps_pytorchs_kernel(by_numpy):
    torch.set_num_threads(2)
    product(tensor(3000, 200), tensor(200, 20))
    assert by_numpy == []


def test_sizes_that_do_not_fit_are_refused_as_by_pytorch(by_numpy):
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        product(tensor(3000, 200), tensor(201, 20))


def test_numpy_has_its_threads_again(by_numpy):
    """Whoever leaves last gives them back."""
    alone = single()

    def threads():
        return min(library.num_threads for library in alone._libraries)

    with threadpool_limits(2, user_api="blas"):
        inside, leave = threading.Event(), threading.Event()

        def other():
            with alone:
                inside.set()
                leave.wait(10)

        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(10)
        with alone:
            assert threads() == 1
        assert threads() == 1
        leave.set()
        thread.join()
        assert threads() == 2
        with pytest.raises(ZeroDivisionError), alone:
            _ = 1 / 0
        assert threads() == 2
