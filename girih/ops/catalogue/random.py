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


@operator(
    "girih.random_uniform", "girih.random_normal", "girih.random_mask", "girih.random_integers", piece=random_piece
)
def random(seed):
    return lambda *i: fn("random")(seed[(0,) * seed.rank], *i)
