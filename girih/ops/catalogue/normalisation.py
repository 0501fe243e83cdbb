"""Softmax and normalisation.

ATen's fused operators need their rows whole and divide over the other dimensions; girih's own (into which capture
takes them apart) are element-wise or reductions, and divide everywhere.
"""

from __future__ import annotations

from math import prod

from girih.ops.catalogue.moves.indices import replaced, whole
from girih.ops.catalogue.reductions import reduced_together
from girih.ops.derive.temporaries import NEIGHBOURS, KernelCall, broadcast_shape, by_channel, copied, summed
from girih.ops.language import LogSumExp, Opaque, Over, Select, Sum, fn
from girih.ops.operator import operator

exp, rsqrt = fn("exp"), fn("rsqrt")


@operator("aten._softmax", temporary=copied)
def softmax(x, dim):
    dim %= max(x.rank, 1)
    return lambda *i: exp(x[i] - LogSumExp(lambda k: x[replaced(i, dim, k)])) if x.rank else exp(x[()] - x[()])


@operator("aten._log_softmax", temporary=copied)
def log_softmax(x, dim):
    dim %= max(x.rank, 1)
    return lambda *i: x[i] - LogSumExp(lambda k: x[replaced(i, dim, k)]) if x.rank else x[()] - x[()]


@operator("aten._softmax_backward_data", temporary=copied)
def softmax_backward(grad_output, output, dim):
    dim %= output.rank
    dot = lambda i: Sum(lambda k: grad_output[replaced(i, dim, k)] * output[replaced(i, dim, k)])
    return lambda *i: output[i] * (grad_output[i] - dot(i))


@operator("aten._log_softmax_backward_data", temporary=copied)
def log_softmax_backward(grad_output, output, dim):
    dim %= output.rank
    return lambda *i: grad_output[i] - exp(output[i]) * Sum(lambda k: grad_output[replaced(i, dim, k)])


# ------------------------------------------------------------------------------------------- fused in ATen


def normalised(value, total, count, eps):
    """(value - mean) / √(variance + eps), where `total(f)` sums f over all that shares mean and variance."""
    average = lambda: total(lambda other: other) / count
    variance = total(lambda other: (other - average()) ** 2) / count
    return (value - average()) * rsqrt(variance + eps)


def scaled(value, weight, bias):
    """value · weight + bias, each only if there."""
    value = value if weight is None else value * weight
    return value if bias is None else value + bias


def shapes_of(value, *others):
    """`value`; the others give only their shape and type, but must be there."""
    for other in others:
        value = Select(True, value, other)
    return value


@operator("aten.native_layer_norm", result=0, temporary=copied)
def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    rows = len(normalized_shape)
    sizes = tuple(normalized_shape)

    def meaning(*i):
        batch, row = i[: input.rank - rows], i[input.rank - rows :]
        total = lambda element: Sum(lambda *k: element(input[(*batch, *k)]), sizes=sizes)
        value = normalised(input[i], total, prod(sizes), eps)
        return scaled(value, None if weight is None else weight[row], None if bias is None else bias[row])

    return meaning


def rows_in_threads(work):
    """In each thread the gradients of weight and bias, where they are asked for, beside what does not lie in order."""
    if not any(work.attributes["output_mask"][1:]):
        return work.copied
    item = max(operand.item_bytes for operand in work.inputs.values())
    return work.copied + 2 * work.threads * prod(work.attributes["normalized_shape"]) * item


@operator(
    "aten.native_layer_norm_backward",
    result=0,
    condition=lambda _, attributes: attributes["output_mask"][0],
    temporary=rows_in_threads,
)
def layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight=None, bias=None):
    batches = input.rank - len(normalized_shape)
    rest = (slice(None),) * len(normalized_shape)

    def meaning(*i):
        rows = [x[(*i[:batches], *rest)] for x in (grad_out, input, mean, rstd)]
        shared = [whole(x) for x in (weight, bias) if x is not None]
        linear = (0, 4) if weight is not None else (0,)
        return Opaque(*rows, *shared, linear=linear)[i[batches:]]

    return meaning


def group_piece(attributes, piece):
    length = lambda name: piece.length(name)
    return {**attributes, "N": length("n"), "group": length("g"), "C": length("g") * length("c")}


def channel_pairs(work):
    """Two numbers for each channel of each image, of at least four bytes."""
    shape = work.inputs["input"].shape
    return 2 * prod(shape[:2]) * max(work.output.item_bytes, 4)


def channel_factors(work):
    """Of images channels last PyTorch makes a factor and a term for each channel first."""
    return channel_pairs(work) if work.inputs["input"].channels_last else 0


@operator("aten.native_group_norm", result=0, piece=group_piece, temporary=channel_factors)
def group_norm(input, N, C, HxW, group, eps, weight=None, bias=None):
    width = C // group

    def body(n, g, c, *s):
        sizes = (width, *input.shape[2:])
        total = lambda element: Sum(lambda k, *t: element(input[(n, g * width + k, *t)]), sizes=sizes)
        value = normalised(input[(n, g * width + c, *s)], total, prod(sizes), eps)
        at = g * width + c
        return (n, at, *s), scaled(value, None if weight is None else weight[at], None if bias is None else bias[at])

    return Over((N, group, width, *input.shape[2:]), body)


def group_backward_piece(attributes, piece):
    return {**attributes, "N": piece.length("n")}


