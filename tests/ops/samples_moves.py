"""Samples of look-ups, shapes, creation, random numbers and sorting."""

from __future__ import annotations

from math import prod

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
    truth,
    whole,
)

# ------------------------------------------------------------------------------------------- lookup


@sample("aten.embedding")
def embedding(rng: Generator) -> Arguments:
    rows = integer(rng, 1, 5)
    return {"weight": real(rng, (rows, integer(rng, 1, 3))), "indices": whole(rng, shape(rng, 0, 2), 0, rows - 1)}


add("girih.embedding", lambda rng: {**embedding(rng), "first": some(rng, 0, 1)})


@sample("girih.embedding_gradient")
def embedding_gradient(rng: Generator) -> Arguments:
    rows, size = integer(rng, 1, 5), shape(rng, 1, 2)
    given = {"grad": real(rng, (*size, integer(rng, 1, 3))), "indices": whole(rng, size, 0, rows - 1), "rows": rows}
    return {**given, **some(rng, {}, {"padding": 0}, {"first": 1})}


@sample("aten.embedding_dense_backward")
def embedding_dense_backward(rng: Generator) -> Arguments:
    rows, size = integer(rng, 1, 5), shape(rng, 1, 2)
    tensors = {"grad_output": real(rng, (*size, integer(rng, 1, 3))), "indices": whole(rng, size, 0, rows - 1)}
    return {**tensors, "num_weights": rows, "padding_idx": some(rng, -1, 0), "scale_grad_by_freq": False}


@sample("aten._embedding_bag")
def embedding_bag(rng: Generator) -> Arguments:
    tables = {"weight": real(rng, (4, integer(rng, 1, 3))), "indices": whole(rng, (6,), 0, 3)}
    return {**tables, "offsets": np.array([0, 2, 3]), "mode": some(rng, 0, 1)}


@sample("girih.pick")
def pick(rng: Generator) -> Arguments:
    size = shape(rng, 1, 3)
    dim = dim_of(rng, len(size))
    rest = tuple(np.delete(size, dim))
    return {
        "input": real(rng, size),
        "index": whole(rng, rest, -1, size[dim]),
        "dim": dim,
        **some(rng, {}, {"first": 1}),
    }


@sample("girih.place")
def place(rng: Generator) -> Arguments:
    size = shape(rng, 0, 2)
    extent = integer(rng, 1, 4)
    given = {"value": real(rng, size), "index": whole(rng, size, -1, extent), "dim": dim_of(rng, len(size) + 1)}
    return {**given, "size": extent, **some(rng, {}, {"first": 1})}


@sample("aten.index_select")
def index_select(rng: Generator) -> Arguments:
    size = shape(rng, 1)
    dim = dim_of(rng, len(size))
    return {"self": real(rng, size), "dim": dim, "index": whole(rng, (integer(rng, 1, 4),), 0, size[dim] - 1)}


@sample("aten.index_add")
def index_add(rng: Generator) -> Arguments:
    given = index_select(rng)
    size = list(given["self"].shape)
    size[given["dim"]] = len(given["index"])
    return {**given, "source": real(rng, tuple(size)), **some(rng, {}, {"alpha": 2.5})}


@sample("aten.gather")
def gather(rng: Generator) -> Arguments:
    size = shape(rng, 1)
    dim = dim_of(rng, len(size))
    smaller = [integer(rng, 1, extent) for extent in size]
    smaller[dim] = integer(rng, 1, 4)
    return {"self": real(rng, size), "dim": dim, "index": whole(rng, tuple(smaller), 0, size[dim] - 1)}


def scatter(rng: Generator) -> Arguments:
    """Every position at most once: PyTorch leaves open which of several wins."""
    size = shape(rng, 1)
    dim = dim_of(rng, len(size))
    order = np.argsort(rng.random(size), axis=dim)
    index = order.take(range(integer(rng, 1, size[dim])), axis=dim)
    return {"self": real(rng, size), "dim": dim, "index": index}


def with_source(rng: Generator) -> Arguments:
    given = scatter(rng)
    return {**given, "src": real(rng, given["index"].shape)}


add("aten.scatter.value", lambda rng: {**scatter(rng), "value": -3.0})
add("aten.scatter.src aten.scatter_add", with_source)
add(
    "aten.scatter_reduce.two",
    lambda rng: {
        **with_source(rng),
        "reduce": some(rng, "sum", "prod", "amax"),
        **some(rng, {}, {"include_self": False}),
    },
)
add(
    "aten.masked_scatter",
    lambda rng: {"self": real(rng, (3, 2)), "mask": truth(rng, (3, 2)), "source": real(rng, (6,))},
)


@sample("aten.index.Tensor")
def index(rng: Generator) -> Arguments:
    size = tuple(integer(rng, 1, 3) for _ in range(integer(rng, 1, 3)))
    common = shape(rng, 0, 2, 3)
    chosen = {0, *dims_of(rng, len(size))} if rng.random() < 0.5 else set(dims_of(rng, len(size)))
    indices = [whole(rng, common, -extent, extent - 1) if d in chosen else None for d, extent in enumerate(size)]
    return {"self": real(rng, size), "indices": tuple(indices)}


