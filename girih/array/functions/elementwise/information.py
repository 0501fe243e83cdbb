"""What arrays and dtypes are: the standard's inspection, NumPy's questions about kinds and shapes."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from girih.array.core.array import Array

DEVICE = "cpu"
"""The one device: where the workers are is the cluster's matter, not the array's."""

_KINDS = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]


def _plain(item: Any) -> Any:
    return item.dtype if isinstance(item, Array) else item


class _Limits:
    """NumPy's limits of a dtype; `dtype` is the dtype itself."""

    def __init__(self, limits: Any) -> None:
        self._limits = limits
        self.dtype = np.dtype(limits.dtype)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._limits, name)
        return value.item() if isinstance(value, np.generic) else value

    def __repr__(self) -> str:
        return repr(self._limits)


def check_device(device: Any) -> None:
    """Raises ValueError for another device than "cpu"."""
    if device not in (None, DEVICE):
        raise ValueError(f"device={device!r}: girih arrays have device 'cpu'; girih.cluster says where they lie")


class finfo(_Limits):  # noqa: N801 - NumPy's name
    """numpy.finfo of a floating dtype or of an array's dtype, with Python's numbers."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(np.finfo(_plain(dtype)))


class iinfo(_Limits):  # noqa: N801 - NumPy's name
    """numpy.iinfo of an integer dtype or of an array's dtype."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(np.iinfo(_plain(dtype)))


class Inspection:
    """The standard's `__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        return DEVICE

    def devices(self) -> list[str]:
        return [DEVICE]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        check_device(device)
        kinds = {"real floating": "float64", "complex floating": "complex128", "integral": "int64", "indexing": "int64"}
        return {kind: np.dtype(name) for kind, name in kinds.items()}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        check_device(device)
        kinds = ("bool", "numeric") if kind is None else kind if isinstance(kind, tuple) else (kind,)
        if unknown := [one for one in kinds if one not in _KINDS]:
            raise ValueError(f"unsupported kind: {unknown[0]!r}; expected one of {', '.join(_KINDS)}")
        return {name: np.dtype(name) for one in kinds for name in _KINDS[one]}


def __array_namespace_info__() -> Inspection:  # noqa: N807 - the standard's name
    return Inspection()


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> builtins.bool:
    return bool(np.can_cast(_plain(from_), _plain(to), casting))


def min_scalar_type(a: Any, /) -> np.dtype:
    return np.min_scalar_type(a.compute() if isinstance(a, Array) and a.ndim == 0 else _plain(a))
