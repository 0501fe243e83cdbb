"""`import girih.loop as gl`: serial loops over data that update shared arrays, run in parallel with their meaning kept.

    ratings = gl.sparse("ratings.csv")
    W, H = gl.array(users), gl.array(items)

    @gl.parallel_for(ratings, ordered=False)
    def sgd(key, v, W, H, step):
        i, j = key
        d = v - W[i] @ H[j]
        W[i], H[j] = W[i] + step * d * H[j], H[j] + step * d * W[i]

    for epoch in range(20):
        sgd(W, H, step=0.01)

Importing this module is quick; names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from girih.lazily import lazily

__getattr__ = lazily(
    __name__,
    {
        "girih.loop.arrays": "Accumulator Array Buffer accumulator array buffer random",
        "girih.loop.capture.errors": "LoopError LoopWarning",
        "girih.loop.checkpoint": "restore save",
        "girih.loop.parallel": "ParallelLoop parallel_for workers",
        "girih.loop.ranks": "ranks",
        "girih.loop.remote": "served",
        "girih.loop.shared": "AdaRevision tables",
        "girih.loop.spaces": "Space dense range sparse text",
    },
)

__all__ = [
    "Accumulator",
    "AdaRevision",
    "Array",
    "Buffer",
    "LoopError",
    "LoopWarning",
    "ParallelLoop",
    "Space",
    "accumulator",
    "array",
    "buffer",
    "dense",
    "parallel_for",
    "random",
    "range",
    "ranks",
    "restore",
    "save",
    "served",
    "sparse",
    "tables",
    "text",
    "workers",
]

if TYPE_CHECKING:
    from girih.loop.arrays import Accumulator, Array, Buffer, accumulator, array, buffer, random
    from girih.loop.capture.errors import LoopError, LoopWarning
    from girih.loop.checkpoint import restore, save
    from girih.loop.parallel import ParallelLoop, parallel_for, workers
    from girih.loop.ranks import ranks
    from girih.loop.remote import served
    from girih.loop.shared import AdaRevision, tables
    from girih.loop.spaces import Space, dense, range, sparse, text


def __dir__() -> list[str]:
    return sorted(__all__)
