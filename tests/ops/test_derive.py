"""What is derived from descriptions, on examples whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from girih.capture import TrainingStep, capture
from girih.models.networks.sequences.experts import Experts
from girih.ops import TensorType, descriptions_of
from girih.ops.derive.arithmetic import floating_point_operations
from girih.ops.derive.classes import classes
from girih.ops.derive.divisions import (
    clip,
    clip_box,
    divisible,
    executable,
    input_regions,
    is_elementwise,
    is_opaque,
    output_regions,
    passing_sets,
    read_box,
    span,
)
from girih.ops.derive.pieces import make_piece
from girih.ops.describe import describe_call
from girih.ops.operator import Description


def described(operator: str, output: tuple[int, ...], attributes: dict | None = None, **tensors) -> Description:
    types = {name: TensorType(shape, "float32") for name, shape in tensors.items()}
    description = describe_call(operator, types, attributes or {}, TensorType(output, "float32"))
    assert description is not None
    return description


def able(description: Description) -> set[str]:
    return {name for name, yes in zip(description.names, divisible(description), strict=True) if yes}


def box(description: Description, **bounds: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    pairs = [bounds.get(name, (0, size)) for name, size in zip(description.names, description.sizes, strict=True)]
    return np.array([low for low, _ in pairs]), np.array([high for _, high in pairs])


CONVOLUTION = {
    "bias": None,
    "stride": (1, 1),
    "padding": (1, 1),
    "dilation": (1, 1),
    "transposed": False,
    "output_padding": (0, 0),
    "groups": 1,
}


def convolution(**changes) -> Description:
    return described(
        "aten.convolution", (2, 4, 8, 8), {**CONVOLUTION, **changes}, input=(2, 3, 8, 8), weight=(4, 3, 3, 3)
    )


def test_matrix_product() -> None:
    mm = described("aten.mm", (4, 6), self=(4, 5), mat2=(5, 6))
    assert (mm.names, mm.sizes, mm.reducer) == (("i", "j", "k"), (4, 6, 5), "sum")
    assert able(mm) == {"i", "j", "k"}
    assert passing_sets(mm) == (frozenset({0}), frozenset({1}))
    assert floating_point_operations(mm) == 2 * 4 * 5 * 6
    starts, stops = box(mm, k=(1, 3))
    assert input_regions(mm, 0, starts, stops).tolist() == [[0, 4], [1, 3]]
    assert input_regions(mm, 1, starts, stops).tolist() == [[1, 3], [0, 6]]
    assert output_regions(mm, starts, stops).tolist() == [[0, 4], [0, 6]]


def test_rows_of_groups_divide_and_each_is_computed_once() -> None:
    """A piece of the groups also reads where the group before it ended."""
    tensors = {"x": (12, 5), "weight": (4, 5, 7), "ends": (4,)}
    product = described("girih.grouped_product", (12, 7), **tensors)
    assert (product.names, product.sizes, product.reducer) == (("t", "n", "e", "k"), (12, 7, 4, 5), "sum")
    assert able(product) == {"t", "n", "e", "k"}
    assert floating_point_operations(product) == 2 * 12 * 7 * 5
    piece = make_piece(product, {}, *box(product, e=(2, 4), t=(3, 12)))
    assert piece.regions == (((3, 12), (0, 5)), ((2, 4), (0, 5), (0, 7)), ((1, 4),))
    assert piece.attributes == {"first": 3, "leading": True}
    first = make_piece(product, {}, *box(product, e=(0, 2)))
    assert (first.regions[2], first.pads[2]) == (((0, 2),), ((1, 0),))


def test_look_ups_compute_where_they_find_something() -> None:
    """However long the table is, and however many sums there are beside each other."""
    words, numbers = (50, 4), (6,)
    index = TensorType(numbers, "int64")
    tensors = {"self": TensorType(words, "float32"), "index": index, "source": TensorType((6, 4), "float32")}
    add = describe_call("aten.index_add", tensors, {"dim": 0}, TensorType(words, "float32"))
    assert add is not None
    assert floating_point_operations(add) == 6 * 4 + 2 * 50 * 4  # each source once; then alpha, and the sum
    tensors = {"self": TensorType((50,), "float32"), "index": index, "src": TensorType(numbers, "float32")}
    scatter = describe_call("aten.scatter.src", tensors, {"dim": 0}, TensorType((50,), "float32"))
    assert scatter is not None
    assert floating_point_operations(scatter) == 2 * 6


def test_a_sparse_mixture_is_about_its_products() -> None:
    """As PyTorch counts them, which counts nothing else."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(500, 32), Experts(32, 64, 8), torch.nn.Linear(32, 500))
    step = TrainingStep(model, lambda output, target: cross_entropy(output.flatten(0, 1), target.flatten()))
    words = torch.randint(500, (8, 64))
    with FlopCounterMode(display=False) as counter:
        step.forward(model, (words, words)).backward()
    graph = capture(step, (words, words)).graph
    total = sum(floating_point_operations(item) for node in graph.nodes for item in descriptions_of(graph, node))
    assert counter.get_total_flops() <= total <= 1.1 * counter.get_total_flops()


