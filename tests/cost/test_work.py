"""Kinds of work and amounts, from descriptions alone."""

from __future__ import annotations

import math

import pytest

from girih.cost.work import Work, bounds_of_edges, index_ranges, work_of
from girih.ops.derive.kinds import KINDS, kind_of
from girih.ops.describe import describe_call
from girih.ops.operator import Description, TensorType


def described(operator: str, output: tuple[int, ...], attributes: dict | None = None, **shapes: tuple) -> Description:
    tensors = {
        name: TensorType(shape[1:], "int64") if shape[:1] == ("int",) else TensorType(shape, "float32")
        for name, shape in shapes.items()
    }
    made = describe_call(operator, tensors, attributes or {}, TensorType(output, "float32"))
    assert made is not None
    return made


WINDOW = {
    "bias": None, "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "transposed": False,
    "output_padding": (0, 0), "groups": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "description"),
    [
        ("matmul", described("aten.mm", (4, 6), self=(4, 5), mat2=(5, 6))),
        ("matmul", described("aten.bmm", (2, 4, 6), self=(2, 4, 5), mat2=(2, 5, 6))),
        ("matmul", described("aten.addmm", (4, 6), self=(6,), mat1=(4, 5), mat2=(5, 6))),
        ("convolution", described("aten.convolution", (2, 3, 8, 8), WINDOW, input=(2, 5, 8, 8), weight=(3, 5, 3, 3))),
        ("element-wise", described("aten.add.Tensor", (4, 6), self=(4, 6), other=(6,))),
        ("element-wise", described("aten.relu", (4, 6), self=(4, 6))),
        ("function", described("aten.exp", (4, 6), self=(4, 6))),
        ("function", described("aten.tanh", (4, 6), self=(4, 6))),
        ("reduction", described("aten.sum.dim_IntList", (4,), {"dim": (1,), "keepdim": False}, self=(4, 6))),
        ("reduction", described("aten.logsumexp", (4,), {"dim": (1,), "keepdim": False}, self=(4, 6))),
        ("reduction", described("aten.dot", (), self=(6,), tensor=(6,))),
        ("copy", described("aten.cat", (8, 6), {"dim": 0}, **{"tensors.0": (4, 6), "tensors.1": (4, 6)})),
        ("view", described("aten.permute", (6, 4), {"dims": (1, 0)}, self=(4, 6))),
        ("view", described("aten.reshape", (24,), {"shape": (24,)}, self=(4, 6))),
        ("look-up", described("girih.embedding", (7, 6), weight=(50, 6), indices=("int", 7))),
        ("look-up", described("girih.embedding_gradient", (50, 6), {"rows": 50}, grad=(7, 6), indices=("int", 7))),
        ("creation", described("aten.full", (4, 6), {"size": (4, 6), "fill_value": 0.0, "dtype": "float32"})),
        ("opaque", described("aten.linalg_cholesky", (5, 5), self=(5, 5))),
    ],
)  # fmt: skip
def test_kinds_follow_from_descriptions(kind: str, description: Description) -> None:
    assert kind in KINDS
    assert kind_of(description) == kind


def test_a_product() -> None:
    description = described("aten.mm", (4, 6), self=(4, 5), mat2=(5, 6))
    assert work_of(description, (4, 6, 5), (80, 120), 96) == Work("matmul", "aten.mm", 240.0, 296.0)
    assert work_of(description, (2, 6, 5), (40, 120), 48).operations == 120.0


def test_a_look_up_touches_only_what_it_finds() -> None:
    description = described("girih.embedding", (7, 6), weight=(50, 6), indices=("int", 7))
    made = work_of(description, description.sizes, (50 * 24, 56), 7 * 24)
    assert (made.operations, made.bytes) == (0.0, 7 * 24 + 56 + 7 * 24)
    assert index_ranges(description) == {1: 50}


def sums(groups: int, rows: int, columns: int) -> Description:
    return described(
        "girih.sums_by_position", (groups, columns), {"groups": groups}, input=(rows, columns), positions=("int", rows)
    )


