"""The protocol over ZeroMQ: one ROUTER for each server, one DEALER for each worker and server. ZeroMQ keeps the order
of messages of a line, connects whoever starts first, and sends in a thread of its own.

What arrives is numbers in binary and MessagePack, and nothing of it is run. A server that listens to a network has a
key, which is part of its address. CurveZMQ encrypts its lines, and drops messages of senders that do not know the key.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import zmq
from zmq.utils import z85

from girih.loop.shared_tables import messages as m
from girih.loop.shared_tables.client import Client
from girih.loop.shared_tables.messages import HEADER, Header, decoded, encoded, message
from girih.loop.shared_tables.options import TableError, TableOptions, TableSpec
from girih.loop.shared_tables.server import GONE, Server
from girih.loop.shared_tables.snapshots import Snapshot, SnapshotError, restore
from girih.run.engines.stopping import StoppedError
from girih.run.transport.meeting import endpoint

SESSION = b"s"
EVENTS, READY = int(zmq.EVENTS), int(zmq.POLLIN)  # plain numbers: pyzmq's own have a price at each use


def worker_name(rank: int, epoch: int) -> bytes:
    """epoch: how often the workers were started anew; messages of those before are not heard any more."""
    return b"w%d.%d" % (rank, epoch)


def keys_of(secret: str = "") -> tuple[bytes, bytes]:
    """(public, secret) key of a server: the same one for the same secret; without a secret, a new one."""
    if not secret:
        public, own = zmq.curve_keypair()
        return public, own
    derived: bytes = z85.encode(blake2b(secret.encode(), digest_size=32, person=b"girih tables").digest())
    return zmq.curve_public(derived), derived


def connect(socket: Any, address: str) -> None:
    """address: of a server, and its public key if it has one."""
    place, _, key = address.partition(" ")
    if key:
        socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
        socket.curve_serverkey = key.encode()
    socket.set(zmq.IPV6, int("[" in place))
    socket.connect(place)


LONGEST = 50
"""Milliseconds that a worker waits for messages before it looks after other things."""


class HeldError(RuntimeError):
    """A worker waited too long for others; the message names them."""


# ------------------------------------------------------------------------------------------- workers


class Lines:
    """A worker's sockets to all servers, and its client. A context manager.

    With managed communication a thread sends and receives while the worker computes; without, messages are sent and
    received when the worker reads, updates or ends a tick, and nothing disturbs it in between.
    """

    def __init__(
        self,
        rank: int,
        addresses: tuple[str, ...],
        specs: tuple[TableSpec, ...],
        options: TableOptions,
        clock: int = 0,
        context: Any = None,
        epoch: int = 0,
        stopped: Callable[[], bool] | None = None,
    ) -> None:
        self.options = options
        self.lock = threading.RLock()
        self.waited = 0.0
        self._stopped = stopped or (lambda: False)
        self._context = context or zmq.Context()
        self._owns = context is None
        self._places = ", ".join(address.partition(" ")[0] for address in addresses)
        self._sockets = []
        self._poller = zmq.Poller()
        for address in addresses:
            socket = self._context.socket(zmq.DEALER)
            socket.setsockopt(zmq.IDENTITY, worker_name(rank, epoch))
            socket.setsockopt(zmq.LINGER, round(1000 * min(30.0, options.timeout)))
            socket.setsockopt(zmq.RCVTIMEO, LONGEST)
            socket.set_hwm(0)
            connect(socket, address)
            self._sockets.append(socket)
            self._poller.register(socket, zmq.POLLIN)
        self._waiting: list[list[bytes]] = [[] for _ in addresses]
        self.client = Client(rank, specs, options, self._send, clock)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if options.managed:
            self._thread = threading.Thread(target=self._communicate, daemon=True)
            self._thread.start()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        """End the thread of the lines. Once the servers have said farewell, all that was sent has arrived; after an
        error that is not waited for."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()
        for socket in self._sockets:
            socket.close(linger=None if kind is None else 0)
        if self._owns:
            self._context.term()

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Return when this is so; messages are received meanwhile. The lock is held by the caller.

        Raises:
            HeldError: it took longer than the options allow; names the workers that are behind.
            StoppedError: the program that runs this worker wants it to end.
        """
        self.pump(0)
        if ready():
            return
        began = time.monotonic()
        asked = began
        while True:
            pause = LONGEST
            if self.options.managed:
                pause = min(pause, max(1, round(1000 * self.client.communicate(time.monotonic()))))
            self.pump(pause)
            if ready():
                self.waited += time.monotonic() - began
                return
            if self._stopped():
                raise StoppedError
            now = time.monotonic()
            if now - asked > self.options.patience:
                self.client.ask_who()
                asked = now
            if now - began > self.options.timeout:
                named = set().union(*self.client.laggards.values())
                late = ", ".join(map(str, sorted(named)))
                held = f"with staleness {self.options.staleness} it is held by worker {late}"
                raise HeldError(
                    f"worker {self.client.rank} waited {now - began:.0f} s at clock {self.client.clock} for {what}; "
                    f"{held if late else f'no server answers: they are at {self._places}'}"
                )

    def pump(self, milliseconds: int) -> None:
        """Receive what there is; if there is nothing, send what waits, and wait for an answer so long."""
        if milliseconds:
            self.flush()
        now = time.monotonic() if self.options.managed else 0.0
        if milliseconds == 0:
            for server, socket in enumerate(self._sockets):
                if socket.getsockopt(EVENTS) & READY:
                    self._drain(server, now)
            return
        if len(self._sockets) == 1 and milliseconds == LONGEST:  # without a poll before
            with suppress(zmq.Again):
                self._drain(0, now)
            return
        for socket, _ in self._poller.poll(milliseconds):
            self._drain(self._sockets.index(socket), now)

    def _drain(self, server: int, now: float) -> None:
        receive, socket = self.client.receive, self._sockets[server]
        while True:
            for frame in socket.recv_multipart():
                receive(server, frame, now)
            if not socket.getsockopt(EVENTS) & READY:
                return self.hurry()

    def _send(self, server: int, frame: bytes) -> None:
        self._waiting[server].append(frame)

    def hurry(self) -> None:
        """Send what waits, if rows were asked for; all else goes with the next message, or when the worker waits."""
        if self.client.hurry:
            self.flush()

    def flush(self) -> None:
        """Send what the client has said; frames of one moment are one message of ZeroMQ."""
        self.client.hurry = False
        for socket, frames in zip(self._sockets, self._waiting, strict=True):
            if len(frames) == 1:
                socket.send(frames.pop())
            elif frames:
                socket.send_multipart(frames)
                frames.clear()

    def _communicate(self) -> None:
        """The thread of managed communication."""
        pause = self.options.tick
        while not self._stop.wait(pause):
            with self.lock:
                self.pump(0)
                pause = self.client.communicate(time.monotonic())
                self.flush()


# ------------------------------------------------------------------------------------------- servers


IDLE = 500
"""Milliseconds that a server waits for messages if it has nothing else to do."""


def serve(
    address: str,
    server: Server,
    context: Any = None,
    ready: Callable[[str], None] | None = None,
    locked: bool = False,
    secret: str = "",
) -> None:
    """Run a server until the session stops it. ready: is told the address that it has, and its key if it is locked:
    that of a secret, as `keys_of` says."""
    own = context is None
    context = context or zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 2_000)
    socket.setsockopt(zmq.RCVTIMEO, IDLE)
    socket.set(zmq.IPV6, int("[" in address))
    socket.set_hwm(0)
    key = ""
    if locked:
        public, socket.curve_secretkey = keys_of(secret)
        socket.curve_server = True
        key = f" {public.decode()}"
    try:
        socket.bind(address)
        if ready is not None:
            ready(f"{socket.getsockopt_string(zmq.LAST_ENDPOINT)}{key}")
        _ServerLoop(socket, server).run()
    except zmq.ZMQError as error:
        if error.errno not in (zmq.EADDRNOTAVAIL, zmq.EADDRINUSE, zmq.ENODEV):
            raise
        raise TableError(f"a server cannot listen at {address}: {error}") from error
    finally:
        socket.close()
        if own:
            context.term()


@dataclass(frozen=True)
class ServerWork:
    """A server, as a job of the session (`girih.run.engines.jobs`), which is ready when it has an address.

    locked: only who knows its key may speak to it. secret: from which all programs derive it; "": it is new.
    """

    number: int
    address: str
    specs: tuple[TableSpec, ...]
    options: TableOptions
    locked: bool = False
    secret: str = ""

    computes = False

    def run(self, shared: Any, ready: Callable[[Any], None], stopped: Callable[[], bool]) -> None:
        serve(self.address, Server(self.number, self.specs, self.options), shared, ready, self.locked, self.secret)

    def placed(self, host: str) -> ServerWork:
        """It listens to the network of that host, with a key of its own."""
        return replace(self, address=endpoint(host, "*"), locked=True)


class _ServerLoop:
    def __init__(self, socket: Any, server: Server) -> None:
        self.socket, self.server = socket, server
        self._ready = False
        self._greeting: list[int] = []
        self._stops = 0
        self._asker = SESSION
        self._name_workers(0)

    def _name_workers(self, epoch: int) -> None:
        self.names = [worker_name(rank, epoch) for rank in range(self.server.options.workers)]
        self.ranks = {name: rank for rank, name in enumerate(self.names)}

    def run(self) -> None:
        server, socket = self.server, self.socket
        pause = 0.0
        going = True
        while going:
            milliseconds = 0 if server.work() else IDLE
            if server.options.managed:
                milliseconds = min(milliseconds, max(1, round(pause * 1000)))
            there = milliseconds == IDLE or socket.poll(milliseconds)
            for _ in range(64):
                if not there:
                    break
                try:
                    name, *frames = socket.recv_multipart()  # waits, if nothing is there and nothing else is to be done
                except zmq.Again:
                    break
                there = socket.getsockopt(EVENTS) & READY
                rank = self.ranks.get(name)
                if rank is not None:
                    for frame in frames:
                        self._hear(rank, frame)
                elif name.startswith(SESSION):
                    self._send()
                    self._asker = name
                    going = self._control(frames[0]) and going
            self._send()
            if server.options.managed:
                pause = server.communicate(time.monotonic())
                self._send()

    def _hear(self, rank: int, frame: bytes) -> None:
        if frame[0] == m.HELLO and not self._ready:
            self._greeting.append(rank)
            return
        now = time.monotonic() if self.server.options.managed else 0.0
        self.server.receive(rank, frame, now)

    def _send(self) -> None:
        if self.server.outbox:
            messages: dict[int, list[bytes]] = {}
            for worker, frame in self.server.outbox:
                messages.setdefault(worker, [self.names[worker]]).append(frame)
            for parts in messages.values():
                self.socket.send_multipart(parts)
            self.server.outbox.clear()

    def _control(self, frame: bytes) -> bool:
        """A request of the session; its answer. False: stop."""
        number, name, fields = opened(frame)
        try:
            answer: Any = REQUESTS[name](self, **fields)
        except (SnapshotError, OSError) as error:
            answer = {"error": str(error)}
        self.socket.send(self._asker, zmq.SNDMORE)
        self.socket.send(control([number, answer]))
        return not (name == "stop" and answer)

    def stop(self, of: int) -> bool:
        """One of so many that use this server has no more need of it."""
        self._stops += 1
        if self._stops == of and self.server.snapshot is not None:
            self.server.snapshot.finish()
        return self._stops == of

    def status(self) -> dict[str, Any]:
        server = self.server
        while server.snapshot is not None and min(server.clocks) == GONE:  # nobody is disturbed any more
            server.work()
        events, server.events = server.events, []
        return {"clock": server.clock, "clocks": list(server.clocks), "events": events}

    def write(self, table: int, rows: Any, parts: list[Any]) -> None:
        self.server.tables[table].write(rows, *parts)

    def written(self, save: bool) -> None:
        """All initial values are there; workers may start. save: with a snapshot of that."""
        for table in self.server.tables:
            table.store.reset()
        if save:
            self.save()
        self._ready = True
        for rank in self._greeting:
            self.server.receive(rank, Header(m.HELLO).pack())

    def begin(self, clock: int, epoch: int) -> None:
        """Workers are about to start at this clock."""
        self.server.begin(clock)
        self._name_workers(epoch)
        self._ready = True

    def read(self, table: int, rows: Any) -> list[Any]:
        return list(self.server.tables[table].store.get(rows))

    def restore(self, folder: str, clock: int) -> None:
        """From a snapshot that the session has checked."""
        restore(self.server, folder, clock)
        self._ready = True

    def save(self) -> None:
        """A snapshot of now, while nobody works."""
        self.server.begin_snapshot(Snapshot(self.server, self.server.clock))
        while self.server.work():
            pass


REQUESTS: dict[str, Callable[..., Any]] = {
    name: getattr(_ServerLoop, name)
    for name in ("stop", "status", "write", "written", "begin", "read", "restore", "save")
}


def control(content: Any) -> bytes:
    return message(Header(m.CONTROL)) + encoded(content)


def opened(frame: bytes) -> Any:
    return decoded(memoryview(frame)[HEADER.size :])


FILES, FILES_SECONDS = ("restore", "written"), 60.0
"""Requests that read or write files may take so long, however short the timeout is."""


class Control:
    """The session's lines to the servers. number: of this session, if several share the servers."""

    def __init__(self, addresses: tuple[str, ...], context: Any, timeout: float, number: int = 0) -> None:
        self._timeout = timeout
        self._asked = 0
        self._context, self._number = context, number
        self._addresses = list(addresses)
        self._sockets = [self._line(address) for address in addresses]

    def _line(self, address: str) -> Any:
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IDENTITY, SESSION + b"%d" % self._number)
        socket.setsockopt(zmq.LINGER, 0)
        socket.set_hwm(0)
        connect(socket, address)
        return socket

    def reach(self, server: int, address: str) -> None:
        """The server was started anew, at another address."""
        self._sockets[server].close()
        self._addresses[server], self._sockets[server] = address, self._line(address)

    def ask(self, server: int, name: str, timeout: float | None = None, **fields: Any) -> Any:
        """Have a server do something, and wait for its answer.

        Raises:
            TimeoutError: there was none.
            SnapshotError: it could not read a snapshot.
        """
        socket = self._sockets[server]
        self._asked += 1
        number = self._asked
        socket.send(control([number, name, fields]))
        seconds = timeout or (max(FILES_SECONDS, self._timeout) if name in FILES else self._timeout)
        answered = 0
        while answered != number:  # an answer that came too late is for nobody
            if not socket.poll(round(seconds * 1000)):
                place = self._addresses[server].partition(" ")[0]
                raise TimeoutError(f"server {server} at {place} did not answer {name!r} within {seconds:g} s")
            answered, answer = opened(socket.recv())
        if isinstance(answer, dict) and "error" in answer:
            raise SnapshotError(answer["error"])
        return answer

    def ask_all(self, name: str, **fields: Any) -> list[Any]:
        return [self.ask(server, name, **fields) for server in range(len(self._sockets))]

    def close(self) -> None:
        for socket in self._sockets:
            socket.close()
