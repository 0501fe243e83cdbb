"""Numba, for all modules that compile: code that several processes left in its cache can be loaded together.

Numba tells functions of one name apart by a number that it counts up in each process, and the number is part of the
symbols of the machine code. Two processes that compile different things give the same number to different functions,
such as the inner ones of `np.sort` and `np.argsort`; a third that loads both from the cache runs one in the place of
the other, and computes nonsense (numba issue 10486). Here each number is drawn at random, in forked processes too.

So are the names of the cache's files, which Numba counts up as well: two processes that compile a function at once for
different types would both write its file 1, and the index of one would name the code of the other.

Numba is also made to compile faster. It looks up each operation among implementations by keys in which the options of
the function are, and makes tables of all thirty to hash and to compare them, where those that were set tell as much.
And for each of its own functions that it compiles into one of ours it makes a way in from C, which nothing takes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
from numba.core import event
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import IndexDataCacheFile
from numba.core.targetconfig import TargetConfig
from numba.core.typing.templates import _OverloadFunctionTemplate

__all__ = ["compiled_seconds", "numba"]


def _data_name(file: IndexDataCacheFile, number: int) -> str:
    return str(file._data_name_pattern.format(number=secrets.randbits(62)))


def _hash(options: TargetConfig) -> int:
    return 0  # which names there are is all that Numba's own depends on


def _are_equal(options: TargetConfig, other: object) -> Any:
    if not isinstance(other, TargetConfig):
        return NotImplemented
    return options._values == other._values or options.values() == other.values()


_decorator = _OverloadFunctionTemplate._get_jit_decorator


def _without_c(template: _OverloadFunctionTemplate) -> Callable[..., Any]:
    return partial(_decorator(template), no_cfunc_wrapper=True)


TargetConfig.__hash__, TargetConfig.__eq__ = _hash, _are_equal
_OverloadFunctionTemplate._get_jit_decorator = _without_c
FunctionIdentity._unique_ids = iter(lambda: secrets.randbits(62), None)
IndexDataCacheFile._data_name = _data_name
_listener = event.TimingListener()
event.register("numba:compile", _listener)  # before anything is compiled: a clock that began earlier is told of all


def compiled_seconds() -> float:
    """Seconds in which Numba has compiled in this process."""
    return float(_listener.duration) if _listener.done else 0.0
