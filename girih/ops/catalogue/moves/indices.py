"""Helpers of the pages: dimensions named as PyTorch names them, reductions over some, opaque functions along some."""

from __future__ import annotations

from girih.ops.language import DescriptionError, Opaque


def dimensions(rank, dim):
    """The dimensions that `dim` names, ascending and not negative; None and () name all."""
    if dim is None or dim == ():
        return tuple(range(rank))
    chosen = (dim,) if isinstance(dim, int) else tuple(dim)
    return tuple(sorted({one % max(rank, 1) for one in chosen})) if rank else ()


def spread(value, count):
    """A window's attribute for each dimension: one number holds for all."""
    values = (value,) if isinstance(value, int) else tuple(value)
    if len(values) not in (1, count):
        raise DescriptionError(f"expected one number or {count}, got {values}")
    return values * count if len(values) == 1 else values


def replaced(i, dim, index):
    """The indices `i` with the one at `dim` replaced."""
    return (*i[:dim], index, *i[dim + 1 :])


def without(i, dim):
    """The indices `i` without the one at `dim`."""
    return (*i[:dim], *i[dim + 1 :])


def inserted(i, dim, index):
    """The indices `i` with one more at `dim`."""
    return (*i[:dim], index, *i[dim:])


def reduced_position(i, k, dims, rank, keepdim):
    """The input's indices under a reduction: `k` at `dims`, the output's `i` elsewhere."""
    inner, outer = iter(k), iter(i)
    position = []
    for dimension in range(rank):
        if dimension in dims:
            position.append(next(inner))
            if keepdim:
                next(outer)
        else:
            position.append(next(outer))
    return tuple(position)


def reduced(reducer, x, dim, keepdim=False, element=lambda value: value, finish=lambda value: value):
    """`finish(reducer over dim of element(x[…]))`, as a function of the output's indices."""
    dims = dimensions(x.rank, dim)

    def meaning(*i):
        body = lambda *k: element(x[reduced_position(i, k, dims, x.rank, keepdim)])
        return finish(reducer(body, sizes=tuple(x.shape[dimension] for dimension in dims)))

    return meaning


def opaque_along(dims, *tensors, linear=()):
    """An opaque function along `dims` of tensors that all have the output's rank; the other dimensions are batches."""

    def meaning(*i):
        slices = tuple(slice(None) if dimension in dims else index for dimension, index in enumerate(i))
        return Opaque(*(x[slices] for x in tensors), linear=linear)[tuple(i[dimension] for dimension in dims)]

    return meaning


def whole(x):
    """All of a tensor, for opaque functions."""
    return x[(slice(None),) * x.rank]
