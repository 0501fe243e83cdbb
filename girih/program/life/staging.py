"""What an exchange holds on one device beside its source: the buffers of its hops, and the messages that are staged.

The same rules as `girih.program.life.accounts`, for one exchange by itself: the search for plans under a memory limit
asks for all placements between which a value may go.
"""

from __future__ import annotations

from math import prod

from girih.graph import Value
from girih.layout import Placement, Transfers, route
from girih.layout.mesh import part_shape
from girih.program.exchange import messages_of, terms_of
from girih.program.life.strides import contiguous_strides, is_contiguous


def exchange_bytes(
    transfers: Transfers, value: Value, source: Placement, target: Placement, device: int, dense: bool, kept: bool
) -> int:
    """The most bytes beside its source while a value goes from one placement to another.

    dense: the elements of the source lie in order; else the bytes are a lower bound, since how they lie decides what is
    packed. kept: the source stays; else it is freed after the first hop.
    """
    most, before = 0, 0
    freed = 0 if kept else prod(part_shape(source.regions[device], value.shape)) * value.item_bytes
    for hop, place in enumerate(route(transfers, source, target, value.shape, value.item_bytes)):
        size = prod(part_shape(place.regions[device], value.shape)) * value.item_bytes
        staged = _staged(transfers, value, source, place, device, dense)
        most = max(most, before + size + staged - (freed if hop else 0))
        source, before, dense = place, size, True
    return most


def _staged(transfers: Transfers, value: Value, source: Placement, target: Placement, device: int, dense: bool) -> int:
    mesh = transfers.mesh
    combined = terms_of(mesh, source, target) > 1
    held = contiguous_strides(part_shape(source.regions[device], value.shape))
    goal = contiguous_strides(part_shape(target.regions[device], value.shape))
    packed = set()
    elements = 0
    for message in messages_of(mesh, source, target, device):
        extent = tuple(stop - start for start, stop in message.box)
        if message.source == message.target:
            continue
        if message.target == device:
            elements += message.elements if combined or not _run(extent, goal) else 0
        elif dense and not _run(extent, held) and message.box not in packed:
            packed.add(message.box)
            elements += message.elements
    return elements * value.item_bytes


def _run(extent: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Do the elements of a box lie in one run of the memory of a buffer with these strides (of a scalar: none)?"""
    return not strides or is_contiguous(extent, strides)
