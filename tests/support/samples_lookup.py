"""Samples of look-ups, creation, random numbers and sorting."""

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
    plain,
    real,
    sample,
    shape,
    some,
    truth,
    whole,
    with_dim,
)

# ------------------------------------------------------------------------------------------- lookup


@sample("aten.embedding")
def embedding(rng: Generator) -> Arguments:
    rows = integer(rng, 1, 5)
    return {"weight": real(rng, (rows, integer(rng, 1, 3))), "indices": whole(rng, shape(rng, 0, 2), 0, rows - 1)}


add("girih.embedding", lambda rng: {**embedding(rng), **some(rng, {}, {"first": 0}, {"first": 1})})


@sample("girih.embedding_gradient")
def embedding_gradient(rng: Generator) -> Arguments:
    rows, size = integer(rng, 1, 5), shape(rng, 1, 2)
    given = {"grad": real(rng, (*size, integer(rng, 1, 3))), "indices": whole(rng, size, 0, rows - 1), "rows": rows}
    return {**given, **some(rng, {}, {"padding": 0}, {"first": 1})}


def group_ends(rng: Generator, rows: int) -> np.ndarray:
    """Of up to four groups of rows, some of them empty; behind the last there may be rows of none."""
    return np.sort(whole(rng, (integer(rng, 1, 4),), 0, rows)).astype(np.int32)


@sample("girih.grouped_product")
def grouped_product(rng: Generator) -> Arguments:
    rows, depth, columns = integer(rng, 1, 6), integer(rng, 1, 3), integer(rng, 1, 3)
    ends = group_ends(rng, rows)
    given = {"x": real(rng, (rows, depth)), "weight": real(rng, (len(ends), depth, columns)), "ends": ends}
    return {**given, **some(rng, {}, {"first": 1})}


@sample("girih.grouped_gradient")
def grouped_gradient(rng: Generator) -> Arguments:
    rows = integer(rng, 1, 6)
    given = {"x": real(rng, (integer(rng, 1, 3), rows)), "grad": real(rng, (rows, integer(rng, 1, 3)))}
    return {**given, "ends": group_ends(rng, rows), **some(rng, {}, {"first": 1})}


@sample("aten.histc")
def histc(rng: Generator) -> Arguments:
    return {"self": real(rng, shape(rng, 1, 2)), "bins": integer(rng, 1, 4), "min": -1, "max": some(rng, 1, 2.5)}


@sample("girih.sparse_product")
def sparse_product(rng: Generator) -> Arguments:
    stored, count, size = integer(rng, 1, 6), integer(rng, 1, 4), integer(rng, 1, 4)
    places = {"rows": whole(rng, (stored,), 0, count - 1), "columns": whole(rng, (stored,), 0, size - 1)}
    return {"values": real(rng, (stored,)), **places, "x": real(rng, (size, integer(rng, 1, 3))), "count": count}


@sample("aten.embedding_dense_backward")
def embedding_dense_backward(rng: Generator) -> Arguments:
    rows, size = integer(rng, 1, 5), shape(rng, 1, 2)
    tensors = {"grad_output": real(rng, (*size, integer(rng, 1, 3))), "indices": whole(rng, size, 0, rows - 1)}
    return {**tensors, "num_weights": rows, "padding_idx": some(rng, -1, 0), "scale_grad_by_freq": False}


@sample("aten._embedding_bag")
def embedding_bag(rng: Generator) -> Arguments:
    tables = {"weight": real(rng, (4, integer(rng, 1, 3))), "indices": whole(rng, (6,), 0, 3)}
    return {**tables, "offsets": np.array([0, 2, 3]), "mode": some(rng, 0, 1)}


def classes(rng: Generator, size: tuple[int, ...], count: int, options: Arguments) -> np.ndarray:
    """Others than 0 ... count - 1 only where they are ignored, or may belong to another part."""
    least, most = {"first": (-1, count), "ignored": (-1, count - 1)}.get(next(iter(options), ""), (0, count - 1))
    return whole(rng, size, least, most)


