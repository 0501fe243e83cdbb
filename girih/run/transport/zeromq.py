"""Workers on several hosts that send each other arrays over ZeroMQ: each listens at one place, and has a line to each
other one.

They learn where the others listen, and the keys of their sockets, where they meet (`girih.run.transport.meeting`).
CurveZMQ encrypts what travels, and lets nobody in who does not have the key. What arrives is bytes of arrays, and
nothing of it is run. ZeroMQ keeps the order of a line's messages, and sends them in a thread of its own.

Whose process ends, or who does not answer ZeroMQ's heartbeat, is gone, and everybody who waits for anything is told.
Who fails tells the others why.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import zmq
from zmq.utils.monitor import recv_monitor_message

from girih.run.errors import TransportError
from girih.run.transport.meeting import Meeting, endpoint
from girih.run.transport.stealing import Board
from girih.run.transport.transport import Messages

HELLO, ARRAY, REPLY, FAILED, BYE = range(5)
HEAD = struct.Struct("<IB")
"""The head of a message: the sender's rank, and its kind."""
START_SECONDS = 60.0  # for lines to hosts that are there
HEARTBEAT, SILENCE = 5_000, 60_000  # milliseconds: between two signs of life, and without one
LAST_WORDS = 300  # milliseconds that may lie between a broken line and the last message of who broke it
LINGER = 5_000  # milliseconds in which a socket that was closed still sends
SENT = 10  # milliseconds between two looks whether messages have left


