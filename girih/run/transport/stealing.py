"""Work stealing among workers that are threads of one process: an idle worker computes part of a busy one's loop.

The loop of a group of nodes is divided into chunks of blocks. Its own worker computes them from the front; workers that
wait for a message, or have finished their part, take chunks from the back (Spartan, §3.4: fine tiles and work
stealing). A chunk's result does not depend on which thread computes it, and the sums of chunks are combined in their
order. So stealing changes no bit of the result.

Workers that are processes do not see each other's tiles, and take no chunks: to send what a chunk reads gained too
little (`docs/design/004-blocks.md`).
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

import torch

LOOK_SECONDS = 1e-3
"""How often a waiting worker looks for a chunk to steal."""
STOLEN_SECONDS = 0.1
"""How often the owner of a loop, waiting for stolen chunks, can be interrupted."""
LEAST_LEFT = 2
"""A loop with fewer chunks left is not stolen from: its own worker computes the last one sooner than another would."""

Item = TypeVar("Item")


class Offer:
    """The chunks of one loop, for its own worker and for others that have nothing else to do.

    run: computes the chunk of a number; several threads call it at once. The offer lets go of it with the last chunk,
    and so of all that it holds: another thread may look at the offer longer.
    """

    def __init__(self, run: Callable[[int], Any], count: int) -> None:
        self.run: Callable[[int], Any] | None = run
        self.count = count
        self.left = deque(range(count))
        self._stolen: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()

    def steal(self) -> bool:
        """Compute the last chunk that no worker has begun; False where there is none."""
        try:
            number = self.left.pop()
        except IndexError:
            return False
        self._stolen.put((number, *self._tried(number)))
        return True

    def results(self) -> list[Any]:
        """The results of all chunks, in order. This thread computes those that no other has taken.

        Raises:
            Exception: what a chunk raised, in whichever thread. No chunk is computed any more then.
        """
        results: dict[int, Any] = {}
        failed: BaseException | None = None
        given_up = 0
        while (number := self._first()) is not None:
            if failed is None:
                results[number], failed = self._tried(number)
            else:
                given_up += 1
        for _ in range(self.count - len(results) - given_up):
            number, results[number], error = self._next_stolen()
            failed = failed or error
        self.run = None
        if failed is not None:
            raise failed
        return [results[number] for number in range(self.count)]

    def _next_stolen(self) -> tuple[int, Any, BaseException | None]:
        while True:  # to wait for ever in one call would take no notice of `stopping.stop`
            try:
                return self._stolen.get(timeout=STOLEN_SECONDS)
            except queue.Empty:
                continue

    def _first(self) -> int | None:
        try:
            return self.left.popleft()
        except IndexError:
            return None

    def _tried(self, number: int) -> tuple[Any, BaseException | None]:
        try:
            assert self.run is not None
            with torch.no_grad():
                return self.run(number), None
        except BaseException as error:
            return None, error


class Board:
    """Where the threads of a crew offer chunks to each other. stolen: how many have been taken so far."""

    def __init__(self) -> None:
        self.stolen = 0
        self._offers: list[Offer] = []
        self._working = 0
        self._lock = Lock()

    @contextmanager
    def offering(self, offer: Offer) -> Iterator[None]:
        self._offers.append(offer)
        try:
            yield
        finally:
            self._offers.remove(offer)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Within it a worker does a command, and others that have done theirs may help."""
        with self._lock:
            self._working += 1
        try:
            yield
        finally:
            with self._lock:
                self._working -= 1

    def steal(self) -> bool:
        """Compute one chunk of the worker that has most left; False where there is none."""
        offers = [offer for offer in tuple(self._offers) if len(offer.left) >= LEAST_LEFT]
        if not offers or not max(offers, key=lambda offer: len(offer.left)).steal():
            return False
        with self._lock:
            self.stolen += 1
        return True

    def wait(self, box: queue.SimpleQueue[Item], timeout: float) -> Item:
        """The next item; while there is none, this thread computes chunks of others.

        Raises:
            queue.Empty: nothing came in time.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                return box.get_nowait()
            except queue.Empty:
                stole = self.steal()
            left = deadline - time.monotonic()
            try:
                return box.get_nowait() if stole else box.get(timeout=max(0.0, min(left, LOOK_SECONDS)))
            except queue.Empty:
                if left <= 0:
                    raise

    def next(self, box: queue.SimpleQueue[Item]) -> Item:
        """The next item, however long it takes; while others work, this thread computes chunks of theirs."""
        while self._working:
            try:
                return self.wait(box, LOOK_SECONDS)
            except queue.Empty:
                continue
        return box.get()
