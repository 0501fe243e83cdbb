"""Pooling and resampling: windows over the last dimensions, everything before them is batch and channel."""

from __future__ import annotations

from functools import partial
from math import ceil, inf, prod

from girih.ops.catalogue.contractions.convolution import padded_by_worker, window
from girih.ops.catalogue.moves.indices import opaque_along, spread
from girih.ops.derive.temporaries import copied, copied_to_order, image, pooled_slices
from girih.ops.language import Max, Opaque, Over, Sum
from girih.ops.operator import operator


def pooled(reducer, x, kernel, stride, padding, dilation, finish=lambda value: value):
    """The reducer over the window at each y."""

    def value(leading, y):
        return finish(reducer(lambda *u: x[(*leading, *window(y, u, stride, padding, dilation))], sizes=kernel))

    if x.rank == len(kernel) + 1:
        return lambda c, *y: value((c,), y)
    return lambda n, c, *y: value((n, c), y)


def trailing(rank):
    """The last `rank` dimensions, of a tensor's rank."""
    return lambda x: tuple(range(x.rank - rank, x.rank))


def max_pool_piece(rank=None):
    def rule(attributes, piece):
        spatial = rank or len(attributes["kernel_size"])
        kernel = tuple(piece.length(f"u{number}") for number in range(spatial))
        stride = spread(attributes["stride"] or attributes["kernel_size"], spatial)
        padding = padded_by_worker(attributes, piece, spatial)
        return {**attributes, "kernel_size": kernel, "stride": stride, "padding": padding}

    return rule


