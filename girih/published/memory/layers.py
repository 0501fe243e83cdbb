"""Layers of a program: what baselines count that were written for networks of layers.

A layer is a run of steps of one module: of the forward pass, of the backward pass, and of the update, each by itself. A
module that is used again, as a cell of an unrolled network, is a layer each time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from girih.program.life.lifetimes import Lifetimes


def layers_of(lives: Lifetimes) -> NDArray[np.int64]:
    """The number of each step's layer, ascending in the order of the steps: [steps].

    Steps outside of all modules go with those before them. In a program without modules each step is a layer.
    """
    nodes = [lives.program.graph.nodes[step.node] for step in lives.steps]
    number = 0
    layers: list[int] = []
    before = ("", "")
    for node in nodes:
        here = (node.phase, node.scope or before[1])
        number += bool(layers) and here != before
        before = here
        layers.append(number)
    if len({node.scope for node in nodes}) <= 1:
        return np.arange(len(nodes))
    return np.asarray(layers, np.int64)


def end_of_forward(lives: Lifetimes) -> int:
    """The last step of the forward pass, or of all if there is no backward pass; -1: there is none."""
    nodes = lives.program.graph.nodes
    forward = [at for at, step in enumerate(lives.steps) if nodes[step.node].phase == "forward"]
    return forward[-1] if forward else -1
