"""NumPy computes what PyTorch has no kernel for: unsigned integers of 16 to 64 bits, the order of complex numbers.

What an operator computes then follows from its description (`girih.ops.derive.reference`, broadcast over its index
space); only what a description leaves open, or what would take an index space far larger than the tensors, is written
out here. Tensors become arrays and back without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from girih.ops.derive.reference import evaluate
from girih.ops.describe import describe_call
from girih.ops.operator import TensorType

Tensor = Any  # torch is untyped for the type checker
Array = Any

WEAK = frozenset({"uint16", "uint32", "uint64", "complex64", "complex128"})
"""Dtypes for some of whose operators PyTorch has no CPU kernel."""
_UNFIT = frozenset({"aten.add.Tensor", "aten.sub.Tensor"})
"""Of complex numbers: PyTorch multiplies by alpha first, which makes NaN of infinities."""
_WEAK_TYPES = frozenset(getattr(torch, name) for name in WEAK)


def with_numpy(
    operator: str, function: Callable[..., Any], names: Sequence[str], result: int | None, shape: Any, dtype: str
) -> Callable[..., Any]:
    """PyTorch's function, or NumPy's where it has none for the dtypes that it is called with.

    names: of its parameters, in order. result: which of several results is wanted, at whose place the value then is.
    shape, dtype: of the value.
    """
    kind = getattr(torch, dtype)
    lacks: set[tuple[Any, ...]] = set()

    def call(*arguments: Any, **options: Any) -> Any:
        by_name = {**dict(zip(names, arguments, strict=False)), **options}
        types = tuple(item.dtype for value in by_name.values() for item in _tensors(value))
        if types not in lacks and not (operator in _UNFIT and kind.is_complex):
            try:
                computed = function(*arguments, **options)
            except (NotImplementedError, RuntimeError) as error:
                if not _no_kernel(error):
                    raise
                lacks.add(types)
            else:
                value = computed if result is None else computed[result]
                if value.dtype == kind:
                    return computed
                lacks.add(types)  # it sums unsigned numbers as signed ones
        value = _as_tensor(numpy_call(operator, by_name, TensorType(tuple(shape), dtype)), dtype)
        return value if result is None else (None,) * result + (value,)

    return call


def numpy_call(operator: str, arguments: Mapping[str, Any], output: TensorType) -> Array:
    """The operator on tensors and attributes by the names of its schema.

    Raises:
        NotImplementedError: NumPy has no kernel for it either.
    """
    arrays = {name: _as_arrays(value) for name, value in arguments.items()}
    with np.errstate(all="ignore"):
        if operator in WRITTEN:
            return WRITTEN[operator](**arrays)
        tensors: dict[str, Array] = {}
        attributes: dict[str, Any] = {}
        for name, value in arrays.items():
            if isinstance(value, np.ndarray):
                tensors[name] = value
            elif isinstance(value, (list, tuple)) and any(isinstance(item, np.ndarray) for item in value):
                tensors.update((f"{name}.{n}", item) for n, item in enumerate(value) if isinstance(item, np.ndarray))
            else:
                attributes[name] = tuple(value) if isinstance(value, list) else value
        types = {name: TensorType(item.shape, item.dtype.name) for name, item in tensors.items()}
        description = describe_call(operator, types, attributes, output)
        if description is None:
            raise NotImplementedError(f"{operator} has no kernel for {sorted({item.dtype for item in types.values()})}")
        return evaluate(description, list(tensors.values()))


def in_place(ufunc: np.ufunc, torch_write: Callable[[Tensor, Tensor], Any], target: Tensor, part: Tensor) -> None:
    """target = ufunc(target, part), by PyTorch where it has a kernel for the dtype."""
    if target.dtype not in _WEAK_TYPES or not target.is_cpu:
        torch_write(target, part)
        return
    ufunc(target.numpy(), part.numpy(), out=target.numpy(), casting="unsafe")


def _no_kernel(error: Exception) -> bool:
    text = str(error)
    return any(phrase in text for phrase in ("not implemented for", "not support", "Promotion for uint"))


def _tensors(value: Any) -> list[Tensor]:
    return [item for item in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(item, torch.Tensor)]


def _as_arrays(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().resolve_conj().numpy()
    return [_as_arrays(item) for item in value] if isinstance(value, (list, tuple)) else value


def _as_tensor(value: Array, dtype: str) -> Tensor:
    """As evaluated arrays are: memory that is its own, of the promised dtype."""
    array = np.asarray(value).astype(dtype, copy=False)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


# ------------------------------------------------------------------------------------------- what is written out


def _sort_indices(input: Array, dim: int, descending: bool = False) -> Array:
    if not descending:
        return np.argsort(input, axis=dim, kind="stable")
    return input.shape[dim] - 1 - np.flip(np.argsort(np.flip(input, dim), axis=dim, kind="stable"), dim)


def _topk_indices(input: Array, k: int, dim: int, largest: bool = True) -> Array:
    return np.take(_sort_indices(input, dim, largest), np.arange(k), axis=dim)


def _index(self: Array, indices: Sequence[Array | None]) -> Array:
    return self[tuple(slice(None) if item is None else item for item in indices)]


def _index_put(self: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False) -> Array:
    result = self.copy()
    place: Any = tuple(slice(None) if item is None else item for item in indices)
    if accumulate:
        np.add.at(result, place, values)
    else:
        result[place] = values
    return result


def _scatter(self: Array, dim: int, index: Array, src: Array) -> Array:
    result = self.copy()
    np.put_along_axis(result, index, src, dim)
    return result


def _argument(find: Callable[..., Array], self: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    return find(self, axis=dim, keepdims=keepdim)


def _masked_sum(input: Array, mask: Array) -> Array:
    return input[mask].sum(0, dtype=input.dtype)


def _sums_by_position(input: Array, positions: Array, groups: int, first: int = 0) -> Array:
    sums = np.zeros((groups, *input.shape[1:]), input.dtype)
    inside = (positions >= first) & (positions < first + groups)
    np.add.at(sums, positions[inside] - first, input[inside])
    return sums


def _scatter_reduce(self: Array, dim: int, index: Array, src: Array, reduce: str) -> Array:
    result = self.copy()
    places = list(np.indices(index.shape, sparse=True))
    places[dim] = index
    ufunc = {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}[reduce]
    ufunc.at(result, tuple(places), src)
    return result


WRITTEN: dict[str, Callable[..., Array]] = {
    "aten.cumsum": lambda self, dim, **_: np.cumsum(self, axis=dim, dtype=self.dtype),
    "aten.cumprod": lambda self, dim, **_: np.cumprod(self, axis=dim, dtype=self.dtype),
    "aten.sort.stable": lambda self, dim=-1, **_: np.sort(self, axis=dim, kind="stable"),
    "girih.sort_indices": _sort_indices,
    "girih.topk_indices": _topk_indices,
    "girih.search_sorted": lambda sequence, values, right=False: np.searchsorted(
        sequence, values, "right" if right else "left"
    ),
    "aten.argmax": partial(_argument, np.argmax),
    "aten.argmin": partial(_argument, np.argmin),
    "girih.argmax": lambda x, dim, keepdim=False: np.argmax(x, dim, keepdims=keepdim),
    "girih.argmin": lambda x, dim, keepdim=False: np.argmin(x, dim, keepdims=keepdim),
    "aten.index_select": lambda self, dim, index: np.take(self, index, axis=dim),
    "aten.gather": lambda self, dim, index: np.take_along_axis(self, index, dim),
    "aten.index.Tensor": _index,
    "aten.index_put": _index_put,
    "aten.scatter.src": _scatter,
    "aten.scatter_reduce.two": _scatter_reduce,
    "aten.fmax": lambda self, other: np.fmax(self, other),
    "aten.fmin": lambda self, other: np.fmin(self, other),
    "girih.masked_sum": _masked_sum,
    "girih.sums_by_position": _sums_by_position,
}
