"""What a kernel holds while it runs, beside its operands and its result: the `temporary` rules of operators, in bytes.

The rules describe girih's own kernels and those that PyTorch has in portable C++, which hold the same on every
processor; each says where its terms come from. They are exact where it is not said that they are a bound. Kernels and
rules share `slices`, by which what would be large is done part by part. Of kernels that a library brings there are no
rules: their operators say `Measured` (`girih.ops.scratch`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from girih.graph.graph import ITEM_BYTES

Shape = tuple[int, ...]

SLICE_BYTES = 1 << 20
"""What girih's kernels hold of an intermediate tensor at a time: it stays in a core's cache."""
CARD_SLICE_BYTES = 1 << 26
"""On a GPU, where each slice takes launches, and the whole chip is to have work."""
NEIGHBOURS = 16
"""Elements of a channel side by side from which PyTorch's gradient of a batch norm is fast."""
FEW = 1 << 20
"""Numbers of rows that edges read, up to which a second thread would take longer to start than to help."""
SHARES = 1024
"""Edges of a vertex whose shares of its attention are computed before their rows are added up."""
TURNED = 60
"""Rows and columns of a matrix that PyTorch turns at a time, in a buffer, where it copies a transposed one."""
STRETCH = 8192
"""Elements of a weight that are gone through at a time: of more, BLAS shares a product among threads, and those of
several workers wait for each other."""
COUNTED = 1 << 15
"""Numbers that a histogram counts at a time."""


def is_channels_last(shape: Shape, strides: Shape | None) -> bool:
    """Do images [N, C, H, W] lie pixel by pixel, so that PyTorch's kernels keep that order? strides: None: contiguous.

    As c10::is_channels_last_strides_2d has it, also where there are gaps.
    """
    if strides is None or len(shape) != 4 or 0 in shape or strides[1] == 0:
        return False
    least = 0
    for dimension in (1, 3, 2, 0):
        if strides[dimension] < least or (dimension == 0 and least == strides[1]):
            return False
        least = strides[dimension] * max(shape[dimension], 1)
    return True


@dataclass(frozen=True)
class Operand:
    """A tensor as the kernel gets it.

    contiguous: in the order of its dimensions, without gaps. strides: where it is not, in elements. dtype: its name.
    """

    shape: Shape
    item_bytes: int
    contiguous: bool = True
    strides: Shape | None = None
    dtype: str = "float32"

    @property
    def channels_last(self) -> bool:
        return is_channels_last(self.shape, self.strides)

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.item_bytes

    @property
    def turning(self) -> int:
        """Bytes of the buffer through which PyTorch copies a transposed matrix (ATen/native/Copy.cpp); else 0."""
        transposed = len(self.shape) == 2 and self.strides == (1, self.shape[0])
        return TURNED**2 * self.item_bytes if transposed and self.elements >= TURNED**2 else 0

    @property
    def short(self) -> bool:
        """Is it of floating-point numbers that PyTorch adds up in float32?"""
        return self.dtype in ("float16", "bfloat16")


@dataclass(frozen=True)
class KernelCall:
    """A call on one device: attributes of the piece, tensors by parameter name, padded as they are passed.

    cut: names of the index variables that are divided. threads: of the worker that runs it.
    """

    attributes: dict[str, Any]
    inputs: dict[str, Operand]
    output: Operand
    cut: frozenset[str] = frozenset()
    threads: int = 1

    @property
    def shape(self) -> Shape:
        """The shape to which the inputs broadcast."""
        return broadcast_shape(*self.inputs.values())

    @property
    def copied(self) -> int:
        """Kernels that call `contiguous` copy what is not, and a transposed matrix by way of a buffer."""
        copies = [item for item in self.inputs.values() if not item.contiguous]
        return sum(item.bytes for item in copies) + max((item.turning for item in copies), default=0)


def copied(work: KernelCall) -> int:
    """Kernels that want their operands contiguous."""
    return work.copied


