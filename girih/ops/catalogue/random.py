"""Random numbers by position: an element depends on the seed, the stream and its place in the whole tensor only.

So a piece draws what the whole would have drawn there. The scalar functions here have no reference: they are the
kernels' (Philox). ATen's own random operators depend on the order of drawing and are not described.
"""

from __future__ import annotations

from girih.ops.language import fn
from girih.ops.operator import operator


def random_piece(attributes, piece):
    start = tuple(offset + begin for offset, (begin, _) in zip(attributes["start"], piece.output, strict=True))
    return {**attributes, "size": piece.output_shape, "start": start}


def number(seed):
    return lambda *i: fn("random")(seed[(0,) * seed.rank], *i)


CHUNK_WORDS = 1 << 17
"""Words that are drawn at a time: that of girih.kernels.philox, which loads torch."""


def drawn(work, words, later):
    """26 bytes a word in the rounds of Philox, four words at once; `later` while what the chunk before left is there.

    words: for each element. Where rows are cut they are gathered: 13 bytes a word more (a bound).
    """
    count = work.output.elements * (2 if work.output.item_bytes == 8 and not work.attributes.get("high") else words)
    gathered = 13 if work.cut else 0
    whole = (min(count, CHUNK_WORDS) + 6) // 4 * 4  # wherever in its first four words the chunk begins
    return whole * ((26 if count <= CHUNK_WORDS else later) + gathered) + 40


FLAT = ("girih.random_uniform", "girih.random_mask", "girih.random_integers")
random = operator(*FLAT, piece=random_piece, temporary=lambda work: drawn(work, 1, 34))(number)
random_normal = operator("girih.random_normal", piece=random_piece, temporary=lambda work: drawn(work, 2, 46))(number)