def test_a_term_beside_a_sum_is_to_be_partial() -> None:
    addmm = described("aten.addmm", (4, 6), self=(6,), mat1=(4, 5), mat2=(5, 6))
    assert able(addmm) == {"i", "j", "k"}
    assert addmm.alongside == {0}
    ignored = described("aten.addmm", (4, 6), {"beta": 0}, self=(6,), mat1=(4, 5), mat2=(5, 6))
    assert (able(ignored), ignored.alongside) == ({"i", "j", "k"}, frozenset())
    mm = described("aten.mm", (4, 6), self=(4, 5), mat2=(5, 6))
    assert mm.alongside == frozenset()
    both = {"x": TensorType((3,), "int64"), "index": TensorType((5,), "int64"), "source": TensorType((5,), "int64")}
    given = {"self": both["x"], "index": both["index"], "source": both["source"]}
    whole = describe_call("aten.index_add", given, {"dim": 0}, TensorType((3,), "int64"))
    assert whole is not None
    assert (able(whole), whole.root) == (set(), None)  # whole numbers are never held as partial sums


def test_convolution_reads_a_halo() -> None:
    conv = convolution()
    assert able(conv) == {"n", "o", "y0", "y1", "c", "u0", "u1"}
    starts, stops = box(conv, y0=(4, 8))
    raw = input_regions(conv, 0, starts, stops)
    assert raw.tolist() == [[0, 2], [0, 3], [3, 9], [-1, 9]]
    assert clip(raw, (2, 3, 8, 8)).tolist() == [[0, 2], [0, 3], [3, 8], [0, 8]]


def test_one_box_in_plain_numbers_is_what_arrays_say() -> None:
    same = convolution()
    wide = described(
        "aten.convolution", (2, 4, 14, 8), {**CONVOLUTION, "padding": (4, 1)}, input=(2, 3, 8, 8), weight=(4, 3, 3, 3)
    )
    for description, rows in ((same, (4, 8)), (same, (0, 1)), (wide, (0, 1)), (wide, (13, 14))):
        starts, stops = box(description, y0=rows)
        for tensor, kind in enumerate(description.inputs):
            raw = input_regions(description, tensor, starts, stops)
            read = read_box(description, tensor, starts, stops)
            assert list(map(list, read)) == raw.tolist()
            assert list(map(list, clip_box(read, kind.shape))) == clip(raw, kind.shape).tolist()
        made = [list(span(index, starts, stops)) for index in description.place]
        assert made == output_regions(description, starts, stops).tolist()


def test_a_dimension_without_elements_is_read_and_made_nowhere() -> None:
    turned = described("aten.permute", (8, 0), {"dims": (1, 0)}, self=(0, 8))
    starts, stops = box(turned, i0=(2, 4))
    assert output_regions(turned, starts, stops).tolist() == [[2, 4], [0, 0]]
    assert input_regions(turned, 0, starts, stops).tolist() == [[0, 0], [2, 4]]
    assert [list(span(index, starts, stops)) for index in turned.place] == [[2, 4], [0, 0]]
    later = described("aten.slice.Tensor", (0, 3), {"dim": 0, "start": 3, "end": 3}, self=(5, 3))
    starts, stops = box(later)
    assert input_regions(later, 0, starts, stops).tolist() == [[3, 3], [0, 3]]
    assert list(map(list, read_box(later, 0, starts, stops))) == [[3, 3], [0, 3]]


