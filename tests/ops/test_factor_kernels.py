"""Kernels of Cholesky's factorisation in panels, against NumPy's of the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from girih.ops.factor_kernels import cholesky_panel, join_panels


def matrix(size: int, kind: str = "float64") -> np.ndarray:
    random = np.random.default_rng(0)
    root = random.normal(size=(size, size)) + (1j * random.normal(size=(size, size)) if kind == "complex128" else 0)
    return (root @ root.conj().T + size * np.eye(size)).astype(kind)


@pytest.mark.parametrize("kind", ["float64", "complex128"])
def test_a_panel_is_the_first_columns_of_the_factor(kind: str) -> None:
    a = matrix(12, kind)
    known = torch.from_numpy(np.linalg.cholesky(a)[:, :4].reshape(3, 2, 2, 4).transpose(1, 0, 2, 3).reshape(2, 6, 4))
    panel = torch.from_numpy(a[:, :4].reshape(3, 2, 2, 4).transpose(1, 0, 2, 3).reshape(2, 6, 4))
    square = torch.from_numpy(a[:4, :4])
    torch.testing.assert_close(cholesky_panel(square, panel, rows=2), known)
    torch.testing.assert_close(cholesky_panel(square, panel[1:], rows=2, first=1), known[1:])
    torch.testing.assert_close(cholesky_panel(square, panel[:, :2], rows=2), known[:, :2])


def test_only_the_lower_triangle_of_the_square_is_read() -> None:
    a = matrix(4)
    known = np.linalg.cholesky(a)
    a[np.triu_indices(4, 1)] = np.nan
    made = cholesky_panel(torch.from_numpy(a), torch.from_numpy(a.reshape(2, 2, 4)), rows=2)
    torch.testing.assert_close(made.reshape(4, 4), torch.from_numpy(known))


def test_panels_are_joined_with_zeros_above() -> None:
    tensors = [torch.ones(2, blocks, 1, 2) * blocks for blocks in (3, 2, 1)]
    made = join_panels(tensors).reshape(6, 6)
    square = np.repeat(np.repeat(np.asarray([[3, 0, 0], [3, 2, 0], [3, 2, 1]]), 2, axis=0), 2, axis=1)
    np.testing.assert_array_equal(made.numpy(), square)
