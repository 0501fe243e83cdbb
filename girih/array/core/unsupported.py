"""What girih.array does not have: an error that names it, says whether NumPy has it, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import numpy as np

REASONS = {
    "ndindex": "it needs no array: numpy.ndindex gives the same indices",
    "frompyfunc": "its results are Python objects: np.vectorize makes numbers",
    "as_strided": "girih arrays have no memory to walk through: sliding_window_view has windows",
    "matrix": "use arrays of two dimensions and @",
    "bmat": "use np.block",
    "asmatrix": "use np.asarray and @",
    "asfortranarray": "girih arrays have C order",
    "longdouble": "PyTorch has no such numbers: use float64",
    "float128": "PyTorch has no such numbers: use float64",
    "clongdouble": "PyTorch has no such numbers: use complex128",
    "complex256": "PyTorch has no such numbers: use complex128",
    "object_": "elements are numbers",
}


def missing(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for `module.name`, which is not there. known: the names that are."""
    space = np
    for part in module.split(".")[2:]:
        space = getattr(space, part)
    asked = ".".join(["numpy", *module.split(".")[2:], name])
    if name in REASONS:
        return AttributeError(f"{module} has no {name}: {REASONS[name]}")
    if hasattr(space, name) and not name.startswith("_"):
        return AttributeError(
            f"{module} has no {name}: {asked} takes x.compute(), and np.asarray makes a girih array of what it returns"
        )
    # What asks for special names (`inspect`, `copy`, test runners) only wants to know whether they are there.
    near = [] if name.startswith("__") else difflib.get_close_matches(name, list(known), 1)
    hint = f"; the nearest name here is {near[0]}" if near else ""
    return AttributeError(f"{module} has no {name}, and NumPy has none either{hint}")