def read_by_edges(work: KernelCall) -> int:
    """girih.kernels.neighbours: operands in the dtype of sums, contiguous, and sums in it if the result has another.

    What has neither is copied twice, first to the dtype in its own order (a bound: the largest).
    """
    exact = "float64" if work.output.dtype == "float64" else "float32"
    width = 8 if exact == "float64" else 4
    graph = ("offsets", "neighbours", "ends", "edges")  # which stay what they are
    other = [item for name, item in work.inputs.items() if name not in graph and item.dtype != exact]
    same = [item for name, item in work.inputs.items() if name in graph or item.dtype == exact]
    result = 0 if work.output.dtype == exact else work.output.elements * width
    twice = max((item.elements * width for item in other if not item.contiguous), default=0)
    conversions = sum(item.elements * width for item in other) + twice
    return result + conversions + sum(item.bytes for item in same if not item.contiguous)


def read_with_shares(work: KernelCall) -> int:
    """The same, and what each thread knows of the edges that it is at: shares, slopes, and bits for exponentials. Few
    edges are one thread's."""
    width = 8 if work.output.dtype == "float64" else 4
    heads = work.inputs["source"].shape[1]
    shares = SHARES * heads * (2 * width + 4)
    features = work.inputs["x"].shape[2] if "x" in work.inputs else 1
    few = work.inputs["neighbours"].elements * heads * features <= FEW
    return read_by_edges(work) + shares * (1 if few else work.threads)


def added_wide(work: KernelCall) -> int:
    """Kernels that add short floating-point numbers up in a float32 copy of the result."""
    return 4 * work.output.elements if work.output.short else 0


_CATEGORIES = ("bool", "int", "float", "complex")
_KEEPING = frozenset(
    f"aten.{name}" for name in ("complex", "copy", "polar", "masked_fill.Scalar", "masked_fill.Tensor")
)
"""Element-wise operators that read operands of other types as they are."""


def _rank(dtype: str) -> tuple[int, int]:
    """Types in the order in which PyTorch prefers them for a common type."""
    kind = next(number for number, name in reversed(list(enumerate(_CATEGORIES))) if name in dtype)
    return kind, ITEM_BYTES[dtype]


def converted(operator: str, operands: Sequence[tuple[Shape, str]], number: Any, output: str) -> int:
    """Bytes of the copies that PyTorch's element-wise kernels make of operands whose type is not the one in which they
    compute (ATen/TensorIterator.cpp, compute_types): the result's, or, where that is of truth values, the operands'.

    operands: (shape, dtype) by position. number: one among the operands, or None. output: the result's dtype.
    """
    if operator in _KEEPING:
        return 0
    read = operands[1:] if operator.startswith("aten.where.") else operands  # the condition is read as it is
    common = output
    if output == "bool" and read:
        common = max(read, key=lambda item: (_rank(item[1])[0], bool(item[0]), _rank(item[1])))[1]
        if isinstance(number, float) and _rank(common)[0] < _CATEGORIES.index("float"):
            common = "float32"
        elif isinstance(number, int) and not isinstance(number, bool) and common == "bool":
            common = "int64"
    elif "complex" not in output and any("complex" in dtype for _, dtype in read):  # a magnitude is made complex first
        return sum(prod(shape) * ITEM_BYTES[dtype] for shape, dtype in read)
    return sum(prod(shape) * ITEM_BYTES[common] for shape, dtype in read if dtype != common)


def copied_to_order(item: Operand, last: bool | None = None) -> int:
    """PyTorch's kernels of images go through one channels last or contiguous (None: as it lies, if in either)."""
    last = item.channels_last if last is None else last
    return 0 if (item.channels_last if last else item.contiguous) else item.bytes


def image(work: KernelCall) -> int:
    """The first operand of a kernel of images."""
    return copied_to_order(next(iter(work.inputs.values())))