def test_sums_by_label_read_every_row_once() -> None:
    """However few the labels are, and whatever a piece has of rows and labels."""
    for groups in (3, 300):
        description = sums(groups, 1000, 8)
        assert kind_of(description) == "look-up"
        size = groups * 32
        made = work_of(description, description.sizes, (1000 * 32, 1000 * 8), size)
        assert (made.operations, made.bytes) == (0.0, 1000 * 32 + 1000 * 8 + size)
    counts = described("girih.counts_by_position", (3,), {"groups": 3}, positions=("int", 1000))
    assert work_of(counts, counts.sizes, (8000,), 24).bytes == 8024


def test_what_a_gradient_adds_to_rows_is_read_whole() -> None:
    """Of 50 rows of 6 numbers, most are not touched by 700 others that are added to 2 of them in this piece."""
    description = described("girih.embedding_gradient", (50, 6), {"rows": 50}, grad=(700, 6), indices=("int", 700))
    assert work_of(description, description.sizes, (700 * 24, 5600), 50 * 24).bytes == 700 * 24 + 5600 + 50 * 24
    piece = tuple(2 if size == 50 else size for size in description.sizes)
    assert work_of(description, piece, (700 * 24, 5600), 2 * 24).bytes == 700 * 24 + 5600 + 2 * 24


def test_a_sparse_product_reads_a_row_for_each_stored_element() -> None:
    shapes = {"values": (40,), "rows": ("int", 40), "columns": ("int", 40)}
    description = described("girih.sparse_product", (9, 6), {"count": 9}, **shapes, x=(1000, 6))
    made = work_of(description, description.sizes, (160, 320, 320, 24_000), 9 * 24)
    assert made.bytes == 160 + 320 + 320 + 40 * 24 + 9 * 24
    small = described("girih.sparse_product", (9, 6), {"count": 9}, **shapes, x=(10, 6))
    assert work_of(small, small.sizes, (160, 320, 320, 240), 9 * 24).bytes == 160 + 320 + 320 + 240 + 9 * 24


def test_a_view_costs_what_it_moves() -> None:
    description = described("aten.reshape", (24,), {"shape": (24,)}, self=(4, 6))
    assert work_of(description, description.sizes, (96,), 96, moves=False) == Work("view", "aten.reshape", 0.0, 0.0)
    assert work_of(description, description.sizes, (96,), 96) == Work("copy", "aten.reshape", 0.0, 192.0)


def test_a_graph_is_priced_by_its_edges() -> None:
    """Not by all pairs of vertices and edges: each edge reads a row, however often, and a piece has its share."""
    rows = {"offsets": ("int", 11), "neighbours": ("int", 40)}
    description = described("girih.neighbour_sum", (10, 6), x=(20, 6), **rows)
    whole = work_of(description, description.sizes, (480, 88, 320), 240)
    assert (whole.kind, whole.operations, whole.bytes) == ("look-up", 40 * 6, 40 * 24 + 88 + 320 + 240)
    half = work_of(description, (5, *description.sizes[1:]), (480, 48, 320), 120)
    assert (half.operations, half.bytes) == (20 * 6, 20 * 24 + 48 + 160 + 120)
    assert bounds_of_edges(description, description.sizes) == {1: 41}
    assert bounds_of_edges(description, (5, *description.sizes[1:])) == {1: 21}


def test_a_graph_with_two_sums_over_its_edges_is_priced_by_its_edges() -> None:
    """Attention's gradient by what is read: of one head with a row of 4, and 40 edges."""
    heads = dict.fromkeys(("dot", "logsumexp", "target"), (10, 1))
    shapes = {"grad": (10, 1, 4), "x": (20, 1, 4), **heads, "source": (20, 1)}
    rows = {"offsets": ("int", 21), "neighbours": ("int", 40)}
    description = described("girih.attention_source_gradient", (20, 1, 5), {"slope": 0.2}, **shapes, **rows)
    inputs = [
        float(math.prod(size for size in shape if size != "int")) * (8 if shape[0] == "int" else 4)
        for shape in (*shapes.values(), *rows.values())
    ]
    work = work_of(description, description.sizes, inputs, 400.0)
    once = 40 * (4 + 3) * 4 + 20 * (4 + 1) * 4 + 21 * 8 + 40 * 8 + 400  # grad and its numbers by edges, all else whole
    assert once <= work.bytes <= 1.5 * once
    assert work.operations <= 40 * (4 * 20 + 4 * 20)  # not for each pair of edges, nor the scores for each column
