"""Matrix products and batched factorisations."""

from __future__ import annotations

from girih.ops.language import Opaque, Sum
from girih.ops.operator import operator


@operator("aten.mm")
def mm(x, mat2):
    return lambda i, j: Sum(lambda k: x[i, k] * mat2[k, j])


@operator("aten.bmm")
def bmm(x, mat2):
    return lambda b, i, j: Sum(lambda k: x[b, i, k] * mat2[b, k, j])


@operator("aten.cholesky", condition=lambda tensors, _: tensors["self"].rank == 3)
def cholesky(x):
    return lambda b, i, j: Opaque(x[b, :, :])[i, j]
