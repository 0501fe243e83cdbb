"""The array applications as a careful Dask user runs them: where the data is cut, and what Dask needs told.

`Namespace` is dask.array, or dask-array (the rewrite with a query optimiser), with the two functions that both lack:
solving a stack of small systems, and eigenvalues of a small matrix. Two programs are written anew: conjugate gradients
cut their matrix along the rows alone (else it has as many pieces across) and keep what each iteration makes, all of it
at once (else the next would compute it again), and Cholesky's factor is Dask's own.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.array_applications import Application, example

CUTS: tuple[int | str, ...] = ("auto", 2, 4, 8, 16)
"""Into how many pieces the rows are cut."""


class _LinearAlgebra:
    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module.linalg, name)

    def solve(self, a: Any, b: Any) -> Any:
        if a.ndim == 2:
            return self._module.linalg.solve(a, b)
        a = a.rechunk((a.chunks[0], -1, -1))
        b = b.rechunk((a.chunks[0], -1, -1))
        return self._module.map_blocks(np.linalg.solve, a, b, dtype=a.dtype, chunks=b.chunks)

    def eigh(self, a: Any) -> Any:
        a = a.rechunk(-1)
        values = self._module.map_blocks(np.linalg.eigvalsh, a, dtype=a.dtype, drop_axis=1)
        return values, self._module.map_blocks(_vectors, a, dtype=a.dtype)


def _vectors(a: np.ndarray) -> np.ndarray:
    return np.linalg.eigh(a)[1]


class Namespace:
    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self.linalg = _LinearAlgebra(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def cut(module: ModuleType, application: Application, arrays: tuple[np.ndarray, ...], pieces: int | str) -> list[Any]:
    """What has as many rows as the first is cut along them, a matrix to factor along both; the others are whole."""
    made = []
    for x in arrays:
        size = -(-x.shape[0] // pieces) if isinstance(pieces, int) else 0
        if pieces == "auto":
            chunks: Any = "auto"
        elif application.name == "Cholesky":
            chunks = (size, size)
        elif x.shape[0] == arrays[0].shape[0]:
            chunks = (size, *x.shape[1:])
        else:
            chunks = x.shape
        made.append(module.from_array(x, chunks=chunks))
    return made


def run(module: ModuleType, application: Application, arrays: list[Any]) -> tuple[Any, ...]:
    if application.name == "CG":
        return (_conjugate_gradients(module, *arrays),)
    if application.name == "Cholesky":
        return (module.linalg.cholesky(arrays[0], lower=True),)
    return application.program()(Namespace(module), *arrays)


def _conjugate_gradients(module: ModuleType, points: Any, b: Any, tolerance: float = 1e-8) -> Any:
    import dask

    a = example("cg").kernel(module, points, 1.0, 1.0)
    (a,) = dask.persist(a.rechunk((points.chunks[0], -1)))
    x, residual = 0 * b, b
    direction, square = residual, float(residual @ residual)
    goal = tolerance**2 * square
    while square > goal:
        turned = a @ direction.rechunk(-1)  # a is cut as its factor is
        step = square / (direction @ turned)
        x = x + step * direction
        residual = residual - step * turned
        known = residual @ residual
        x, residual, direction, known = dask.persist(x, residual, residual + known / square * direction, known)
        square = float(known)
    return x
