"""x[mask], an array whose shape depends on data."""

from __future__ import annotations

import numpy as np

from girih.array.core.array import Array
from girih.capture.lazy.expressions import Expression


class Chosen(Array):
    """x[mask]: how many elements it has is known once the mask is computed, which is when somebody asks for it.

    Sums and means over what the mask chose do not ask (`girih.array.functions.reductions.reduce`).
    """

    __slots__ = ("base", "made", "mask")

    def __init__(self, base: Array, mask: Array) -> None:
        self.base = base
        self.mask = mask
        self.made: Array | None = None
        self._alone()

    def __del__(self) -> None:
        """`made` counts for itself."""
        family = getattr(self, "family", None)  # none, where __init__ was interrupted
        if family is not None:
            family.leave(self)

    @property
    def expression(self) -> Expression:  # type: ignore[override]
        if self.made is None:
            from girih.array.core import indexing

            self.made = indexing.chosen_now(self.base, self.mask)
        return self.made.expression

    def bind(self, expression: Expression) -> None:
        self.made = Array(expression)

    @property
    def dtype(self) -> np.dtype:
        return self.base.dtype

    @property
    def ndim(self) -> int:
        return self.base.ndim - self.mask.ndim + 1
