"""What is kept for later, and what is computed again: a minimum cut for each price of a byte.

At one step of the program, the pivot (the fullest, at the end of a forward pass), some storages wait for readers behind
it. Each is kept, which costs its bytes at a price, or dropped, and its step computed again, which costs that step's
seconds and whatever makes its operands available: they are kept, or computed again themselves. The cheapest choice is
a minimum cut, so no choice is better at this price (project selection; Picard, "Maximal closure of a graph", 1976).
Dear bytes are few bytes, and the simulator says which price is best.

With a price alone, what is computed again is all there at once where the chain is long. Kept boundaries, storages that
cost nothing, divide it into segments (Chen et al. 2016): those of the narrowest places, at equal distances in time.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from girih.lower.liveness import reads_of
from girih.lower.steps import BlockStep, ComputeStep
from girih.memory.lifetimes import Lifetimes

LARGE = 1 << 30  # what all capacities of a cut together are, of scipy's 32 bits; an edge that must not be cut has twice


def pivot_of(lives: Lifetimes) -> int:
    """The step at which most is alive."""
    return int(lives.used[: len(lives.steps)].argmax())


def boundaries(lives: Lifetimes, seconds: NDArray[np.float64], pivot: int, segments: int) -> frozenset[int]:
    """Storages that divide the steps before the pivot into segments of about the same time.

    At each end of a segment the narrowest place within a quarter of its length is taken; the storages that a reader
    before the pivot still needs there are the boundary. seconds: of each step.
    """
    clock = np.cumsum(seconds[: pivot + 1])
    change = np.zeros(pivot + 2, np.int64)
    spans: list[tuple[int, int, int]] = []
    state = {number for pair in lives.state for number in pair}
    for number, item in enumerate(lives.storages):
        before = [step for step in item.touched if 0 <= step <= pivot]
        if item.born >= 0 and number not in state and len(before) > 1:
            spans.append((number, before[0], before[-1]))
            change[before[0]] += item.bytes
            change[before[-1]] -= item.bytes
    crossing = np.cumsum(change)[: pivot + 1]  # bytes that go from each step to later ones
    chosen: set[int] = set()
    for part in range(1, segments):
        low, high = np.searchsorted(clock, clock[-1] * (np.array([-0.25, 0.25]) + part) / segments)
        if low < high:
            place = low + int(crossing[low:high].argmin())
            chosen.update(number for number, first, last in spans if first <= place < last)
    return frozenset(chosen)


def cheapest(
    lives: Lifetimes,
    seconds: NDArray[np.float64],
    pivot: int,
    price: float,
    free: Collection[int] = (),
    distance: float = 0.0,
) -> frozenset[int]:
    """The steps that are computed again behind the pivot, where a kept byte costs `price` seconds.

    seconds: of each step. free: storages that cost nothing to keep. distance: seconds; what is read again sooner costs
    nothing either. Cost: that of a maximum flow on a graph of about steps + 2 · storages.
    """
    steps, storages = lives.steps, lives.storages
    number_of = {buffer: number for number, item in enumerate(storages) for buffer in item.buffers}
    clock = np.concatenate([[0.0], np.cumsum(seconds)])
    state = {number for pair in lives.state for number in pair}
    count = len(storages)
    source, sink = count + len(steps), count + len(steps) + 1
    edges: list[tuple[int, int, float]] = []
    for number, item in enumerate(storages):
        if item.born > pivot:
            continue
        later = [step for step in item.touched if step > pivot]
        if later:
            edges.append((source, number, np.inf))
        before = max(step for step in item.touched if step <= pivot)
        soon = bool(later) and clock[later[0]] - clock[before + 1] < distance
        costs = 0.0 if number in free or number in state or item.lasts or soon else price * item.bytes
        maker = steps[item.born] if item.born >= 0 else None
        able = isinstance(maker, ComputeStep | BlockStep) and not item.lasts
        edges.append((number, count + item.born if able else sink, costs))
    for position in range(pivot + 1):
        step = steps[position]
        if isinstance(step, ComputeStep | BlockStep):
            edges.append((count + position, sink, float(seconds[position])))
            operands = {number_of[buffer] for buffer in reads_of(step) if buffer in number_of}
            edges += [(count + position, number, np.inf) for number in operands]
    rows, columns = (np.asarray([edge[end] for edge in edges], np.int32) for end in (0, 1))
    weights = np.asarray([edge[2] for edge in edges])
    finite = np.isfinite(weights)
    capacities = np.full(len(edges), 2 * LARGE - 1, np.int64)
    scale = LARGE / max(float(weights[finite].sum()), 1e-300)
    capacities[finite] = np.floor(weights[finite] * scale)
    from scipy.sparse import csr_array  # slow to load, and only plans that do not fit need it
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    network = csr_array((capacities.astype(np.int32), (rows, columns)), shape=(sink + 1, sink + 1))
    flow = maximum_flow(network, source, sink).flow
    left = csr_array(network - flow)
    left.data[left.data < 0] = 0
    left.eliminate_zeros()
    reached = breadth_first_order(left, source, return_predecessors=False)
    return frozenset(int(node) - count for node in reached if count <= node < source)
