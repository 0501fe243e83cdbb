"""Array: a lazy array with NumPy's behaviour. It grows a graph; asking for a value evaluates what is needed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from girih.array.core.dtypes import dtype_of
from girih.array.core.operators import Operators
from girih.array.core.views import Family, Layout, Step
from girih.capture.lazy.expressions import Expression

if TYPE_CHECKING:
    from girih.array.functions.shapes.arrangement import Flat


class Array(Operators):
    """An array that is computed when its value is needed: by `compute()`, float(), bool(), printing, iteration.

    What it is made of is shared with other arrays; once evaluated, its tiles stay with the workers until the last
    reference to it goes.
    """

    __slots__ = ("__weakref__", "expression", "family", "layout", "path", "scalar", "writeable")
    __array_priority__ = 1000.0

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        expression.holders += 1
        self._alone()

    def _alone(self) -> None:
        """It shares elements with no other array (`girih.array.core.views`). scalar: NumPy would give a number instead
        of an array without dimensions: nobody can write to it, and what is reshaped from it is a copy."""
        self.family: Family | None = None
        self.path: tuple[Step, ...] = ()
        self.layout: Layout = None
        self.scalar, self.writeable = False, True

    def bind(self, expression: Expression) -> None:
        """It was written to."""
        expression.holders += 1
        self.expression.holders -= 1
        self.expression = expression

    def __del__(self) -> None:
        expression = getattr(self, "expression", None)  # none, where __init__ was interrupted
        if expression is not None:
            expression.holders -= 1
            if self.family is not None:
                self.family.leave(self)

    # ------------------------------------------------------------------------------------------- shape and dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.expression.shape

    @shape.setter
    def shape(self, value: Any) -> None:
        raise AttributeError("girih arrays keep their shape: write x = x.reshape(...)")

    @property
    def dtype(self) -> np.dtype:
        return dtype_of(self.expression.dtype)

    @property
    def ndim(self) -> int:
        return len(self.expression.shape)

    @property
    def size(self) -> int:
        return math.prod(self.expression.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def device(self) -> str:
        return "cpu"

    @property
    def T(self) -> Array:
        return manipulation.transpose(self)

    @property
    def mT(self) -> Array:
        return manipulation.matrix_transpose(self)

    @property
    def real(self) -> Array:
        return self._part("real") if self.dtype.kind == "c" else self

    @real.setter
    def real(self, value: Any) -> None:
        if self.scalar:
            raise AttributeError("attribute 'real' of a number is not writable")
        self.real[...] = value

    @property
    def imag(self) -> Array:
        if self.dtype.kind == "c":
            return self._part("imag")
        made = creation.zeros(self.shape, self.dtype)
        made.writeable = False
        return made.as_scalar() if self.scalar else made

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("array does not have imaginary part to set")
        if self.scalar:
            raise AttributeError("attribute 'imag' of a number is not writable")
        self.imag[...] = value

    def _part(self, name: str) -> Array:
        from girih.array.core.views import ComplexPart, strides_of, view

        strides = strides_of(self)
        part = view(self, ComplexPart(name), False if strides is None else tuple(2 * size for size in strides))
        return part.as_scalar() if self.scalar else part

    @property
    def flat(self) -> Flat:
        from girih.array.functions.shapes.arrangement import Flat

        return Flat(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        if self.scalar:
            raise AttributeError("attribute 'flat' of a number is not writable")
        self.flat[:] = value

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    # ------------------------------------------------------------------------------------------- values

    def compute(self) -> np.ndarray:
        """The value as a NumPy array.

        Raises:
            EvaluationError: a worker failed; the message names the line that made the array.
        """
        from girih.array.session.clusters import current

        return current().value(self.expression)

    def persist(self) -> Array:
        """Evaluate and leave the value with the workers."""
        from girih.array.session.clusters import current

        current().evaluate([self.expression], report=False)
        return self

    def item(self, *args: Any) -> Any:
        return self.compute().item(*args)

    def tolist(self) -> Any:
        return self.compute().tolist()

    def _number(self, kind: str) -> Any:
        if self.size != 1 or self.shape:
            raise TypeError(f"only 0-dimensional arrays can be converted to Python {kind}s, not shape {self.shape}")
        if self.dtype.kind == "c" and kind != "complex number":
            raise TypeError(f"complex numbers cannot be converted to Python {kind}s: take x.real or abs(x)")
        return self.compute()[()]

    def __float__(self) -> float:
        return float(self._number("float"))

    def __int__(self) -> int:
        return int(self._number("integer"))

    def __complex__(self) -> complex:
        return complex(self._number("complex number"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.shape:
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return int(self.compute()[()])

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
        return bool(self.compute().reshape(())[()])

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        self.persist()
        return (self[position] for position in range(self.shape[0]))

    def __repr__(self) -> str:
        return repr(self.compute())

    def __str__(self) -> str:
        return str(self.compute())

    def __format__(self, specification: str) -> str:
        return format(self.compute()[()] if not self.shape else self.compute(), specification)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a girih array becomes a NumPy array by computing and copying it")
        value = self.compute()
        return value if dtype is None else value.astype(dtype)

    # ------------------------------------------------------------------------------------------- protocols

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """Raises ValueError for another version of the standard than the namespace names."""
        import girih.array

        if api_version not in (None, "2021.12", "2022.12", "2023.12", girih.array.__array_api_version__):
            raise ValueError(f"girih.array has version {girih.array.__array_api_version__}, not {api_version!r}")
        return girih.array

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return protocols.apply_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        return protocols.apply_function(function, inputs, options)

    def to_device(self, device: str, /, *, stream: Any = None) -> Array:
        """Itself: where the workers are is the cluster's matter.

        Raises:
            ValueError: another device than "cpu", or a stream.
        """
        if device != self.device or stream is not None:
            raise ValueError(f"device={device!r}, stream={stream!r}: girih arrays have device 'cpu' and no streams")
        return self

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A copy of the value for another library, computed now.

        Raises:
            BufferError: copy=False, or another device than a processor's memory. ValueError: a stream.
        """
        if copy is False:
            raise BufferError("a girih array is handed over by computing and copying it: copy=False is not possible")
        given = {"max_version": max_version, "dl_device": dl_device}
        known: dict[str, Any] = {
            name: value for name, value in given.items() if value is not None
        }  # older NumPy has neither
        if stream is not None:
            raise ValueError(f"stream={stream!r}: girih arrays lie in the memory of processors, which has no streams")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"dl_device={dl_device!r}: girih arrays have device {self.__dlpack_device__()}")
        return self.compute().__dlpack__(**known)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    # ------------------------------------------------------------------------------------------- indexing

    def __getitem__(self, key: Any) -> Array:
        return indexing.get(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        """x, and all views that share elements with it, are bound to a new expression (`girih.array.core.writing`).

        Raises:
            IndexError, ValueError, TypeError, OverflowError: NumPy's.
            ValueError: whether NumPy shares memory with a reshaped array that is alive is not known.
        """
        writing.assign(self, key, value)

    # ------------------------------------------------------------------------------------------- methods

    def __getattr__(self, name: str) -> Any:
        """NumPy's methods are the functions of the same name."""
        if name in METHODS:
            import girih.array

            function = getattr(girih.array, name)
            return lambda *args, **options: function(self, *args, **options)
        hint = f": x.compute().{name} is NumPy's" if hasattr(np.ndarray, name) and not name.startswith("_") else ""
        raise AttributeError(f"girih arrays have no attribute {name!r}{hint}")

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *METHODS})

    def astype(self, dtype: Any, *, copy: bool = True) -> Array:
        return manipulation.astype(self, dtype, copy=copy)

    def copy(self) -> Array:
        made = Array(self.expression)
        made.scalar = self.scalar
        return made

    def as_scalar(self) -> Array:
        """Without dimensions: as the number that NumPy gives, which sees no later writes. Else it is itself."""
        if self.scalar or self.ndim:
            return self
        made = Array(self.expression)
        made.scalar = True
        return made

    def as_written(self) -> Array:
        """A scalar as an array of its own, which can be written to. Else it is itself."""
        return Array(self.expression) if self.scalar else self

    def __copy__(self) -> Array:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Array:
        return self.copy()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """An expression is bound to the workers that hold its tiles; a function of tiles cannot wait for them."""
        raise TypeError(
            "girih arrays are not pickled: pickle x.compute(); to a function on tiles give the array as an argument, "
            "or refer to x.compute() in it"
        )

    def reshape(self, *shape: Any, order: str = "C") -> Array:
        return manipulation.reshape(self, shape[0] if len(shape) == 1 else shape, order=order)

    def transpose(self, *axes: Any) -> Array:
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return manipulation.transpose(self, order)

    def flatten(self, order: str = "C") -> Array:
        return manipulation.ravel(self, order).copy()

    def ravel(self, order: str = "C") -> Array:
        return manipulation.ravel(self, order)

    def fill(self, value: Any) -> None:
        if not self.scalar:  # of which NumPy fills a copy
            self[...] = value

    def conj(self) -> Array:
        """Itself, where numbers are real."""
        return elementwise.conjugate(self) if self.dtype.kind == "c" else self

    conjugate = conj

    def sort(self, axis: int = -1, kind: str | None = None) -> None:
        """In place; `np.sort` makes another array."""
        from girih.array.functions.reductions.sorting import sort

        self[...] = sort(self, axis)

    def partition(self, kth: Any, axis: int = -1, kind: str = "introselect") -> None:
        """In place; `np.partition` makes another array."""
        from girih.array.functions.reductions.sorting import partition

        self[...] = partition(self, kth, axis)

    def compress(self, condition: Any, axis: int | None = None) -> Array:
        return indexing.compress(condition, self, axis)

    def tobytes(self, order: str = "C") -> bytes:
        return self.compute().tobytes("F" if order == "F" else "C")

    def tofile(self, fid: Any, sep: str = "", format: str = "%s") -> None:
        self.compute().tofile(fid, sep, format)


METHODS = frozenset(
    [
        "all", "any", "argmax", "argmin", "argpartition", "argsort", "choose", "clip", "cumprod", "cumsum",
        "diagonal", "dot", "max", "mean", "min", "nonzero", "prod", "ptp", "put", "repeat", "round",
        "searchsorted", "squeeze", "std", "sum", "swapaxes", "take", "trace", "var",
    ]
)  # fmt: skip

from girih.array.core import indexing, protocols, writing  # noqa: E402 - they need Array
from girih.array.functions.elementwise import ufuncs as elementwise  # noqa: E402
from girih.array.functions.shapes import creation, manipulation  # noqa: E402 - they need Array
