"""What is kept for later, and what is computed again: a minimum cut for each price of a byte.

At one step of the program, the pivot (the fullest, at the end of a forward pass), some storages wait for readers behind
it. Each is kept, which costs its bytes at a price, or dropped, and its step computed again, which costs that step's
seconds and whatever makes its operands available: they are kept, or computed again themselves. What a transfer has
brought is dropped, and brought again, in the same way. The cheapest choice is a minimum cut, so no choice is better at
this price (project selection; Picard, "Maximal closure of a graph", 1976). Dear bytes are few bytes, and the simulator
says which price is best.

With a price alone, what is computed again is all there at once where the chain is long. Kept boundaries, storages that
cost nothing, divide it into segments (Chen et al. 2016): those of the narrowest places, at equal distances in time.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from girih.program.life.lifetimes import Lifetimes

LARGE = 1 << 30  # what all capacities of a cut together are, of scipy's 32 bits; an edge that must not be cut has twice


def pivot_of(lives: Lifetimes) -> int:
    """The step at which most is alive."""
    return int(lives.used[: len(lives.steps)].argmax())


def least_held(lives: Lifetimes, *, moving: bool) -> int:
    """Bytes that the fullest step needs in every sequence of these steps in which some come again: with what it touches
    there is what can neither be computed again nor, where tensors are not `moving`, leave.

    Where a result may take over an operand that is read later, it is taken to do so. Cost: linear.
    """
    touches, end = lives.touches, len(lives.steps)
    sizes, born, last = touches.bytes, touches.born, np.where(touches.lasts, end, touches.last)
    again = (lives.remakes >= 0) & ~touches.lasts & ~touches.state
    stays = ~(again | (touches.movable if moving else False))
    change = np.zeros(end + 2, np.int64)
    np.add.at(change, np.maximum(born[stays], 0), sizes[stays])
    np.add.at(change, last[stays] + 1, -sizes[stays])
    step = np.repeat(np.arange(end + 1), np.diff(touches.step_starts))
    other = ~stays[touches.of_step]
    beside = np.bincount(step[other], sizes[touches.of_step[other]], end + 1).astype(np.int64)
    over = np.asarray([at not in lives.taken and bool(lives.all_takers(at)) for at in range(end)], np.bool_)
    made = born >= 0
    written = np.bincount(born[made], sizes[made], end + 1).astype(np.int64)
    written[:-1][~over] = written[-1] = 0
    return int((np.cumsum(change)[:-1] + beside + touches.extra - written).max())


def boundaries(lives: Lifetimes, seconds: NDArray[np.float64], pivot: int, segments: int) -> frozenset[int]:
    """Storages that divide the steps before the pivot into segments of about the same time.

    At each end of a segment the narrowest place within a quarter of its length is taken; the storages that a reader
    before the pivot still needs there are the boundary. seconds: of each step.
    """
    clock = np.cumsum(seconds[: pivot + 1])
    touches = lives.touches
    _, before, _ = _around(lives, pivot)
    born = touches.born
    spans = (born >= 0) & (born < before) & (before <= pivot) & ~touches.state
    change = np.zeros(pivot + 2, np.int64)
    np.add.at(change, born[spans], touches.bytes[spans])
    np.subtract.at(change, before[spans], touches.bytes[spans])
    crossing = np.cumsum(change)[: pivot + 1]  # bytes that go from each step to later ones
    chosen: set[int] = set()
    for part in range(1, segments):
        low, high = np.searchsorted(clock, clock[-1] * (np.array([-0.25, 0.25]) + part) / segments)
        if low < high:
            place = low + int(crossing[low:high].argmin())
            chosen.update(np.flatnonzero(spans & (born <= place) & (place < before)).tolist())
    return frozenset(chosen)


def cheapest(
    lives: Lifetimes,
    seconds: NDArray[np.float64],
    pivot: int,
    price: float,
    free: Collection[int] = (),
    distance: float = 0.0,
    fetching: bool = True,
) -> frozenset[int]:
    """The steps that come again behind the pivot, where a kept byte costs `price` seconds.

    seconds: of each step. free: storages that cost nothing to keep. distance: seconds; what is read again sooner costs
    nothing either. fetching: may transfers come again, too? Cost: that of a maximum flow on a graph of about
    steps + 2 · storages.
    """
    touches, count = lives.touches, len(lives.storages)
    there, before, after = _around(lives, pivot)
    clock = np.concatenate([[0.0], np.cumsum(seconds)])
    source, sink = count + len(lives.steps), count + len(lives.steps) + 1
    later = there & (after >= 0)
    soon = later & (clock[np.maximum(after, 0)] - clock[before + 1] < distance)
    nothing = touches.state | touches.lasts | soon
    nothing[list(free)] = True
    repeats, maker = lives.repeats if fetching else lives.computes, lives.remakes
    able = (maker >= 0) & (maker <= pivot) & repeats[maker] & ~touches.lasts
    waiting, alive = np.flatnonzero(later), np.flatnonzero(there)
    computing = np.flatnonzero(repeats[: pivot + 1])
    reader, operand = lives.operands
    reading = (reader <= pivot) & repeats[reader]
    reader, operand = reader[reading], operand[reading]
    rows = np.concatenate([np.full(len(waiting), source), alive, count + computing, count + reader])
    ends = np.where(able, count + maker, sink)[alive]
    columns = np.concatenate([waiting, ends, np.full(len(computing), sink), operand])
    weights = np.concatenate(
        [
            np.full(len(waiting), np.inf),
            np.where(nothing, 0.0, price * touches.bytes)[alive],
            np.asarray(seconds, np.float64)[computing],
            np.full(len(reader), np.inf),
        ]
    )
    finite = np.isfinite(weights)
    capacities = np.full(len(weights), 2 * LARGE - 1, np.int64)
    total = float(weights[finite].sum())
    scale = LARGE / total if total > 0 else 0.0  # nothing has a price where nothing can be dropped
    capacities[finite] = np.floor(weights[finite] * scale)
    from scipy.sparse import csr_array  # slow to load, and only plans that do not fit need it
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    network = csr_array(
        (capacities.astype(np.int32), (rows.astype(np.int32), columns.astype(np.int32))), shape=(sink + 1, sink + 1)
    )
    flow = maximum_flow(network, source, sink).flow
    left = csr_array(network - flow)
    left.data[left.data < 0] = 0
    left.eliminate_zeros()
    reached = breadth_first_order(left, source, return_predecessors=False)
    return frozenset(int(node) - count for node in reached if count <= node < source)


def _around(lives: Lifetimes, pivot: int) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
    """For each storage: is it made, or given, up to the pivot; its last touch up to there; its next one, or -1."""
    touches = lives.touches
    begins, ends = touches.starts[:-1], touches.starts[1:]
    up_to = np.append(0, np.cumsum(touches.steps <= pivot))
    last = begins + up_to[ends] - up_to[begins] - 1
    there = last >= begins
    after = np.where(last + 1 < ends, touches.steps[np.minimum(last + 1, len(touches.steps) - 1)], -1)
    return there, touches.steps[np.maximum(last, begins)], after