@dataclass(frozen=True)
class Measured:
    """What is known of a kernel's scratch without measuring it.

    bound: bytes that it is never more than, whatever the processor. operations: about how much arithmetic a call takes.
    images: how many there are of what a call can be measured with less of. cut: the same work with so many of them.
    only: where it is not (), only calls whose results have elements of so many bytes take any.
    """

    bound: Callable[[KernelCall], int]
    operations: Callable[[KernelCall], int]
    images: Callable[[KernelCall], int] = lambda work: 1
    cut: Callable[[KernelCall, int], KernelCall] = lambda work, count: work
    only: tuple[int, ...] = ()


Temporary = Callable[[KernelCall], int] | Measured


def broadcast_shape(*items: Operand) -> Shape:
    rank = max((len(item.shape) for item in items), default=0)
    shapes = [(1,) * (rank - len(item.shape)) + item.shape for item in items]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*shapes, strict=True))


def by_channel(shape: Sequence[int], *numbers: Sequence[int]) -> bool:
    """Whether all `numbers` are one for each channel, [1, C, 1, …] beside [N, C, …], as those of a batch norm."""
    channels = (1, *shape[1:2], *(1,) * (len(shape) - 2))
    return len(shape) >= 3 and 0 not in shape and all(tuple(each) == channels for each in numbers)


def slices(
    shape: Sequence[int],
    item_bytes: int,
    preferred: Iterable[int],
    others: Iterable[int] = (),
    size: int = SLICE_BYTES,
) -> Shape:
    """(dimension, extent): how to cut a tensor into slices of about `size` bytes; the whole first one if it is small.

    The outermost of the preferred dimensions is cut whose smallest slices are small enough, else of the others, else
    the longest of all of them.
    """
    whole = prod(shape) * item_bytes
    choices = [*preferred, *others]
    if whole <= size or not choices:
        return 0, shape[0] if shape else 1
    for dimension in choices:
        smallest = whole // shape[dimension]
        if smallest <= size:
            return dimension, size // smallest
    return max(choices, key=lambda dimension: shape[dimension]), 1


def slice_bytes(shape: Sequence[int], item_bytes: int, cut: Shape) -> int:
    """Bytes of the largest slice."""
    if not shape or 0 in shape:
        return prod(shape) * item_bytes
    dimension, extent = cut
    return prod(shape) // shape[dimension] * min(extent, shape[dimension]) * item_bytes


def kept_and_reduced(rank: int, dims: Sequence[int]) -> tuple[Shape, Shape]:
    """The dimensions that a sum over `dims` keeps and those that it does not; () names all."""
    reduced = {dim % rank for dim in dims} if dims else set(range(rank))
    return tuple(d for d in range(rank) if d not in reduced), tuple(sorted(reduced)) if rank else ()


def summed_item_bytes(item_bytes: int) -> int:
    """For each element of a sum: PyTorch adds float16 and bfloat16 in a float32 copy, where several dimensions go."""
    return item_bytes if item_bytes >= 4 else item_bytes + 4


def summed(work: KernelCall) -> int:
    """girih.kernels.own._summed: one slice of what is summed, and its sum where reduced dimensions are cut."""
    shape, item = work.shape, summed_item_bytes(work.output.item_bytes)
    kept, reduced = kept_and_reduced(len(shape), work.attributes["dims"])
    cut = slices(shape, item, kept, reduced)
    again = work.output.bytes if cut[0] in reduced and cut[1] < shape[cut[0]] else 0
    return slice_bytes(shape, item, cut) + again


def slice_size(on_card: bool) -> int:
    """Bytes of an intermediate tensor that girih's kernels hold at a time."""
    return CARD_SLICE_BYTES if on_card else SLICE_BYTES


def pooled_slices(shape: Sequence[int], spatial: int, size: int = SLICE_BYTES) -> Shape:
    """How girih's max pooling is cut: by batch or channel, for the int64 positions of the greatest elements."""
    return slices(shape, 8, range(len(shape) - spatial), size=size)
