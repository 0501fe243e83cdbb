"""The programs of examples/arrays with the data on which benchmarks run them.

Each is a function of an array namespace and arrays, so that NumPy, girih and Dask run the very same program.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "arrays"


@dataclass(frozen=True)
class Application:
    """A program of a module of examples/arrays.

    data, run: the names of its functions. sizes, quick: arguments of `data`. options: of `run`. elementwise: only
    element-wise functions, scans and sums, to be fused.

    Sizes are such that NumPy takes some tenths of a second: shorter runs would measure what one evaluation costs,
    whatever it computes, which `benchmarks.arrays_numpy` notes by itself.
    """

    name: str
    module: str
    sizes: dict[str, int]
    quick: dict[str, int]
    options: dict[str, Any] = field(default_factory=dict)
    data: str = "data"
    run: str = "run"
    elementwise: bool = False

    def arrays(self, quick: bool) -> tuple[np.ndarray, ...]:
        made: tuple[np.ndarray, ...] = getattr(example(self.module), self.data)(**(self.quick if quick else self.sizes))
        return made

    def program(self) -> Callable[..., tuple[Any, ...]]:
        """(namespace, *arrays) → the results, always as a tuple."""
        function = getattr(example(self.module), self.run)

        def run(namespace: Any, *arrays: Any) -> tuple[Any, ...]:
            made = function(namespace, *arrays, **self.options)
            return made if isinstance(made, tuple) else (made,)

        return run


APPLICATIONS = (
    Application(
        "linear regression", "linear_regression", {"count": 1_000_000, "features": 20}, {"count": 20_000}, {"steps": 10}
    ),
    Application("logistic regression", "logistic_regression", {"count": 500_000}, {"count": 20_000}, {"steps": 20}),
    Application(
        "k-means",
        "kmeans",
        {"count": 400_000, "dimensions": 20, "groups": 10},
        {"count": 20_000, "groups": 10},
        {"groups": 10},
    ),
    Application(
        "fuzzy k-means",
        "fuzzy_kmeans",
        {"count": 400_000, "dimensions": 20, "groups": 10},
        {"count": 20_000},
        {"iterations": 5},
    ),
    Application("ALS", "als", {"users": 4000, "movies": 1500}, {"users": 400, "movies": 150}, {"iterations": 3}),
    Application("PCA", "pca", {"count": 500_000}, {"count": 20_000}),
    Application("SSVD", "ssvd", {"rows": 100_000, "columns": 200}, {"rows": 5000, "columns": 50}),
    Application("QR", "qr", {"count": 500_000}, {"count": 20_000}),
    Application("CG", "cg", {"count": 3000}, {"count": 400}),
    Application("Cholesky", "cholesky", {"count": 3000}, {"count": 1200}),
    Application("Black-Scholes", "black_scholes", {"count": 5_000_000}, {"count": 50_000}, elementwise=True),
    Application("binomial tree", "price_prediction", {"options": 50_000}, {"options": 1000}, elementwise=True),
    Application(
        "Monte Carlo",
        "price_prediction",
        {"paths": 500_000},
        {"paths": 10_000},
        data="shocks",
        run="run_paths",
        elementwise=True,
    ),
)


def chosen(only: Sequence[str] | None, quick: Sequence[str] | None = None) -> list[Application]:
    """Those that are asked for by name; without names all, or those of `quick`.

    Raises:
        ValueError: there is no application of a name.
    """
    names = [item.name for item in APPLICATIONS]
    if unknown := sorted(set(only or ()) - set(names)):
        raise ValueError(f"no application {', '.join(unknown)}: there are {', '.join(names)}")
    wanted = only or quick or names
    return [item for item in APPLICATIONS if item.name in wanted]


@cache
def example(name: str) -> ModuleType:
    """A module of examples/arrays."""
    specification = importlib.util.spec_from_file_location(f"arrays_{name}", EXAMPLES / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def same(found: tuple[Any, ...], known: tuple[Any, ...], tolerance: float = 1e-6) -> str:
    """ "" where all results are near NumPy's, up to the signs of columns or rows that factorisations leave open."""
    for number, (ours, theirs) in enumerate(zip(found, known, strict=True)):
        one, two = abs(np.asarray(ours)), abs(np.asarray(theirs))
        if one.shape != two.shape or not np.allclose(one, two, rtol=tolerance, atol=tolerance * float(two.max())):
            return f"result {number} differs from NumPy's"
    return ""
