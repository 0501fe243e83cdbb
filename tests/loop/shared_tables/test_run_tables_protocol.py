"""The protocol keeps its promise in all orders of events, and a wrong one is found out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.tables_interleavings import Case, explore, small_cases
from girih.loop.shared_tables.bandwidth import Bucket, Link, first
from girih.loop.shared_tables.client import Client, Read
from girih.loop.shared_tables.messages import PUSH, header_of
from girih.loop.shared_tables.options import TableOptions, TableSpec
from girih.loop.shared_tables.server import Server

ONE = ((("inc", 0), ("read", 0)),)
PAIR = Case((ONE * 2, ONE * 2), 0)


def test_two_workers_in_all_orders() -> None:
    verdict = explore(PAIR)
    assert verdict.complete
    assert not verdict.violations
    assert verdict.states > 100


@pytest.mark.parametrize("staleness", [1, 2])
def test_a_reader_and_a_writer_in_all_orders(staleness: int) -> None:
    reader, writer = ((("read", 0),),), ((("inc", 0),),)
    verdict = explore(Case((reader * 3, writer * 3), staleness), most_states=1500)
    assert not verdict.violations


@pytest.mark.parametrize("name", ["S=0, two servers", "S=1, evictions", "S=1, early sends", "S=2, evictions"])
def test_some_orders_of_larger_cases(name: str) -> None:
    verdict = explore(small_cases()[name], most_states=300)
    assert not verdict.violations


class Impatient(Client):
    """Reads what it has."""

    def continue_read(self, read: Read) -> bool:
        if not read.begun:
            self._begin(read)
        return read.done


class Forgetful(Client):
    """Does not add its own updates to rows that come from servers."""

    def receive(self, server: int, frame: bytes, now: float = 0.0) -> None:
        for table in self.tables:
            table.sent.clear()
        super().receive(server, frame, now)


class Silent(Server):
    """Does not send rows that have changed."""

    def _send_rows(self, kind: int, *rest: Any) -> None:
        if kind != PUSH:
            super()._send_rows(kind, *rest)


class Deaf(Server):
    """Never says how far it is."""

    def _advance(self, now: float) -> None:
        kept = len(self.outbox)
        super()._advance(now)
        del self.outbox[kept:]


def test_reads_that_do_not_wait_are_found_out() -> None:
    assert "expected" in explore(PAIR, client=Impatient).violations[0]


def test_lost_own_updates_are_found_out() -> None:
    case = Case((((("read", 0),), (("inc", 0),), (("read", 0),)), ((("inc", 0),), ())), 1)
    assert "expected" in explore(case, client=Forgetful).violations[0]


def test_rows_that_are_not_sent_are_found_out() -> None:
    reader, writer = ((("read", 0),),) * 2, ((("inc", 0),),) * 2
    assert "expected" in explore(Case((reader, writer), 0), server=Silent).violations[0]


def test_a_worker_that_waits_for_ever_is_found_out() -> None:
    assert "waits for ever" in explore(PAIR, server=Deaf).violations[0]


def test_rows_to_be_fetched_ahead_are_asked_for_together() -> None:
    options, spec = TableOptions(workers=1, staleness=1), TableSpec("x", 1000, 2, memory=8192)
    sent: list[bytes] = []
    client, server = Client(0, (spec,), options, lambda to, frame: sent.append(frame)), Server(0, (spec,), options)

    def answer() -> None:
        for frame in sent:
            server.receive(0, frame)
        sent.clear()
        for _, frame in server.outbox:
            client.receive(0, frame)
        server.outbox.clear()

    for begin in (0, 5, 10, 3):
        client.prefetch(0, np.arange(begin, begin + 5))
    assert [header_of(frame).rows for frame in sent] == [5]
    read = client.begin_read(0, np.array([1, 12]))
    assert not read.done
    answer()
    assert [header_of(frame).rows for frame in sent] == [13]  # 5 to 14, and 5 to 7 again; 3 and 4 are there
    answer()
    assert client.continue_read(read)
    assert client.pulled_rows == 18


# ------------------------------------------------------------------------------------------- bandwidth


def test_a_bucket_keeps_its_rate() -> None:
    bucket = Bucket(1000.0)
    sent, now = 0, 0.0
    while now < 10.0:
        if bucket.empty(now):
            bucket.pour(300, now)
            sent += 300
        now += 0.01
    assert 9_000 < sent < 10_600


def test_a_link_without_acknowledgements_is_left_alone() -> None:
    link = Link(Bucket(1e9), silence=0.2)
    link.sent(1, 100, 0.0, awaited=True)
    assert link.free(0.19)
    assert not link.free(0.25)
    link.sent(2, 100, 0.3, awaited=True)
    link.acknowledged(1)
    assert link.free(0.4)
    assert not link.free(0.6)
    assert link.refusals == 2


def test_priorities() -> None:
    generator = np.random.default_rng(0)
    importance = np.array([4.0, 3.0, 2.0, 1.0])

    def chosen(name: str, cursor: int = 0) -> list[int]:
        return sorted(first(name, 2, importance, generator, cursor).tolist())  # type: ignore[arg-type]

    assert chosen("absolute") == chosen("relative") == [0, 1]
    assert chosen("round-robin", 3) == [0, 3]
    assert {tuple(chosen("random")) for _ in range(50)} > {(0, 1), (2, 3)}
