"""Numba, for all modules that compile: code that several processes left in its cache can be loaded together.

Numba tells functions of one name apart by a number that it counts up in each process, and the number is part of the
symbols of the machine code. Two processes that compile different things give the same number to different functions,
such as the inner ones of `np.sort` and `np.argsort`; a third that loads both from the cache runs one in the place of
the other, and computes nonsense (numba issue 10486). Here each number is drawn at random, in forked processes too.
"""

from __future__ import annotations

import secrets

import numba
from numba.core import event
from numba.core.bytecode import FunctionIdentity

__all__ = ["compiled_seconds", "numba"]

FunctionIdentity._unique_ids = iter(lambda: secrets.randbits(62), None)
_listener = event.TimingListener()
event.register("numba:compile", _listener)  # before anything is compiled: a clock that began earlier is told of all


def compiled_seconds() -> float:
    """Seconds in which Numba has compiled in this process."""
    return float(_listener.duration) if _listener.done else 0.0
