"""vectorize: a Python function of numbers, called for every element by the workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import as_array
from girih.array.functions.tile_functions import map as map_tiles


class vectorize:  # noqa: N801 - NumPy's name
    """NumPy's, of functions with one result: called with arrays that broadcast, gives the array of its results.

    The workers call the function, each for the elements of its own part: Python's pace, on all cores with processes.

    otypes: the dtype of the result; without it the function is called once for the first elements, now.

    Raises:
        TypeError: excluded or signature is given, or the function has several results.
    """

    def __init__(
        self, pyfunc: Callable[..., Any] | None = None, otypes: Any = None, doc: str | None = None,
        excluded: Any = None, cache: bool = False, signature: str | None = None,
    ) -> None:  # fmt: skip
        if excluded or signature is not None:
            raise TypeError("girih.array.vectorize calls functions of numbers: it has neither excluded= nor signature=")
        if otypes is not None and len(otypes) != 1:
            raise TypeError(f"girih.array.vectorize has functions with one result, got otypes={otypes!r}")
        self.pyfunc = pyfunc
        self.kind = None if otypes is None else np.dtype(otypes[0])
        self.__doc__ = doc if doc is not None else getattr(pyfunc, "__doc__", None)

    def __call__(self, *arrays: Any, **options: Any) -> Any:
        if self.pyfunc is None:  # a decorator with options
            return vectorize(arrays[0], None if self.kind is None else [self.kind], self.__doc__)
        if options:
            raise TypeError(f"girih.array.vectorize passes arrays by position only, got {', '.join(options)}")
        operands = [as_array(x) for x in arrays]
        kind = self._kind(operands) if self.kind is None else self.kind
        return map_tiles(EveryElement(self.pyfunc, kind), *operands, dtype=kind)

    def _kind(self, operands: list[Array]) -> np.dtype:
        if any(x.size == 0 for x in operands):
            raise ValueError("cannot call `vectorize` on size 0 inputs unless `otypes` is set")
        assert self.pyfunc is not None
        first = self.pyfunc(*(x.reshape(-1)[0].item() for x in operands))
        if isinstance(first, tuple):
            raise TypeError("girih.array.vectorize has functions with one result, got a tuple")
        return np.asarray(first).dtype


@dataclass(frozen=True)
class EveryElement:
    """The function of tiles."""

    function: Callable[..., Any]
    kind: np.dtype

    def __call__(self, *tiles: np.ndarray) -> np.ndarray:
        return np.vectorize(self.function, otypes=[self.kind])(*tiles)
