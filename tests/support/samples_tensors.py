"""Samples of matrix products, convolutions, pooling, reductions and normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sampling import (
    Arguments,
    Generator,
    Maker,
    add,
    broadcast,
    dims_of,
    integer,
    real,
    sample,
    shape,
    some,
    truth,
)

# ------------------------------------------------------------------------------------------- linear algebra


def contraction(first: str, second: str, left: str, right: str) -> Maker:
    """Two operands whose dimensions are letters; equal letters have equal sizes."""

    def maker(rng: Generator) -> Arguments:
        sizes = {letter: integer(rng, 1, 4) for letter in sorted(set(left + right))}
        return {
            first: real(rng, tuple(sizes[letter] for letter in left)),
            second: real(rng, tuple(sizes[letter] for letter in right)),
        }

    return maker


def added(maker: Maker, first: str, second: str) -> Maker:
    def result(rng: Generator) -> Arguments:
        operands = maker(rng)
        size = (operands[first] @ operands[second]).shape
        scale = some(rng, {}, {"beta": 0.5, "alpha": 1.5})
        return {"self": real(rng, broadcast(rng, size)), **operands, **scale}

    return result


@sample("aten.linalg_cross")
def linalg_cross(rng: Generator) -> Arguments:
    size = shape(rng, 0, 2)
    dim = integer(rng, 0, len(size))
    other = tuple(1 if rng.random() < 0.3 else extent for extent in size)
    first, second = ((*extents[:dim], 3, *extents[dim:]) for extents in (size, other))
    return {"self": real(rng, first), "other": real(rng, second), "dim": dim - some(rng, 0, len(size) + 1)}


add("aten.mm", contraction("self", "mat2", "ik", "kj"))
add("aten.bmm", contraction("self", "mat2", "bik", "bkj"))
add("girih.head_product", contraction("self", "mat2", "bhik", "bhkj"))
add("aten.mv", contraction("self", "vec", "ik", "k"))
add("aten.dot", contraction("self", "tensor", "k", "k"))
add("aten.addmm", added(contraction("mat1", "mat2", "ik", "kj"), "mat1", "mat2"))
add("aten.baddbmm", added(contraction("batch1", "batch2", "bik", "bkj"), "batch1", "batch2"))
add("aten.addmv", added(contraction("mat", "vec", "ik", "k"), "mat", "vec"))
add(
    "aten._cdist_forward",
    lambda rng: {
        **contraction("x1", "x2", "bik", "bjk")(rng),
        "p": some(rng, 0.0, 1.0, 2.0, 3.0, float("inf")),
        "compute_mode": 2,
    },
)
add("aten._pdist_forward", lambda rng: {"self": real(rng, (integer(rng, 2, 4), 3)), "p": some(rng, 1.0, 2.0)})


def spd(rng: Generator) -> np.ndarray:
    """Batches of symmetric positive definite matrices."""
    size = integer(rng, 1, 3)
    root = real(rng, (*shape(rng, 0, 2), size, size))
    return root @ np.swapaxes(root, -1, -2) + 2 * np.eye(size)


add("aten.cholesky aten.linalg_cholesky aten.linalg_cholesky_ex", lambda rng: {"self": spd(rng)})
add("aten.linalg_matrix_exp", lambda rng: {"self": 0.1 * spd(rng)})
add("aten.linalg_inv_ex aten.linalg_inv aten.linalg_det aten.linalg_slogdet", lambda rng: {"A": spd(rng)})
add("aten._linalg_eigh", lambda rng: {"A": spd(rng), **some(rng, {}, {"UPLO": "U"})})
add("aten.linalg_eig aten.linalg_eigvals", lambda rng: {"self": spd(rng)})
add("aten.linalg_eigvalsh", lambda rng: {"self": spd(rng)})
add("aten.linalg_qr aten._linalg_svd aten.linalg_svdvals girih.triangular_factor", lambda rng: {"A": matrices(rng)})
add("girih.reflection_signs", lambda rng: {"Q": np.linalg.qr(rng.normal(size=(integer(rng, 1, 4),) * 2))[0]})


def matrices(rng: Generator) -> np.ndarray:
    return real(rng, (*shape(rng, 0, 2), integer(rng, 1, 4), integer(rng, 1, 4)))


@sample("aten.linalg_solve")
def solve(rng: Generator) -> Arguments:
    A = spd(rng)
    batch = A.shape[:-2][integer(rng, 0, A.ndim - 2) :] if some(rng, True, False) else A.shape[:-2]
    return {"A": A, "B": real(rng, (*batch, A.shape[-1], integer(rng, 1, 3)))}


@sample("girih.ridge_rows")
def ridge_rows(rng: Generator) -> Arguments:
    ratings = real(rng, (integer(rng, 1, 5), integer(rng, 1, 6)))
    ratings[np.asarray(rng.random(tuple(ratings.shape)) < 0.4)] = 0
    return {"ratings": ratings, "features": real(rng, (ratings.shape[1], integer(rng, 1, 3))), "penalty": 0.5}


@sample("aten.linalg_solve_triangular")
def solve_triangular(rng: Generator) -> Arguments:
    matrix = np.triu(spd(rng))
    return {"self": matrix, "B": real(rng, (*matrix.shape[:-1], 2)), "upper": True}


@sample("girih.cholesky_panel")
def cholesky_panel(rng: Generator) -> Arguments:
    parts, rows, more = integer(rng, 1, 3), integer(rng, 1, 2), integer(rng, 0, 3)
    root = real(rng, (parts * rows, parts * rows))
    square = root @ root.T + 2 * np.eye(parts * rows)
    below = real(rng, (parts, more, parts * rows))
    panel = np.concatenate([square.reshape(parts, rows, parts * rows), below], axis=1)
    return {"square": square, "panel": panel, "rows": rows}


@sample("girih.panel_rows")
def panel_rows(rng: Generator) -> Arguments:
    parts, rows, below, more = integer(rng, 1, 3), integer(rng, 1, 2), integer(rng, 0, 2), integer(rng, 1, 3)
    tensors = tuple(real(rng, (parts, below + (1 + k) * rows, integer(rng, 1, 2))) for k in reversed(range(more)))
    return {"tensors": tensors, "below": below, "rows": rows}


@sample("girih.less_panels")
def less_panels(rng: Generator) -> Arguments:
    parts, length, width, more = integer(rng, 1, 3), integer(rng, 1, 3), integer(rng, 1, 3), integer(rng, 1, 3)
    tensors = tuple(real(rng, (parts, length + k, integer(rng, 1, 2))) for k in reversed(range(more)))
    square = real(rng, (width, sum(x.shape[2] for x in tensors)))
    return {"panel": real(rng, (parts, length, width)), "tensors": tensors, "square": square}


@sample("girih.join_panels")
def join_panels(rng: Generator) -> Arguments:
    parts, rows, blocks = integer(rng, 1, 3), integer(rng, 1, 2), integer(rng, 1, 3)
    return {"tensors": tuple(real(rng, (parts, blocks - k, rows, parts * rows)) for k in range(blocks))}


@sample("aten._fft_r2c")
def fft_r2c(rng: Generator) -> Arguments:
    size = shape(rng, 1)
    return {"self": real(rng, size), "dim": (len(size) - 1,), "normalization": 0, "onesided": True}


@sample("aten._fft_c2c")
def fft_c2c(rng: Generator) -> Arguments:
    size = shape(rng, 1)
    values = real(rng, size) + 1j * real(rng, size)
    return {"self": values, "dim": dims_of(rng, len(size)), "normalization": 0, "forward": True}


@sample("aten._fft_c2r")
def fft_c2r(rng: Generator) -> Arguments:
    size = (*shape(rng, 0, 2), integer(rng, 2, 4))
    values = real(rng, size) + 0j
    return {"self": values, "dim": (len(size) - 1,), "normalization": 0, "last_dim_size": 2 * (size[-1] - 1)}


# ------------------------------------------------------------------------------------------- convolution


def convolution_of(rng: Generator, transposed: bool, groups: int, gradient: bool = False) -> dict[str, Any]:
    """Shapes and attributes of one convolution: x -> y with weight w.

    gradient: an output padding that is not below the stride is left out, for PyTorch's gradient then has another
    shape than the input.
    """
    rank = integer(rng, 1, 2) if rng.random() < 0.9 else 3
    small = 3 if rank == 3 else 5
    kernel = tuple(integer(rng, 1, 3 if rank < 3 else 2) for _ in range(rank))
    stride = some(rng, (1,) * rank, tuple(integer(rng, 1, 2) for _ in range(rank)))
    dilation = some(rng, (1,) * rank, tuple(integer(rng, 1, 2) for _ in range(rank)))
    padding = tuple(integer(rng, 0, 2) for _ in range(rank))
    ins, outs = integer(rng, 1, 3), integer(rng, 1, 3)
    limits = stride if gradient else tuple(map(max, stride, dilation))
    extra = tuple(integer(rng, 0, limit - 1) if transposed else 0 for limit in limits)
    reach = tuple(d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
    spans = zip(reach, padding, extra, stride, strict=True)
    if transposed:
        size = tuple(max(integer(rng, 1, small), 2 * p // s + 1) for r, p, e, s in spans)
        out = tuple(
            (x - 1) * s - 2 * p + r + e for x, s, p, r, e in zip(size, stride, padding, reach, extra, strict=True)
        )
        if min(out) < 1:
            return convolution_of(rng, transposed, groups, gradient)
        weight = (groups * ins, outs, *kernel)
    else:
        size = tuple(max(integer(rng, 1, small), r - 2 * p, 1) for r, p, _, _ in spans)
        out = tuple((x + 2 * p - r) // s + 1 for x, p, r, s in zip(size, padding, reach, stride, strict=True))
        weight = (groups * outs, ins, *kernel)
    batch = integer(rng, 1, 3)
    return {
        "x": (batch, groups * ins, *size),
        "y": (batch, groups * outs, *out),
        "w": weight,
        "attributes": {
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "transposed": transposed,
            "output_padding": extra,
            "groups": groups,
        },
    }


@sample("girih.correlate")
def correlate(rng: Generator) -> Arguments:
    count = integer(rng, 1, 4)
    return {"input": real(rng, (count + integer(rng, 0, 6),)), "weight": real(rng, (count,))}


@sample("aten.convolution")
def convolution(rng: Generator) -> Arguments:
    made = convolution_of(rng, bool(rng.random() < 0.4), some(rng, 1, 1, 2, 3))
    bias = real(rng, (made["y"][1],)) if rng.random() < 0.2 else None
    return {"input": real(rng, made["x"]), "weight": real(rng, made["w"]), "bias": bias, **made["attributes"]}


@sample("girih.convolution_input_gradient")
def convolution_input_gradient(rng: Generator) -> Arguments:
    made = convolution_of(rng, bool(rng.random() < 0.3), some(rng, 1, 1, 2), gradient=True)
    grad, weight = real(rng, made["y"]), real(rng, made["w"])
    return {"grad": grad, "weight": weight, "input_size": made["x"], **made["attributes"]}


@sample("girih.convolution_weight_gradient")
def convolution_weight_gradient(rng: Generator) -> Arguments:
    transposed = bool(rng.random() < 0.3)
    made = convolution_of(rng, transposed, 1 if transposed else some(rng, 1, 1, 2), gradient=True)
    grad, x = real(rng, made["y"]), real(rng, made["x"])
    return {"grad": grad, "input": x, "weight_size": made["w"], **made["attributes"]}


@sample("aten.convolution_backward")
def convolution_backward(rng: Generator) -> Arguments:
    made = convolution_of(rng, False, some(rng, 1, 2))
    tensors = {name: real(rng, made[key]) for name, key in (("grad_output", "y"), ("input", "x"), ("weight", "w"))}
    return {**tensors, "bias_sizes": None, **made["attributes"], "output_mask": (True, False, False)}


# ------------------------------------------------------------------------------------------- pooling


def pool_of(rng: Generator, rank: int, padded: bool = True) -> tuple[tuple[int, ...], dict[str, Any]]:
    kernel = tuple(integer(rng, 1, 3) for _ in range(rank))
    padding = tuple(integer(rng, 0, k // 2) if padded else 0 for k in kernel)
    size = tuple(integer(rng, k, 5) for k in kernel)
    window = {"kernel_size": kernel, "stride": tuple(integer(rng, 1, 3) for _ in range(rank)), "padding": padding}
    return (*(integer(rng, 1, 2) for _ in range(2)), *size), window


def max_pool_of(rng: Generator, rank: int) -> tuple[tuple[int, ...], dict[str, Any]]:
    size, window = pool_of(rng, rank)
    return size, {**window, "dilation": (1,) * rank, "ceil_mode": bool(rng.random() < 0.3)}


@sample("girih.max_pool")
def max_pool(rng: Generator) -> Arguments:
    size, window = max_pool_of(rng, integer(rng, 1, 2))
    return {"input": real(rng, size), **window}


def aten_max_pool(rank: int) -> Maker:
    def maker(rng: Generator) -> Arguments:
        size, window = max_pool_of(rng, rank)
        return {"self": real(rng, size[integer(rng, 0, 1) :]), **window}

    return maker


add("aten.max_pool2d_with_indices", aten_max_pool(2))
add("aten.max_pool3d_with_indices", aten_max_pool(3))


def torch_pool(values: np.ndarray, window: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    functions = {2: torch.nn.functional.max_pool2d, 3: torch.nn.functional.max_pool3d}
    pool = functions[len(window["kernel_size"])]
    made = pool(torch.as_tensor(values), **window, return_indices=True)
    return made[0].numpy(), made[1].numpy()


@sample("girih.max_pool_gradient")
def max_pool_gradient(rng: Generator) -> Arguments:
    size, window = max_pool_of(rng, 2)
    values = real(rng, size)
    return {"grad": real(rng, torch_pool(values, window)[0].shape), "input": values, **window}


def max_pool_backward(rank: int) -> Maker:
    def maker(rng: Generator) -> Arguments:
        size, window = max_pool_of(rng, rank)
        values = real(rng, size)
        made, indices = torch_pool(values, window)
        return {"grad_output": real(rng, made.shape), "self": values, **window, "indices": indices}

    return maker


add("aten.max_pool2d_with_indices_backward", max_pool_backward(2))
add("aten.max_pool3d_with_indices_backward", max_pool_backward(3))


def average_of(rng: Generator, rank: int) -> tuple[tuple[int, ...], dict[str, Any]]:
    size, window = pool_of(rng, rank)
    kind = some(rng, {}, {"ceil_mode": True}, {"count_include_pad": False}, {"divisor_override": 5})
    return size, {**window, **kind}


def average_pool(rank: int) -> Maker:
    def maker(rng: Generator) -> Arguments:
        size, window = average_of(rng, rank)
        return {"self": real(rng, size), **window}

    return maker


add("aten.avg_pool1d", lambda rng: (lambda pool: {"self": real(rng, pool[0]), **pool[1]})(pool_of(rng, 1)))
add("aten.avg_pool2d", average_pool(2))
add("aten.avg_pool3d", average_pool(3))


def average_backward(rank: int) -> Maker:
    def maker(rng: Generator) -> Arguments:
        size, window = average_of(rng, rank)
        window = {"ceil_mode": False, "count_include_pad": True, "divisor_override": None, **window}
        pool = torch.nn.functional.avg_pool2d if rank == 2 else torch.nn.functional.avg_pool3d
        made = pool(torch.zeros(size), **window)
        return {"grad_output": real(rng, tuple(made.shape)), "self": real(rng, size), **window}

    return maker


add("aten.avg_pool2d_backward", average_backward(2))
add("aten.avg_pool3d_backward", average_backward(3))


def adaptive(rank: int, backward: bool = False) -> Maker:
    def maker(rng: Generator) -> Arguments:
        output = tuple(integer(rng, 1, 3) for _ in range(rank))
        exact = rng.random() < 0.7
        size = tuple(n * integer(rng, 1, 2) if exact else integer(rng, n, 5) for n in output)
        leading = (integer(rng, 1, 3), integer(rng, 1, 3))
        if backward:
            return {"grad_output": real(rng, (*leading, *output)), "self": real(rng, (*leading, *size))}
        return {"self": real(rng, (*leading, *size)), "output_size": output}

    return maker


add("aten.adaptive_avg_pool1d", adaptive(1))
add("aten._adaptive_avg_pool2d", adaptive(2))
add("aten._adaptive_avg_pool3d", adaptive(3))
add("aten._adaptive_avg_pool2d_backward", adaptive(2, backward=True))
add("aten._adaptive_avg_pool3d_backward", adaptive(3, backward=True))


@sample("aten.upsample_nearest2d.vec")
def upsample_nearest(rng: Generator) -> Arguments:
    size = tuple(integer(rng, 1, 3) for _ in range(4))
    if rng.random() < 0.5:
        return {"input": real(rng, size), "output_size": None, "scale_factors": (2.0, 3.0)}
    output = tuple(integer(rng, 1, 6) for _ in range(2))
    return {"input": real(rng, size), "output_size": output, "scale_factors": None}


@sample("aten.upsample_bilinear2d.vec", "aten.upsample_bicubic2d.vec")
def upsample_linear(rng: Generator) -> Arguments:
    size = tuple(integer(rng, 2, 3) for _ in range(4))
    return {
        "input": real(rng, size),
        "output_size": (4, 5),
        "align_corners": some(rng, True, False),
        "scale_factors": None,
    }


@sample("aten.grid_sampler_2d")
def grid_sampler(rng: Generator) -> Arguments:
    batch = integer(rng, 1, 3)
    modes = {"interpolation_mode": 0, "padding_mode": 0, "align_corners": False}
    return {"input": real(rng, (batch, 2, 3, 4)), "grid": 0.5 * real(rng, (batch, 2, 3, 2)), **modes}


# ------------------------------------------------------------------------------------------- attention


@sample("girih.attention")
def attention(rng: Generator) -> Arguments:
    batch, heads, groups, rows, width = (integer(rng, 1, high) for high in (2, 2, 2, 3, 2))
    keys = integer(rng, 2, 3)  # of one key the share is 1, whatever the query
    features = some(rng, width, integer(rng, 1, 2))
    kinds = {"query": (heads * groups, rows, width), "key": (heads, keys, width), "value": (heads, keys, features)}
    given = {name: real(rng, (batch, *size)) for name, size in kinds.items()} | {"scale": some(rng, 1.0, 0.3)}
    size = (some(rng, 1, batch), some(rng, 1, heads * groups), some(rng, 1, rows), keys)
    seen = truth(rng, size) | (np.arange(keys) == 0)
    masks = {"mask": real(rng, size[integer(rng, 0, 2) :])}, {"mask": seen}
    return {**given, **some(rng, {}, {"causal": True}, {"causal": True, "first": integer(rng, 1, 4)}, *masks)}


@sample("girih.attention_backward")
def attention_backward(rng: Generator) -> Arguments:
    given = attention(rng)
    size = (*given["query"].shape[:3], given["value"].shape[3])
    of_rows = {"grad": real(rng, size), "output": real(rng, size), "logsumexp": 1.0 + real(rng, size[:3])}
    tensors = {name: given.pop(name) for name in ("query", "key", "value")}
    return {"grad": of_rows.pop("grad"), **tensors, **of_rows, **given}


@sample("girih.attention_blocks")
def attention_blocks(rng: Generator) -> Arguments:
    """Also rows that see no key of a block, or none at all."""
    given = attention(rng)
    blocks, extent = 2, integer(rng, 2, 3)
    shapes = {name: (*given[name].shape[:2], blocks * extent, given[name].shape[3]) for name in ("key", "value")}
    given |= {name: real(rng, shape) for name, shape in shapes.items()} | {"blocks": blocks}
    if "causal" in given:
        given["first"] = integer(rng, 2 - given["query"].shape[2], 4)
    if "mask" in given:
        shape = (*given["mask"].shape[:-1], blocks * extent)
        given["mask"] = some(rng, real(rng, shape), truth(rng, shape) | (np.arange(shape[-1]) < 2))
    return given


@sample("girih.attention_blocks_backward")
def attention_blocks_backward(rng: Generator) -> Arguments:
    given = attention_blocks(rng)
    size = given["query"].shape[:3]
    of_rows = {"mean": real(rng, (*size, 1)), "logsumexp": 1.0 + real(rng, size)}
    tensors = {name: given.pop(name) for name in ("query", "key", "value")}
    grad = real(rng, (*size, tensors["value"].shape[3]))
    return {"grad": grad, **tensors, **of_rows, **given}


# ------------------------------------------------------------------------------------------- calls as recorded


@sample("girih.recorded")
def recorded(rng: Generator) -> Arguments:
    tensors = real(rng, (3, 2)), real(rng, (2, 4))
    return {"tensors": tensors, "operator": "aten.mm", "arguments": (("self", "%0"), ("mat2", "%1"))}


@sample("girih.recorded_several")
def recorded_several(rng: Generator) -> Arguments:
    arguments = ("self", "%0"), ("dim", 1)
    return {"tensors": (real(rng, (3, 5)),), "operator": "aten.max.dim", "arguments": arguments, "kept": (0, 1)}
