"""Samples of a graph: what is drawn are neighbours, and estimates are right in the mean."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.graph_sampling import FastGCN, sampled_neighbours
from girih import gnn


def test_what_is_drawn_are_neighbours() -> None:
    data, random = gnn.rmat(60, 150, seed=1), np.random.default_rng(0)  # some vertices have none
    vertices = random.permutation(60)[:20]
    level, known = sampled_neighbours(data.graph, vertices, 5, random)
    assert np.array_equal(known[:20], vertices)
    rows = np.split(data.graph.neighbours, data.graph.offsets[1:-1])
    for place, vertex in enumerate(vertices):
        own = known[level.neighbours[level.offsets[place] : level.offsets[place + 1]]]
        assert set(own) <= set(rows[vertex])
        assert len(own) == (5 if len(rows[vertex]) else 0)


def test_fastgcn_is_right_in_the_mean() -> None:
    data, random = gnn.community(80, features=4), np.random.default_rng(0)
    x, fast, vertices = torch.from_numpy(data.x), FastGCN(data), np.arange(10)
    expected = torch.from_numpy(fast.rows[vertices] @ data.x)
    found = torch.zeros(10, 4)
    for _ in range(300):
        level, drawn = fast.level(vertices, random)
        found += level @ x[torch.from_numpy(drawn)] / 300
    assert (found - expected).abs().max() < 0.1  # 0.03 is its standard error
