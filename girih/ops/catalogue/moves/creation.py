"""Tensors from nothing: each device makes its own part."""

from __future__ import annotations

import numpy as np

from girih.ops.catalogue.moves.reshape import local_shape
from girih.ops.language import Select, equal, fn
from girih.ops.operator import operator


@operator("aten.full", piece=local_shape("size"))
def full(fill_value):
    return lambda *i: fill_value


@operator("aten.zeros", "aten.empty.memory_format", piece=local_shape("size"))
def zeros():
    return lambda *i: 0  # an empty tensor may hold anything


@operator("aten.ones", piece=local_shape("size"))
def ones():
    return lambda *i: 1


def as_full(value):
    """What is made like another tensor needs of it only the shape and type: a piece is `full`."""

    def rule(attributes, piece):
        fill = attributes[value] if isinstance(value, str) else value
        return "aten.full", {"size": piece.output_shape, "fill_value": fill, "dtype": piece.dtype}

    return rule


@operator("aten.full_like", "aten.new_full", piece=as_full("fill_value"))
def full_like(x, fill_value):
    return lambda *i: fill_value


@operator("aten.fill.Scalar", piece=as_full("value"))
def fill(x, value):
    return lambda *i: value


@operator("aten.zeros_like", "aten.new_zeros", "aten.empty_like", "aten.new_empty", piece=as_full(0))
def zeros_like(x):
    return lambda *i: 0


@operator("aten.empty_strided", piece=as_full(0))
def empty_strided():
    return lambda *i: 0


@operator("aten.ones_like", "aten.new_ones", piece=as_full(1))
def ones_like(x):
    return lambda *i: 1


@operator("aten.scalar_tensor")
def scalar_tensor(s):
    return lambda: s


def arange_piece(attributes, piece):
    """From where the piece begins, to half a step before the first element that is not its own."""
    start, step = attributes.get("start", 0), attributes.get("step", 1)
    if "int" in piece.dtype:  # PyTorch makes whole numbers of all three first
        start, step = int(start), int(step)
    low, high = piece.output[0]
    if all(isinstance(value, int) for value in (start, step)):
        end = start + step * high
    else:
        end = start + step * (high - 0.5)
    local = {"start": start + step * low, "end": end, "step": step, "dtype": piece.dtype}
    return "aten.arange.start_step", local


@operator("aten.arange", "aten.arange.start", "aten.arange.start_step", piece=arange_piece)
def arange(start=0, step=1):
    return lambda i: i * step + start if isinstance(start, int) else fn("add")(i * step, start)


def linspace_piece(attributes, piece):
    start, steps = attributes["start"], attributes["steps"]
    step = (attributes["end"] - start) / max(steps - 1, 1)
    low, high = piece.output[0]
    local = {"start": start + step * low, "end": start + step * (high - 1), "steps": high - low}
    return {**attributes, **local}


@operator("aten.linspace", piece=linspace_piece)
def linspace(start, end, steps):
    return lambda i: fn("add")(fn("mul")(i, (end - start) / max(steps - 1, 1)), start)


@operator("aten.eye", "aten.eye.m")
def eye():
    return lambda i, j: Select(equal(i, j), 1, 0)


def constant_piece(attributes, piece):
    data = np.asarray(attributes["data"]).reshape(attributes["size"])
    local = data[tuple(slice(start, stop) for start, stop in piece.output)]
    return {**attributes, "data": tuple(local.ravel().tolist()), "size": piece.output_shape}


@operator("girih.constant", piece=constant_piece)
def constant():
    return lambda *i: fn("constant")(*i)