def test_the_worker_pads_divided_dimensions_and_the_operator_the_others() -> None:
    piece = make_piece(convolution(), CONVOLUTION, *box(convolution(), y0=(4, 8)))
    assert piece.regions[0] == ((0, 2), (0, 3), (3, 8), (0, 8))
    assert piece.pads[0] == ((0, 0), (0, 0), (0, 1), (0, 0))
    assert piece.attributes["padding"] == (0, 1)
    assert piece.output == ((0, 2), (0, 4), (4, 8), (0, 8))


def test_a_window_wholly_in_the_padding_reads_nothing() -> None:
    """Hull bounds lie outside of the tensor: the region is empty and everything is padding."""
    wide = {**CONVOLUTION, "padding": (4, 1)}
    conv = described("aten.convolution", (2, 4, 14, 8), wide, input=(2, 3, 8, 8), weight=(4, 3, 3, 3))
    for rows in ((0, 1), (13, 14)):
        piece = make_piece(conv, wide, *box(conv, y0=rows))
        start, stop = piece.regions[0][2]
        assert start == stop
        assert sum(piece.pads[0][2]) == 3


def test_what_softmax_reads_twice_stays_whole() -> None:
    softmax = described("aten._softmax", (3, 4), {"dim": 1, "half_to_float": False}, self=(3, 4))
    assert able(softmax) == {"i0"}
    variance = described("aten.var.correction", (3,), {"dim": (1,)}, self=(3, 4))
    assert able(variance) == {"i0"}


def test_elementwise_means_at_the_same_position() -> None:
    assert is_elementwise(described("aten.add.Tensor", (3, 4), self=(3, 4), other=(4,)))
    assert not is_elementwise(described("aten.permute", (4, 3), {"dims": (1, 0)}, self=(3, 4)))
    assert not is_elementwise(described("aten.flip", (3, 4), {"dims": (1,)}, self=(3, 4)))
    assert not is_elementwise(described("aten.sum.dim_IntList", (3,), {"dim": (1,)}, self=(3, 4)))


@pytest.mark.parametrize(
    ("source", "target", "sizes", "variables"),
    [
        ((4, 6), (2, 2, 6), (2, 2, 6), "all"),
        ((4, 6), (24,), (4, 6), "all"),
        ((4, 6), (8, 3), (4, 2, 3), "all"),
        ((5, 1, 4), (5, 4), (5, 4), "all"),
        ((5, 2, 3), (5, 3, 2), (5, 3, 2), {"i0"}),
        ((2, 3, 5, 4), (3, 2, 20), (3, 2, 5, 4), {"i2", "i3"}),
        ((), (1, 1), (), "all"),
        ((0, 3), (3, 0), (3, 0), set()),
    ],
)
def test_reshape_divides_where_shapes_align(source, target, sizes, variables) -> None:
    reshape = described("aten.reshape", target, {"shape": target}, self=source)
    assert reshape.sizes == sizes
    assert able(reshape) == (set(reshape.names) if variables == "all" else variables)
    assert is_opaque(reshape) == (variables != "all")
    assert passing_sets(reshape) == (frozenset({0}),)


def test_pieces_of_a_merge_must_be_boxes() -> None:
    merge = described("aten.reshape", (24,), {"shape": (24,)}, self=(4, 6))
    assert executable(merge, *box(merge, i0=(0, 2)))
    assert not executable(merge, *box(merge, i1=(0, 2)))
    assert executable(merge, *box(merge, i0=(1, 2), i1=(0, 2)))


def test_groups_divide_and_their_channels_only_within_one() -> None:
    grouped = described(
        "aten.convolution",
        (2, 4, 8, 8),
        {**CONVOLUTION, "groups": 2},
        input=(2, 6, 8, 8),
        weight=(4, 3, 3, 3),
    )
    assert executable(grouped, *box(grouped, g=(0, 1)))
    assert not executable(grouped, *box(grouped, o=(0, 1)))
    assert not executable(grouped, *box(grouped, c=(0, 1)))
    assert executable(grouped, *box(grouped, g=(1, 2), o=(0, 1), c=(0, 1)))
    assert executable(grouped, *box(grouped, u0=(0, 1)))


