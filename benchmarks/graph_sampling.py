"""Training on samples of a graph, as most systems do in place of the whole: GraphSAGE's and FastGCN's mini-batches.

GraphSAGE (Hamilton, Ying and Leskovec 2017, §3.1): for each vertex of a batch a fixed number of its neighbours is
drawn, for each of these again, and so on; a layer takes the mean of those that were drawn. FastGCN (Chen, Ma and Xiao
2018, §3): for each layer a number of vertices is drawn from all, more likely those with large columns in Â, and the
sum over neighbours is estimated from those. Both take batches of 512 vertices for training, as ROC's Fig. 4.6 has it,
and are judged on the whole graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch.nn.functional import cross_entropy, linear, relu

from girih import gnn

BATCH = 512
FANOUTS = (25, 10)  # of the last layer, and of those before
PER_LAYER = 512


def batches(data: gnn.Data, random: np.random.Generator) -> Iterator[np.ndarray]:
    """The training vertices in a random order, 512 at a time."""
    order = random.permutation(np.flatnonzero(data.train))
    for first in range(0, len(order), BATCH):
        yield order[first : first + BATCH]


def sampled_neighbours(
    graph: gnn.Adjacency, vertices: np.ndarray, fanout: int, random: np.random.Generator
) -> tuple[gnn.Adjacency, np.ndarray]:
    """(a bipartite graph, in which each vertex reads up to `fanout` of its neighbours, drawn with repetition; the
    vertices that are read, of which the first are these)."""
    degrees = graph.degrees[vertices]
    drawn = (random.random((len(vertices), fanout)) * degrees[:, None]).astype(np.int64)
    some = degrees > 0
    reading = np.repeat(np.flatnonzero(some), fanout)
    read = np.asarray(graph.neighbours)[(graph.offsets[vertices][:, None] + drawn)[some].reshape(-1)]
    others = np.setdiff1d(read, vertices)
    known = np.concatenate([vertices, others])
    place = np.empty(graph.vertices, np.int64)
    place[known] = np.arange(len(known))
    return gnn.Adjacency.of_edges(place[read], reading, len(vertices), len(known)), known


def sage_epoch(network: Any, optimizer: torch.optim.Optimizer, data: gnn.Data, random: np.random.Generator) -> None:
    """One pass of GraphSAGE over the training vertices; network: a `gnn.GraphSAGE` with means."""
    x, labels = torch.from_numpy(data.x), torch.from_numpy(data.labels)
    for batch in batches(data, random):
        levels, known = [], batch
        for layer in reversed(range(len(network.convs))):
            fanout = FANOUTS[0] if layer == len(network.convs) - 1 else FANOUTS[-1]
            level, known = sampled_neighbours(data.graph, known, fanout, random)
            levels.append(level)
        hidden = x[torch.from_numpy(known)]
        for place, (conv, level) in enumerate(zip(network.convs, reversed(levels), strict=True)):
            own = gnn.aggregate(hidden, gnn.GraphBuffers(level), "mean")
            hidden = conv.lin_l(own) + conv.lin_r(hidden[: level.vertices])
            if place < len(network.convs) - 1:
                hidden = relu(hidden)
        loss = cross_entropy(hidden, labels[torch.from_numpy(batch)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class FastGCN:
    """Draws for a `gnn.GCN`. rows: Â as a sparse matrix. chances: of each vertex to be drawn."""

    def __init__(self, data: gnn.Data) -> None:
        graph = replace(data.graph, weights=None).with_self_loops().normalised()
        shape = (graph.vertices, graph.vertices)
        self.rows = sparse.csr_array((graph.weights, graph.neighbours, graph.offsets), shape)
        squares = np.bincount(graph.neighbours, weights=graph.weights.astype(np.float64) ** 2, minlength=shape[0])
        self.chances = squares / squares.sum()

    def level(self, reading: np.ndarray, random: np.random.Generator) -> tuple[torch.Tensor, np.ndarray]:
        """(the rows of Â of these vertices at those that were drawn, so scaled that sums over them are right in the
        mean; the vertices that were drawn)."""
        draws = min(PER_LAYER, len(self.chances))
        drawn, counts = np.unique(random.choice(len(self.chances), draws, p=self.chances), return_counts=True)
        part = self.rows[reading][:, drawn].toarray() * (counts / (draws * self.chances[drawn]))
        return torch.from_numpy(part.astype(np.float32)), drawn

    def epoch(
        self, network: Any, optimizer: torch.optim.Optimizer, data: gnn.Data, random: np.random.Generator
    ) -> None:
        x, labels = torch.from_numpy(data.x), torch.from_numpy(data.labels)
        for batch in batches(data, random):
            levels, reading = [], batch
            for _ in network.convs:
                level, reading = self.level(reading, random)
                levels.append(level)
            hidden = x[torch.from_numpy(reading)]
            for place, (conv, level) in enumerate(zip(network.convs, reversed(levels), strict=True)):
                hidden = level @ linear(hidden, conv.lin.weight) + conv.bias
                if place < len(network.convs) - 1:
                    hidden = relu(hidden)
            loss = cross_entropy(hidden, labels[torch.from_numpy(batch)])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
