"""NumPy computes what PyTorch has no kernel for: unsigned integers of 16 to 64 bits, the order of complex numbers.

What an operator computes then follows from its description (`girih.ops.derive.reference`, broadcast over its index
space), or is written out beside it (`Operator.numpy`). Tensors become arrays and back without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from girih.ops.catalogue import catalogue
from girih.ops.describe import describe_call
from girih.ops.operator import TensorType

Tensor = Any  # torch is untyped for the type checker
Array = Any

WEAK = frozenset({"uint16", "uint32", "uint64", "complex64", "complex128"})
"""Dtypes for some of whose operators PyTorch has no CPU kernel."""
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
    # Of complex numbers PyTorch multiplies by alpha first, which makes NaN of infinities.
    unfit = kind.is_complex and tuple(names) == ("self", "other", "alpha")

    def call(*arguments: Any, **options: Any) -> Any:
        by_name = {**dict(zip(names, arguments, strict=False)), **options}
        types = tuple(item.dtype for value in by_name.values() for item in _tensors(value))
        if types not in lacks and not unfit:
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
    described = catalogue().get(operator)
    with np.errstate(all="ignore"):
        if described is not None and described.numpy is not None:
            tensor_names = [name for name, value in arrays.items() if _has_array(value)]
            rest = {name: value for name, value in arrays.items() if name not in tensor_names}
            return described.numpy(*(arrays[name] for name in tensor_names), **rest)
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
        from girih.ops.derive.reference import evaluate  # loads SciPy's functions, which every worker would

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


def _has_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (isinstance(value, list) and any(map(_has_array, value)))


def _as_arrays(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().resolve_conj().numpy()
    return [_as_arrays(item) for item in value] if isinstance(value, (list, tuple)) else value


def _as_tensor(value: Array, dtype: str) -> Tensor:
    """NumPy's result as a tensor in memory of its own, of the promised dtype."""
    array = np.asarray(value).astype(dtype, copy=False)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return torch.from_numpy(array)
