"""Calls of PyTorch's own operators that a plan makes exactly as the program did: whole, whatever they compute."""

from __future__ import annotations

from girih.ops.catalogue.moves.indices import whole
from girih.ops.derive.temporaries import Measured
from girih.ops.language import Opaque
from girih.ops.operator import operator


def copies(work):
    """A bound for kernels that are not known: operands and result again, and a megabyte for each thread."""
    return sum(item.bytes for item in work.inputs.values()) + 2 * work.output.bytes + (work.threads << 20)


scratch = Measured(copies, lambda work: work.attributes.get("operations", 0))


@operator("girih.recorded", temporary=scratch)
def recorded(tensors, **_):
    return lambda *i: Opaque(*map(whole, tensors))[i]


@operator("girih.recorded_several", temporary=scratch, results=2)
def recorded_several(tensors, kept, draws=False, **_):
    meaning = lambda *i: Opaque(*map(whole, tensors))[i]
    return [meaning] * (len(kept) + draws)
