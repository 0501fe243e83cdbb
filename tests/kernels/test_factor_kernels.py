"""Kernels of Cholesky's factorisation in panels, against NumPy's of the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from girih.kernels.factors import cholesky_panel, join_panels, less_panels, panel_rows


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


@pytest.mark.parametrize("kind", ["float64", "complex128"])
def test_what_is_left_of_a_panel_is_subtracted(kind: str) -> None:
    """The last rows of those on its left, times their rows beside the panel's square."""
    a = torch.from_numpy(matrix(12, kind))
    panels = [a[None, 2:, :3], a[None, 5:, 3:5]]
    square = panel_rows(panels, below=5, rows=2)
    torch.testing.assert_close(square[0], a[5:7, :5])
    given = a[None, 5:, 5:7].clone()
    made = less_panels(given, panels, square[0])
    torch.testing.assert_close(made[0], a[5:, 5:7] - a[5:, :5] @ a[5:7, :5].mH)
    torch.testing.assert_close(given[0], a[5:, 5:7], rtol=0, atol=0)  # what is given stays


def test_panels_are_joined_with_zeros_above() -> None:
    tensors = [torch.ones(2, blocks, 1, 2) * blocks for blocks in (3, 2, 1)]
    made = join_panels(tensors).reshape(6, 6)
    square = np.repeat(np.repeat(np.asarray([[3, 0, 0], [3, 2, 0], [3, 2, 1]]), 2, axis=0), 2, axis=1)
    np.testing.assert_array_equal(made.numpy(), square)
