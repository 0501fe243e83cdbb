"""Chunks that are sent to workers which are other processes: the bits are the same, whoever computes them, whatever
happens to a thief."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from run_programs import Slow

import girih.array as gnp
from girih.array.session.clusters import Cluster
from girih.capture.lazy.expressions import needed
from girih.lower import BlockStep
from girih.lower.fusion.block_memory import loop_bytes
from girih.lower.fusion.slicing import Moving
from girih.run.transport import remote_stealing as lending
from girih.run.transport import wire
from girih.run.transport.remote_stealing import HERE, LINE, Address, LendingBoard, LentOffer, Loan, Piece, Return
from girih.run.worker.loops import Loop, _reached
from girih.run.worker.parts import held_box, narrow, shape_of

ROWS = 200_000


def points() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(ROWS, 8))


def program(given: gnp.Array) -> list[np.ndarray]:
    """Sums over blocks, results of blocks, an operand that all blocks read whole, and a transposed one."""
    y = given
    for factor in (0.5, 1.5, 0.25, 1.75):
        y = y * factor + given * 0.5
    centres = given[:16]
    distances = ((y[:, None, :] - centres[None]) ** 2).sum(-1)
    flipped = gnp.array(points().T)
    return [
        (y * y).sum(0).compute(),
        y.max(1).compute(),
        np.asarray(distances.argmin(1)),
        np.asarray(float(y.sum())),
        (gnp.exp(flipped.T * 0.5) - y).sum(1).compute(),
    ]


def stolen(cluster: Cluster) -> int:
    return sum(own.stolen for own in cluster.run.statistics())


def test_a_slow_process_is_helped() -> None:
    with gnp.cluster(workers=2, timeout=60.0) as cluster:
        alone = program(gnp.array(points()))
        assert stolen(cluster) == 0
    with gnp.cluster(workers=2, stealing=True, timeout=60.0) as cluster:
        cluster.run.crew.command("measure", [{"task": Slow()}] * 2)
        found = program(gnp.array(points()))
        assert stolen(cluster) > 0
    for one, other in zip(alone, found, strict=True):
        np.testing.assert_array_equal(one, other)


# ------------------------------------------------------------------------------------------- one owner, any thief


class Owner:
    """A board that offers a loop of ten chunks, and what its results are."""

    def __init__(self, seconds: float = 0.05) -> None:
        self.board = LendingBoard(0, 1, HERE)
        self.address = self.board.listen("127.0.0.1")
        self.outside, self.made = [torch.arange(40.0)], [torch.zeros(40)]
        self.seconds = seconds
        self.lent = threading.Event()  # until then the second chunk is under way

    def results(self) -> list[Any]:
        def run(number: int) -> list[Any]:
            time.sleep(self.seconds)
            if number == 1:
                assert self.lent.wait(20)
            self.made[0][4 * number : 4 * number + 4] = self.outside[0][4 * number : 4 * number + 4] * 2
            return [torch.tensor(float(number))]

        with self.board.working():
            offer = self.board.offer(run, TenChunks(), 3, self.outside, self.made)
            with self.board.offering(offer):
                return [float(part[0]) for part in offer.results()]

    def beside(self) -> Callable[[], list[Any]]:
        """Compute in a thread; the function waits for the results."""
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.extend(self.results()))
        thread.start()

        def wait() -> list[Any]:
            thread.join(20)
            assert not thread.is_alive()
            return found

        return wait


class TenChunks:
    """A Loop as far as an owner needs it."""

    chunks = tuple((4 * number, 4 * number + 4, 1) for number in range(10))
    moves = (True,)

    def read(self, number: int, chunk: int, shape: tuple[int, ...]) -> Any:
        return ((0, 4 * chunk, 4),)

    def written(self, chunk: int) -> Any:
        return [((0, 4 * chunk, 4),)]


def loan_of(owner: Owner, connection: Connection) -> Loan:
    """The next chunk that is lent."""
    while True:
        wire.send(connection, None)
        reply = wire.receive(connection)
        if isinstance(reply, Loan):
            owner.lent.set()
            return reply
        time.sleep(0.001)


def asking(address: Address) -> Connection:
    return Client((address.host, address.port), authkey=address.key)


def test_what_a_thief_sends_back_is_the_result() -> None:
    owner = Owner()
    wait = owner.beside()
    with asking(owner.address) as connection:
        loan = loan_of(owner, connection)
        assert (loan.step, loan.rank, loan.chunk) == (3, 0, 9)
        assert loan.pieces[0].content.tolist() == [36.0, 37.0, 38.0, 39.0]
        wire.send(connection, Return([torch.full((4,), 7.0)], [torch.tensor(-1.0)], 0.001))
        assert wait() == [*map(float, range(9)), -1.0]
    assert owner.made[0].tolist() == [*(2.0 * number for number in range(36)), *[7.0] * 4]


@pytest.mark.parametrize("end", ["cannot", "goes", "is silent"])
def test_what_a_thief_does_not_compute_its_owner_does(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "LEAST_PATIENCE", 0.2)
    monkeypatch.setattr(lending, "PATIENCE", 0.0)
    owner = Owner()
    wait = owner.beside()
    with asking(owner.address) as connection:
        loan_of(owner, connection)
        if end == "cannot":
            wire.send(connection, None)
        elif end == "goes":
            connection.close()
        assert wait() == [*map(float, range(10))]
    assert owner.made[0].tolist() == [2.0 * number for number in range(40)]


def test_chunks_that_take_longer_to_send_are_kept() -> None:
    owner = Owner(seconds=0.01)
    owner.board.rate = 100.0  # bytes per second: a third of a second for a chunk
    owner.lent.set()
    wait = owner.beside()
    with asking(owner.address) as connection:
        said = []
        while not said or said[-1]:
            wire.send(connection, None)
            said.append(wire.receive(connection))
            time.sleep(0.01)
        assert set(map(type, said)) == {bool}
    assert wait() == [*map(float, range(10))]


def test_who_does_not_know_the_secret_gets_nothing() -> None:
    owner = Owner()
    with pytest.raises((AuthenticationError, OSError, EOFError)):
        Client((owner.address.host, owner.address.port), authkey=b"guess")
    with asking(owner.address) as connection:
        wire.send(connection, None)
        assert wire.receive(connection) is False


# ------------------------------------------------------------------------------------------- what is sent


def test_no_more_is_sent_than_memory_is_planned_for() -> None:
    """The plan's bound on what a chunk brings to its thief is what is sent, to the byte where nothing is read twice."""
    with gnp.cluster(workers=2, stealing=True) as cluster:
        x = gnp.array(points())
        work = needed([item.expression for item in ((x * 2).max(1), (x * 2 + x[:4].sum(0)).sum(0), x + 1)])
        made = cluster.plan_of(work).program
    assert made.lending
    exact = 0
    for step in made.steps:
        if not isinstance(step, BlockStep):
            continue
        loop = Loop(made, step, 1, torch.device("cpu"))
        held = [held_box(made, name, made.places[name], 1) for name, _ in loop.text.outside]
        kinds = [getattr(torch, made.graph.values[made.value_of[name]].dtype) for name, _ in loop.text.outside]
        outside = [
            narrow(torch.zeros(shape_of(box), dtype=kind), cuts)
            for box, kind, (_, cuts) in zip(held, kinds, loop.text.outside, strict=True)
        ]
        results = [torch.zeros(loop.shapes[name], dtype=loop.dtypes[name]) for name in loop.text.direct]
        offer = LentOffer(lambda number: None, loop, (0, 0, 1), outside, results)
        sums = sum(int(np.prod(loop.shapes[name])) * loop.dtypes[name].itemsize for name in loop.text.sums)
        most = 0
        for chunk in range(len(loop.chunks)):
            sent = sum(piece.content.nbytes for piece in offer.loan(chunk, constants=True).pieces.values())
            back = sum(narrow(t, cuts).nbytes for t, cuts in zip(results, loop.written(chunk), strict=True))
            most = max(most, sent + back + sums)
        told = loop_bytes(made, step, 1, 1)
        assert 0 < most <= told.sent
        assert told.stolen >= 2 * told.sent
        assert told.peak >= loop_bytes(replace(made, lending=False), step, 1, 1).peak + told.sent
        exact += most == told.sent
    assert exact > 0


