"""Functions that Numba compiles once there is enough work for it.

Loading Numba takes about a quarter of a second, and a compiled function from its cache some hundredths more; compiling
it for the first time takes seconds. A plan of a small model has less work than that in all its loops. So a function
here begins as plain Python: it runs as it stands until the work of all calls together (`work`, in innermost turns of its
loops) is more than Numba would take to load, and is compiled from then on. Both ways compute the same bits: the loops
are plain IEEE arithmetic in one order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from types import FunctionType
from typing import Any

ENOUGH = 200_000
"""Turns of loops, of about a microsecond each in plain Python, after which functions are compiled. Changes speed alone."""


class _Budget:
    """Turns that all functions of this process may still do in plain Python."""

    left = ENOUGH


class Compiled:
    """A function in plain Python and, behind enough work, as Numba compiles it."""

    def __init__(self, function: FunctionType, work: Callable[..., float] | None, options: dict[str, Any]) -> None:
        self.plain = function
        self.work = work
        self.options = options
        self._machine: Callable[..., Any] | None = None
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        if self._machine is None:
            turns = float("inf") if self.work is None else self.work(*arguments)
            if turns <= _Budget.left:
                _Budget.left -= turns
                return self.plain(*arguments)
        return self.machine(*arguments)

    @property
    def machine(self) -> Callable[..., Any]:
        """The compiled function; other compiled functions that it calls are part of it."""
        if self._machine is None:
            import numba

            names = {
                name: item.machine if isinstance(item, Compiled) and item is not self else item
                for name, item in self.plain.__globals__.items()
            }
            function = FunctionType(
                self.plain.__code__, names, self.plain.__name__, self.plain.__defaults__, self.plain.__closure__
            )
            function.__qualname__, function.__module__ = self.plain.__qualname__, self.plain.__module__
            self._machine = numba.njit(cache=True, **self.options)(function)
        return self._machine


def compiled(work: Callable[..., float] | None = None, **options: Any) -> Callable[[FunctionType], Compiled]:
    """Decorator. work: turns of the innermost loops for given arguments, about; None: always compiled, as what has much
    work at any size. options: Numba's."""
    return lambda function: Compiled(function, work, options)


def inside(function: FunctionType) -> Compiled:
    """Decorator of a function that only compiled ones call: its work is counted as theirs."""
    return Compiled(function, lambda *_: 0.0, {})
