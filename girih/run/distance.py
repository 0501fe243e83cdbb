"""How far two tensors are apart that should be the same."""

from __future__ import annotations

from typing import Any

import torch


def distance(one: Any, other: Any) -> tuple[float, float]:
    """The largest difference of two tensors of one shape, and the largest finite number of the other.

    The same infinity in both is no difference, and neither is NaN in both; NaN in one of them gives NaN.
    """
    if not other.numel():
        return 0.0, 0.0
    if other.is_complex():  # part by part: infinity may be beside NaN
        one, other = torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
    left, right = one.double(), other.double()
    alike = (left == right) | (left.isnan() & right.isnan())
    finite = right.abs()[right.isfinite()]
    largest = float(finite.max()) if finite.numel() else 0.0
    apart = float(torch.where(alike, 0.0, (left - right).abs()).max())
    return max(apart, 1.0) if not other.is_floating_point() and not torch.equal(one, other) else apart, largest
