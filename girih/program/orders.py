"""Which devices take part in which steps: classes of like devices, and the order of each.

A device takes part in a compute step if it makes a part of what the step writes, and in a transfer if it holds a part
of the source or of the target. Devices that hold parts of the same buffers, and read parts of the same, are alike: they
are one class with one order. Where the strategy places nothing, all devices are one class, also those whose parts are
empty because a dimension is too short.

A class frees a buffer of which it holds a part after its own last step that touches it; what others still do with
their parts does not concern it. Cost: linear in the steps, and in what the classes take part in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from girih.layout import Placement
from girih.partition.strategy import Strategy
from girih.program.liveness import free_early, last_touched
from girih.program.program import Program
from girih.program.steps import (
    BlockStep,
    ComputeStep,
    Devices,
    FreeStep,
    MoveStep,
    Order,
    StartStep,
    Step,
    TransferStep,
)

Mask = NDArray[np.bool_]  # [devices]


def arranged(program: Program, steps: Iterable[Step], kept: set[str]) -> Program:
    """The program with these steps, in this order, and the orders and frees that follow.

    kept: buffers that are never freed.
    """
    if not is_placed(program.strategy):
        return replace(program, steps=tuple(free_early(steps, kept)), orders=())
    return _arranged(program, list(steps), kept)


def is_placed(strategy: Strategy) -> bool:
    """Does any node or value lie on a part of the devices alone?"""
    shardings = {*strategy.divisions, *strategy.layouts.values()}
    return any(axis.on is not None for sharding in shardings for axis in sharding.axes)


class Shares:
    """Which devices hold a part of what lies at a placement; equal placements have equal masks."""

    def __init__(self, program: Program) -> None:
        self.places = program.places
        self.everybody: Mask = np.ones(program.mesh.devices, np.bool_)
        self.known: dict[int, tuple[Mask, Placement]] = {}  # by identity, with the placement to keep it alive

    def of(self, place: Placement) -> Mask:
        """Which devices hold a part of what lies so; what has no elements is held by every device."""
        if id(place) not in self.known:
            some = np.asarray((place.regions[..., 0] < place.regions[..., 1]).all(axis=-1))
            self.known[id(place)] = (some if some.any() else self.everybody), place
        return self.known[id(place)][0]

    def holders(self, buffer: str) -> Mask:
        return self.of(self.places[buffer]) if buffer in self.places else self.everybody

    def of_step(self, step: Step) -> Mask:
        """Who takes part in a step; a free is for whoever has it in its order."""
        if isinstance(step, StartStep):
            return self.of_step(step.transfer)
        if isinstance(step, TransferStep):
            return self.of(step.before) | self.of(step.after)
        if isinstance(step, MoveStep):
            return self.holders(step.source)
        taking = np.zeros_like(self.everybody)
        for member in _members(step):
            for buffer in member.writes:
                taking = taking | self.holders(buffer)
        return taking if taking.any() else self.everybody

    def distinct(self, steps: Iterable[Step]) -> NDArray[np.bool_]:
        """[masks, devices]: the different masks of all buffers, and of what is read."""
        masks = [self.holders(buffer) for buffer in self.places]
        for step in steps:
            masks += [self.of(part.needed) for member in _members(step) for part in member.reads]
            if isinstance(step, TransferStep):
                masks += [self.of(step.before), self.of(step.after)]
        different = {mask.tobytes(): mask for mask in {id(mask): mask for mask in masks}.values()}
        return np.stack([self.everybody, *different.values()])


def _members(step: Step) -> tuple[ComputeStep, ...]:
    if isinstance(step, BlockStep):
        return step.members
    return (step,) if isinstance(step, ComputeStep) else ()


def _arranged(program: Program, steps: list[Step], kept: set[str]) -> Program:
    shares = Shares(program)
    _, first, like = np.unique(shares.distinct(steps), axis=1, return_index=True, return_inverse=True)
    if len(first) == 1:
        return replace(program, steps=tuple(free_early(steps, kept)), orders=())
    like = like.reshape(-1)
    ranked = np.argsort(first)  # classes in the order of their first devices
    classes = [Devices.of(np.flatnonzero(like == number).tolist()) for number in ranked]
    part = np.stack([shares.of_step(step)[first[ranked]] for step in steps]) if steps else np.zeros((0, len(classes)))
    frees: dict[int, dict[tuple[str, ...], list[int]]] = {}  # by step: what is freed behind it, and by which classes
    for number, members in enumerate(classes):
        mine = np.flatnonzero(part[:, number]).tolist()
        held = {buffer for buffer in program.places if shares.holders(buffer)[members.first]}
        for position, touched in last_touched([(at, steps[at]) for at in mine], kept).items():
            if freed := tuple(buffer for buffer in touched if buffer in held):
                frees.setdefault(position, {}).setdefault(freed, []).append(number)
    result: list[Step] = []
    orders: list[list[int]] = [[] for _ in classes]
    for position, step in enumerate(steps):
        for number in np.flatnonzero(part[position]).tolist():
            orders[number].append(len(result))
        result.append(step)
        for buffers, freeing in frees.get(position, {}).items():
            for number in freeing:
                orders[number].append(len(result))
            result.append(FreeStep(buffers))
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    ordered = [shared.setdefault(tuple(order), tuple(order)) for order in orders]
    return replace(program, steps=tuple(result), orders=tuple(map(Order, classes, ordered)))