@given(st.data())
def test_a_piece_lies_as_with_its_owner(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    order = data.draw(st.permutations(range(len(shape))))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64]))
    skipped = data.draw(st.integers(0, 3))
    flat = torch.randint(0, 2, (skipped + int(np.prod(shape)),)).to(dtype)[skipped:]
    tensor = flat.view([shape[place] for place in order]).permute(*np.argsort(order).tolist())
    cuts = []
    for dimension, size in enumerate(shape):
        start = data.draw(st.integers(0, size - 1))
        cuts.append((dimension, start, data.draw(st.integers(1, size - start))))
    laid = Piece.of(tensor, tuple(cuts)).laid()
    assert (laid.shape, laid.stride(), laid.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
    assert laid.data_ptr() % LINE == tensor.data_ptr() % LINE
    for dimension, start, length in cuts:
        laid, tensor = laid.narrow(dimension, start, length), tensor.narrow(dimension, start, length)
    assert torch.equal(laid, tensor)


@given(st.integers(0, 30), st.integers(1, 40), st.integers(1, 9), st.data())
def test_what_a_chunk_reads_is_all_that_its_blocks_read(
    first: int, length: int, rows: int, data: st.DataObject
) -> None:
    number = st.builds(Moving, st.integers(-20, 60), st.sampled_from([-1, 0, 1, 2]), st.sampled_from([-1, 0, 1, 2]))
    region = ((data.draw(number), data.draw(number)),)
    ((_, low, size),) = _reached([region], (1000,), first, first + length) or ((0, 0, 1000),)
    for start in range(first, first + length, rows):
        block = start, min(start + rows, first + length)
        begin, end = max(region[0][0].at(*block), 0), min(region[0][1].at(*block), 1000)
        if begin < end:
            assert low <= begin
            assert end <= low + size
