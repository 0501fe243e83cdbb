"""Convolutions and their gradients, in any number of spatial dimensions.

Spatial indices: y of the output (grad), u of the window: x is read at stride·y + dilation·u - padding. A piece of y
reads a halo. Where y or u is divided the worker pads the input, and the piece's own padding becomes 0.
With groups, channels have two indices: the group g, and one within the group.
"""

from __future__ import annotations

from dataclasses import replace

from girih.ops.catalogue.moves.indices import spread
from girih.ops.derive import convolution_bounds as bounds
from girih.ops.derive.convolution_bounds import Convolution
from girih.ops.derive.temporaries import STRETCH, Measured
from girih.ops.language import DescriptionError, Opaque, Over, Sum
from girih.ops.operator import operator


def window(y, u, stride, padding, dilation):
    """Where the window's element u lies for the output's element y, in each spatial dimension."""
    return tuple(s * a + d * b - p for a, b, s, p, d in zip(y, u, stride, padding, dilation, strict=True))


def transposed_window(y, u, padding, dilation):
    """Which element of a convolution of stride 1 sees input y through the window's element u."""
    return tuple(a + p - d * b for a, b, p, d in zip(y, u, padding, dilation, strict=True))


def windows(size, kernel, stride, padding, dilation):
    """How many windows fit into each spatial dimension."""
    return tuple(
        (x + 2 * p - d * (k - 1) - 1) // s + 1
        for x, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
    )


def attributes_of(rank, stride, padding, dilation):
    return spread(stride, rank), spread(padding, rank), spread(dilation, rank)


def correlate(x, w, stride, padding, dilation, groups, bias=None, size=None):
    """out[n, o, y] = Σ w[o, c, u] · x[n, c, window(y, u)]; `size` of the result, if not all windows are used."""
    rank = x.rank - 2
    inputs, kernel = w.shape[1], w.shape[2:]
    stride, padding, dilation = attributes_of(rank, stride, padding, dilation)
    shift = lambda o, total: total if bias is None else total + bias[o]
    if groups == 1:
        return lambda n, o, *y: shift(
            o,
            Sum(
                lambda c, *u: w[(o, c, *u)] * x[(n, c, *window(y, u, stride, padding, dilation))],
                sizes=(inputs, *kernel),
            ),
        )
    outputs = w.shape[0] // groups
    size = size or windows(x.shape[2:], kernel, stride, padding, dilation)

    def body(n, g, o, *y):
        total = Sum(
            lambda c, *u: (
                w[(g * outputs + o, c, *u)] * x[(n, g * inputs + c, *window(y, u, stride, padding, dilation))]
            ),
            sizes=(inputs, *kernel),
        )
        return (n, g * outputs + o, *y), shift(g * outputs + o, total)

    return Over((x.shape[0], groups, outputs, *size), body)


def correlate_transposed(x, w, stride, padding, dilation, groups, size, bias=None):
    """out[n, c, y] = Σ w[o, c, u] · x[n, o, (y + padding - dilation·u) / stride], affine for stride 1.

    size: the spatial shape of the result.
    """
    rank = x.rank - 2
    stride, padding, dilation = attributes_of(rank, stride, padding, dilation)
    outputs, kernel = w.shape[1], w.shape[2:]
    inputs = w.shape[0] // groups
    whole = (slice(None),) * rank
    shift = lambda c, total: total if bias is None else total + bias[c]

    def value(n, g, c, *y):
        row = (lambda o: g * inputs + o) if groups > 1 else (lambda o: o)
        if max(stride) > 1:
            return Sum(
                lambda o: Opaque(x[(n, row(o), *whole)], w[(row(o), c, *whole)], linear=(0, 1))[y], sizes=(inputs,)
            )
        return Sum(
            lambda o, *u: w[(row(o), c, *u)] * x[(n, row(o), *transposed_window(y, u, padding, dilation))],
            sizes=(inputs, *kernel),
        )

    if groups == 1:
        return lambda n, c, *y: shift(c, value(n, 0, c, *y))
    return Over(
        (x.shape[0], groups, outputs, *size),
        lambda n, g, c, *y: ((n, g * outputs + c, *y), shift(g * outputs + c, value(n, g, c, *y))),
    )


def correlate_by_weight(grad, x, kernel, stride, padding, dilation, groups):
    """out[o, c, u] = Σ grad[n, o, y] · x[n, c, window(y, u)]"""
    rank = x.rank - 2
    stride, padding, dilation = attributes_of(rank, stride, padding, dilation)
    sizes = (grad.shape[0], *grad.shape[2:])
    if groups == 1:
        return lambda o, c, *u: Sum(
            lambda n, *y: grad[(n, o, *y)] * x[(n, c, *window(y, u, stride, padding, dilation))], sizes=sizes
        )
    outputs, inputs = grad.shape[1] // groups, x.shape[1] // groups

    def body(g, o, c, *u):
        total = Sum(
            lambda n, *y: (
                grad[(n, g * outputs + o, *y)] * x[(n, g * inputs + c, *window(y, u, stride, padding, dilation))]
            ),
            sizes=sizes,
        )
        return (g * outputs + o, c, *u), total

    return Over((groups, outputs, inputs, *kernel), body)


