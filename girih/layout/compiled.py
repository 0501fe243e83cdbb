"""Functions that Numba compiles once there is enough work for it.

Loading Numba takes about a quarter of a second, loading a compiled function from its cache some hundredths more, and
compiling it for the first time takes seconds. The loops of a small model's plan have less work than that. So a function
here begins as plain Python, and is compiled once the work of all calls together, in turns of innermost loops, is more
than what Numba would take to load. Both ways compute the same bits: plain IEEE arithmetic in one order.

Functions share an allowance of turns, and each has a small one of its own besides: one function that has much to do is
compiled, and does not bring the others, which take Numba many seconds at first, to be compiled with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from types import FunctionType
from typing import Any

Function = Callable[..., Any]

ENOUGH = 1_000_000
"""Turns of loops in plain Python, of about a microsecond each, before functions are compiled. Changes speed alone."""
OWN = 200_000
"""Turns that each function may do in any case."""


class _Budget:
    """Turns that all functions of this process may still do in plain Python."""

    left: float = ENOUGH


class Compiled:
    """A function in plain Python and, behind enough work, as Numba compiles it. plain: what is called before, if it is
    not the function itself."""

    def __init__(
        self,
        function: Function,
        work: Callable[..., float] | None,
        options: dict[str, Any],
        plain: Function | None = None,
    ) -> None:
        self.source, self.plain = function, plain or function
        self.work = work
        self.own = float(OWN)
        self.options = options
        self._machine: Function | None = None
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        if self._machine is None:
            turns = float("inf") if self.work is None else self.work(*arguments)
            if turns <= self.own and _Budget.left > 0:
                self.own -= turns
                return self.plain(*arguments)
            if turns <= _Budget.left:
                _Budget.left -= turns
                return self.plain(*arguments)
        return self.machine(*arguments)

    @property
    def machine(self) -> Function:
        """The compiled function; other compiled functions that it calls are part of it."""
        if self._machine is None:
            from girih.layout.jit import numba

            plain: Any = self.source
            code, names = plain.__code__, dict(plain.__globals__)
            for name in code.co_names:
                if isinstance(names.get(name), Compiled):
                    names[name] = names[name].machine
            function = FunctionType(code, names, plain.__name__, plain.__defaults__, plain.__closure__)
            function.__qualname__, function.__module__ = plain.__qualname__, plain.__module__
            # Without a second way in, for C, which nobody takes: it is compiled with each function.
            self._machine = numba.njit(cache=True, no_cfunc_wrapper=True, **self.options)(function)
            _forget_what_is_gone(self._machine)
            _compile_for_all_integers(self._machine)
        return self._machine


class _Inside(Compiled):
    """Has no way in from Python when compiled, which would take as long to compile as the function itself."""

    def __call__(self, *arguments: Any) -> Any:
        return self.plain(*arguments)


def _forget_what_is_gone(machine: Any) -> None:
    """Empty a function's cache on disk if it speaks of a class that is no longer there, after an update of girih: Numba
    reads all of it before it looks whether the source is newer, and fails."""
    try:
        machine._cache._cache_file._load_index()
    except (AttributeError, ImportError):
        machine._cache.flush()


def _compile_for_all_integers(machine: Any) -> None:
    """Within compiled functions, this one is called with integers of 64 bits. Numba would compile it anew for those of
    32 bits, and for each constant."""
    from girih.layout.jit import numba

    template = machine.get_call_template

    def general(arguments: Any, named: Any) -> Any:
        kinds = map(numba.types.unliteral, arguments)
        small = numba.types.signed_domain
        return template(tuple(numba.int64 if kind in small else kind for kind in kinds), named)

    machine.get_call_template = general


def compiled(
    work: Callable[..., float] | None = None, plain: Function | None = None, **options: Any
) -> Callable[[Function], Compiled]:
    """Decorator. work: turns of the innermost loops for given arguments, about; None: always compiled, as what has much
    work at any size. plain: a function that computes the same bits by NumPy, for little work. options: Numba's."""
    return lambda function: Compiled(function, work, options, plain)


def inside(**options: Any) -> Callable[[Function], Compiled]:
    """Decorator of a function that only compiled ones call: its work is counted as theirs. options: Numba's."""
    return lambda function: _Inside(function, None, {**options, "no_cpython_wrapper": True})