@sample("girih.pick")
def pick(rng: Generator) -> Arguments:
    size = shape(rng, 1, 3)
    dim = dim_of(rng, len(size))
    rest = tuple(np.delete(size, dim))
    options = some(rng, {}, {"first": 1}, {"ignored": -1})
    return {"input": real(rng, size), "index": classes(rng, rest, size[dim], options), "dim": dim, **options}


@sample("girih.place")
def place(rng: Generator) -> Arguments:
    size = shape(rng, 0, 2)
    extent = integer(rng, 1, 4)
    options = some(rng, {}, {"first": 1}, {"ignored": -1})
    index = classes(rng, size, extent, options)
    return {"value": real(rng, size), "index": index, "dim": dim_of(rng, len(size) + 1), "size": extent, **options}


@sample("girih.wrap_index")
def wrap_index(rng: Generator) -> Arguments:
    return {"index": whole(rng, shape(rng), -7, 7), "size": integer(rng, 1, 5)}


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


@sample("girih.assign")
def assign(rng: Generator) -> Arguments:
    return {name: item for name, item in index_put(rng).items() if name != "accumulate"}


@sample("aten.index_put")
def index_put(rng: Generator) -> Arguments:
    size = tuple(integer(rng, 2, 4) for _ in range(integer(rng, 1, 3)))
    dim = integer(rng, 0, len(size) - 1)
    accumulate = bool(rng.random() < 0.5)
    chosen = whole(rng, (3,), 0, size[dim] - 1) if accumulate else rng.permutation(size[dim])[:2]
    values = real(rng, (*size[:dim], len(chosen), *size[dim + 1 :]))
    indices = (None,) * dim + (chosen,)
    return {"self": real(rng, size), "indices": indices, "values": values, "accumulate": accumulate}


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


@sample("girih.sort")
def sort(rng: Generator) -> Arguments:
    x = real(rng, shape(rng, 1))
    return {"input": x, "dim": integer(rng, 0, x.ndim - 1)}


@sample("girih.partition", "girih.partition_indices")
def partition(rng: Generator) -> Arguments:
    given = sort(rng)
    return {**given, "places": (integer(rng, 0, given["input"].shape[given["dim"]] - 1),)}


@sample("girih.sort_indices")
def sort_indices(rng: Generator) -> Arguments:
    x = real(rng, shape(rng, 1))
    return {"input": x, "dim": integer(rng, 0, x.ndim - 1), "descending": some(rng, False, True)}


@sample("girih.search_sorted")
def search_sorted(rng: Generator) -> Arguments:
    return {"sequence": np.sort(real(rng, (5,))), "values": real(rng, shape(rng)), "right": some(rng, False, True)}


@sample("girih.bin_counts")
def bin_counts(rng: Generator) -> Arguments:
    edges = some(rng, np.sort(real(rng, (5,))), np.linspace(-1, 1, 6), np.array([0.0, 0.0, 1.0]))
    return {"input": real(rng, shape(rng, 1)), "edges": edges}


@sample("girih.ctc_loss_gradient")
def ctc_loss_gradient(rng: Generator) -> Arguments:
    given = ctc_loss(rng)
    return {"grad": real(rng, given["targets"].shape[:1]), **given}


@sample("girih.ctc_loss")
def ctc_loss(rng: Generator) -> Arguments:
    time, batch, places = integer(rng, 3, 6), integer(rng, 1, 4), integer(rng, 1, 3)
    return {
        "log_probs": real(rng, (time, batch, 4)),
        "targets": whole(rng, (batch, places), 1, 3),
        "input_lengths": whole(rng, (batch,), 2, time),
        "target_lengths": whole(rng, (batch,), 1, places),
        "blank": 0,
        "zero_infinity": True,
    }


@sample("girih.topk_indices")
def topk_indices(rng: Generator) -> Arguments:
    x = real(rng, shape(rng, 1))
    dim = integer(rng, 0, x.ndim - 1)
    return {"input": x, "k": integer(rng, 1, x.shape[dim]), "dim": dim, "largest": some(rng, False, True)}


# ------------------------------------------------------------------------------------------- graphs


