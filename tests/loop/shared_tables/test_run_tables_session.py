"""Tables as a user has them, on threads and on real processes: values, clocks, errors."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from typing import Any

import numpy as np
import pytest
import zmq
from scipy.sparse import csr_array

import girih.loop as gl
from benchmarks.tables_ssp import run_once
from girih.loop.shared_tables.messages import HELLO, Header
from girih.loop.shared_tables.options import TableError
from girih.loop.shared_tables.session import TablesError
from girih.loop.shared_tables.sockets import connect, control


def fill(t: Any, rank: int, ticks: int) -> list[Any]:
    """All five calls, on a dense and a sparse table."""
    dense, sparse = t["dense"], t["sparse"]
    seen = []
    for tick in range(ticks):
        dense.inc(2, rank, 1)
        dense.inc_row(3, np.arange(4))
        dense.inc_rows([0, 0, 6], np.ones((3, 4)))
        sparse.inc(1, 10 * rank, 2)
        sparse.inc_row(4, {rank: 1, 99: 3})
        sparse.inc_rows([5], csr_array(np.eye(1, 100, 7)))
        row = sparse.get_rows([4, 5, 0, 4])
        seen.append(
            (tick, float(dense.get(2, rank)), int(sparse.get(1, 10 * rank)), int(sparse.get(1, 3)), row.shape,
             int(row.toarray()[0, rank]), sparse.get_row(4)[0].tolist())
        )  # fmt: skip
        t.clock()
    return seen


@pytest.mark.parametrize(
    ("backend", "staleness", "servers", "memory"),
    [("threads", 0, 1, "1 MiB"), ("threads", 2, 2, 4096), ("processes", 1, 2, "1 MiB")],
)
def test_all_calls(backend: str, staleness: int, servers: int, memory: Any) -> None:
    start = np.full((7, 4), 0.5)
    with gl.tables(2, staleness, servers=servers, backend=backend, memory=memory, timeout=60) as t:
        dense = t.dense("dense", 7, 4, initial=start)
        sparse = t.sparse("sparse", 7, 100, "int32")
        for rank, seen in enumerate(t.run(fill, 3)):
            for tick, own, other, nothing, shape, whole, columns in seen:
                assert (own, other, nothing) == (0.5 + tick + 1, 2 * tick + 2, 0)
                assert shape == (4, 100)
                assert whole == tick + 1
                assert set(columns) <= {0, 1, 99}
                assert {rank, 99} <= set(columns)
        expected = start.copy()
        expected[2, :2] += 3
        expected[3] += 6 * np.arange(4)
        expected[[0, 6]] += [[12], [6]]
        assert np.array_equal(dense.read(), expected)
        assert np.array_equal(dense.read([6, 2]), expected[[6, 2]])
        entries = sparse.read()
        assert isinstance(entries, csr_array)
        assert entries.nnz == 6
        assert (entries[1, 0], entries[1, 10], entries[4, 99], entries[5, 7]) == (6, 6, 18, 6)
        again = t.run(fill, 1)  # tables live on
        assert again[0][0][1] == 4.5


@pytest.mark.parametrize("seed", [*range(14), 49])
def test_random_runs_keep_the_staleness(seed: int) -> None:
    assert run_once(seed) == []


def descend(t: Any, rank: int) -> None:
    for _ in range(t.ticks, 12):
        x = t["x"].get_rows([0, 1])
        t["x"].inc_rows([0, 1], (x - 3.0) * (1.0 if t["x"].spec.function else -0.2))
        t.clock()


@pytest.mark.parametrize(
    "options", [{"function": gl.AdaRevision(1.0)}, {"half": True}, {}], ids=["AdaRevision", "half", "plain"]
)
def test_two_workers_descend(options: dict[str, Any]) -> None:
    with gl.tables(2, 1, backend="threads", bandwidth="10 MB/s", timeout=60) as t:
        x = t.dense("x", 2, 3, initial=np.zeros((2, 3)), **options)
        t.run(descend)
        assert np.abs(x.read() - 3.0).max() < 0.6


def small_steps(t: Any, rank: int) -> None:
    for _ in range(10):
        t["x"].inc_row(0, [1e-5, 1.0])
        t.clock()


def test_what_rounding_leaves_is_not_lost() -> None:
    """In 16 bits 1 + 1e-5 is 1: only with the error kept do ten such updates add up, and the rest comes at the end."""
    with gl.tables(1, 1, backend="threads") as t:
        x = t.dense("x", 1, 2, "float64", half=True)
        t.run(small_steps)
        assert np.allclose(x.read(), [[1e-4, 10.0]], rtol=1e-12)


def many(t: Any, rank: int) -> dict[str, float]:
    rows = np.arange(rank, 1000, 2)
    for _ in range(4):
        for part in np.array_split(rows, 10):
            t["x"].prefetch(part)
            t["x"].get_rows(part)
            t["x"].inc_rows(part, np.ones((len(part), 8)))
        t.clock()
    statistics: dict[str, float] = t.statistics
    return statistics


def test_little_memory_is_enough() -> None:
    with gl.tables(2, 1, backend="threads", memory=4096) as t:
        x = t.dense("x", 1000, 8)
        statistics = t.run(many)
        assert (x.read() == 4).all()
        assert statistics[0]["pulled"] > 1000  # its rows do not fit


def test_the_same_bits_in_every_bulk_synchronous_run() -> None:
    def add(t: Any, rank: int) -> None:
        generator = np.random.default_rng(rank)
        for _ in range(4):
            t["x"].inc_rows(np.arange(50), generator.standard_normal((50, 4)))
            x = t["x"].get_rows(np.arange(50))
            t["x"].inc_rows(np.arange(50), -0.1 * x)
            t.clock()

    def once() -> Any:
        with gl.tables(3, 0, servers=2, backend="threads") as t:
            x = t.dense("x", 50, 4)
            t.run(add)
            return x.read()

    assert np.array_equal(once(), once())


def strangers(addresses: list[str], end: threading.Event) -> None:
    """Whoever reaches the servers' ports: random bytes, connections that say nothing, workers and sessions without a
    key or with another, all of whom speak as those do who belong to the run."""
    chance = random.Random(0)
    idle: list[socket.socket] = []
    context = zmq.Context()
    lines = []
    for address in addresses:
        for name in (b"w0.0", b"s0", b"s"):
            for key in ("", f" {zmq.curve_keypair()[0].decode()}"):
                line = context.socket(zmq.DEALER)
                line.identity = name
                connect(line, f"{address}{key}")
                lines.append(line)
    while not end.is_set():
        for address in addresses:
            place = "127.0.0.1", int(address.rpartition(":")[2])
            with contextlib.suppress(OSError):
                if len(idle) < 64:
                    idle.append(socket.create_connection(place, timeout=1))
                with socket.create_connection(place, timeout=1) as other:
                    other.sendall(chance.randbytes(chance.randrange(1, 4096)))
        for line in lines:
            stop = control([1, "stop", {"of": 1}])
            for frame in (b"", b"\x00", chance.randbytes(64), Header(HELLO).pack(), stop):
                with contextlib.suppress(zmq.Again):
                    line.send(frame, zmq.NOBLOCK)
        end.wait(0.01)
    context.destroy(linger=0)
    for one in idle:
        one.close()


@pytest.mark.parametrize("key", ["", "a secret that all have"])
def test_a_run_with_addresses_hears_nobody_who_has_no_key(key: str) -> None:
    """As several programs on several hosts would: each has its rank, and the servers' addresses."""
    with socket.socket() as one, socket.socket() as other:
        for bound in (one, other):
            bound.bind(("127.0.0.1", 0))
        addresses = [f"tcp://127.0.0.1:{bound.getsockname()[1]}" for bound in (one, other)]
    results: dict[int, Any] = {}
    end = threading.Event()
    garbage = threading.Thread(target=strangers, args=(addresses, end))
    garbage.start()

    def program(rank: int) -> None:
        with gl.tables(3, 1, rank=rank, addresses=addresses, key=key, backend="threads", timeout=60) as t:
            dense = t.dense("dense", 7, 4, initial=np.full((7, 4), 0.5))
            t.sparse("sparse", 7, 100, "int32")
            results[rank] = t.run(fill, 2), dense.read()

    threads = [threading.Thread(target=program, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    end.set()
    garbage.join()
    assert sorted(results) == [0, 1, 2]
    for seen, table in results.values():
        assert len(seen) == 2
        assert table[2].tolist() == [2.5, 2.5, 2.5, 0.5]


# ------------------------------------------------------------------------------------------- errors


def test_addresses_of_other_hosts_need_a_key() -> None:
    with gl.tables(2, rank=1, addresses=["tcp://192.0.2.7:7000"]) as t:
        t.dense("H", 2, 2)
        with pytest.raises(TableError, match=r"need a key, .* give all the same key="):
            t.run(fill, 1)


def test_options_that_cannot_be() -> None:
    for options, words in (
        ({}, "how many workers"),
        ({"workers": 0}, "at least one"),
        ({"workers": 2, "staleness": -1}, "staleness -1"),
        ({"workers": 2, "priority": "best"}, "priority 'best'"),
        ({"workers": 2, "bandwidth": "fast"}, "'fast' is no bandwidth"),
        ({"workers": 2, "memory": "much"}, "no amount of memory"),
        ({"workers": 2, "restarts": 1}, "give snapshots="),
        ({"workers": 2, "resume": True}, None),
        ({"workers": 2, "rank": 0}, "both its rank and the servers"),
        ({"workers": 2, "rank": 2, "addresses": ["tcp://a:1"]}, "rank 2 of 2"),
        ({"workers": 1, "rank": 0, "addresses": ["tcp://a:1", "tcp://a:2"]}, "too many"),
        ({"workers": 1, "key": "secret"}, "key= is for programs that join others by addresses"),
        ({"workers": 2, "backend": "fibers"}, "'fibers'"),
        ({"workers": 1.5}, "workers 1.5: it is a whole number"),
        ({"workers": 2, "servers": 0}, "0 servers: at least one"),
        ({"workers": 2, "snapshots": "there", "every": 0}, "every=0"),
        ({"workers": 2, "threads": 0}, "threads=0"),
        ({"workers": 2, "patience": -1.0}, "patience -1.0 s"),
    ):
        if words is not None:
            with pytest.raises(TableError, match=words):
                gl.tables(**options)  # type: ignore[arg-type]


def test_tables_that_cannot_be() -> None:
    with gl.tables(1, backend="threads") as t:
        for arguments, words in (
            (("a", 0, 1), "at least 1"),
            (("a", 1, 1, "float16"), "dtype 'float16'"),
            (("a", 1 << 31, 1), "at most"),
        ):
            with pytest.raises(TableError, match=words):
                t.dense(*arguments)
        with pytest.raises(TableError, match="not of int32"):
            t.dense("a", 1, 1, "int32", half=True)
        with pytest.raises(TableError, match="dense rows of floats"):
            t.dense("a", 1, 1, "int32", function=gl.AdaRevision(1.0))
        with pytest.raises(TableError, match="function 3 has no columns, seen, start, apply"):
            t.dense("a", 1, 1, function=3)
        for number in (0.5, np.inf, np.nan):
            with pytest.raises(TableError, match=rf"expected whole numbers, not float64 \[{number}\]"):
                t.dense("b", 1, 1, "int64", initial=[[number]])
        with pytest.raises(TableError, match="no tables"):
            t.run(fill, 1)
        with pytest.raises(TableError, match=r"shape \(2, 3\); expected \(3, 2\)"):
            t.dense("b", 3, 2, initial=np.zeros((2, 3)))
        with pytest.raises(TableError, match="no table 'b'"):  # nothing is left of what was refused
            _ = t["b"]
        t.dense("c", 1, 1)
        with pytest.raises(TableError, match="already"):
            t.dense("c", 1, 1)
        with pytest.raises(TableError, match="no table 'd': there are"):
            _ = t["d"]


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_errors_in_a_worker_come_back(backend: str) -> None:
    def wrong(t: Any, rank: int, what: int) -> None:
        t.clock()
        if rank == 1:
            (
                lambda: t["x"].get_row(10),
                lambda: t["x"].inc(0, 4, 1),
                lambda: t["x"].inc_rows([0, 1], np.ones((1, 4))),
                lambda: t["x"].get_rows([0.5]),
                lambda: t["y"],
                lambda: t["n"].inc(0, 0, 1.5),  # would be 1
                lambda: 1 / 0,
            )[what]()
        for _ in range(20):
            t.clock()

    words = (
        "no row 10: its rows are 0 to 9", "keys are whole numbers from 0 to 3", r"expected \(2, 4\)",
        "given by whole numbers", "no table 'y': there are x, n", "'n' has int64: expected whole numbers",
        "ZeroDivisionError",
    )  # fmt: skip
    for what in range(7) if backend == "threads" else [6]:
        with gl.tables(2, 1, backend=backend, timeout=60) as t:
            t.dense("x", 10, 4)
            t.dense("n", 1, 1, "int64")
            with pytest.raises(TablesError, match=f"worker 1 failed.*{words[what]}"):
                t.run(wrong, what)


def test_under_torchrun_the_environment_says_who_is_who(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port - 1}.items():
        monkeypatch.setenv(name, str(value))
    with gl.tables(staleness=1, backend="threads") as t:
        t.dense("dense", 7, 4)
        t.sparse("sparse", 7, 100, "int32")
        assert len(t.run(fill, 2)) == 2
        assert t["dense"].read([2])[0].tolist() == [2, 0, 0, 0]
