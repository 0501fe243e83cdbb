"""The time of a step for one order and one memory pool: SwapAdvisor's swap planner and its simulator (§4.3.2) at once.

Operators are taken in their order. A tensor that an operator needs is given a free object of its size class; where
there is none, the tensor of that class leaves that is needed again last (Belady), of those that were not used within
the last `recent` seconds. What is clean, because it was copied out before or is a parameter that was not written,
leaves without copying. Three streams run beside each other: operators, copies out, copies in. A copy in begins when its
object is free, however early that is; an operator waits for its copies in.

A parameter and what replaces it are one tensor, updated in place, as MXNet does it. The planner goes through the step
three times: at first no parameter lies on the device; then those that lay there at the end do; those of them that had
to leave in the second pass do not (the thesis's double pass), and the third pass is the one that is timed.

Cost: O(touches + objects of the class · allocations) for each pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.genetic.pool import Pool
from girih.layout.compiled import compiled, inside
from girih.program.life.lifetimes import Lifetimes
from girih.program.life.links import Links

Integers = NDArray[np.int64]


class SwapProblem(NamedTuple):
    """What does not change while orders and pools do, on flat arrays.

    links: which step needs which. used_starts, used: the tensors of each step, in compressed rows; writes: which of
    them it makes or updates. user_starts: how many steps use each tensor, as starts of rows. takes_starts, takes: the
    tensors of which a step's result takes over the first that ends there. sizes: the index of each tensor's bytes among
    the pool's, -1 for none. bytes: of each tensor. lasting: is it a parameter, and so there from step to step? given:
    is it a batch that the step begins with? kept: is it a result, and so there to the end? seconds: of each step.
    rates: bytes/s out and in.
    """

    links: Links
    used_starts: Integers
    used: Integers
    writes: NDArray[np.bool_]
    user_starts: Integers
    takes_starts: Integers
    takes: Integers
    sizes: Integers
    bytes: Integers
    lasting: NDArray[np.bool_]
    given: NDArray[np.bool_]
    kept: NDArray[np.bool_]
    seconds: NDArray[np.float64]
    rates: tuple[float, float]

    @property
    def size_table(self) -> tuple[int, ...]:
        """The sizes of all tensors in bytes, ascending: TS of the thesis."""
        return tuple(np.unique(self.bytes[self.bytes > 0]).tolist())

    @property
    def needs(self) -> Integers:
        """How many tensors of each size a step uses at once: [kinds of steps, sizes]."""
        counts = np.zeros((len(self.seconds), len(self.size_table)), np.int64)
        rows = np.repeat(np.arange(len(self.seconds)), np.diff(self.used_starts))
        real = self.sizes[self.used] >= 0
        np.add.at(counts, (rows[real], self.sizes[self.used[real]]), 1)
        begun = np.bincount(self.sizes[self.given & (self.sizes >= 0)], minlength=counts.shape[1])
        return np.unique(np.concatenate([counts, begun[None]]), axis=0)


def problem(lives: Lifetimes, seconds: NDArray[np.float64], rates: tuple[float, float]) -> SwapProblem:
    """The problem of one device.

    seconds: of each step that is not a free. rates: bytes/s of copies out, and in.
    """
    links = lives.links
    steps = len(links.extra)
    count = len(lives.storages)
    tensor = np.arange(count)
    for old, new in lives.state:
        tensor[new] = old
    kept, tensor = np.unique(tensor, return_inverse=True)
    rows = np.repeat(np.arange(steps), np.diff(links.touched_starts))
    first = np.asarray([item.born for item in lives.storages])
    written = first[links.touched] == rows
    uses: dict[tuple[int, int], bool] = {}
    for row, storage, write in zip(rows.tolist(), links.touched.tolist(), written.tolist(), strict=True):
        key = row, int(tensor[storage])
        uses[key] = uses.get(key, False) or write
    table = np.asarray(sorted(uses), np.int64).reshape(-1, 2)
    writes = np.asarray([uses[row, item] for row, item in table.tolist()], np.bool_)
    amounts = links.bytes[kept]
    lasting = np.zeros(len(kept), np.bool_)
    lasting[tensor[[old for old, _ in lives.state]]] = True
    sizes = np.unique(amounts[amounts > 0])
    return SwapProblem(
        links,
        np.searchsorted(table[:, 0], np.arange(steps + 1)),
        table[:, 1].copy(),
        writes,
        np.concatenate([[0], np.cumsum(np.bincount(table[:, 1], minlength=len(kept)))]),
        links.takes_starts,
        tensor[links.takes],
        np.where(amounts > 0, np.searchsorted(sizes, amounts), -1),
        amounts,
        lasting,
        links.given[kept] & ~lasting,
        links.lasts[kept] & ~lasting,
        np.asarray(seconds, np.float64),
        rates,
    )


def seconds_of_step(item: SwapProblem, order: Integers, pool: Pool, recent: float = 0.0) -> float:
    """Seconds of one step with this order and pool; infinite where some operator does not find an object."""
    classes = np.where(item.sizes >= 0, np.asarray(pool.classes)[item.sizes], -1)
    most = np.bincount(classes[classes >= 0], minlength=len(pool.counts))  # more objects than tensors are of no use
    starts = np.concatenate([[0], np.cumsum(np.minimum(pool.counts, most))]).astype(np.int64)
    tables = item.used_starts, item.used, item.writes, item.user_starts, item.takes_starts, item.takes
    tensors = item.bytes, item.lasting, item.given, item.kept
    return float(_timed(*tables, *tensors, item.seconds, *item.rates, recent, order, classes, starts))


def _work(*arguments: NDArray[np.int64]) -> float:
    return 3.0 * len(arguments[1]) * 10


@compiled(_work, nogil=True)
def _timed(  # type: ignore[no-untyped-def]
    used_starts,
    used,
    writes,
    user_starts,
    takes_starts,
    takes,
    sizes,
    lasting,
    given,
    kept,
    seconds,
    rate_out,
    rate_in,
    recent,
    order,
    classes,
    starts,
):
    """Seconds of a step in this order with this pool (`_pass`), as it is repeated. Of three passes the later ones begin
    with the parameters that the first had on the device at its end, without those that had to leave."""
    tensors = len(sizes)
    at_start = np.zeros(tensors, np.bool_)
    positions = np.empty(len(used), np.int64)  # of the steps that use each tensor, in this order
    filled = user_starts[:-1].copy()
    for position in range(len(order)):
        step = order[position]
        for entry in range(used_starts[step], used_starts[step + 1]):
            positions[filled[used[entry]]] = position
            filled[used[entry]] += 1
    at_end = np.zeros(tensors, np.bool_)
    left = np.zeros(tensors, np.bool_)
    total = np.inf
    for turn in range(3):
        total = _pass(
            used_starts, used, writes, user_starts, takes_starts, takes, sizes, lasting, given, kept,
            seconds, rate_out, rate_in, recent, order, classes, starts, positions, at_start, at_end, left,
        )  # fmt: skip
        if total == np.inf:
            return total
        for tensor in range(tensors):
            if turn == 0:
                at_start[tensor] = at_end[tensor]
            elif left[tensor]:
                at_start[tensor] = False
    return total


@inside(nogil=True)
def _pass(  # type: ignore[no-untyped-def]
    used_starts,
    used,
    writes,
    user_starts,
    takes_starts,
    takes,
    sizes,
    lasting,
    given,
    kept,
    seconds,
    rate_out,
    rate_in,
    recent,
    order,
    classes,
    starts,
    positions,
    at_start,
    at_end,
    left,
):
    """Fills at_end with the parameters that are on the device at the end, and left with those of at_start that left."""
    tensors, end = len(sizes), len(order)
    holder = np.full(starts[-1], -1, np.int64)
    free_at = np.zeros(starts[-1])  # when an object can be written
    place = np.full(tensors, -1, np.int64)
    dirty = np.zeros(tensors, np.bool_)
    host_at = np.zeros(tensors)  # when the copy in the large memory is whole
    last = np.full(tensors, -1, np.int64)  # position of the last use so far
    ready = np.zeros(tensors)
    turn = user_starts[:-1].copy()
    done = np.zeros(end + 1)  # behind each position
    clock = np.zeros(end + 1)  # without waiting
    out, back, now = 0.0, 0.0, 0.0
    left[:] = False
    for tensor in range(tensors):
        if (at_start[tensor] or given[tensor]) and classes[tensor] >= 0:
            for item in range(starts[classes[tensor]], starts[classes[tensor] + 1]):
                if holder[item] < 0:
                    holder[item], place[tensor] = tensor, item
                    break
            if place[tensor] < 0:
                return np.inf
            dirty[tensor] = given[tensor]
    for position in range(end):
        step = order[position]
        clock[position + 1] = clock[position] + seconds[step]
        begin, stop = used_starts[step], used_starts[step + 1]
        for entry in range(begin, stop):
            tensor = used[entry]
            last[tensor] = position
            turn[tensor] += 1
        start = now
        for making in range(2):  # operands first
            for entry in range(begin, stop):
                tensor = used[entry]
                fresh = writes[entry] and not lasting[tensor]
                if classes[tensor] < 0 or fresh != (making == 1):
                    continue
                if place[tensor] < 0:
                    chosen = -1
                    if fresh:
                        for row in range(takes_starts[step], takes_starts[step + 1]):
                            ending = takes[row]
                            ends = turn[ending] == user_starts[ending + 1] and not lasting[ending] and not kept[ending]
                            if chosen < 0 and ends and place[ending] >= 0 and classes[ending] == classes[tensor]:
                                chosen = place[ending]
                                place[ending] = -1
                    if chosen < 0:
                        low, high = starts[classes[tensor]], starts[classes[tensor] + 1]
                        chosen = _free_object(holder, free_at, low, high)
                        if chosen < 0:
                            chosen = _victim(
                                holder, last, turn, user_starts, positions, lasting, clock, recent, position, low, high
                            )
                            if chosen < 0:
                                return np.inf
                            leaving = holder[chosen]
                            leave = done[last[leaving] + 1] if last[leaving] >= 0 else 0.0
                            leave = max(leave, ready[leaving])
                            needed = lasting[leaving] or kept[leaving] or turn[leaving] < user_starts[leaving + 1]
                            if dirty[leaving] and needed:
                                out = max(out, leave) + sizes[leaving] / rate_out
                                host_at[leaving] = leave = out
                                dirty[leaving] = False
                            free_at[chosen] = leave
                            place[leaving] = -1
                            if at_start[leaving]:
                                left[leaving] = True
                    holder[chosen], place[tensor] = tensor, chosen
                    if fresh:
                        ready[tensor] = free_at[chosen]
                    else:
                        back = max(back, free_at[chosen], host_at[tensor]) + sizes[tensor] / rate_in
                        ready[tensor] = back
                start = max(start, ready[tensor])
                if writes[entry]:
                    dirty[tensor] = True
        now = start + seconds[step]
        done[position + 1] = now
        for entry in range(begin, stop):
            tensor = used[entry]
            over = turn[tensor] == user_starts[tensor + 1] and not lasting[tensor] and not kept[tensor]
            if over and place[tensor] >= 0:
                holder[place[tensor]], free_at[place[tensor]] = -1, now
                place[tensor] = -1
    for tensor in range(tensors):
        at_end[tensor] = lasting[tensor] and place[tensor] >= 0
        if lasting[tensor] and classes[tensor] >= 0:
            if place[tensor] >= 0 and dirty[tensor] and not at_start[tensor]:
                out = max(out, done[last[tensor] + 1]) + sizes[tensor] / rate_out
            elif place[tensor] < 0 and at_start[tensor]:
                back = max(back, now) + sizes[tensor] / rate_in
    return max(now, out, back)


@inside(nogil=True)
def _free_object(holder, free_at, low, high):  # type: ignore[no-untyped-def]
    """The object that has been free longest, -1 for none."""
    best = -1
    for item in range(low, high):
        if holder[item] < 0 and (best < 0 or free_at[item] < free_at[best]):
            best = item
    return best


@inside(nogil=True)
def _victim(  # type: ignore[no-untyped-def]
    holder, last, turn, user_starts, positions, lasting, clock, recent, position, low, high
):
    """The object whose tensor is needed again last; those used lately only if there is no other. -1: all are in use."""
    best, furthest = -1, -1
    end = len(clock) - 1
    for item in range(low, high):
        tensor = holder[item]
        if last[tensor] == position:
            continue
        if turn[tensor] < user_starts[tensor + 1]:
            again = positions[turn[tensor]]
        elif lasting[tensor]:
            again = end + positions[user_starts[tensor]]
        else:
            again = 2 * end + 1
        if clock[position] - clock[last[tensor] + 1] >= recent:
            again += 3 * end  # before all that were used lately
        if again > furthest:
            best, furthest = item, again
    return best
