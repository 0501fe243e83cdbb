"""Array: a lazy array with NumPy's behaviour. It grows a graph; asking for a value evaluates what is needed.

Here is what an array is. NumPy's functions, of which its operators and most of its methods are made, lie higher and
are given to the class by `girih.array.methods`.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from girih.array.core.dtypes import dtype_of
from girih.array.core.evaluation import current
from girih.capture.lazy.expressions import Expression

NO_SLOTS: tuple[str, ...] = ()
"""Of classes whose subclasses have the attributes, in slots of their own: mypy cannot read it."""
UNKNOWN = False
Layout = tuple[int, ...] | bool | None
"""How an array lies in the whole that it shows a part of: its strides in elements, None for C order without gaps, or
UNKNOWN."""


class ViewStep(Protocol):
    """How a view shows part of an array, and how a write to it changes the array: slices, transposes, …"""

    def forward(self, x: Array) -> Array:
        """What the view shows of x."""

    def backward(self, x: Array, part: Array) -> Array:
        """x as it is when `part` was written to the view."""


class Family:
    """Arrays that show parts of one. expression: of the whole, also where no array shows all of it."""

    __slots__ = ("expression", "members")

    def __init__(self, base: Array) -> None:
        self.expression = base.expression
        self.members: dict[int, weakref.ref[Array]] = {}
        self.add(base)

    def add(self, member: Array) -> None:
        self.members[id(member)] = weakref.ref(member)
        member.family = self

    def leave(self, member: Array) -> None:
        self.members.pop(id(member), None)
        if len(self.members) == 1:
            last = next(iter(self.members.values()))()
            if last is not None:
                last.family, last.path = None, ()


class Array:
    """An array that is computed when its value is needed: by `compute()`, float(), bool(), printing, iteration.

    What it is made of is shared with other arrays; once evaluated, its tiles stay with the workers until the last
    reference to it goes.
    """

    __slots__ = NO_SLOTS
    __array_priority__ = 1000.0

    expression: Expression
    family: Family | None
    path: tuple[ViewStep, ...]
    layout: Layout
    scalar: bool
    writeable: bool

    def __new__(cls, *_: Any) -> Array:
        return object.__new__(Shown if cls is Array else cls)

    def bind(self, expression: Expression) -> None:
        """The array was written to: from now on it is this expression."""
        expression.holders += 1
        self.expression.holders -= 1
        self.expression = expression

    # ------------------------------------------------------------------------------------------- shape and dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.expression.shape

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
        return current().value(self.expression)

    def persist(self) -> Array:
        """Evaluate and leave the value with the workers."""
        current().evaluate([self.expression], report=False)
        return self

    def item(self, *args: Any) -> Any:
        return self.compute().item(*args)

    def tolist(self) -> Any:
        return self.compute().tolist()

    def _number(self, kind: str) -> Any:
        if self.shape:
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

    def to_device(self, device: str, /, *, stream: Any = None) -> Array:
        """The array itself: where the workers are is the cluster's matter.

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
        options = {"max_version": max_version, "dl_device": dl_device}
        known: dict[str, Any] = {
            name: value for name, value in options.items() if value is not None
        }  # older NumPy has neither
        if stream is not None:
            raise ValueError(f"stream={stream!r}: girih arrays lie in the memory of processors, which has no streams")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"dl_device={dl_device!r}: girih arrays have device {self.__dlpack_device__()}")
        return self.compute().__dlpack__(**known)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    # ------------------------------------------------------------------------------------------- copies

    def copy(self) -> Array:
        copy = Array(self.expression)
        copy.scalar = self.scalar
        return copy

    def as_scalar(self) -> Array:
        """An array without dimensions as the number that NumPy gives, which sees no later writes; else itself."""
        if self.scalar or self.ndim:
            return self
        number = Array(self.expression)
        number.scalar = True
        return number

    def as_written(self) -> Array:
        """A scalar as an array of its own, which can be written to; any other array as it is."""
        return Array(self.expression) if self.scalar else self

    def __copy__(self) -> Array:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Array:
        return self.copy()

    def tobytes(self, order: str = "C") -> bytes:
        return self.compute().tobytes("F" if order == "F" else "C")

    def tofile(self, fid: Any, sep: str = "", format: str = "%s") -> None:
        self.compute().tofile(fid, sep, format)

    if TYPE_CHECKING:  # what `girih.array.methods` gives to the class
        T: Array
        mT: Array  # noqa: N815 - NumPy's name
        real: Array
        imag: Array
        strides: tuple[int, ...]

        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, key: Any) -> Array: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...
        def _unary(self) -> Array: ...
        def _binary(self, other: Any, /) -> Any: ...
        def _method(self, *args: Any, **options: Any) -> Array: ...

        __neg__ = __pos__ = __abs__ = __invert__ = conj = conjugate = _unary
        __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __divmod__ = __pow__ = __matmul__ = _binary
        __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __rmatmul__ = _binary
        __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __rand__ = __ror__ = __rxor__ = _binary
        __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _binary  # type: ignore[assignment]
        reshape = transpose = ravel = flatten = astype = _method


def no_attribute(name: str) -> AttributeError:
    hint = f": x.compute().{name} is NumPy's" if hasattr(np.ndarray, name) and not name.startswith("_") else ""
    return AttributeError(f"girih arrays have no attribute {name!r}{hint}")


class Shown(Array):
    """What `Array(expression)` is: an array that the expression knows of, until it goes. Small arrays, of which a
    program makes and drops millions, have no expression to leave."""

    __slots__ = ("__weakref__", "expression", "family", "layout", "path", "scalar", "writeable")

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        expression.holders += 1
        self._alone()

    def _alone(self) -> None:
        """It shares elements with no other array (`girih.array.core.views`). scalar: NumPy would give a number instead
        of an array without dimensions: nobody can write to it, and what is reshaped from it is a copy."""
        self.family = None
        self.path = ()
        self.layout = None
        self.scalar, self.writeable = False, True

    def __getattr__(self, name: str) -> Any:
        raise no_attribute(name)

    def __del__(self) -> None:
        expression = getattr(self, "expression", None)  # none, where __init__ was interrupted
        if expression is not None:
            expression.holders -= 1
            if self.family is not None:
                self.family.leave(self)


Shown.__name__ = Shown.__qualname__ = "Array"  # by which programs know it
