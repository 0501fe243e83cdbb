"""Samples of operators that only move elements: shapes, slices, pieces put together."""

from __future__ import annotations

import numpy as np
from sampling import (
    Arguments,
    Generator,
    Maker,
    add,
    dim_of,
    dims_of,
    integer,
    real,
    sample,
    shape,
    some,
    with_dim,
)


def factored(rng: Generator, size: int) -> tuple[int, ...]:
    """A random shape with `size` elements."""
    result = []
    while size > 1:
        factor = some(rng, *(n for n in range(1, size + 1) if size % n == 0))
        result.append(factor)
        size //= factor
    return tuple(result)


def reshape_of(rng: Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    first, second = some(rng, 1, 4, 6, 12), some(rng, 1, 2, 6)
    parts = [(factored(rng, size), factored(rng, size)) for size in (first, second)]
    return parts[0][0] + parts[1][0], parts[0][1] + parts[1][1]


def reshaped(name: str) -> Maker:
    def maker(rng: Generator) -> Arguments:
        before, after = reshape_of(rng)
        return {"self": real(rng, before), name: after}

    return maker


add("aten.reshape", reshaped("shape"))
add("aten.view aten._unsafe_view", reshaped("size"))


def with_ones(rng: Generator) -> tuple[int, ...]:
    return tuple(some(rng, 1, 2, 3) for _ in range(integer(rng, 1, 4)))


add("aten.squeeze", lambda rng: {"self": real(rng, with_ones(rng))})
add("aten.squeeze.dim", lambda rng: with_dim(rng, real(rng, with_ones(rng))))
add("aten.squeeze.dims", lambda rng: with_dims(rng, real(rng, with_ones(rng))))
add("aten.unsqueeze", lambda rng: (lambda x: {"self": x, "dim": dim_of(rng, x.ndim + 1)})(real(rng, shape(rng))))


def with_dims(rng: Generator, x: np.ndarray, name: str = "dim") -> Arguments:
    return {"self": x, name: dims_of(rng, x.ndim)}


@sample("aten.permute")
def permute(rng: Generator) -> Arguments:
    size = shape(rng, 0, 4)
    return {
        "self": real(rng, size),
        "dims": tuple(int(d) - some(rng, 0, len(size)) for d in rng.permutation(len(size))),
    }


@sample("aten.transpose.int")
def transpose(rng: Generator) -> Arguments:
    size = shape(rng, 1)
    return {"self": real(rng, size), "dim0": dim_of(rng, len(size)), "dim1": dim_of(rng, len(size))}


add("aten.t", lambda rng: {"self": real(rng, shape(rng, 0, 2))})
add("aten.flip", lambda rng: with_dims(rng, real(rng, shape(rng)), "dims"))


@sample("aten.expand")
def expand(rng: Generator) -> Arguments:
    size = with_ones(rng)
    target = tuple(integer(rng, 1, 3) if extent == 1 else extent for extent in size)
    return {"self": real(rng, size), "size": (*shape(rng, 0, 1), *target)}


@sample("aten.roll")
def roll(rng: Generator) -> Arguments:
    size = shape(rng, 1)
    dims = dims_of(rng, len(size)) if rng.random() < 0.8 else ()
    return {"self": real(rng, size), "shifts": tuple(integer(rng, -4, 4) for _ in dims) or (2,), "dims": dims}


@sample("aten.repeat")
def repeat(rng: Generator) -> Arguments:
    size = shape(rng, 0, 2, 3)
    return {
        "self": real(rng, size),
        "repeats": tuple(integer(rng, 1, 3) for _ in range(len(size) + integer(rng, 0, 1))),
    }


def bounds_of(rng: Generator, extent: int, step: int) -> Arguments:
    start = integer(rng, 0, extent - 1)
    end = integer(rng, start + 1, extent)
    return some(
        rng,
        {"start": start, "end": end, "step": step},
        {"start": start - extent, "end": 2**63 - 1, "step": step},
        {"end": end},
    )


@sample("aten.slice.Tensor")
def slice_(rng: Generator) -> Arguments:
    size = shape(rng, 1, 3, 6)
    dim = dim_of(rng, len(size))
    return {"self": real(rng, size), "dim": dim, **bounds_of(rng, size[dim], integer(rng, 1, 3))}


@sample("aten.slice_scatter")
def slice_scatter(rng: Generator) -> Arguments:
    given = slice_(rng)
    at = [slice(None)] * given["self"].ndim
    at[given["dim"]] = slice(given.get("start"), given["end"], given.get("step"))
    return {**given, "src": real(rng, given["self"][tuple(at)].shape)}


@sample("aten.select.int")
def select(rng: Generator) -> Arguments:
    size = shape(rng, 1)
    dim = dim_of(rng, len(size))
    return {"self": real(rng, size), "dim": dim, "index": integer(rng, -size[dim], size[dim] - 1)}


@sample("aten.select_scatter")
def select_scatter(rng: Generator) -> Arguments:
    given = select(rng)
    return {**given, "src": real(rng, tuple(np.delete(given["self"].shape, given["dim"])))}


@sample("aten.split_with_sizes")
def split_with_sizes(rng: Generator) -> Arguments:
    first, second = integer(rng, 1, 3), integer(rng, 1, 2)
    return {"self": real(rng, (2, first + second, 2)), "split_sizes": (first, second), "dim": some(rng, 1, -2)}


add("aten.split.Tensor", lambda rng: {"self": real(rng, (2, integer(rng, 1, 5), 2)), "split_size": 2, "dim": 1})


@sample("aten.diagonal")
def diagonal(rng: Generator) -> Arguments:
    size = shape(rng, 2)
    dims = [int(d) for d in rng.permutation(len(size))[:2]]
    offset = integer(rng, 1 - size[dims[0]], size[dims[1]] - 1)
    return {"self": real(rng, size), "offset": offset, "dim1": dims[0], "dim2": dims[1]}


@sample("aten.unfold")
def unfold(rng: Generator) -> Arguments:
    size = shape(rng, 1, 3, 6)
    dim = dim_of(rng, len(size))
    return {"self": real(rng, size), "dimension": dim, "size": integer(rng, 1, size[dim]), "step": integer(rng, 1, 3)}


@sample("aten.as_strided")
def as_strided(rng: Generator) -> Arguments:
    return {"self": real(rng, (3, 4)), "size": (2, 2), "stride": (5, 1), "storage_offset": 1}


@sample("aten.cat")
def cat(rng: Generator) -> Arguments:
    size = shape(rng, 1)
    dim = dim_of(rng, len(size))
    shapes = []
    for _ in range(integer(rng, 1, 4)):
        part = list(size)
        part[dim] = integer(rng, 1, 3)
        shapes.append(tuple(part))
    return {"tensors": tuple(real(rng, part) for part in shapes), "dim": dim}


@sample("aten.stack")
def stack(rng: Generator) -> Arguments:
    size = shape(rng, 0, 2)
    return {"tensors": tuple(real(rng, size) for _ in range(integer(rng, 1, 3))), "dim": dim_of(rng, len(size) + 1)}


@sample("aten.constant_pad_nd")
def constant_pad(rng: Generator) -> Arguments:
    size = tuple(integer(rng, 2, 4) for _ in range(integer(rng, 1, 3)))
    pad = tuple(integer(rng, -1, 2) if d < 2 else integer(rng, 0, 2) for d in range(2 * integer(rng, 1, len(size))))
    if any(
        extent + pad[2 * n] + pad[2 * n + 1] < 1 for n, extent in zip(range(len(pad) // 2), size[::-1], strict=False)
    ):
        return constant_pad(rng)
    return {"self": real(rng, size), "pad": pad, **some(rng, {}, {"value": 1.5})}


def border(rank: int) -> Maker:
    def maker(rng: Generator) -> Arguments:
        size = tuple(integer(rng, 2, 3) for _ in range(rank + 2))
        return {"self": real(rng, size), "padding": tuple(integer(rng, 0, 1) for _ in range(2 * rank))}

    return maker


for rank in (1, 2, 3):
    add(f"aten.reflection_pad{rank}d aten.replication_pad{rank}d", border(rank))

add(
    "aten.im2col",
    lambda rng: {
        "self": real(rng, (integer(rng, 1, 3), 2, 2, 3)),
        "kernel_size": (2, 2),
        "dilation": (1, 1),
        "padding": (0, 0),
        "stride": (1, 1),
    },
)
add(
    "aten.col2im",
    lambda rng: {
        "self": real(rng, (integer(rng, 1, 3), 8, 4)),
        "output_size": (3, 3),
        "kernel_size": (2, 2),
        "dilation": (1, 1),
        "padding": (0, 0),
        "stride": (1, 1),
    },
)


@sample("aten.triu", "aten.tril")
def triangle(rng: Generator) -> Arguments:
    return {"self": real(rng, shape(rng, 2)), **some(rng, {}, {"diagonal": integer(rng, -2, 2)})}
