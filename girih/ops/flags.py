"""The operators for which NumPy may tell that a number overflows, underflows, is invalid or is divided by zero."""

from __future__ import annotations

_DIVISIONS = frozenset(
    ("aten.floor_divide", "aten.remainder.Tensor", "aten.fmod.Tensor", "girih.remainder", "girih.fmod")
)
"""What may divide whole numbers by zero."""
_MOVES = frozenset(
    """
    aten.abs aten.alias aten.amax aten.amin aten.arange.start_step aten.cat aten.ceil aten.clone aten.complex
    aten.conj_physical aten.constant_pad_nd aten.copysign.Tensor aten.diagonal aten.expand aten.flip aten.floor
    aten.fmax aten.fmin aten.full aten.gather aten.index.Tensor aten.index_put aten.index_select aten.maximum
    aten.minimum aten.neg aten.permute aten.real aten.repeat aten.reshape aten.roll aten.round aten.sgn
    aten.slice.Tensor aten.slice_scatter aten.tril aten.triu aten.trunc aten.unfold aten.view aten.where.self
    girih.join_along girih.join_parts girih.join_placed girih.partition girih.random_normal girih.random_uniform
    girih.sort girih.trunc
    """.split()  # noqa: SIM905 - as in safe_operators
)
"""What chooses, moves or rounds numbers."""


def signals(operator: str, dtype: str) -> bool:
    """May it, where it makes this dtype?"""
    if operator in _MOVES or (operator == "aten._to_copy" and dtype in ("float64", "complex128")):
        return False
    return dtype.startswith(("float", "complex")) or operator in _DIVISIONS
