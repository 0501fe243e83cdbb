"""Tensors of all kinds are moved, by a rule that knows little of what comes: on demand, by layer, by partition.

- ODSwap, SwapAdvisor's online baseline (thesis §5.1): where there is no room for the next operator, what was touched
  longest ago leaves; what comes next is copied in beside computation, as soon as there is room for it.
- Layer by layer, as GeePS does (Cui, Zhang, Ganger, Gibbons, Xing, EuroSys 2016, §3): the device has the data of the
  layer that is computed, parameters too; that of the next is copied in meanwhile, that of the last one out.
- TensorFlowMem (thesis chapter 6): fixed partitions of a depth-first traversal, two at a time
  (`girih.search.memory.orders.depth_first`).

The last two do not depend on the limit, which they keep or not. Where we differ: what the next layer, or partition,
needs is not copied out and in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from girih.published.memory.layers import layers_of
from girih.search.memory.belady import belady
from girih.search.memory.holds import Baseline, Holding, Setting, within
from girih.search.memory.orders.depth_first import VISITS, executed, partitions, swapped


@dataclass(frozen=True)
class OnDemand(Baseline):
    """ODSwap: what was touched longest ago leaves where there is no room, and comes back as soon as there is (thesis
    SwapAdvisor §5.1)."""

    name: ClassVar[str] = "odswap"
    moves: ClassVar[bool] = True

    def hold(self, setting: Setting) -> Holding:
        return Holding(residency=belady(setting.lives, setting.cap, setting.seconds, rates=setting.rates, lru=True))


@dataclass(frozen=True)
class LayerByLayer(Baseline):
    """The device has what the layer needs that is computed, and the next one, parameters too (GeePS, Cui et al.
    2016)."""

    name: ClassVar[str] = "layers"
    moves: ClassVar[bool] = True

    def hold(self, setting: Setting) -> Holding:
        residency = swapped(setting.lives, layers_of(setting.lives), placement=True, ahead=1)
        return Holding(residency=within(setting.lives, residency, setting.cap))


@dataclass(frozen=True)
class Partitioned(Baseline):
    """TensorFlowMem: partitions of `size` operators, `running` at a time; what the next `ahead` do not need leaves; by
    its placement, parameters lie in the large memory (thesis, chapter 6)."""

    name: ClassVar[str] = "tensorflowmem"
    moves: ClassVar[bool] = True
    orders: ClassVar[bool] = True
    words: ClassVar[dict[str, tuple[str, ...]]] = {"visit": VISITS, "placement": ("yes", "no")}
    size: int = 20
    running: int = 2
    ahead: int = 2
    visit: str = "depth-first"
    placement: str = "yes"

    def hold(self, setting: Setting) -> Holding:
        links = setting.lives.links
        partition = partitions(links, self.size, self.visit)
        order = executed(links, partition, self.running)
        sequence = tuple(order.tolist())
        lives = setting.look(sequence)
        residency = swapped(lives, partition[order], self.placement == "yes", self.ahead)
        return Holding(sequence, within(lives, residency, setting.cap))
