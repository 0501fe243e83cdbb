"""Work stealing among workers that are processes, of one host or of several: what a chunk reads is sent to the thief.

A worker that waits for a message, or has done its part, asks the others for chunks of their loops (Spartan §3.4,
`girih.run.transport.stealing`). Who is asked takes the last chunk of its loop, in a thread beside the one that
computes, and sends what the chunk reads. The thief computes it by the program, which it knows, and sends back the
chunk's sums and what it makes. A chunk is lent only where sending takes clearly less than computing, by what both took
before. A thief that dies, or answers too late, changes nothing: then the owner computes the chunk.

The thief lays what it reads as its owner has it, strides and place in a line of cache included: kernels may choose
their order of sums by either, and the results are to have the same bits.
"""

from __future__ import annotations

import mmap
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from math import prod
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from time import perf_counter
from typing import Any

import torch

from girih.lower import BlockStep, Program
from girih.run.tiles.spill import Streamed
from girih.run.transport import wire
from girih.run.transport.stealing import LEAST_LEFT, LOOK_SECONDS, Board, Offer
from girih.run.worker.loops import Loop
from girih.run.worker.parts import Cuts, Tensor, narrow

LINE = 64
"""Bytes of a line of cache."""
WORTH = 2.0
"""A chunk is lent that takes so many times as long to compute as to send."""
HERE, AWAY = 1e9, 1e8
"""Bytes per second between workers of one host, and of several, until they are measured with the first chunk."""
NEWEST = 0.3
"""What the last chunk tells of the rate counts for so much: a single slow one does not end the lending."""
ASK_SECONDS = 0.01
"""How long a worker has nothing to do before it asks, and between two questions: most messages are there by then, and
who is asked has less of its core for computing."""
LEAST_PATIENCE, PATIENCE = 1.0, 20.0
"""The seconds that a thief is given: at least, and so many times what its owner takes for a chunk."""
MOST_LOOPS = 64  # of other workers, that a thief keeps compiled


@dataclass(frozen=True)
class Address:
    """Where a worker is asked for chunks, and the secret that who asks must know."""

    host: str
    port: int
    key: bytes


@dataclass(frozen=True)
class Piece:
    """What a chunk reads of a tensor: of which shape and strides, where it begins in a line, and from where in it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    begins: int
    cuts: Cuts
    content: Tensor

    @staticmethod
    def of(tensor: Tensor, cuts: Cuts) -> Piece:
        return Piece(tuple(tensor.shape), tensor.stride(), tensor.data_ptr() % LINE, cuts, narrow(tensor, cuts))

    def laid(self) -> Tensor:
        """The tensor again, of which only this piece is there: the rest of it takes no memory."""
        made = _unwritten(self.shape, self.strides, self.content.dtype, self.begins)
        narrow(made, self.cuts).copy_(self.content)
        return made


@dataclass(frozen=True)
class Loan:
    """A chunk of a step of a program (its number with the workers) on the device `rank`. offer: which run of the loop.
    pieces: by number of what the loop reads; what is the same for all chunks comes with the first alone."""

    program: int
    step: int
    rank: int
    offer: int
    chunk: int
    pieces: dict[int, Piece]


@dataclass(frozen=True)
class Return:
    """What a chunk made, the chunk's part of each result, and its sums. seconds: that the thief had it."""

    made: list[Tensor]
    sums: list[Tensor | None]
    seconds: float


class LentOffer(Offer):
    """The chunks of a loop, with what somebody elsewhere needs to compute them."""

    keys = count()

    def __init__(self, run: Any, loop: Loop, place: tuple[int, int, int], outside: list[Tensor], made: list[Tensor]):
        super().__init__(run, len(loop.chunks))
        self.key = next(self.keys)
        self.loop = loop
        self.place = place
        self._tensors: tuple[list[Tensor], list[Tensor]] | None = (outside, made)
        self.lent_bytes = self._bytes()

    def loan(self, chunk: int, constants: bool) -> Loan:
        """constants: with what is the same for all chunks."""
        assert self._tensors is not None
        moves = self.loop.moves
        return Loan(
            *self.place,
            self.key,
            chunk,
            {
                number: Piece.of(tensor, self.loop.read(number, chunk, tuple(tensor.shape)))
                for number, tensor in enumerate(self._tensors[0])
                if constants or moves[number]
            },
        )

    def given_back(self, chunk: int, found: Return) -> None:
        assert self._tensors is not None
        for tensor, cuts, part in zip(self._tensors[1], self.loop.written(chunk), found.made, strict=True):
            narrow(tensor, cuts).copy_(part)
        self.done(chunk, found.sums)

    def results(self) -> list[Any]:
        try:
            return super().results()
        finally:
            self._tensors = None  # whoever asks later must not keep them alive

    def _bytes(self) -> int:
        """That go to a thief and back for the first chunk, without what is the same for all."""
        assert self._tensors is not None
        outside, made = self._tensors
        parts = [
            narrow(tensor, self.loop.read(number, 0, tuple(tensor.shape)))
            for number, tensor in enumerate(outside)
            if self.loop.moves[number]
        ]
        parts += [narrow(tensor, cuts) for tensor, cuts in zip(made, self.loop.written(0), strict=True)]
        return sum(part.nbytes for part in parts)


