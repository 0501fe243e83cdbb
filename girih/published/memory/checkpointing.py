"""Activation checkpointing: a few activations are stored, what lies between is computed again.

By square root: Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016 (arXiv:1604.06174, §4):
√n segments of n layers, of which the inputs are stored; each but the last one is computed again right before its
backward pass, as `torch.utils.checkpoint.checkpoint_sequential` does. Segments end where fewest bytes cross, near equal
distances.

By the optimum for chains: Rotor's dynamic programme (`girih.published.memory.chain`). It counts stages; so of all
limits that it can be given the largest is taken whose Program keeps the cap, found by bisection.

Nothing is moved. Cost: a walk of the program; of the optimum, about ten, and the programme.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import ClassVar

import numpy as np

from girih.program.moves.residency import TooSmallError
from girih.published.memory.chain import Operation, optimum
from girih.published.memory.stages import chain_of, layers_forward, sequence_of, staged
from girih.search.memory.holds import Baseline, Holding, Setting


@dataclass(frozen=True)
class SquareRoot(Baseline):
    """Activation checkpointing: the inputs of √n segments of n layers are stored, the rest is computed again (Chen et
    al. 2016)."""

    name: ClassVar[str] = "sqrt"
    moves: ClassVar[bool] = False

    def hold(self, setting: Setting) -> Holding:
        stages = staged(setting.lives, max(1, ceil(sqrt(layers_forward(setting.lives)))))
        operations = [Operation(stage) for stage in range(stages.count)]
        for stage in range(stages.count - 1, -1, -1):
            operations += [Operation(stage)] if stage < stages.count - 1 else []
            operations.append(Operation(stage, backward=True))
        sequence = sequence_of(stages, operations)
        _peak(setting, sequence)
        return Holding(sequence)


@dataclass(frozen=True)
class OptimalChain(Baseline):
    """The optimum for chains of at most `stages` stages, whose memory is counted in `slots` parts (Rotor, Beaumont et
    al. 2019; Revolve)."""

    name: ClassVar[str] = "chain"
    moves: ClassVar[bool] = False
    stages: int = 64
    slots: int = 500

    def hold(self, setting: Setting) -> Holding:
        stages = staged(setting.lives, self.stages)
        chain = chain_of(stages, setting.seconds)
        total = int(chain.tape.sum() + chain.gradient.max() + chain.most.max())
        exact = max(1, self.slots - 3 * stages.count)  # each stage's bytes are rounded up three times at most
        table = optimum(chain.in_units(max(1, -(-total // exact))), self.slots)
        able = np.flatnonzero(np.isfinite(table.seconds[0, -1]))
        best: Holding | None = None
        refused: TooSmallError | None = None
        low, high = 0, len(able) - 1
        while low <= high:
            middle = high if best is None and refused is None else (low + high) // 2  # all at first: does it fit?
            sequence = sequence_of(stages, table.schedule(int(able[middle])), setting.fetching)
            try:
                _peak(setting, sequence)
            except TooSmallError as error:
                refused = error if refused is None or error.needed < refused.needed else refused
                high = middle - 1
            else:
                best = Holding(sequence)
                low = middle + 1
        if best is None:
            raise refused or TooSmallError(0, int(setting.lives.used.max()))
        return best


def _peak(setting: Setting, sequence: tuple[int, ...]) -> int:
    """Bytes that the program needs in this sequence.

    Raises:
        TooSmallError: they are more than the cap.
    """
    used = setting.used(sequence)
    worst = int(used.argmax())
    if used[worst] > setting.cap:
        raise TooSmallError(worst, int(used[worst]))
    return int(used[worst])
