"""Compiled code that several processes left in Numba's cache, loaded into one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from counts import LONG
from numba.core.caching import IndexDataCacheFile
from numba.core.compiler import Flags

import girih.layout.jit  # noqa: F401  (it changes how files of the cache are named)

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import numpy as np
{numba}

@numba.njit
def ordered(values):
    return np.sort(values), np.argsort(values)

ordered(np.arange(9))
print(*ordered.inspect_llvm().values())
"""


def symbols(numba: str) -> set[str]:
    """Of the inner functions of sort and argsort, which have the same names, in a process of their own."""
    command = [sys.executable, "-c", PROGRAM.format(numba=numba)]
    # Numba orders its options by hashes; without optimizing it gives the same names, in half the time.
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "NUMBA_OPT": "0"}
    made = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=120, check=True).stdout
    return set(re.findall(r"make_quicksort_impl\w*?run_quicksort1B\w+", made))


def test_no_two_processes_give_functions_the_same_symbols() -> None:
    """Else one that loads what both left in the cache runs functions in the place of others: addresses of tensors
    overlapped, where another process had compiled np.sort under the number of np.argsort."""
    first, second = (symbols("from girih.layout.jit import numba") for _ in range(2))
    assert len(first) == len(second) == 2
    assert not first & second


@pytest.mark.skipif(not LONG, reason="what Numba mends is looked for by `make test-long`")
def test_numba_by_itself_does() -> None:
    """When this fails Numba has mended its issue 10486, and `girih.layout.jit` has no reason any more."""
    first, second = (symbols("import numba") for _ in range(2))
    assert first & second


def test_two_that_compile_at_once_do_not_load_each_others_code(tmp_path: Path) -> None:
    """Each read the index before the other wrote it, and the second to write its index is the first to write its code.
    Numba's own names would have both written to one file."""
    first, second = (IndexDataCacheFile(str(tmp_path), "ordered-1.py311", "stamp") for _ in range(2))
    known: dict[str, str] = {}
    first._load_index = second._load_index = lambda: dict(known)
    kept = first._save_data
    late: list[tuple[str, str]] = []
    first._save_data = lambda name, data: late.append((name, data))
    first.save("of whole numbers", "code for whole numbers")
    second.save("of floats", "code for floats")
    for name, data in late:
        kept(name, data)
    third = IndexDataCacheFile(str(tmp_path), "ordered-1.py311", "stamp")
    assert third.load("of floats") == "code for floats"
    assert third.load("of whole numbers") is None  # its index was written over: it is compiled again


def test_all_that_girih_compiles_goes_that_way() -> None:
    others = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "girih").rglob("*.py")
        if re.search(r"^\s*(import numba|from numba import)", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert others == ["girih/layout/jit.py"]


def test_options_of_functions_are_compared_as_numba_compares_them() -> None:
    """By what holds, whether it was set or is so by default; else code would be taken for other options' code."""
    plain, same, other = Flags(), Flags(), Flags()
    same.no_cpython_wrapper = plain.no_cpython_wrapper
    other.no_cpython_wrapper = not plain.no_cpython_wrapper
    assert same._values != plain._values
    assert plain == same
    assert hash(plain) == hash(same)
    assert plain != other
    assert plain != 1