@sample("aten.index_put")
def index_put(rng: Generator) -> Arguments:
    size = tuple(integer(rng, 2, 4) for _ in range(integer(rng, 1, 3)))
    dim = integer(rng, 0, len(size) - 1)
    accumulate = bool(rng.random() < 0.5)
    chosen = whole(rng, (3,), 0, size[dim] - 1) if accumulate else rng.permutation(size[dim])[:2]
    values = real(rng, (*size[:dim], len(chosen), *size[dim + 1 :]))
    indices = (None,) * dim + (chosen,)
    return {"self": real(rng, size), "indices": indices, "values": values, "accumulate": accumulate}


# ------------------------------------------------------------------------------------------- shape


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


def plain(**attributes: object) -> Maker:
    return lambda rng: {"self": real(rng, shape(rng)), **attributes}


add("aten.squeeze", lambda rng: {"self": real(rng, with_ones(rng))})
add("aten.squeeze.dim", lambda rng: with_dim(rng, real(rng, with_ones(rng))))
add("aten.squeeze.dims", lambda rng: with_dims(rng, real(rng, with_ones(rng))))
add("aten.unsqueeze", lambda rng: (lambda x: {"self": x, "dim": dim_of(rng, x.ndim + 1)})(real(rng, shape(rng))))


def with_dim(rng: Generator, x: np.ndarray) -> Arguments:
    return {"self": x, "dim": dim_of(rng, x.ndim)}


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


# ------------------------------------------------------------------------------------------- creation

CREATED = {"dtype": "float64"}
add("aten.full", lambda rng: {"size": shape(rng), "fill_value": 2.5, **CREATED})
add("aten.zeros aten.ones aten.empty.memory_format", lambda rng: {"size": shape(rng), **CREATED})
add("aten.empty_strided", lambda rng: {"size": (3, 2), "stride": (2, 1), **CREATED})
add("aten.full_like", plain(fill_value=2.5))
add("aten.fill.Scalar", plain(value=2.5))
add("aten.zeros_like aten.ones_like aten.empty_like", plain())
add("aten.new_zeros aten.new_ones aten.new_empty", lambda rng: {"self": real(rng, ()), "size": shape(rng)})
add("aten.new_full", lambda rng: {"self": real(rng, ()), "size": shape(rng), "fill_value": 2.5})
add("aten.scalar_tensor", lambda rng: {"s": 2.5, **CREATED})
add("aten.arange", lambda rng: {"end": integer(rng, 1, 5)})
add("aten.arange.start", lambda rng: {"start": integer(rng, -3, 1), "end": integer(rng, 2, 5)})
add(
    "aten.arange.start_step",
    lambda rng: some(
        rng,
        {"start": 1, "end": integer(rng, 2, 9), "step": 2},
        {"start": 0.5, "end": 0.6 + integer(rng, 1, 4), "step": 0.3, **CREATED},
        {"start": 4, "end": integer(rng, -4, 3), "step": -2},
    ),
)
add("aten.linspace", lambda rng: {"start": -1.0, "end": 2.0, "steps": integer(rng, 1, 6), **CREATED})
add("aten.eye", lambda rng: {"n": integer(rng, 1, 4), **CREATED})
add("aten.eye.m", lambda rng: {"n": integer(rng, 1, 4), "m": integer(rng, 1, 4), **CREATED})


@sample("girih.constant")
def constant(rng: Generator) -> Arguments:
    size = shape(rng)
    return {"data": tuple(float(value) for value in real(rng, (prod(size),))), "size": size, **CREATED}


def random_of(**attributes: object) -> Maker:
    def maker(rng: Generator) -> Arguments:
        size = shape(rng)
        place = {"size": size, "start": (0,) * len(size), "full": size}
        return {"seed": np.array(integer(rng, 0, 2**40)), "stream": integer(rng, 0, 9), **place, **attributes}

    return maker


add("girih.random_uniform girih.random_normal", random_of(**CREATED))
add("girih.random_mask", random_of(keep=0.6))
add("girih.random_integers", random_of(low=-3, high=9))

# ------------------------------------------------------------------------------------------- sorting

add(
    "aten.cumsum aten.cumprod aten.logcumsumexp aten.argsort aten.cummax aten.cummin aten.sort aten.mode "
    "aten.median.dim",
    lambda rng: with_dim(rng, real(rng, shape(rng, 1))),
)
add("aten.sort.stable", lambda rng: {**with_dim(rng, real(rng, shape(rng, 1))), "stable": True, "descending": True})


@sample("aten.topk", "aten.kthvalue")
def topk(rng: Generator) -> Arguments:
    given = with_dim(rng, real(rng, shape(rng, 1)))
    return {**given, "k": integer(rng, 1, given["self"].shape[given["dim"]])}
