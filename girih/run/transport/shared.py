"""Messages between processes of one host through memory that they share: no thread, socket or kernel buffer between.

A ring of bytes lies between each two workers, one for each direction. The sender copies a message in as far as there
is room, the receiver copies it out when it comes to it; whoever must wait sleeps until a peer says that it has done
something. On a host whose cores all compute, gloo's thread would wait for its turn on one of them, often longer than
the message itself takes.

Rings and signs belong to the driver, which hands them to its workers as open files: they are gone with the last of
them, however it ended.
"""

from __future__ import annotations

import mmap
import os
import platform
import select
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from girih.run.errors import TransportError
from girih.run.transport.stealing import Board
from girih.run.transport.transport import Messages, Tensor

ALL_RINGS = 64 << 20
"""Bytes of all rings of a run together, at most; touched only where messages pass."""
LARGEST_RING, SMALLEST_RING = 16 << 20, 64 << 10
LINE = 64  # bytes between the counters of a ring: two workers write them
COUNTERS = 2 * LINE
AWAKE_SECONDS = 2e-4
"""That a worker waits without sleeping: peers mostly come to an exchange nearly together, and waking takes as long."""


def available() -> bool:
    """Can processes of this host share memory in this way? Else, or if GIRIH_TRANSPORT=gloo is set, they use gloo.

    Only where a counter is never seen before the bytes that were written ahead of it: other processors may turn two
    writes around, and Python has no barrier against it.
    """
    ordered = platform.machine() in ("x86_64", "AMD64")
    return sys.platform == "linux" and ordered and os.environ.get("GIRIH_TRANSPORT") != "gloo"


def ring_bytes(workers: int) -> int:
    """The size of each ring: a power of two."""
    share = ALL_RINGS // max(1, workers * (workers - 1))
    return 1 << (min(max(share, SMALLEST_RING), LARGEST_RING).bit_length() - 1)


@dataclass(frozen=True)
class Files:
    """What workers share, as open files: the memory of all rings, and of each worker the sign that wakes it."""

    memory: int
    signs: tuple[int, ...]

    @staticmethod
    def made(workers: int) -> Files:
        memory = os.memfd_create("girih-rings")
        os.ftruncate(memory, workers * workers * (COUNTERS + ring_bytes(workers)))
        return Files(memory, tuple(os.eventfd(0, os.EFD_NONBLOCK) for _ in range(workers)))

    @property
    def all(self) -> tuple[int, ...]:
        return (self.memory, *self.signs)

    def close(self) -> None:
        for file in self.all:
            os.close(file)


class _Piece:
    """A message as bytes, and how many of them are done."""

    __slots__ = ("bytes", "done")

    def __init__(self, tensor: Tensor, as_bytes: Any) -> None:
        # Not view(-1): one element that was expanded counts as contiguous, but keeps stride 0, and that has no bytes.
        self.bytes = tensor.as_strided((tensor.numel(),), (1,)).view(as_bytes)
        self.done = 0

    @property
    def left(self) -> int:
        return len(self.bytes) - self.done


class _Ring:
    """One direction between two workers: `written` is the sender's counter of bytes, `read` the receiver's."""

    def __init__(self, whole: memoryview, number: int, size: int, tensor_of: Callable[[memoryview], Tensor]) -> None:
        begin = number * (COUNTERS + size)
        self.written = whole[begin : begin + 8].cast("q")
        self.read = whole[begin + LINE : begin + LINE + 8].cast("q")
        self.bytes = tensor_of(whole[begin + COUNTERS : begin + COUNTERS + size])
        self.size = size

    def put(self, piece: _Piece) -> bool:
        """Copy in what there is room for; was there any?"""
        written = self.written[0]
        amount = min(piece.left, self.size - (written - self.read[0]))
        for place, start, length in self._parts(written, piece.done, amount):
            self.bytes[place : place + length].copy_(piece.bytes[start : start + length])
        self.written[0] = written + amount
        piece.done += amount
        return amount > 0

    def take(self, piece: _Piece) -> bool:
        """Copy out what is there; was there anything?"""
        read = self.read[0]
        amount = min(piece.left, self.written[0] - read)
        for place, start, length in self._parts(read, piece.done, amount):
            piece.bytes[start : start + length].copy_(self.bytes[place : place + length])
        self.read[0] = read + amount
        piece.done += amount
        return amount > 0

    def _parts(self, counter: int, start: int, amount: int) -> Sequence[tuple[int, int, int]]:
        """(place in the ring, place in the message, length): two where the ring begins anew."""
        place = counter % self.size
        first = min(amount, self.size - place)
        parts = [(place, start, first), (0, start + first, amount - first)]
        return [part for part in parts if part[2]]


