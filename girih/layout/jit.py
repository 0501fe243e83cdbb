"""Numba, for all modules that compile: code that several processes left in its cache can be loaded together.

Numba tells functions of one name apart by a number that it counts up in each process, and the number is part of the
symbols of the machine code. Two processes that compile different things give the same number to different functions,
such as the inner ones of `np.sort` and `np.argsort`; a third that loads both from the cache runs one in the place of
the other, and computes nonsense (numba issue 10486). Here each number is drawn at random, in forked processes too.

So are the names of the cache's files, which Numba counts up as well: two processes that compile a function at once for
different types would both write its file 1, and the index of one would name the code of the other.
"""

from __future__ import annotations

import secrets

import numba
from numba.core import event
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import IndexDataCacheFile

__all__ = ["compiled_seconds", "numba"]


def _data_name(file: IndexDataCacheFile, number: int) -> str:
    return str(file._data_name_pattern.format(number=secrets.randbits(62)))


FunctionIdentity._unique_ids = iter(lambda: secrets.randbits(62), None)
IndexDataCacheFile._data_name = _data_name
_listener = event.TimingListener()
event.register("numba:compile", _listener)  # before anything is compiled: a clock that began earlier is told of all


def compiled_seconds() -> float:
    """Seconds in which Numba has compiled in this process."""
    return float(_listener.duration) if _listener.done else 0.0
