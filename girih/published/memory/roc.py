"""ROC's memory manager (Jia et al. 2020, §4.5): the dynamic programme that copies the least bytes, on a plan's steps.

The device is a cache of the large memory, as in the paper: features, graph, activations and weights may lie there and
come in for the steps that read them. What leaves and what stays is Algorithm 3's answer (`girih.search.memory.roc`),
exact for the steps in their order and for the tensors that may leave.

Where we differ: of a training step some hundred tensors are alive, and the programme is exponential in them. So only
the largest `tensors` may leave, which are those with a row for each vertex or edge; weights and what is smaller stay on
the device. A tensor that lives from step to step may have its place in the large memory. Only the largest `homes` of
these may, since each one doubles the work. Bytes are least for these, and a plan says what it moves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from girih.program.life.lifetimes import Lifetimes
from girih.search.memory.holds import Baseline, Holding, Setting
from girih.search.memory.roc import least_residency


@dataclass(frozen=True)
class LeastCopies(Baseline):
    """ROC: of the largest `tensors`, what leaves so that the least bytes are copied, exactly; of state the largest
    `homes` may lie in the large memory (§4.5, Algorithm 3)."""

    name: ClassVar[str] = "roc"
    moves: ClassVar[bool] = True
    tensors: int = 12
    homes: int = 4

    def hold(self, setting: Setting) -> Holding:
        return Holding(residency=least_residency(_largest(setting.lives, self.tensors, self.homes), setting.cap))


def _largest(lives: Lifetimes, tensors: int, homes: int) -> Lifetimes:
    """The lifetimes of which so many tensors may leave, and so much of what lives from step to step lies apart."""

    def size(number: int) -> int:
        return lives.storages[number].bytes

    state = sorted(lives.state, key=lambda pair: (-size(pair[0]), pair))[:homes]
    paired = {number for pair in lives.state for number in pair}
    others = [number for number, item in enumerate(lives.storages) if item.movable and number not in paired]
    leaving = {number for pair in state for number in pair}
    leaving.update(sorted(others, key=lambda number: (-size(number), number))[:tensors])
    storages = [
        item if number in leaving else replace(item, movable=False) for number, item in enumerate(lives.storages)
    ]
    return replace(lives, storages=storages, state=tuple(state), known=None)