@operator(
    "aten.native_group_norm_backward",
    result=0,
    piece=group_backward_piece,
    temporary=channel_pairs,
    condition=lambda _, attributes: attributes["output_mask"][0],
)
def group_norm_backward(grad_out, input, mean, rstd, N, weight=None):
    rest = (slice(None),) * (input.rank - 1)

    def meaning(n, *i):
        rows = [grad_out[(n, *rest)], input[(n, *rest)], mean[n, :], rstd[n, :]]
        shared = [whole(x) for x in (weight,) if x is not None]
        return Opaque(*rows, *shared, linear=(0, 4) if shared else (0,))[i]

    return meaning


def batch_normalised(input, weight, bias, eps):
    sizes = (input.shape[0], *input.shape[2:])

    def meaning(n, c, *s):
        total = lambda element: Sum(lambda k, *t: element(input[(k, c, *t)]), sizes=sizes)
        value = normalised(input[(n, c, *s)], total, prod(sizes), eps)
        return scaled(value, None if weight is None else weight[c], None if bias is None else bias[c])

    return meaning


def normalised_by(input, mean, variance, weight, bias, eps):
    return lambda n, c, *s: scaled(
        (input[(n, c, *s)] - mean[c]) * rsqrt(variance[c] + eps),
        None if weight is None else weight[c],
        None if bias is None else bias[c],
    )


def channel_statistics(work):
    """Up to four numbers for each channel; short numbers that lie in no order of PyTorch's are copied (a bound)."""
    x = work.inputs["input"]
    copy = 0 if x.contiguous or x.channels_last else 2 * x.bytes
    return 4 * prod(x.shape[1:2]) * max(x.item_bytes, 4) + copy


@operator(
    "aten._native_batch_norm_legit",
    "aten._native_batch_norm_legit_functional",
    result=0,
    temporary=channel_statistics,
)
def batch_norm(input, running_mean, running_var, training, momentum, eps, weight=None, bias=None):
    if not training:
        return normalised_by(input, running_mean, running_var, weight, bias, eps)
    fresh = batch_normalised(input, weight, bias, eps)
    return lambda n, c, *s: shapes_of(fresh(n, c, *s), running_mean[c], running_var[c])


@operator("aten._native_batch_norm_legit.no_stats", result=0, temporary=channel_statistics)
def batch_norm_without_statistics(input, training, momentum, eps, weight=None, bias=None):
    return batch_normalised(input, weight, bias, eps)


@operator("aten._native_batch_norm_legit_no_training", result=0, temporary=channel_statistics)
def batch_norm_inference(input, running_mean, running_var, momentum, eps, weight=None, bias=None):
    return normalised_by(input, running_mean, running_var, weight, bias, eps)


# ------------------------------------------------------------------------------------------- girih's own


@operator("girih.centered_square_mean", temporary=summed)
def centered_square_mean(input, mean, dims, count):
    element = lambda i: (input.broadcast(i) - mean.broadcast(i)) ** 2
    return reduced_together(element, dims, input, mean, finish=lambda total: total / count)


def takes_channels(work: KernelCall, tensors, numbers) -> bool:
    """girih.kernels.own._by_channel: PyTorch's kernels of batch norm compute this."""
    there = {name: work.inputs[name] for name in (*tensors, *numbers) if name in work.inputs}
    first = there[tensors[0]]
    alike = all(item.contiguous and item.dtype == first.dtype for item in there.values())
    return (
        alike
        and first.dtype in ("float32", "float64")
        and all(there[name].shape == first.shape for name in tensors)
        and by_channel(first.shape, *(there[name].shape for name in numbers if name in there))
    )


def affine_scratch(work: KernelCall, vectors: int) -> int:
    """girih.kernels.own._affine holds a one for each channel, PyTorch's kernel a factor and a term, and the caller
    `vectors` more."""
    return (3 + vectors) * work.inputs["mean"].bytes


def normalise_scratch(work: KernelCall) -> int:
    if not takes_channels(work, ("input",), ("mean", "scale", "weight", "bias")):
        return 0
    return affine_scratch(work, int("weight" in work.inputs))


@operator("girih.normalise", elementwise=True, temporary=normalise_scratch)
def normalise(input, mean, scale, weight=None, bias=None):
    return scaled((input - mean) * scale, weight, bias)


def dot_scratch(work: KernelCall) -> int:
    shape = work.inputs["input"].shape
    others = tuple(d for d in range(len(shape)) if d != 1)
    reduced = tuple(sorted(d % len(shape) for d in work.attributes["dims"]))
    whole_channels = takes_channels(work, ("input", "grad"), ("mean", "scale")) and "weight" not in work.inputs
    if whole_channels and reduced == others and prod(shape[2:]) >= NEIGHBOURS:
        return 0
    return summed(work)


@operator("girih.normalised_dot", temporary=dot_scratch)
def normalised_dot(grad, input, mean, scale, dims, weight=None):
    def element(i):
        value = grad.broadcast(i) * ((input.broadcast(i) - mean.broadcast(i)) * scale.broadcast(i))
        return value if weight is None else value * weight.broadcast(i)

    return reduced_together(element, dims, *(x for x in (grad, input, mean, scale, weight) if x is not None))


def input_gradient_scratch(work: KernelCall) -> int:
    """girih's kernel multiplies scale · dot, which are small, before it uses them."""
    if takes_channels(work, ("input", "grad"), ("mean", "scale", "weight", "sum", "dot")):
        return affine_scratch(work, 2)
    return prod(broadcast_shape(work.inputs["scale"], work.inputs["dot"])) * work.output.item_bytes


@operator("girih.normalise_input_gradient", elementwise=True, temporary=input_gradient_scratch)
def normalise_input_gradient(grad, input, mean, scale, sum, dot, count, weight=None):
    weighted = grad if weight is None else grad * weight
    return scale * (weighted - (sum + (input - mean) * scale * dot) / count)
