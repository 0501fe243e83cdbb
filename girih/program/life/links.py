"""Which step needs which, and what one device holds in any order of the steps: what searches of orders walk.

A storage is alive from its maker to the last step that touches it, whatever the order; so one scan of an order tells
the bytes in use in each step, and the peak, exactly as the accounts of memory do (`girih.program.life.accounts`).

Exchanges between devices keep their order, because peers match messages by it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from girih.layout.compiled import compiled, inside
from girih.program.table import Integers


class Links(NamedTuple):
    """Columns of the steps (numbered as captured, without frees) and of the storages of one device
    (`Lifetimes.links`).

    Lists are in compressed rows: those of x are `items[starts[x] : starts[x + 1]]`. after, before: steps that need a
    step, and that it needs. touched, touchers: storages of a step, and steps of a storage. bytes, uses: of a storage;
    uses is the number of its touchers. given: is it there before the first step? lasts: behind the last one? extra:
    bytes that a step holds beside its storages. takes: the storages of which a step's result takes over the first that
    ends with this step. ends: the most bytes before the first step and behind the last one, which no order changes.
    backwards: is time reversed, so that ends are beginnings?
    """

    after_starts: Integers
    after: Integers
    before_starts: Integers
    before: Integers
    touched_starts: Integers
    touched: Integers
    toucher_starts: Integers
    touchers: Integers
    bytes: Integers
    uses: Integers
    given: NDArray[np.bool_]
    lasts: NDArray[np.bool_]
    extra: Integers
    takes_starts: Integers
    takes: Integers
    ends: int
    backwards: bool = False

    @property
    def captured(self) -> Integers:
        """The order that the program has."""
        return np.arange(len(self.extra))

    def used(self, order: Integers) -> Integers:
        """Bytes in use in each step of an order: [steps]."""
        used: Integers = scanned(self, order)
        return used

    def peak(self, order: Integers) -> int:
        """The most bytes in use at any time, in bytes."""
        return max(self.ends, int(self.used(order).max(initial=0)))


def rows(of: Integers, items: Integers, count: int) -> tuple[Integers, Integers]:
    """Compressed rows: (starts, items), in the order of the items within each row."""
    order = np.lexsort((items, of))
    starts = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=count))]).astype(np.int64)
    return starts, items[order]


def reversed_links(links: Links) -> Links:
    """The same in reversed time: what a step needs and what needs it change places, and so do beginning and end. An
    order and its reverse use the same bytes."""
    return links._replace(
        after_starts=links.before_starts,
        after=links.before,
        before_starts=links.after_starts,
        before=links.after,
        given=links.lasts,
        lasts=links.given,
        backwards=not links.backwards,
    )


@compiled(lambda links, order: len(links.touched) + len(order))
def scanned(links, order):  # type: ignore[no-untyped-def]
    """Bytes in use in each step of an order: [steps]."""
    left = links.uses.copy()
    used = np.empty(len(order), np.int64)
    now = begun_bytes(links)
    for at in range(len(order)):
        step = order[at]
        now, most = done(links, left, now, step)
        used[at] = most
    return used


@inside()
def begun_bytes(links):  # type: ignore[no-untyped-def]
    """Bytes before the first step."""
    now = 0
    for storage in range(len(links.bytes)):
        if links.given[storage]:
            now += links.bytes[storage]
    return now


@inside()
def done(links, left, now, step):  # type: ignore[no-untyped-def]
    """A step is done: (bytes behind it, bytes during it). left: touches to come of each storage, which is updated."""
    low, high = links.touched_starts[step], links.touched_starts[step + 1]
    for at in range(low, high):
        storage = links.touched[at]
        if left[storage] == links.uses[storage] and not links.given[storage]:
            now += links.bytes[storage]
    most = now + links.extra[step] - taken_bytes(links, left, step)
    for at in range(low, high):
        storage = links.touched[at]
        left[storage] -= 1
        if left[storage] == 0 and not links.lasts[storage]:
            now -= links.bytes[storage]
    return now, most


@inside()
def taken_bytes(links, left, step):  # type: ignore[no-untyped-def]
    """Bytes that a step's result takes over. left: touches to come of each storage, before the step is done."""
    for at in range(links.takes_starts[step], links.takes_starts[step + 1]):
        storage = links.takes[at]
        if links.backwards:
            ends = left[storage] == links.uses[storage] and not links.given[storage]
        else:
            ends = left[storage] == 1 and not links.lasts[storage]
        if ends:
            return links.bytes[storage]
    return 0


@inside()
def undone(links, left, step):  # type: ignore[no-untyped-def]
    """The touches of the step that was done last are to come again."""
    for at in range(links.touched_starts[step], links.touched_starts[step + 1]):
        left[links.touched[at]] += 1