class LendingBoard(Board):
    """One worker's place among others that are processes: it lends chunks, and asks for those of others when it has
    nothing to do. rate: bytes per second to others, as long as they are not measured.

    programs: those that the workers know, by number; number: of the one that runs.
    """

    def __init__(self, rank: int, threads: int, rate: float) -> None:
        super().__init__()
        self.rank = rank
        self.threads = threads
        self.rate = rate
        self.programs: dict[int, Program] = {}
        self.number = -1
        self._free = threading.Event()
        self._turn = 0
        self._others: list[int] = []
        self._connections: dict[int, Connection] = {}
        self._loops: dict[tuple[int, int, int], Loop] = {}
        self._constants: dict[int, tuple[int, dict[int, Tensor]]] = {}  # by peer: offer, what all chunks read

    # ------------------------------------------------------------------------------------- the owner's side

    def listen(self, host: str) -> Address:
        """Answer who asks for chunks, from now on."""
        key = os.urandom(32)
        listener = Listener((host, 0), authkey=key)
        threading.Thread(target=self._answer, args=(listener,), daemon=True).start()
        port: int = listener.address[1]
        return Address(host, port, key)

    def offer(self, run: Any, loop: Loop, position: int, outside: list[Any], made: list[Tensor]) -> Offer:
        if any(tensor.__class__ is Streamed for tensor in outside):  # every worker reads its own part
            return Offer(run, len(loop.chunks))
        return LentOffer(run, loop, (self.number, position, self.rank), outside, made)

    def _answer(self, listener: Listener) -> None:
        while True:
            try:
                connection = listener.accept()
            except (AuthenticationError, OSError, EOFError):
                time.sleep(LOOK_SECONDS)
                continue
            threading.Thread(target=self._lend, args=(connection,), daemon=True).start()

    def _lend(self, connection: Connection) -> None:
        """Chunks for one other worker, as long as it asks."""
        rate, has = self.rate, -1  # the offer whose constants it has
        _at_once(connection)
        with connection, suppress(EOFError, OSError):
            while True:
                wire.receive(connection)
                found = self._taken(rate)
                if found is None:
                    wire.send(connection, self._working > 0)
                    continue
                offer, chunk = found
                began, settled = perf_counter(), False
                try:
                    wire.send(connection, offer.loan(chunk, constants=offer.key != has))
                    has = offer.key
                    if not connection.poll(max(LEAST_PATIENCE, PATIENCE * offer.seconds)):
                        return
                    back = wire.receive(connection)
                    if back is not None:
                        now = offer.lent_bytes / max(perf_counter() - began - back.seconds, 1e-6)
                        rate = rate ** (1 - NEWEST) * now**NEWEST
                        offer.given_back(chunk, back)
                        settled = True
                finally:
                    if not settled:
                        offer.redo(chunk)

    def _taken(self, rate: float) -> tuple[LentOffer, int] | None:
        """A chunk that is worth sending, of the loop that has most left."""
        lent = [offer for offer in tuple(self._offers) if isinstance(offer, LentOffer)]
        for offer in sorted(lent, key=lambda offer: -len(offer.left)):
            sending, left = offer.lent_bytes / rate, len(offer.left)
            ahead = left * offer.seconds  # of what its owner does meanwhile
            if left >= LEAST_LEFT and offer.seconds > WORTH * sending and ahead > sending + offer.seconds:
                chunk = offer.take()
                if chunk is not None:
                    return offer, chunk
        return None

    # ------------------------------------------------------------------------------------- the thief's side

    def meet(self, workers: int, address: Callable[[int], Address]) -> None:
        """There are so many workers, and where each is; again, when one of them was replaced."""
        begun = bool(self._others)
        self._others = [rank for rank in range(workers) if rank != self.rank]
        self._address = address
        self._connections = {}
        self._constants = {}
        if not begun:
            threading.Thread(target=self._look, daemon=True).start()

    @contextmanager
    def idle(self) -> Iterator[None]:
        self._change(True)
        try:
            yield
        finally:
            self._change(False)

    @contextmanager
    def working(self) -> Iterator[None]:
        self._change(False)
        try:
            with super().working():
                yield
        finally:
            self._change(True)  # others may still be at it

    def begin(self, number: int, program: Program) -> None:
        """A program that the workers know by this number runs from now on."""
        self.number = number
        self.programs[number] = program

    def forget(self, number: int) -> None:
        self.programs.pop(number, None)
        for key in [key for key in self._loops if key[0] == number]:
            self._loops.pop(key, None)

    def _change(self, free: bool) -> None:
        with self._lock:
            self._turn += 1
            if free:
                self._free.set()
            else:
                self._free.clear()

    def _look(self) -> None:
        """Ask the others, one after another, while there is nothing else to do."""
        torch.set_num_threads(self.threads)  # of the kernels that this thread calls
        while True:
            self._free.wait()
            turn = self._turn
            time.sleep(ASK_SECONDS)
            said = [self._asked(rank) for rank in self._others if self._free.is_set()]
            with self._lock:
                if not any(said) and self._working == 0 and turn == self._turn:
                    self._free.clear()  # all have done: until the next command

    def _asked(self, rank: int) -> bool:
        """Is the other one at work? Chunks that it gives are computed at once."""
        try:
            connection = self._connection(rank)
            while self._free.is_set():
                wire.send(connection, None)
                reply = wire.receive(connection)
                if isinstance(reply, bool):
                    return reply
                wire.send(connection, self._computed(rank, reply))
                del reply
            return True
        except (EOFError, OSError, AuthenticationError):
            self._connections.pop(rank, None)  # it is gone, or comes again
            return False

    def _connection(self, rank: int) -> Connection:
        if rank not in self._connections:
            address = self._address(rank)
            self._connections[rank] = Client((address.host, address.port), authkey=address.key)
            _at_once(self._connections[rank])
        return self._connections[rank]

    def _computed(self, peer: int, loan: Loan) -> Return | None:
        """None where it cannot be computed here: its owner then finds out why."""
        began = perf_counter()
        try:
            pieces = {number: piece.laid() for number, piece in loan.pieces.items()}
            loop = self._loop(loan)
            if loop is None:
                return None
            known, constants = self._constants.get(peer, (-1, {}))
            if known != loan.offer:
                constants = {number: tensor for number, tensor in pieces.items() if not loop.moves[number]}
                self._constants[peer] = loan.offer, constants
            outside = [pieces[n] if n in pieces else constants[n] for n in range(len(loop.moves))]
            made = [_unwritten(loop.shapes[name], None, loop.dtypes[name]) for name in loop.text.direct]
            with torch.no_grad(), loop.own_threads():
                sums = loop.chunk(loan.chunk, outside, made, loop.memory())
        except Exception:
            return None
        with self._lock:
            self.stolen += 1
        parts = [narrow(tensor, cuts) for tensor, cuts in zip(made, loop.written(loan.chunk), strict=True)]
        return Return(parts, sums, perf_counter() - began)

    def _loop(self, loan: Loan) -> Loop | None:
        """As Python: to compile TorchScript takes longer than some chunks."""
        key = loan.program, loan.step, loan.rank
        program = self.programs.get(loan.program)
        if key not in self._loops and program is not None:
            step = program.steps[loan.step]
            assert isinstance(step, BlockStep)
            if len(self._loops) >= MOST_LOOPS:
                self._loops.pop(next(iter(self._loops)))
            self._loops[key] = Loop(program, step, loan.rank, torch.device("cpu"))
        return self._loops.get(key)


def _at_once(connection: Connection) -> None:
    """Small messages do not wait for the answer to the one before."""
    with socket.socket(fileno=os.dup(connection.fileno())) as handle:
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _unwritten(shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: Any, begins: int = 0) -> Tensor:
    """A tensor of which the system gives memory for what is written alone. begins: at which byte of a line."""
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    if strides is None:
        strides = tuple(prod(shape[dimension + 1 :]) for dimension in range(len(shape)))
    elements = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    size = elements * dtype.itemsize
    whole = torch.frombuffer(mmap.mmap(-1, begins + size), dtype=torch.uint8)
    return whole[begins:].view(dtype).as_strided(shape, strides, begins // dtype.itemsize)
