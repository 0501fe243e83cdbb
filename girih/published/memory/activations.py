"""Activations alone are moved, parameters and optimizer state stay: TensorFlow LMS and vDNN.

Le, Imai, Negishi, Kawachiya, "TFLMS: Large Model Support in TensorFlow by Graph Rewriting", 2018 (arXiv:1807.02037,
§4): what the backward pass reads of the forward pass is copied out if its two uses are further apart than a threshold,
and copied in some operators before it is needed.

Rhu, Gimelshein, Clemons, Zulfiqar, Keckler, "vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient
Neural Network Design", MICRO 2016 (§3.2): the inputs of layers are copied out behind their last use in the forward
pass, and copied in while the backward pass of the layer before is computed: those of all layers (vDNN-all), or of
convolutions (vDNN-conv).

Both are static: what they move does not depend on the limit, which they keep or not. Where we differ: an input of a
layer is whatever an operator reads. A copy out is waited for where its memory is needed, while vDNN waits at the end of
each layer; what comes back stays for all of its uses in the backward pass (TFLMS's fused swap-ins). All of this is to
their advantage. Cost: linear in the touches.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from girih.program.life.lifetimes import Lifetimes, Storage
from girih.program.moves.residency import in_visits
from girih.program.steps import BlockStep, ComputeStep, Step
from girih.published.memory.layers import end_of_forward, layers_of
from girih.search.memory.holds import Baseline, Holding, Setting, within


@dataclass(frozen=True)
class _Activations(Baseline):
    """Activations leave between the forward and the backward pass."""

    moves: ClassVar[bool] = True

    def hold(self, setting: Setting) -> Holding:
        lives = setting.lives
        end = end_of_forward(lives)
        state = {number for pair in lives.state for number in pair}
        visits = {}
        for number, storage in enumerate(lives.storages):
            before, behind = _divided(storage, end)
            if (
                storage.movable
                and number not in state
                and before
                and behind
                and self.leaves(lives, storage, before, behind)
            ):
                visits[number] = [before, behind]
        residency = in_visits(lives, visits, self.begins(lives))
        return Holding(residency=within(lives, residency, setting.cap))

    @abstractmethod
    def leaves(self, lives: Lifetimes, storage: Storage, before: list[int], behind: list[int]) -> bool:
        """Is it moved? before, behind: steps of the forward and the backward pass that touch it."""

    @abstractmethod
    def begins(self, lives: Lifetimes) -> Callable[[int], int]:
        """By the step that needs a storage again, the step before which its copy in begins."""


def _divided(storage: Storage, end: int) -> tuple[list[int], list[int]]:
    return [at for at in storage.touched if at <= end], [at for at in storage.touched if at > end]


@dataclass(frozen=True)
class LargeModelSupport(_Activations):
    """TensorFlow LMS: activations whose uses lie more than `threshold` operators apart leave the device, and come back
    `ahead` operators before they are needed (Le et al. 2018)."""

    name: ClassVar[str] = "lms"
    threshold: int = 1
    ahead: int = 20

    def leaves(self, lives: Lifetimes, storage: Storage, before: list[int], behind: list[int]) -> bool:
        return behind[0] - before[-1] > self.threshold

    def begins(self, lives: Lifetimes) -> Callable[[int], int]:
        return lambda first: max(0, first - self.ahead)


@dataclass(frozen=True)
class Vdnn(_Activations):
    """vDNN-all: the inputs of all layers leave behind their forward use, and come back one layer ahead (Rhu et al.
    2016)."""

    name: ClassVar[str] = "vdnn"

    def leaves(self, lives: Lifetimes, storage: Storage, before: list[int], behind: list[int]) -> bool:
        readers = [lives.steps[at] for at in before if at >= 0 and at != storage.born]
        return any(self.is_layer(lives, step) for step in readers)

    def is_layer(self, lives: Lifetimes, step: Step) -> bool:
        """Do the inputs of this step leave?"""
        return isinstance(step, ComputeStep | BlockStep)

    def begins(self, lives: Lifetimes) -> Callable[[int], int]:
        layers = layers_of(lives)
        first_of = np.searchsorted(layers, np.arange(int(layers[-1]) + 1 if len(layers) else 0))
        return lambda first: int(first_of[max(layers[first] - 1, 0)])


@dataclass(frozen=True)
class VdnnConvolutions(Vdnn):
    """vDNN-conv: the inputs of convolutions leave behind their forward use, and come back one layer ahead (Rhu et al.
    2016)."""

    name: ClassVar[str] = "vdnn-conv"

    def is_layer(self, lives: Lifetimes, step: Step) -> bool:
        members = step.members if isinstance(step, BlockStep) else (step,)
        nodes = [lives.program.graph.nodes[item.node] for item in members if isinstance(item, ComputeStep)]
        return any(node.operator == "aten.convolution" for node in nodes)
