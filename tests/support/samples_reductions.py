"""Samples of reductions and normalisation."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from sampling import (
    Arguments,
    Generator,
    Maker,
    add,
    away,
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


def reduction(*kinds: str, values: Any = real, dtype: str | None = None) -> Maker:
    """kinds: the ways to say which dimensions: all, one, several, none, optional."""

    def maker(rng: Generator) -> Arguments:
        size = shape(rng, 0 if "all" in kinds else 1)
        given: Arguments = {"self": values(rng, size)}
        kind = some(rng, *kinds)
        if kind == "one":
            given["dim"] = dim_of(rng, len(size))
        elif kind == "several":
            given["dim"] = dims_of(rng, len(size))
        elif kind == "none":
            given["dim"] = None
        if kind != "all":
            given["keepdim"] = some(rng, True, False)
        return given

    return maker


add("aten.sum aten.mean aten.max aten.min aten.prod aten.any aten.all", reduction("all"))
add("aten.sum.dim_IntList aten.mean.dim", reduction("several", "none"))
add(
    "aten.var.correction aten.std.correction",
    lambda rng: {**reduction("several")(rng), "correction": some(rng, 0, 0.5)},
)
add("aten.var.dim", lambda rng: {**reduction("several")(rng), "unbiased": False})
add("aten.amax aten.amin", reduction("several"))
add("aten.max.dim aten.min.dim aten.prod.dim_int", reduction("one"))
add("aten.any.dim aten.all.dim", reduction("one", values=truth))
add("aten.any.dims aten.all.dims", reduction("several", values=lambda rng, size: whole(rng, size, -1, 1)))
add("aten.logsumexp", reduction("several"))
add("aten.argmax aten.argmin", reduction("one", "none"))
add("girih.argmax girih.argmin", lambda rng: {"x" if k == "self" else k: v for k, v in reduction("one")(rng).items()})
add(
    "aten.linalg_vector_norm",
    lambda rng: {**reduction("several", "none")(rng), "ord": some(rng, 2, 1, 0, 3, float("inf"), float("-inf"))},
)


@sample("girih.mean")
def counted_mean(rng: Generator) -> Arguments:
    size = shape(rng, 1)
    return {"input": real(rng, size), "dims": dims_of(rng, len(size)), "keepdim": some(rng, True, False), "count": 7}


def kept(size: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if dim in dims else extent for dim, extent in enumerate(size))


@sample("girih.product_sum")
def product_sum(rng: Generator) -> Arguments:
    size = shape(rng, 1)
    return {"a": real(rng, size), "b": real(rng, size), "dims": dims_of(rng, len(size))}


@sample("girih.masked_sum")
def masked_sum(rng: Generator) -> Arguments:
    size = shape(rng, 1)
    leading = int(rng.integers(1, len(size) + 1))
    return {"input": real(rng, size), "mask": rng.random(size[:leading]) > 0.5}


@sample("girih.first_index")
def first_index(rng: Generator) -> Arguments:
    values = whole(rng, shape(rng, 1), 0, 3) * 1.0
    dim = dim_of(rng, values.ndim)
    return {"input": values, "extreme": values.max(axis=dim, keepdims=True), "dim": dim, "first": 0}


# ------------------------------------------------------------------------------------------- normalisation


@sample("aten._softmax", "aten._log_softmax")
def softmax(rng: Generator) -> Arguments:
    size = shape(rng, 0)
    return {"self": real(rng, size), "dim": dim_of(rng, len(size)), "half_to_float": False}


@sample("girih.logsumexp")
def own_logsumexp(rng: Generator) -> Arguments:
    size = shape(rng, 1)
    return {"input": real(rng, size), "dims": (dim_of(rng, len(size)),)}


@sample("aten._softmax_backward_data", "aten._log_softmax_backward_data")
def softmax_backward(rng: Generator) -> Arguments:
    size = shape(rng, 1)
    tensors = {"grad_output": real(rng, size), "output": real(rng, size)}
    return {**tensors, "dim": dim_of(rng, len(size)), "input_dtype": torch.float64}


def affine(rng: Generator, size: tuple[int, ...]) -> Arguments:
    there = rng.random() < 0.5
    return {"weight": real(rng, size) if there else None, "bias": real(rng, size) if there else None}


@sample("aten.native_layer_norm")
def layer_norm(rng: Generator) -> Arguments:
    batch, rows = shape(rng, 0, 2), shape(rng, 1, 2, 3)
    return {"input": real(rng, (*batch, *rows)), "normalized_shape": rows, **affine(rng, rows), "eps": 1e-5}


@sample("aten.native_layer_norm_backward")
def layer_norm_backward(rng: Generator) -> Arguments:
    batch, rows = shape(rng, 1, 2), (integer(rng, 1, 3),)
    shapes = {"grad_out": (*batch, *rows), "input": (*batch, *rows)}
    statistics = {"mean": real(rng, (*batch, 1)), "rstd": away(rng, (*batch, 1))}
    tensors = {name: real(rng, size) for name, size in shapes.items()}
    rest = {**affine(rng, rows), "output_mask": (True, False, False)}
    return {**tensors, "normalized_shape": rows, **statistics, **rest}


@sample("aten.native_group_norm")
def group_norm(rng: Generator) -> Arguments:
    groups, width, batch = integer(rng, 1, 3), integer(rng, 1, 2), integer(rng, 1, 3)
    space = shape(rng, 1, 2, 2)
    channels = groups * width
    sizes = {"N": batch, "C": channels, "HxW": prod(space), "group": groups, "eps": 1e-5}
    return {"input": real(rng, (batch, channels, *space)), **affine(rng, (channels,)), **sizes}


@sample("aten.native_group_norm_backward")
def group_norm_backward(rng: Generator) -> Arguments:
    forward = group_norm(rng)
    x = forward["input"]
    statistics = {"mean": real(rng, (x.shape[0], forward["group"])), "rstd": away(rng, (x.shape[0], forward["group"]))}
    sizes = {name: forward[name] for name in ("N", "C", "HxW", "group")}
    weight = real(rng, (x.shape[1],))
    tensors = {"grad_out": real(rng, x.shape), "input": x, **statistics, "weight": weight}
    return {**tensors, **sizes, "output_mask": (True, False, False)}


def batch_norm(rng: Generator) -> Arguments:
    size = (integer(rng, 2, 3), integer(rng, 1, 3), *shape(rng, 0, 2, 2))
    return {"input": real(rng, size), **affine(rng, (size[1],)), "momentum": 0.1, "eps": 1e-5}


def running(rng: Generator, given: Arguments) -> Arguments:
    channels = given["input"].shape[1]
    return {**given, "running_mean": real(rng, (channels,)), "running_var": 1.0 + rng.random(channels)}


add("aten._native_batch_norm_legit.no_stats", lambda rng: {**batch_norm(rng), "training": True})
add("aten._native_batch_norm_legit_no_training", lambda rng: running(rng, batch_norm(rng)))
add(
    "aten._native_batch_norm_legit aten._native_batch_norm_legit_functional",
    lambda rng: {**running(rng, batch_norm(rng)), "training": some(rng, True, False)},
)


def normal_of(rng: Generator, *names: str, dims: bool = False) -> Arguments:
    """Tensors of a normalisation over `kept`'s other dimensions, by name."""
    size = shape(rng, 2, 4, 3)
    over = dims_of(rng, len(size))
    few = kept(size, over)
    shapes = {"grad": size, "input": size, "weight": kept(size, tuple(set(range(len(size))) - {1})), "bias": few}
    given: Arguments = {}
    for name in names:
        given[name] = real(rng, shapes.get(name, few))
    if dims:
        given["dims"] = over
    return given