# ------------------------------------------------------------------------------------------- pieces


def is_cut(piece, dimension):
    return piece.cut(f"y{dimension}") or piece.cut(f"u{dimension}")


def local_groups(attributes, piece):
    return {"groups": piece.length("g")} if "g" in piece.names else {}


def padded_by_worker(attributes, piece, rank):
    """The padding that is left to the operator: none in divided dimensions."""
    padding = spread(attributes["padding"], rank)
    return tuple(0 if is_cut(piece, dimension) else padding[dimension] for dimension in range(rank))


def transposed_padding(attributes, piece, rank, kernel):
    """The padding with which a transposed convolution of stride 1 makes its piece from the region it reads.

    In a divided dimension the region holds all d·(k - 1) elements around the piece. In a whole one it begins where
    the first element is read, which is after the input's first if the padding is wide.
    """
    padding, dilation = spread(attributes["padding"], rank), spread(attributes["dilation"], rank)
    return tuple(
        dilation[dimension] * (kernel[dimension] - 1)
        if is_cut(piece, dimension)
        else padding[dimension] - piece.inputs[0][2 + dimension][0]
        for dimension in range(rank)
    )


def forward_piece(attributes, piece):
    rank = len(piece.output) - 2
    kernel = piece.input_shape(1)[2:]
    if not attributes["transposed"]:
        padding = padded_by_worker(attributes, piece, rank)
        return {**attributes, **local_groups(attributes, piece), "padding": padding}
    if max(spread(attributes["stride"], rank)) > 1:
        return {**attributes, **local_groups(attributes, piece)}
    padding = transposed_padding(attributes, piece, rank, kernel)
    stride, dilation = spread(attributes["stride"], rank), spread(attributes["dilation"], rank)
    extra = fitting(piece, rank, piece.output_shape, piece.input_shape(0), kernel, stride, padding, dilation)
    return {**attributes, **local_groups(attributes, piece), "padding": padding, **extra}


def input_gradient_piece(attributes, piece):
    rank = len(piece.output) - 2
    local = {**attributes, **local_groups(attributes, piece), "input_size": piece.output_shape}
    kernel = piece.input_shape(1)[2:]
    stride, dilation = spread(attributes["stride"], rank), spread(attributes["dilation"], rank)
    if attributes["transposed"]:
        padding = padded_by_worker(attributes, piece, rank)
        return {
            **local,
            "padding": padding,
            **fitting(piece, rank, piece.input_shape(0), piece.output_shape, kernel, stride, padding, dilation),
        }
    if max(stride) > 1:
        return local
    return {**local, "padding": transposed_padding(attributes, piece, rank, kernel)}


def weight_gradient_piece(attributes, piece):
    rank = len(piece.output) - 2
    padding = padded_by_worker(attributes, piece, rank)
    local = {
        **attributes,
        **local_groups(attributes, piece),
        "weight_size": piece.output_shape,
        "padding": padding,
    }
    if not attributes["transposed"]:
        return local
    stride, dilation = spread(attributes["stride"], rank), spread(attributes["dilation"], rank)
    kernel = piece.output_shape[2:]
    return {
        **local,
        **fitting(piece, rank, piece.input_shape(0), piece.input_shape(1), kernel, stride, padding, dilation),
    }


def fitting(piece, rank, large, small, kernel, stride, padding, dilation):
    """The output padding with which a transposed convolution leads from shape `small` to `large`."""
    least = tuple(
        (small[2 + d] - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel[d] - 1) + 1 for d in range(rank)
    )
    extra = tuple(0 if is_cut(piece, d) else large[2 + d] - least[d] for d in range(rank))
    return {"output_padding": extra}


# ------------------------------------------------------------------------------------------- scratch


def call(work, small, large, weight, operand):
    """small, large, weight: shapes of the result, the input and the weight; operand: of the tensor that is read."""
    stride, dilation = (spread(work.attributes[name], len(weight) - 2) for name in ("stride", "dilation"))
    sizes = (work.output.item_bytes, work.output.bytes, work.threads)
    return Convolution(small, large, weight, operand, stride, dilation, work.attributes["groups"], *sizes)


def of_forward(work):
    """(the convolution, is it the gradient by an input?)"""
    operand, weight, out = work.inputs["input"].shape, work.inputs["weight"].shape, work.output.shape
    if work.attributes.get("transposed"):
        return call(work, operand, out, weight, operand), True
    return call(work, out, operand, weight, operand), False


def of_input_gradient(work):
    operand, weight, out = work.inputs["grad"].shape, work.inputs["weight"].shape, work.output.shape
    if work.attributes.get("transposed"):
        return call(work, out, operand, weight, operand), False
    return call(work, operand, out, weight, operand), True


def of_weight_gradient(work):
    grad, operand = work.inputs["grad"].shape, work.inputs["input"].shape
    small, large = (operand, grad) if work.attributes.get("transposed") else (grad, operand)
    return call(work, small, large, work.output.shape, operand)


