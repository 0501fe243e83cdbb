"""Kinds of work follow from descriptions, also of operators that nobody has classified."""

from __future__ import annotations

import numpy as np
import pytest
from checking import make_case, results_of
from samples import SAMPLES

from girih.ops import TensorType
from girih.ops.catalogue import catalogue
from girih.ops.derive.kinds import KINDS, MATMUL, is_product, kind_of
from girih.ops.language import Sum
from girih.ops.operator import describe, operator
from girih.report.kinds import SHOWN


@operator("toy.product")
def product(x, y):
    return lambda i, j: Sum(lambda k: x[i, k] * y[j, k])


def test_every_kind_is_shown() -> None:
    assert set(SHOWN) == set(KINDS)


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_every_operator_has_a_kind(name: str) -> None:
    sample = SAMPLES[name](np.random.default_rng(0))
    for result in results_of(name):
        assert kind_of(make_case(name, sample, result).description) in KINDS


def test_products_are_those_of_two_matrices() -> None:
    found = {
        name
        for name in catalogue()
        for result in results_of(name)
        if is_product(make_case(name, SAMPLES[name](np.random.default_rng(0)), result).description)
    }
    assert found == {"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "girih.head_product"}


def test_a_new_operator_has_a_kind_without_a_table() -> None:
    types = TensorType((4, 3), "float32"), TensorType((5, 3), "float32")
    description = describe(product[0], types, ("x", "y"), {}, TensorType((4, 5), "float32"))
    assert kind_of(description) == MATMUL
    assert is_product(description)


def test_what_kernels_go_through_is_an_input() -> None:
    walked = {name: item.walked for name, item in catalogue().items() if item.walked is not None}
    assert walked == {
        "girih.embedding_gradient": 1, "girih.sparse_product": 1, "girih.sums_by_position": 1,
        "aten.linalg_solve": 0, "girih.cholesky_panel": 0,
    }  # fmt: skip