def optional(rng: Generator, given: Arguments, *names: str) -> Arguments:
    dropped = {name for name in names if rng.random() < 0.4}
    return {name: value for name, value in given.items() if name not in dropped}


@sample("girih.centered_square_mean")
def centered_square_mean(rng: Generator) -> Arguments:
    return {**normal_of(rng, "input", "mean", dims=True), "count": 11}


@sample("girih.normalise")
def normalise(rng: Generator) -> Arguments:
    return optional(rng, normal_of(rng, "input", "mean", "scale", "weight", "bias"), "weight", "bias")


@sample("girih.normalised_dot")
def normalised_dot(rng: Generator) -> Arguments:
    return optional(rng, normal_of(rng, "grad", "input", "mean", "scale", "weight", dims=True), "weight")


@sample("girih.normalise_input_gradient")
def normalise_input_gradient(rng: Generator) -> Arguments:
    names = ("grad", "input", "mean", "scale", "weight", "sum", "dot")
    return {**optional(rng, normal_of(rng, *names), "weight"), "count": 5}


@sample("girih.label_positions")
def label_positions(rng: Generator) -> Arguments:
    values = rng.permutation(int(rng.integers(1, 6))) if rng.random() < 0.5 else rng.integers(-3, 9, rng.integers(1, 6))
    return {"labels": whole(rng, shape(rng, 1, 1), -2, 8), "values": values, "first": int(rng.integers(0, 3))}


@sample("girih.counts_by_position")
def counts_by_position(rng: Generator) -> Arguments:
    groups, first = int(rng.integers(1, 5)), int(rng.integers(0, 2))
    return {"positions": whole(rng, shape(rng, 1, 2), 0, 6), "groups": groups, "first": first}


@sample("girih.sums_by_position")
def sums_by_position(rng: Generator) -> Arguments:
    given = counts_by_position(rng)
    given["positions"] = given["positions"].reshape(-1)
    return {"input": real(rng, (len(given["positions"]), *shape(rng, 0, 2))), **given}