class SharedTransport:
    """One worker's place at the rings; see `girih.run.transport.transport.Transport`. timeout: seconds that nothing
    happens."""

    packs = True
    board: Board | None = None

    def __init__(self, files: Files, rank: int, timeout: float) -> None:
        import torch

        workers = len(files.signs)
        size = ring_bytes(workers)
        whole = memoryview(mmap.mmap(files.memory, workers * workers * (COUNTERS + size)))

        def ring(sender: int, receiver: int) -> _Ring:
            return _Ring(
                whole, sender * workers + receiver, size, lambda part: torch.frombuffer(part, dtype=torch.uint8)
            )

        self.as_bytes = torch.uint8
        self.timeout = timeout
        self.sent = [0] * workers
        self.received = [0] * workers
        self.signs = files.signs
        self.sign = files.signs[rank]
        self.poll = select.poll()
        self.poll.register(self.sign, select.POLLIN)
        self.out = [ring(rank, peer) for peer in range(workers)]
        self.into = [ring(peer, rank) for peer in range(workers)]
        # By peer, what has not been copied yet, in the order of messages.
        self.sends: list[deque[_Piece]] = [deque() for _ in range(workers)]
        self.receives: list[deque[_Piece]] = [deque() for _ in range(workers)]

    def begin(self, sends: Messages, receives: Messages) -> Callable[[], None]:
        pieces = []
        for queues, messages in ((self.sends, sends), (self.receives, receives)):
            for peer, tensor in messages:
                piece = _Piece(tensor, self.as_bytes)
                if piece.left:
                    queues[peer].append(piece)
                    pieces.append(piece)
        for peer, tensor in sends:
            self.sent[peer] += tensor.nbytes
        self._progress()

        def wait() -> None:
            deadline = monotonic() + self.timeout
            while any(piece.left for piece in pieces):
                if self._progress():
                    deadline = monotonic() + self.timeout
                else:
                    self._sleep(deadline)
            for peer, tensor in receives:
                self.received[peer] += tensor.nbytes

        return wait

    def _progress(self) -> bool:
        """Copy what can be copied, and wake the peers that may go on because of it; was there anything?"""
        woken = 0
        for peer in range(len(self.signs)):
            moved = _move(self.sends[peer], self.out[peer].put)
            moved |= _move(self.receives[peer], self.into[peer].take)
            if moved:
                os.eventfd_write(self.signs[peer], 1)
                woken += 1
        return woken > 0

    def _sleep(self, deadline: float) -> None:
        """Until a peer has done something; it may have been something else."""
        awake = monotonic() + AWAKE_SECONDS
        while monotonic() < awake:
            os.sched_yield()
            if self._progress():
                return
        if not self.poll.poll(max(0.0, deadline - monotonic()) * 1000):
            late = [peer for peer in range(len(self.signs)) if self.sends[peer] or self.receives[peer]]
            raise TransportError(f"exchanging with workers {late}: nothing happened for {self.timeout:g} s")
        os.eventfd_read(self.sign)


def _move(pieces: deque[_Piece], move: Callable[[_Piece], bool]) -> bool:
    moved = False
    while pieces and move(pieces[0]):
        moved = True
        if not pieces[0].left:
            pieces.popleft()
        else:
            break
    return moved