def one_way_or_other(of):
    def bound(work):
        most, backward = of(work)
        return (bounds.input_gradient if backward else bounds.forward)(most) + work.copied

    return bound


def weight_gradient_bound(work):
    """girih's kernel shows ATen some tensor of the weight's shape, perhaps one of its own."""
    return bounds.weight_gradient(of_weight_gradient(work)) + work.output.bytes + work.copied


def images(work):
    return next(iter(work.inputs.values())).shape[0]


def with_images(*names):
    """The work with less images, which are the first dimension of these operands, or of the result."""

    def cut(work, count):
        less = lambda item: replace(item, shape=(count, *item.shape[1:]))
        inputs = {name: less(item) if name in names else item for name, item in work.inputs.items()}
        attributes = work.attributes
        if "input_size" in attributes:
            attributes = {**attributes, "input_size": (count, *attributes["input_size"][1:])}
        output = less(work.output) if "weight" in work.inputs else work.output
        return replace(work, attributes=attributes, inputs=inputs, output=output)

    return cut


FORWARD = Measured(
    one_way_or_other(of_forward), lambda work: of_forward(work)[0].operations, images, with_images("input")
)
INPUT_GRADIENT = Measured(
    one_way_or_other(of_input_gradient), lambda work: of_input_gradient(work)[0].operations, images, with_images("grad")
)
WEIGHT_GRADIENT = Measured(
    weight_gradient_bound, lambda work: of_weight_gradient(work).operations, images, with_images("grad", "input")
)


# ------------------------------------------------------------------------------------------- operators


def sums_of_stretches(work):
    """What NumPy copies, and of a long weight the sum so far beside the next."""
    return work.copied + (work.output.bytes if work.inputs["weight"].elements > STRETCH else 0)


@operator("girih.correlate", temporary=sums_of_stretches)
def correlate_sequences(input, weight):
    return lambda i: Sum(lambda k: weight[k] * input[i + k])


@operator("aten.convolution", piece=forward_piece, padding=0.0, temporary=FORWARD)
def convolution(input, weight, stride, padding, dilation, transposed, output_padding, groups, bias=None):
    if not transposed:
        return correlate(input, weight, stride, padding, dilation, groups, bias)
    rank = input.rank - 2
    stride, padding, dilation = attributes_of(rank, stride, padding, dilation)
    extra = spread(output_padding, rank)
    size = tuple(
        (input.shape[2 + d] - 1) * stride[d] - 2 * padding[d] + dilation[d] * (weight.shape[2 + d] - 1) + extra[d] + 1
        for d in range(rank)
    )
    return correlate_transposed(input, weight, stride, padding, dilation, groups, size, bias)


@operator("girih.convolution_input_gradient", piece=input_gradient_piece, padding=0.0, temporary=INPUT_GRADIENT)
def convolution_input_gradient(
    grad, weight, input_size, stride, padding, dilation, groups, transposed=False, output_padding=None
):
    if transposed:
        return correlate(grad, weight, stride, padding, dilation, groups, size=tuple(input_size)[2:])
    return correlate_transposed(grad, weight, stride, padding, dilation, groups, tuple(input_size)[2:])


@operator("girih.convolution_weight_gradient", piece=weight_gradient_piece, padding=0.0, temporary=WEIGHT_GRADIENT)
def convolution_weight_gradient(
    grad, input, weight_size, stride, padding, dilation, groups, transposed=False, output_padding=None
):
    kernel = tuple(weight_size)[2:]
    if not transposed:
        return correlate_by_weight(grad, input, kernel, stride, padding, dilation, groups)
    if groups > 1:
        raise DescriptionError("the weight's gradient of a transposed convolution in groups is not described")
    return correlate_by_weight(input, grad, kernel, stride, padding, dilation, 1)


def both_gradients_bound(work):
    """The scratch of both gradients, and the second one, which is a result that may be dropped."""
    grad, input, weight = (work.inputs[name] for name in ("grad_output", "input", "weight"))
    by_input = replace(work, inputs={"grad": grad, "weight": weight})
    by_weight = replace(work, inputs={"grad": grad, "input": input}, output=weight)
    return one_way_or_other(of_input_gradient)(by_input) + weight_gradient_bound(by_weight) + weight.bytes


def both_operations(work):
    grad, weight = work.inputs["grad_output"], work.inputs["weight"]
    return 2 * of_input_gradient(replace(work, inputs={"grad": grad, "weight": weight}))[0].operations


@operator(
    "aten.convolution_backward",
    result=0,
    condition=lambda _, attributes: attributes["output_mask"][0],
    temporary=Measured(both_gradients_bound, both_operations),
)
def convolution_backward(grad_output, input, weight):
    """The first of its three results, the input's gradient; girih's operators compute the three apart."""
    whole = (slice(None),) * (input.rank - 1)
    everything = (slice(None),) * input.rank
    return lambda n, *i: Opaque(grad_output[(n, *whole)], input[(n, *whole)], weight[everything], linear=(0, 2))[i]
