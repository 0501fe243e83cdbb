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

from typing import TYPE_CHECKING, Any

_HOMES = {
    "Accumulator": "girih.loop.arrays",
    "AdaRevision": "girih.loop.shared",
    "Array": "girih.loop.arrays",
    "Buffer": "girih.loop.arrays",
    "LoopError": "girih.loop.capture.errors",
    "LoopWarning": "girih.loop.capture.errors",
    "ParallelLoop": "girih.loop.parallel",
    "Space": "girih.loop.spaces",
    "accumulator": "girih.loop.arrays",
    "array": "girih.loop.arrays",
    "buffer": "girih.loop.arrays",
    "dense": "girih.loop.spaces",
    "parallel_for": "girih.loop.parallel",
    "random": "girih.loop.arrays",
    "range": "girih.loop.spaces",
    "ranks": "girih.loop.ranks",
    "restore": "girih.loop.checkpoint",
    "save": "girih.loop.checkpoint",
    "served": "girih.loop.remote",
    "sparse": "girih.loop.spaces",
    "tables": "girih.loop.shared",
    "text": "girih.loop.spaces",
    "workers": "girih.loop.parallel",
}

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


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'girih.loop' has no attribute {name!r}")
    from importlib import import_module

    result = getattr(import_module(home), name)
    globals()[name] = result
    return result


def __dir__() -> list[str]:
    return sorted(_HOMES)
