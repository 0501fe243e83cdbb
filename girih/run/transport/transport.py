"""How workers hand tensors to each other: point to point, matched by order.

All devices walk the same list of steps, and of each pair of devices both walk the pair's messages in the same order,
so messages need no tags. `begin` starts everything and returns a function that waits for it; local work may be
done between the two, and other exchanges begun and waited for, in any order.

- `ThreadTransport`: between threads of one process. A message is a reference: buffers are never written once made,
  so that nothing is copied before the receiver copies into its own. The sender waits for that, as it would with gloo:
  otherwise a receiver that lags would keep alive what its sender's account of memory holds for freed.
- `GroupTransport`: a torch.distributed process group, gloo's or NCCL's (`girih.run.transport.group`).
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from girih.run.errors import TransportError
from girih.run.transport.stealing import Board

Tensor = Any  # torch is untyped for the type checker
Messages = Sequence[tuple[int, Tensor]]  # (peer, tensor)


class Transport(Protocol):
    """packs: tensors must be contiguous. sent, received: payload in bytes for each peer, as it was handed over. board:
    where workers of one process offer work to each other."""

    packs: bool
    board: Board | None
    sent: list[int]
    received: list[int]

    def begin(self, sends: Messages, receives: Messages) -> Callable[[], None]:
        """Start sending, and receiving into the given tensors; the result waits until all is done.

        Raises:
            TransportError: a peer is gone or too late.
        """


def exchange(transport: Transport, sends: Messages, receives: Messages) -> None:
    """Send and receive, and wait."""
    transport.begin(sends, receives)()


def _count(totals: list[int], messages: Messages) -> None:
    for peer, tensor in messages:
        totals[peer] += tensor.nbytes


class NoTransport:
    """For one device, which has no peers."""

    packs = False
    board: Board | None = None

    def __init__(self) -> None:
        self.sent = [0]
        self.received = [0]

    def begin(self, sends: Messages, receives: Messages) -> Callable[[], None]:
        if sends or receives:
            raise TransportError("a program of one device has messages")
        return lambda: None


class ThreadHub:
    """The mailboxes of `devices` threads.

    boxes[sender][receiver]: messages. taken[sender][receiver]: a sign for each message that was copied.
    """

    def __init__(self, devices: int, timeout: float) -> None:
        self.timeout = timeout
        self.boxes: list[list[queue.SimpleQueue[Tensor | None]]] = _grid(devices)
        self.taken: list[list[queue.SimpleQueue[bool | None]]] = _grid(devices)
        self.board = Board()

    def abort(self) -> None:
        """Wake everyone who waits: TransportError is raised there."""
        for row in (*self.boxes, *self.taken):
            for box in row:
                box.put(None)


def _grid(size: int) -> list[list[queue.SimpleQueue[Any]]]:
    return [[queue.SimpleQueue() for _ in range(size)] for _ in range(size)]


@dataclass(slots=True)
class _Ticket:
    """A message that is expected: where it goes, or None once it is there."""

    tensor: Tensor | None


class ThreadTransport:
    """One thread's place at a hub.

    expected: by peer, in the order of its messages, what has not come yet. posted, acknowledged: by peer, how many
    messages were sent, and how many of them the peer has copied: it does so in their order.
    """

    packs = False

    def __init__(self, hub: ThreadHub, rank: int) -> None:
        self.hub = hub
        self.board: Board | None = hub.board
        self.rank = rank
        devices = len(hub.boxes)
        self.sent = [0] * devices
        self.received = [0] * devices
        self.expected: list[deque[_Ticket]] = [deque() for _ in range(devices)]
        self.posted = [0] * devices
        self.acknowledged = [0] * devices

    def begin(self, sends: Messages, receives: Messages) -> Callable[[], None]:
        outgoing = self.hub.boxes[self.rank]
        for peer, tensor in sends:
            outgoing[peer].put(tensor)
            self.posted[peer] += 1
        _count(self.sent, sends)
        last = {peer: self.posted[peer] for peer, _ in sends}
        tickets = [(peer, _Ticket(tensor)) for peer, tensor in receives]
        for peer, ticket in tickets:
            self.expected[peer].append(ticket)
        for peer in dict.fromkeys(peer for peer, _ in receives):
            self._take_what_is_there(peer)

        def wait() -> None:
            for peer, ticket in tickets:
                while ticket.tensor is not None:
                    self._take(peer, self._next(self.hub.boxes[peer][self.rank], peer, "nothing came from"))
            for peer, number in last.items():
                while self.acknowledged[peer] < number:
                    self._next(self.hub.taken[self.rank][peer], peer, "nothing was taken by")
                    self.acknowledged[peer] += 1
            _count(self.received, receives)

        return wait

    def _next(self, box: queue.SimpleQueue[Any], peer: int, missing: str) -> Any:
        try:
            item = self.hub.board.wait(box, self.hub.timeout)
        except queue.Empty:
            raise TransportError(f"{missing} worker {peer} for {self.hub.timeout:g} s") from None
        if item is None:
            raise TransportError(f"the run was stopped while waiting for worker {peer}")
        return item

    def _take(self, peer: int, arrived: Tensor) -> None:
        """The peer's next message goes where it is expected: it may belong to an exchange that is waited for later."""
        ticket = self.expected[peer].popleft()
        assert ticket.tensor is not None
        ticket.tensor.copy_(arrived)
        ticket.tensor = None
        self.hub.taken[peer][self.rank].put(True)

    def _take_what_is_there(self, peer: int) -> None:
        """So a peer that is ahead need not wait until this one waits."""
        box = self.hub.boxes[peer][self.rank]
        while self.expected[peer] and not box.empty():
            self._take(peer, self._next(box, peer, "nothing came from"))


class GroupTransport:
    """Over the default process group of torch.distributed, whose timeout holds."""

    packs = True
    board: Board | None = None

    def __init__(self, batched: bool = False) -> None:
        """batched: the messages of an exchange begin together, as NCCL wants them."""
        import torch.distributed as dist

        self.dist = dist
        self.batched = batched
        self.sent = [0] * dist.get_world_size()
        self.received = [0] * dist.get_world_size()

    def begin(self, sends: Messages, receives: Messages) -> Callable[[], None]:
        dist = self.dist
        try:
            if self.batched:
                works = self._batch(sends, receives)
            else:
                works = [dist.irecv(tensor, peer) for peer, tensor in receives]
                works += [dist.isend(tensor, peer) for peer, tensor in sends]
        except RuntimeError as error:
            raise self._error(sends, receives, error) from error
        _count(self.sent, sends)

        def wait() -> None:
            try:
                for work in works:
                    work.wait()
            except RuntimeError as error:
                raise self._error(sends, receives, error) from error
            _count(self.received, receives)

        return wait

    def _batch(self, sends: Messages, receives: Messages) -> list[Any]:
        dist = self.dist
        operations = [dist.P2POp(dist.isend, tensor, peer) for peer, tensor in sends]
        operations += [dist.P2POp(dist.irecv, tensor, peer) for peer, tensor in receives]
        return list(dist.batch_isend_irecv(operations)) if operations else []

    def _error(self, sends: Messages, receives: Messages, error: Exception) -> TransportError:
        peers = sorted({peer for peer, _ in (*sends, *receives)})
        return TransportError(f"exchanging with workers {peers}: {error}")