def graph_rows(rng: Generator, vertices: int, sources: int) -> Arguments:
    """Compressed rows of a graph: some are empty, edges may be there twice."""
    edges = integer(rng, 3, 8)
    offsets = np.array([0, *np.sort(whole(rng, (vertices - 1,), 0, edges)), edges])
    return {"offsets": offsets, "neighbours": whole(rng, (edges,), 0, sources - 1).astype(np.int32)}


def ends(rng: Generator) -> tuple[int, int, Arguments]:
    vertices, sources = integer(rng, 1, 4), integer(rng, 2, 4)
    return vertices, sources, graph_rows(rng, vertices, sources)


def parts_of_rows(rng: Generator) -> Arguments:
    size = shape(rng, 0, 2)
    return {"parts": tuple(real(rng, (integer(rng, 1, 3), *size)) for _ in range(integer(rng, 1, 3)))}


add("girih.pieces_joined", parts_of_rows)
add("girih.rows_here", lambda rng: {**parts_of_rows(rng), "worker": integer(rng, 0, 2)})


@sample("girih.neighbour_sum")
def neighbour_sum(rng: Generator) -> Arguments:
    _, sources, rows = ends(rng)
    size = shape(rng, 0, 2)
    given = {"x": real(rng, (sources, *size)), **rows}
    if rng.random() < 0.6:
        given["weights"] = real(rng, (len(rows["neighbours"]), *size[: integer(rng, 0, 1)]))
    return {**given, **some(rng, {}, {"mean": True})}


@sample("girih.edge_products")
def edge_products(rng: Generator) -> Arguments:
    vertices, sources, rows = ends(rng)
    size = shape(rng, 0, 2)
    both = {"a": real(rng, (vertices, *size)), "b": real(rng, (sources, *size))}
    return {**both, **rows, "kept": integer(rng, 0, len(size))}


@sample("girih.neighbour_max")
def neighbour_max(rng: Generator) -> Arguments:
    _, sources, rows = ends(rng)
    return {"x": real(rng, (sources, *shape(rng, 0, 2))), **rows}


@sample("girih.neighbour_ties")
def neighbour_ties(rng: Generator) -> Arguments:
    vertices, sources, rows = ends(rng)
    size = shape(rng, 0, 1)
    return {"x": whole(rng, (sources, *size), 0, 1), "top": whole(rng, (vertices, *size), 0, 1), **rows}


@sample("girih.neighbour_max_gradient")
def neighbour_max_gradient(rng: Generator) -> Arguments:
    vertices, sources, rows = ends(rng)
    size = shape(rng, 0, 1)
    tops = {"top": whole(rng, (sources, *size), 0, 1), "x": whole(rng, (vertices, *size), 0, 1)}
    return {"grad": real(rng, (sources, *size)), **tops, **rows}


def attention(rng: Generator, turned: bool = False) -> tuple[Arguments, int]:
    """(operands of an attention without x, the size of its features); turned: of the transposed graph."""
    vertices, sources, rows = ends(rng)
    heads = integer(rng, 1, 2)
    reading, read = (sources, vertices) if turned else (vertices, sources)
    given = {"source": real(rng, (read, heads)), "target": real(rng, (reading, heads)), **rows}
    if rng.random() < 0.5:
        given["scores"] = real(rng, (len(rows["neighbours"]), heads))
    return {**given, **some(rng, {}, {"slope": 0.2})}, integer(rng, 1, 3)


def attention_gradient(rng: Generator, turned: bool = False) -> Arguments:
    given, size = attention(rng, turned)
    read, reading = given["source"].shape, given["target"].shape
    tensors = {"grad": real(rng, (*reading, size)), "x": real(rng, (*read, size)), "dot": real(rng, reading)}
    return {**tensors, "logsumexp": real(rng, reading), **given}


@sample("girih.attention_sum")
def attention_sum(rng: Generator) -> Arguments:
    given, size = attention(rng)
    x = real(rng, (*given["source"].shape, size))
    return {"x": x, "logsumexp": real(rng, given["target"].shape), **given}


add("girih.attention_logsumexp", lambda rng: attention(rng)[0])
add("girih.attention_target_gradient", attention_gradient)
add("girih.attention_score_gradient", attention_gradient)
add("girih.attention_source_gradient", lambda rng: attention_gradient(rng, True))
