"""Cuts that are made anew between epochs, while what pieces cost is learned from what they took (ROC, §4.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from girih.gnn.adjacency import Adjacency
from girih.gnn.partitioner.contiguous import best_cut
from girih.gnn.partitioner.cost import CostModel
from girih.gnn.partitioner.features import Features
from girih.gnn.partitioner.partition import Partition, partition, with_cuts

EPOCHS_SEEN = 3, 9
"""Of a cut, after which its pieces' times count themselves, and of which the median is taken at most."""


@dataclass(frozen=True, eq=False)
class Repartitioner:
    """A cut, and whether another is worth its move. Made by `repartitioner`; `after` is told what each epoch took.

    graph: in the order of the partition. model: what is known of the costs. partition: the cut that holds now.
    left: epochs that are still to come. row_seconds: what it takes to move a vertex, all that belongs to it, to another
    worker. threshold: the share of the slowest piece's time that a new cut has to save in an epoch: less than that is
    within what predictions err. moves: how often it was cut anew. move_seconds: what it takes to cut anew, whatever is
    moved. seen: what each piece took in the last epochs with this cut.

    What the model errs by on a piece that holds now, as the median of a few epochs has it, counts for the vertices of
    this piece when it is cut anew: the regression cannot say everything, such as that one worker's core is slower.
    """

    graph: Adjacency
    known: Features
    model: CostModel
    partition: Partition
    left: int
    row_seconds: float = 0.0
    threshold: float = 0.02
    moves: int = 0
    move_seconds: float = 0.0
    seen: tuple[NDArray[np.float64], ...] = ()

    def after(self, seconds: ArrayLike) -> Repartitioner:
        """What holds after an epoch in which each layer took these seconds on each piece: (layers, pieces).

        Its partition is another one where the slowest piece, as now predicted, becomes faster by more than the
        threshold, and that over the epochs that are left takes back the move; otherwise it is the same object.

        Raises:
            ValueError: as `CostModel.learned`.
        """
        model = self.model.learned(self.known, self.partition.cuts, seconds)
        left = max(0, self.left - 1)
        seen = (*self.seen, np.asarray(seconds, float).sum(axis=0))[-EPOCHS_SEEN[1] :]
        learned = replace(self, model=model, left=left, seen=seen)
        told = model.running(self.known)
        running = np.concatenate([[0.0], np.cumsum(np.diff(told) * np.repeat(learned.errs(), self.partition.vertices))])
        cuts = best_cut(running, self.partition.pieces)
        now, then = (
            (model.seconds(self.known, own).sum(axis=0) * _ratio(running, told, own)).max()
            for own in (self.partition.cuts, cuts)
        )
        saved = now - then
        move = self.move_seconds + self.row_seconds * moved(self.partition.cuts, cuts)
        if saved <= self.threshold * now or saved * left <= move:
            return learned
        if len(seen) < EPOCHS_SEEN[0]:
            new = partition(self.graph, self.partition.pieces, model, known=self.known)
        else:  # the best by the model and by its errors, of which a certificate knows nothing
            new = with_cuts(self.graph, cuts, model, self.known)
        order, named = self.partition.order, self.partition.named
        return replace(learned, partition=replace(new, order=order, named=named), moves=self.moves + 1, seen=())

    def errs(self) -> NDArray[np.float64]:
        """What each piece took by what the model says that it takes: (pieces,); 1 before enough epochs were seen."""
        told = self.model.seconds(self.known, self.partition.cuts).sum(axis=0)
        if len(self.seen) < EPOCHS_SEEN[0]:
            return np.ones(len(told))
        took: NDArray[np.float64] = np.median(self.seen, axis=0)
        errs: NDArray[np.float64] = np.divide(took, told, out=np.ones(len(told)), where=(told > 0) & (took > 0))
        return errs


def _ratio(above: NDArray[np.float64], below: NDArray[np.float64], cuts: Sequence[int]) -> NDArray[np.float64]:
    """By piece, how much one running cost has of it to what another has; 1 where that has nothing."""
    over, under = (np.diff(running[list(cuts)]) for running in (above, below))
    return np.divide(over, under, out=np.ones(len(over)), where=under > 0)


def repartitioner(
    graph: Adjacency,
    pieces: int,
    model: CostModel,
    order: str | Sequence[str] = "given",
    epochs: int = 100,
    row_seconds: float = 0.0,
    threshold: float = 0.02,
) -> Repartitioner:
    """The first cut, by what the model knows of these layers: nothing but their sizes, or what it learned elsewhere.

    Raises:
        ValueError: as `partition`.
    """
    first = partition(graph, pieces, model, order)
    arranged = first.arranged(graph)
    return Repartitioner(arranged, model.features(arranged), model, first, epochs, row_seconds, threshold)


def moved(old: Sequence[int], new: Sequence[int]) -> int:
    """How many vertices are in another piece by the new cuts."""
    starts, stops = np.maximum(old[:-1], new[:-1]), np.minimum(old[1:], new[1:])
    return int(new[-1] - np.maximum(0, stops - starts).sum())


def measured(
    works: Sequence[Callable[[int, int, int], object]],
    layers: int,
    cuts: Sequence[Sequence[int]],
    clock: Callable[[], float],
    rounds: int = 3,
) -> list[NDArray[np.float64]]:
    """For each of several cuts the seconds of each layer on each piece in each round: (rounds, layers, pieces).

    works: for each cut a function (layer, start, stop) that computes a layer on a range of vertices, as a worker does
    that has this piece. Pieces of all cuts run one after another in each round, so that whatever else the machine does
    strikes all of them alike. An empty piece takes 0.
    """
    taken = [np.zeros((rounds, layers, len(one) - 1)) for one in cuts]
    for turn in range(rounds):
        for work, one, seconds in zip(works, cuts, taken, strict=True):
            for layer in range(layers):
                for piece, (start, stop) in enumerate(pairwise(one)):
                    if stop > start:
                        began = clock()
                        work(layer, start, stop)
                        seconds[turn, layer, piece] = clock() - began
    return taken
