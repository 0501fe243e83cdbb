"""NumPy's universal functions with their options: `out`, `where`, `dtype`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import cast, choice, elementwise, kind_of, operands, typed
from girih.array.core.views import copied


class UniversalFunction:
    """A function of every element.

    ufunc: NumPy's, by whose loops dtypes go. function: ours, of operands alone.
    """

    def __init__(self, ufunc: np.ufunc, function: Callable[..., Any]) -> None:
        self.ufunc = ufunc
        self.function = function
        self.__name__ = self.__qualname__ = ufunc.__name__
        self.__module__ = "girih.array"
        self.__doc__ = function.__doc__ or f"As numpy.{ufunc.__name__}."
        self.nin, self.nout, self.identity = ufunc.nin, ufunc.nout, ufunc.identity
        kinds = inspect.Parameter
        names = ["x"] if self.nin == 1 else [f"x{number + 1}" for number in range(self.nin)]
        first = [kinds(name, kinds.POSITIONAL_ONLY) for name in names]
        more = list(inspect.signature(type(self).__call__).parameters.values())[2:]
        self.__signature__ = inspect.Signature([*first, *more])

    def __repr__(self) -> str:
        return f"<girih ufunc '{self.__name__}'>"

    def __call__(
        self,
        *items: Any,
        out: Any = None,
        where: Any = True,
        dtype: Any = None,
        casting: Any = "same_kind",
        order: str = "K",
        subok: bool = True,
    ) -> Any:
        """out: an array of ours that becomes the result. where: elements elsewhere are those of `out`, or 0."""
        most = self.nin + self.nout
        if len(items) > most:
            counts = f"from {self.nin} to {most} positional arguments but {len(items)} were given"
            raise TypeError(f"{self.__name__}() takes {counts}")
        if len(items) > self.nin and out is None:  # as NumPy's, which takes them by position too
            items, out = items[: self.nin], items[self.nin :]
        if out is None and where is True and dtype is None:
            result = self.function(*items)
            if isinstance(result, tuple):
                return tuple(item.as_scalar() for item in result)
            return copied(result).as_scalar() if any(result is item for item in items) else result.as_scalar()
        result = self.function(*(items if dtype is None else self._in(dtype, casting, items)))
        if self.nout > 1:
            if where is not True:
                raise TypeError(f"girih.array.{self.__name__} has no where=: choose by np.where")
            outs = out if isinstance(out, tuple) else (out,) * self.nout
            return tuple(written(value, goal, casting) for value, goal in zip(result, outs, strict=True))
        out = out[0] if isinstance(out, tuple) else out
        if where is not True and isinstance(out, Array) and np.can_cast(result.dtype, out.dtype, casting):
            result = cast(choice(where, cast(result, out.dtype), out), out.dtype)  # elsewhere it stays as it is
        elif where is not True:
            result = cast(choice(where, result, 0), result.dtype)
        return written(result, out, casting)

    def _in(self, dtype: Any, casting: Any, items: tuple[Any, ...]) -> list[Any]:
        """The operands in the dtypes of NumPy's loop that makes `dtype`."""
        inputs = operands(*items)
        kinds = tuple(map(kind_of, inputs))
        signature = (*(None,) * self.nin, *(np.dtype(dtype),) * self.nout)
        inner = self.ufunc.resolve_dtypes((*kinds, *(None,) * self.nout), signature=signature, casting=casting)
        return [typed(item, kind) for item, kind in zip(inputs, inner, strict=False)]

    if TYPE_CHECKING:  # what `girih.array.methods` gives to the class

        def _method(self, *args: Any, **options: Any) -> Any: ...

        reduce = accumulate = outer = at = reduceat = _method


def written(result: Any, out: Any, casting: Any = "same_kind") -> Any:
    """What a function returns: the result, or `out`, from now on with that value.

    Raises:
        TypeError: `out` is not ours, or its dtype does not take the result. ValueError: its shape differs.
    """
    out = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if out is None:
        return result.as_scalar() if isinstance(result, Array) else result
    if not isinstance(out, Array):
        raise TypeError(f"out= must be a girih array, not {type(out).__name__}: np.asarray(x) makes one")
    if out.scalar:
        raise TypeError("return arrays must be of ArrayType: out= is a number, which is not written to")
    if not np.can_cast(result.dtype, out.dtype, casting):
        raise TypeError(f"Cannot cast from {result.dtype} to the output's {out.dtype} with casting rule {casting!r}")
    if out.shape != result.shape:
        raise ValueError(f"output parameter has shape {out.shape}, the result {result.shape}")
    out[...] = result
    return out


def universal(ufunc: np.ufunc) -> Callable[[Callable[..., Any]], UniversalFunction]:
    """A function of operands as NumPy's universal function."""
    return lambda function: UniversalFunction(ufunc, function)


def mapped(ufunc: np.ufunc, operator: str, *names: str) -> UniversalFunction:
    """One ATen operator at every position, in the dtypes of NumPy's loops."""
    if names:
        return UniversalFunction(ufunc, lambda *items: elementwise(ufunc, operator, *items, names=names))
    if ufunc.nin == 1:
        return UniversalFunction(ufunc, lambda x, /: elementwise(ufunc, operator, x))
    return UniversalFunction(ufunc, lambda x1, x2, /: elementwise(ufunc, operator, x1, x2))
