"""Random numbers are counter-based: Philox-4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
easy as 1, 2, 3", SC'11, section 3.3). An element's number depends only on (seed, stream, its row-major index
in the whole tensor): the key is the seed, the counter is (index of the block of four words: 64 bits, stream:
64 bits). So each piece of a divided tensor draws what the whole would have drawn there. Words are 32 bits
held in int64, because PyTorch has no arithmetic on uint32; a product that overflows wraps, which leaves its
bits right. Cost: about 15 ns a word on one core, in chunks of `CHUNK_WORDS` (some megabytes of temporaries).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from girih.kernels import is_fake

Tensor = Any  # torch is untyped for the type checker
Sizes = Sequence[int]

CHUNK_WORDS = 1 << 17
MASK = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

# Leading bits of a word that a uniform number in [0, 1) can carry without rounding up to 1.
_BITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


def as_dtype(name: Any) -> Any:
    """A dtype that may be given by PyTorch's name."""
    return getattr(torch, name) if isinstance(name, str) else name


def philox(counter: Sequence[Tensor], key: tuple[Any, Any]) -> list[Tensor]:
    """Four words for each counter of four words (int64 tensors that hold 32 bits); the counter is not changed."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        left = c0 * MULTIPLIERS[0]
        right = c2 * MULTIPLIERS[1]
        c0 = ((right >> 32) & MASK).bitwise_xor_(c1).bitwise_xor_(k0)
        c2 = ((left >> 32) & MASK).bitwise_xor_(c3).bitwise_xor_(k1)
        c1 = right.bitwise_and_(MASK)
        c3 = left.bitwise_and_(MASK)
        k0 = (k0 + WEYL[0]) & MASK
        k1 = (k1 + WEYL[1]) & MASK
    return [c0, c1, c2, c3]


def chunks(
    seed: Tensor, stream: int, size: Sizes, start: Sizes, full: Sizes, per: int
) -> Iterator[tuple[slice, Tensor]]:
    """Yield (slice of the piece's flat elements, words [elements, per]) until the piece is covered.

    size: the piece's shape; start: where it begins in each dimension of the whole; full: the whole's shape.
    """
    if len(start) != len(full) or len(size) != len(full):
        raise ValueError(f"size {tuple(size)}, start {tuple(start)} and full {tuple(full)} differ in rank")
    if math.prod(size) == 0:
        return
    fake = is_fake(seed)
    number = seed if fake else int(seed) & 0xFFFFFFFFFFFFFFFF
    key = (number & MASK, (number >> 32) & MASK)
    run, starts = _runs(size, start, full, seed.device)
    step = max(4, CHUNK_WORDS // per)
    if run >= step and not fake:
        for position, first in enumerate(starts.tolist()):
            for offset in range(0, run, step):
                length = min(step, run - offset)
                chosen = _run_words(starts.new_tensor([first + offset]), length, per, stream, key)
                yield slice(position * run + offset, position * run + offset + length), chosen
        return
    rows = max(1, step // run)
    for position in range(0, len(starts), rows):
        part = starts[position : position + rows]
        chosen = _run_words(part, run, per, stream, key)
        yield slice(position * run, (position + len(part)) * run), chosen


def _runs(size: Sizes, start: Sizes, full: Sizes, device: torch.device) -> tuple[int, Tensor]:
    """A piece as runs of consecutive elements of the whole: (length of a run, first index of each run)."""
    dim = len(full)
    run = 1
    while dim > 0 and (run == math.prod(full[dim:])):
        dim -= 1
        run *= size[dim]
    starts = torch.zeros(1, dtype=torch.int64, device=device)
    for axis in range(dim):
        stride = math.prod(full[axis + 1 :])
        places = torch.arange(start[axis], start[axis] + size[axis], device=device) * stride
        starts = (starts[:, None] + places[None, :]).reshape(-1)
    inner = sum(start[axis] * math.prod(full[axis + 1 :]) for axis in range(dim, len(full)))
    return run, starts + inner


def _run_words(starts: Tensor, length: int, per: int, stream: int, key: tuple[Any, Any]) -> Tensor:
    """The words of the elements [start, start + length) of each start: int64 [len(starts) * length, per]."""
    first = starts * per
    count = length * per
    blocks = (count + 6) // 4  # enough wherever in its first block the run begins
    block = (first >> 2)[:, None] + torch.arange(blocks, device=starts.device)[None, :]
    low, high = block & MASK, (block >> 32) & MASK
    words = philox((low, high, torch.full_like(low, stream & MASK), torch.full_like(low, (stream >> 32) & MASK)), key)
    flat = torch.stack(words, dim=-1).reshape(len(starts), blocks * 4)
    if len(starts) == 1 and not is_fake(first):
        begin = int(first[0]) & 3
        return flat[0, begin : begin + count].reshape(length, per)
    place = (first & 3)[:, None] + torch.arange(count, device=starts.device)[None, :]
    return flat.gather(1, place).reshape(len(starts) * length, per)


def _unit(drawn: Tensor) -> Tensor:
    """Float64 in [0, 1) from two words: 53 bits."""
    return ((drawn[:, 0] >> 5) * 67108864 + (drawn[:, 1] >> 6)).double() * 2.0**-53


def random_uniform(
    seed: Tensor,
    stream: int,
    size: Sizes,
    start: Sizes,
    full: Sizes,
    dtype: Any = torch.float32,
) -> Tensor:
    """Uniform in [0, 1)."""
    kind = as_dtype(dtype)
    out = torch.empty(math.prod(size), dtype=kind, device=seed.device)
    per = 2 if kind == torch.float64 else 1
    for rows, drawn in chunks(seed, stream, size, start, full, per):
        if per == 2:
            out[rows] = _unit(drawn)
        else:
            out[rows] = (drawn[:, 0] >> (32 - _BITS[kind])).to(torch.float32) * 2.0 ** -_BITS[kind]
    return out.reshape(tuple(size))


def random_normal(
    seed: Tensor,
    stream: int,
    size: Sizes,
    start: Sizes,
    full: Sizes,
    dtype: Any = torch.float32,
) -> Tensor:
    """Mean 0, variance 1, by Box and Muller from two words an element, in float64, then rounded."""
    out = torch.empty(math.prod(size), dtype=as_dtype(dtype), device=seed.device)
    for rows, drawn in chunks(seed, stream, size, start, full, 2):
        uniform = (drawn.double() + 0.5) * 2.0**-32  # inside (0, 1): the logarithm is finite
        radius = uniform[:, 0].log().mul_(-2.0).sqrt_()
        out[rows] = radius.mul_(uniform[:, 1].mul(2.0 * math.pi).cos_()).to(out.dtype)
    return out.reshape(tuple(size))


def random_mask(seed: Tensor, stream: int, size: Sizes, start: Sizes, full: Sizes, keep: float) -> Tensor:
    """True with probability `keep`."""
    out = torch.empty(math.prod(size), dtype=torch.bool, device=seed.device)
    threshold = round(keep * 2**32)
    for rows, drawn in chunks(seed, stream, size, start, full, 1):
        out[rows] = drawn[:, 0] < threshold
    return out.reshape(tuple(size))


def random_integers(
    seed: Tensor,
    stream: int,
    size: Sizes,
    start: Sizes,
    full: Sizes,
    low: int,
    high: int,
    dtype: Any = torch.int64,
) -> Tensor:
    """Whole numbers in [low, high), high - low below 2**31."""
    if not 0 < high - low <= 2**31 - 1:
        raise ValueError(f"random_integers draws from [low, low + 2**31), got [{low}, {high})")
    out = torch.empty(math.prod(size), dtype=as_dtype(dtype), device=seed.device)
    for rows, drawn in chunks(seed, stream, size, start, full, 1):
        out[rows] = (((drawn[:, 0] * (high - low)) >> 32) + low).to(out.dtype)
    return out.reshape(tuple(size))