def test_linear_operators_pass_partial_sums() -> None:
    add = described("aten.add.Tensor", (3,), self=(3,), other=(3,))
    assert passing_sets(add) == (frozenset({0, 1}),)
    relu = described("aten.relu", (3,), self=(3,))
    assert passing_sets(relu) == ()
    gate = described("aten.threshold_backward", (3,), {"threshold": 0}, grad_output=(3,), self=(3,))
    assert passing_sets(gate) == (frozenset({0}),)
    zeros = described("aten.full", (3,), {"size": (3,), "fill_value": 0.0})
    assert passing_sets(zeros) == (frozenset(),)  # of zeros there may be any number
    ones = described("aten.full", (3,), {"size": (3,), "fill_value": 1.0})
    assert passing_sets(ones) == ()
    scan = described("aten.cumsum", (3,), {"dim": 0}, self=(3,))
    assert passing_sets(scan) == (frozenset({0}),)


def test_a_mean_divides_by_the_whole_count() -> None:
    mean = described("aten.mean.dim", (3,), {"dim": (1,)}, self=(3, 10))
    piece = make_piece(mean, {"dim": (1,)}, *box(mean, k0=(0, 4)))
    assert (piece.operator, piece.attributes) == ("girih.mean", {"dims": (1,), "keepdim": False, "count": 10})
    assert piece.names == ("input",)


def test_what_is_never_read_is_not_sent() -> None:
    full = described("aten.full_like", (8,), {"fill_value": 2}, self=(8,))
    piece = make_piece(full, {"fill_value": 2}, *box(full, i0=(2, 5)))
    assert piece.regions == (((0, 0),),)
    assert piece.names == (None,)
    assert piece.attributes == {"size": (3,), "fill_value": 2, "dtype": "float32"}


# ------------------------------------------------------------------------------------------- classes


def named(description: Description, *parameters: bool, output: bool = False) -> dict[str, str]:
    return dict(zip(description.names, classes(description, parameters, output), strict=True))


def test_classes_of_a_linear_layer() -> None:
    mm = described("aten.mm", (4, 6), self=(4, 5), mat2=(5, 6))
    assert named(mm, False, True) == {"i": "sample", "j": "parameter", "k": "parameter"}
    assert named(mm, False, False)["k"] == "sample"  # x-transposed times grad: summed over the samples


def test_classes_of_a_convolution() -> None:
    found = named(convolution(), False, True)
    assert found == {
        "n": "sample",
        "o": "parameter",
        "y0": "attribute",
        "y1": "attribute",
        "c": "parameter",
        "u0": "parameter",
        "u1": "parameter",
    }


def test_classes_of_elementwise_and_merged_indices() -> None:
    add = described("aten.add.Tensor", (8, 5, 6), self=(8, 5, 6), other=(6,))
    assert named(add, False, True) == {"i0": "sample", "i1": "attribute", "i2": "parameter"}
    merge = described("aten.reshape", (8, 5, 6), {"shape": (8, 5, 6)}, self=(40, 6))
    assert named(merge, False) == {"i0": "sample", "i1": "attribute", "i2": "attribute"}
    made = described("aten.full", (8, 5), {"size": (8, 5), "fill_value": 0})
    assert named(made) == {"i0": "sample", "i1": "attribute"}


def test_classes_of_a_weight_gradient() -> None:
    grad = described(
        "girih.convolution_weight_gradient",
        (4, 3, 3, 3),
        {"weight_size": (4, 3, 3, 3), "stride": 1, "padding": 1, "dilation": 1, "groups": 1},
        grad=(2, 4, 8, 8),
        input=(2, 3, 8, 8),
    )
    found = named(grad, False, False, output=True)
    assert (found["n"], found["o"], found["u0"], found["y0"]) == ("sample", "parameter", "parameter", "attribute")