def max_pooled(rank, x, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    kernel = spread(kernel_size, rank)
    return pooled(Max, x, kernel, spread(stride or kernel, rank), spread(padding, rank), spread(dilation, rank))


def slopes(work):
    """A pool's gradient is made in the order of what comes back, and copied where the pool's input lies in the other.

    The input's shape and order of dimensions matter, its numbers do not.
    """
    last = work.inputs["grad_output"].channels_last
    operands = sum(copied_to_order(item, last) for name, item in work.inputs.items() if name != "self")
    return operands + (work.output.bytes if last != work.inputs["self"].channels_last else 0)


def all_but_input(work):
    return sum(item.bytes for name, item in work.inputs.items() if name != "self" and not item.contiguous)


def pooled_part(shape, attributes):
    """(share of the whole that one slice is, is it sliced at all)"""
    cut, extent = pooled_slices(shape, len(attributes["kernel_size"]))
    return min(1.0, extent / max(1, shape[cut])), extent < shape[cut]


def greatest(work):
    """PyTorch's kernel makes the int64 positions too; where girih's goes slice by slice, a slice of both."""
    input, out = work.inputs["input"], work.output
    share, sliced = pooled_part(input.shape, work.attributes)
    return ceil(share * (8 * out.elements + sliced * out.bytes + copied_to_order(input)))


def greatest_again(work):
    """The positions are found again, with the values beside; then a slice of the result is made and copied, in the
    order of what comes back, as in `slopes`."""
    input, grad, out = work.inputs["input"], work.inputs["grad"], work.output
    share, sliced = pooled_part(input.shape, work.attributes)
    turned = grad.channels_last != input.channels_last
    finding = 8 * grad.elements + grad.bytes + copied_to_order(input)
    passing = (8 << turned) * grad.elements + copied_to_order(grad, grad.channels_last) + out.bytes * turned
    return ceil(max(share * finding, share * (passing + out.bytes)) if sliced else max(finding - out.bytes, passing))


max_pool2d = operator(
    "aten.max_pool2d_with_indices", piece=max_pool_piece(2), padding=-inf, result=0, temporary=image, order_of=0
)(partial(max_pooled, 2))
max_pool3d = operator(
    "aten.max_pool3d_with_indices", piece=max_pool_piece(3), padding=-inf, result=0, temporary=copied
)(partial(max_pooled, 3))


@operator("girih.max_pool", piece=max_pool_piece(), padding=-inf, temporary=greatest, order_of=0)
def max_pool(input, kernel_size, stride, padding, dilation, ceil_mode=False):
    return max_pooled(len(kernel_size), input, kernel_size, stride, padding, dilation)


@operator("girih.max_pool_gradient", temporary=greatest_again, order_of=1)
def max_pool_gradient(grad, input, kernel_size):
    return opaque_along(trailing(len(kernel_size))(input), grad, input, linear=(0,))


@operator("aten.max_pool2d_with_indices_backward", temporary=slopes, order_of=1)
def max_pool2d_backward(grad_output, x, indices):
    return opaque_along(trailing(2)(x), grad_output, x, indices, linear=(0,))


@operator("aten.max_pool3d_with_indices_backward", temporary=all_but_input)
def max_pool3d_backward(grad_output, x, indices):
    return opaque_along(trailing(3)(x), grad_output, x, indices, linear=(0,))


# ------------------------------------------------------------------------------------------- averages


def average_piece(rank):
    """A window's part divides by the whole window's size."""

    def rule(attributes, piece):
        if "u0" not in piece.names:
            return attributes
        whole = spread(attributes["kernel_size"], rank)
        return {
            **attributes,
            "kernel_size": tuple(piece.length(f"u{number}") for number in range(rank)),
            "stride": spread(attributes["stride"] or whole, rank),
            "padding": padded_by_worker(attributes, piece, rank),
            "divisor_override": attributes["divisor_override"] or prod(whole),
        }

    return rule


def averaged(
    rank, x, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    kernel, padding = spread(kernel_size, rank), spread(padding, rank)
    uneven = not (count_include_pad or divisor_override)  # the divisor differs from window to window
    if ceil_mode or (
        any(padding) and (uneven or rank == 3)
    ):  # avg_pool3d refuses inputs that are smaller than the window
        return opaque_along(trailing(rank)(x), x, linear=(0,))
    count = divisor_override or prod(kernel)
    ones = (1,) * rank
    return pooled(Sum, x, kernel, spread(stride or kernel, rank), padding, ones, lambda total: total / count)


average = {"padding": 0.0, "temporary": image, "order_of": 0}
avg_pool2d = operator("aten.avg_pool2d", piece=average_piece(2), **average)(partial(averaged, 2))
avg_pool3d = operator("aten.avg_pool3d", piece=average_piece(3), padding=0.0, temporary=copied)(partial(averaged, 3))


@operator("aten.avg_pool1d", "aten.adaptive_avg_pool1d", temporary=copied)
def avg_pool1d(x):
    return opaque_along(trailing(1)(x), x, linear=(0,))


def adaptive_piece(rank):
    """Equal windows are an ordinary average."""

    def rule(attributes, piece):
        if "u0" not in piece.names:
            return attributes
        sizes = tuple(piece.size(f"u{number}") for number in range(rank))
        kernel = tuple(piece.length(f"u{number}") for number in range(rank))
        return f"aten.avg_pool{rank}d", {"kernel_size": kernel, "stride": sizes, "divisor_override": prod(sizes)}

    return rule


def adaptive(rank, x, output_size):
    sizes = spread(output_size, rank)
    extents = x.shape[x.rank - rank :]
    if any(extent % size for extent, size in zip(extents, sizes, strict=True)):
        return opaque_along(trailing(rank)(x), x, linear=(0,))
    kernel = tuple(extent // size for extent, size in zip(extents, sizes, strict=True))
    return pooled(Sum, x, kernel, kernel, (0,) * rank, (1,) * rank, lambda total: total / prod(kernel))


adaptive_avg_pool2d = operator("aten._adaptive_avg_pool2d", piece=adaptive_piece(2), **average)(partial(adaptive, 2))
adaptive_avg_pool3d = operator("aten._adaptive_avg_pool3d", piece=adaptive_piece(3), padding=0.0)(partial(adaptive, 3))


@operator("aten.avg_pool2d_backward", "aten._adaptive_avg_pool2d_backward", temporary=slopes, order_of=1)
def avg_pool2d_backward(grad_output, x):
    return opaque_along(trailing(2)(x), grad_output, x, linear=(0,))


@operator("aten.avg_pool3d_backward", "aten._adaptive_avg_pool3d_backward", temporary=all_but_input)
def avg_pool3d_backward(grad_output, x):
    return opaque_along(trailing(3)(x), grad_output, x, linear=(0,))


# ------------------------------------------------------------------------------------------- resampling


def resampling(taps):
    """PyTorch goes through small images, and those that lie so, channels last: it copies both there and back. Else
    there are a position and a weight for each of the `taps` of a row, and of a column. (UpSampleKernel.cpp.)"""

    def rule(work):
        input, out = work.inputs["input"], work.output
        sides, channels = sum(out.shape[2:]), input.shape[1]
        if taps == 4 or (sides > 128 and not (input.channels_last and channels > 3)):
            return taps * sides * (8 + max(4, out.item_bytes))
        if channels == 1:  # both orders in one
            return image(work)
        return 0 if input.channels_last else input.bytes + out.bytes

    return rule


def nearest_sizes(shape, output_size, scale_factors):
    if output_size is not None:
        return tuple(output_size)
    return tuple(int(extent * factor) for extent, factor in zip(shape, scale_factors, strict=True))


def nearest_piece(attributes, piece):
    if "a" not in piece.names:
        return attributes
    return {**attributes, "output_size": piece.output_shape[2:], "scale_factors": None}


@operator("aten.upsample_nearest2d.vec", piece=nearest_piece, temporary=resampling(1), order_of=0)
def upsample_nearest2d(input, output_size, scale_factors=None):
    height, width = input.shape[2:]
    tall, wide = nearest_sizes(input.shape[2:], output_size, scale_factors)
    if tall % height or wide % width:
        return opaque_along((2, 3), input, linear=(0,))
    high, long = tall // height, wide // width
    return Over(
        (*input.shape[:2], height, high, width, long),
        lambda n, c, y, a, z, b: ((n, c, y * high + a, z * long + b), input[n, c, y, z]),
    )


def resampled(input):
    return opaque_along((2, 3), input, linear=(0,))


upsample_bilinear2d = operator("aten.upsample_bilinear2d.vec", temporary=resampling(2), order_of=0)(resampled)
upsample_bicubic2d = operator("aten.upsample_bicubic2d.vec", temporary=resampling(4), order_of=0)(resampled)


@operator("aten.grid_sampler_2d")
def grid_sampler_2d(input, grid):
    return lambda n, c, y, z: Opaque(input[n, c, :, :], grid[n, y, z, :], linear=(0,))[()]