class ZeroMQTransport:
    """A worker's lines to all others. A Transport: messages of one worker are matched by their order. Tensors are of
    dtypes that NumPy has."""

    packs = True
    board: Board | None = None

    def __init__(self, meeting: Meeting, timeout: float) -> None:
        """timeout: seconds that an exchange may wait.

        Raises:
            TransportError: another worker has not come, or cannot be reached.
        """
        self.rank, self.timeout = meeting.rank, timeout
        self.others = [other for other in range(meeting.size) if other != meeting.rank]
        self.sent, self.received = [0] * meeting.size, [0] * meeting.size
        self._expected: dict[int, deque[list[Any]]] = {other: deque() for other in self.others}
        self._arrays: dict[int, deque[Any]] = {other: deque() for other in self.others}
        self._replies: dict[int, deque[list[Any]]] = {other: deque() for other in self.others}
        self._greeted: set[int] = set()
        self._reached: set[int] = set()
        self._left: set[int] = set()
        self._gone: set[int] = set()
        self._open = True
        self._context = zmq.Context()
        self._lines: dict[int, Any] = {}
        self._monitors: dict[Any, int] = {}
        try:
            self._listen(meeting)
            self._connect(meeting)
        except BaseException as error:
            self.close(str(error) or "it could not reach the others")  # one that failed says why to all, here too
            raise

    def _listen(self, meeting: Meeting) -> None:
        self._inbox = self._context.socket(zmq.PULL)
        public, secret = zmq.curve_keypair()
        self._inbox.set(zmq.IPV6, int(":" in meeting.address))
        self._inbox.set(zmq.CURVE_SERVER, 1)
        self._inbox.set(zmq.CURVE_SECRETKEY, secret)
        self._inbox.set_hwm(0)
        try:
            self._inbox.bind(endpoint(meeting.address, "*"))
        except zmq.ZMQError as error:
            raise TransportError(
                f"rank {self.rank} cannot listen at {meeting.address} ({error}): is it an address of this host?"
            ) from error
        self.place = self._inbox.get_string(zmq.LAST_ENDPOINT)
        self._poller = zmq.Poller()
        self._poller.register(self._inbox, zmq.POLLIN)
        meeting.tell("place", f"{self.place} {public.decode()}")

    def _connect(self, meeting: Meeting) -> None:
        places: dict[int, str] = {}
        own, secret = zmq.curve_keypair()
        for peer, words in meeting.hear("place", self.others, self.timeout).items():
            places[peer], _, key = words.partition(" ")
            line = self._lines[peer] = self._context.socket(zmq.PUSH)
            for option, value in (
                (zmq.IPV6, int("[" in words)),
                (zmq.CURVE_SERVERKEY, key.encode()),
                (zmq.CURVE_PUBLICKEY, own),
                (zmq.CURVE_SECRETKEY, secret),
                (zmq.HEARTBEAT_IVL, HEARTBEAT),
                (zmq.HEARTBEAT_TIMEOUT, SILENCE),
            ):
                line.set(option, value)
            line.set_hwm(0)
            monitor = line.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
            self._monitors[monitor] = peer
            self._poller.register(monitor, zmq.POLLIN)
            line.connect(places[peer])
            self._send(peer, HELLO)
        limit = min(self.timeout, START_SECONDS)
        if self._hear(lambda: [peer for peer in self.others if peer not in self._reached], limit):
            unreached = [f"{peer} at {place}" for peer, place in places.items() if peer not in self._reached]
            raise TransportError(
                f"rank {self.rank} reaches no rank {', '.join(unreached)} within {limit:g} s: hosts must let each "
                f"other connect to any port, and `address` must be one by which the others reach a host"
            )
        if unheard := self._hear(lambda: [peer for peer in self.others if peer not in self._greeted], limit):
            raise TransportError(
                f"rank {', '.join(map(str, unheard))} does not reach rank {self.rank} at {self.place} within "
                f"{limit:g} s: hosts must let each other connect to any port, and `address` must be one by which the "
                f"others reach a host"
            )

    # ------------------------------------------------------------------------------------------- messages

    def begin(self, sends: Messages, receives: Messages) -> Callable[[], None]:
        """Start sending, and receiving into the given tensors; the result waits until all is done.

        Raises:
            TransportError: a peer is gone, has failed, or is too late.
        """
        trackers = [(peer, self._send(peer, ARRAY, bytes_of(tensor.numpy()))) for peer, tensor in sends]
        for peer, tensor in sends:
            self.sent[peer] += tensor.nbytes
        tickets = [(peer, [tensor]) for peer, tensor in receives]
        for peer, ticket in tickets:
            self._expected[peer].append(ticket)
            self._match(peer)

        def wait() -> None:
            self._wait(lambda: [peer for peer, ticket in tickets if ticket], "nothing came from")
            self._wait(lambda: [peer for peer, one in trackers if not one.done], "nothing was taken by", SENT)
            for peer, tensor in receives:
                self.received[peer] += tensor.nbytes

        return wait

    def gather(self, parts: Sequence[Any]) -> list[list[Any]]:
        """What each worker gives to this call, by rank: bytes, or arrays, of which others see the bytes.

        Raises:
            TransportError: a peer is gone, has failed, or is too late.
        """
        raw = [part if isinstance(part, bytes) else bytes_of(part) for part in parts]
        for peer in self.others:
            self._send(peer, REPLY, *raw)
        self._wait(lambda: [peer for peer in self.others if not self._replies[peer]], "no result came from")
        replies = {peer: self._replies[peer].popleft() for peer in self.others}
        return [replies.get(rank, raw) for rank in range(len(self.sent))]

    def close(self, failed: str = "") -> None:
        """Leave the others, when all have nothing more to say. failed: why it leaves at once; they are told. May be
        called again."""
        if not self._open:
            return
        self._open = False
        for peer in self._lines:
            with suppress(zmq.ZMQError):
                self._send(peer, FAILED if failed else BYE, failed.encode(), flags=zmq.NOBLOCK)
        if not failed:
            with suppress(TransportError):
                self._hear(lambda: [peer for peer in self.others if peer not in self._left | self._gone], self.timeout)
        for peer, line in self._lines.items():
            line.disable_monitor()
            line.close(linger=LINGER if peer in self._reached and peer not in self._gone else 0)
        for socket in (self._inbox, *self._monitors):
            socket.close(linger=0)
        self._context.term()

    # ------------------------------------------------------------------------------------------- lines

    def _send(self, peer: int, kind: int, *parts: Any, flags: int = 0) -> Any:
        """What says when the message has left. Its arrays are not copied. A line that leads nowhere yet, as one whose
        making failed, would wait for ever, but for NOBLOCK in flags."""
        head = HEAD.pack(self.rank, kind)
        return self._lines[peer].send_multipart([head, *parts], flags, copy=False, track=True)

    def _wait(self, waited: Callable[[], list[int]], what: str, pause: int = 0) -> None:
        if not self._open:
            raise TransportError("the lines to the other ranks were closed")
        if late := self._hear(waited, self.timeout, pause):
            names = ", ".join(map(str, sorted(set(late))))
            raise TransportError(f"{what} rank {names} for {self.timeout:g} s")

    def _hear(self, waited: Callable[[], list[int]], seconds: float, pause: int = 0) -> list[int]:
        """Take messages until no peer is waited for; return those that still are after so many seconds.

        pause: milliseconds after which `waited` is asked again, though nothing came; 0: it depends on messages alone.

        Raises:
            TransportError: a peer is gone or has failed.
        """
        deadline = time.monotonic() + seconds
        while missing := waited():
            left = deadline - time.monotonic()
            if left <= 0:
                return missing
            if leaving := self._open and self._left.intersection(missing):
                raise TransportError(
                    f"rank {min(leaving)} has left, and rank {self.rank} waits for it: all must run the same loops"
                )
            milliseconds = round(1000 * left) + 1
            there = dict(self._poller.poll(min(milliseconds, pause) if pause else milliseconds))
            if self._inbox in there:
                self._take()
                continue
            for monitor, peer in self._monitors.items():
                if monitor in there:
                    self._notice(monitor, peer)
        return []

    def _notice(self, monitor: Any, peer: int) -> None:
        """A line was made, or is broken."""
        if recv_monitor_message(monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._reached.add(peer)
        elif peer in self._reached:
            self._gone.add(peer)
            while self._inbox.poll(LAST_WORDS):
                self._take()
            if self._open and peer not in self._left:
                raise TransportError(f"rank {peer} is gone: its process has ended, or its host does not answer")

    def _take(self) -> None:
        """All messages that are there."""
        while True:
            try:
                head, *parts = self._inbox.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            peer, kind = HEAD.unpack(head.buffer)
            if kind == ARRAY:
                self._arrays[peer].append(parts[0])
                self._match(peer)
            elif kind == REPLY:
                self._replies[peer].append([part.buffer for part in parts])
            elif kind == HELLO:
                self._greeted.add(peer)
            elif kind == BYE:
                self._left.add(peer)
            else:
                self._gone.add(peer)
                raise TransportError(f"rank {peer} has failed: {bytes(parts[0].buffer).decode()}")

    def _match(self, peer: int) -> None:
        """Arrays that are there go where they are expected: they may belong to an exchange that is waited for later."""
        while self._arrays[peer] and self._expected[peer]:
            ticket, frame = self._expected[peer].popleft(), self._arrays[peer].popleft()
            target = ticket.pop().numpy()
            if len(frame.buffer) != target.nbytes:
                raise TransportError(
                    f"{len(frame.buffer)} bytes came from rank {peer} where {target.nbytes} were expected: all ranks "
                    f"must run the same loops"
                )
            target[...] = np.frombuffer(frame.buffer, target.dtype).reshape(target.shape)


def bytes_of(array: np.ndarray) -> np.ndarray:
    """An array's bytes as they lie."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
