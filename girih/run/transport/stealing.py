"""Work stealing among workers that are threads of one process: who waits computes for who is behind.

The loop of a group of nodes is run in chunks of blocks: from the front by its own worker, from the back by others that
wait for a message or have done their part (Spartan, §3.4: fine tiles and work stealing). What a chunk makes does not
depend on who computes it, and the sums of chunks are combined in their order: stolen or not, the bits are the same.

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
"""How often who waits looks whether there is something to steal."""
STOLEN_SECONDS = 0.1
"""How often an owner whose chunks are computed elsewhere looks up."""
LEAST_LEFT = 2
"""Chunks that must be left: the last one its own worker would have done before another is."""

Item = TypeVar("Item")


class Offer:
    """The chunks of one loop. run: computes the chunk of a number; it is called by several threads at once. It is let
    go with the last chunk, with all that it holds: a thief may look at the offer longer. seconds: that the owner took
    for a chunk, the latest."""

    def __init__(self, run: Callable[[int], Any], count: int) -> None:
        self.run: Callable[[int], Any] | None = run
        self.count = count
        self.left = deque(range(count))
        self.seconds = 0.0
        self._stolen: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()

    def steal(self) -> bool:
        """Compute the last chunk that nobody has begun; False where there is none."""
        number = self.take()
        if number is None:
            return False
        self.redo(number)
        return True

    def take(self) -> int | None:
        """The last chunk that nobody has begun, if there is one; who takes it owes its sums."""
        try:
            return self.left.pop()
        except IndexError:
            return None

    def done(self, number: int, sums: Any) -> None:
        """A chunk that was taken is computed."""
        self._stolen.put((number, sums, None))

    def redo(self, number: int) -> None:
        """Compute a chunk that was taken, in this thread."""
        self._stolen.put((number, *self._tried(number)))

    def results(self) -> list[Any]:
        """Of all chunks, in order; computed here as far as they are not stolen.

        Raises:
            Exception: what a chunk raised, here or where it was stolen. Nobody computes any more then.
        """
        results: dict[int, Any] = {}
        failed: BaseException | None = None
        given_up = 0
        while (number := self._first()) is not None:
            if failed is None:
                began = time.perf_counter()
                results[number], failed = self._tried(number)
                self.seconds = time.perf_counter() - began
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
    """Where the threads of a crew offer chunks to each other. stolen: how many were taken so far."""

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
        """A worker does a command: others that have done theirs may come to help."""
        with self._lock:
            self._working += 1
        try:
            yield
        finally:
            with self._lock:
                self._working -= 1

    def steal(self) -> bool:
        """Compute one chunk for the worker that has most left."""
        offers = [offer for offer in tuple(self._offers) if len(offer.left) >= LEAST_LEFT]
        if not offers or not max(offers, key=lambda offer: len(offer.left)).steal():
            return False
        with self._lock:
            self.stolen += 1
        return True

    def wait(self, box: queue.SimpleQueue[Item], timeout: float) -> Item:
        """The next item; while there is none, chunks of others are computed.

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
        """The next item, however long it takes; others are helped as long as one of them works."""
        while self._working:
            try:
                return self.wait(box, LOOK_SECONDS)
            except queue.Empty:
                continue
        return box.get()
