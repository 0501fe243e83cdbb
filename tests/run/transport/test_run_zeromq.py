"""Workers that send each other arrays over ZeroMQ, here threads of this process: what arrives, and what goes wrong."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
import zmq
from torch.distributed import HashStore, PrefixStore, TCPStore

from girih.run.errors import TransportError
from girih.run.transport import zeromq
from girih.run.transport.meeting import Meeting, endpoint, is_loopback, launched, numeric, route
from girih.run.transport.zeromq import HEAD, ZeroMQTransport


def together(size: int, work: Callable[[int], Any]) -> list[Any]:
    """What each rank's thread returns, or raises."""

    def tried(rank: int) -> Any:
        try:
            return work(rank)
        except Exception as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(tried, range(size)))


@contextmanager
def left(mesh: ZeroMQTransport) -> Iterator[ZeroMQTransport]:
    """Closed as `gl.ranks` does it."""
    try:
        yield mesh
    except Exception as error:
        mesh.close(str(error))
        raise
    mesh.close()


def ranks(size: int, work: Callable[[ZeroMQTransport], Any], timeout: float = 30.0) -> list[Any]:
    store = HashStore()

    def one(rank: int) -> Any:
        with left(ZeroMQTransport(Meeting(store, rank, size, "127.0.0.1"), timeout)) as mesh:
            return work(mesh)

    return together(size, one)


def test_arrays_arrive_in_their_order_whatever_is_waited_for_first() -> None:
    def work(mesh: ZeroMQTransport) -> Any:
        right, before = (mesh.rank + 1) % 3, (mesh.rank - 1) % 3
        sent = [torch.arange(at, dtype=torch.float64) + 100 * mesh.rank for at in (3, 0, 70_000)]
        found = [torch.empty_like(item) for item in sent]
        waits = [mesh.begin([(right, a)], [(before, b)]) for a, b in zip(sent, found, strict=True)]
        for wait in reversed(waits):
            wait()
        gathered = mesh.gather([b"of %d" % mesh.rank, np.full(2, mesh.rank)])
        words = [bytes(text).decode() for text, _ in gathered]
        numbers = [np.frombuffer(raw, np.int64).tolist() for _, raw in gathered]
        return [item.tolist() for item in found], words, numbers, mesh.sent, mesh.received

    for rank, (found, words, numbers, sent, received) in enumerate(ranks(3, work)):
        right, before = (rank + 1) % 3, (rank - 1) % 3
        assert found == [[at + 100 * before for at in range(size)] for size in (3, 0, 70_000)]
        assert words == ["of 0", "of 1", "of 2"]
        assert numbers == [[0, 0], [1, 1], [2, 2]]
        assert (sent[right], sum(sent)) == (8 * 70_003, 8 * 70_003)
        assert (received[before], sum(received)) == (8 * 70_003, 8 * 70_003)


def waits_for(peer: int, mesh: ZeroMQTransport, size: int = 1) -> None:
    mesh.begin([], [(peer, torch.empty(size))])()


def test_who_fails_says_why_to_all() -> None:
    def work(mesh: ZeroMQTransport) -> None:
        if mesh.rank == 1:
            raise ValueError("the disk is full")
        waits_for(0 if mesh.rank == 2 else 2, mesh)  # nobody waits for 1

    first, _, other = ranks(3, work)
    assert all(isinstance(error, TransportError) for error in (first, other))
    assert "has failed: " in str(first)
    assert "the disk is full" in str(first)
    assert "the disk is full" in str(other)


def test_who_waits_for_one_that_has_left_is_told() -> None:
    found = ranks(2, lambda mesh: waits_for(1, mesh) if mesh.rank == 0 else None)
    assert str(found[0]) == "rank 1 has left, and rank 0 waits for it: all must run the same loops"


def test_arrays_of_another_size_are_refused() -> None:
    def work(mesh: ZeroMQTransport) -> None:
        if mesh.rank == 0:
            waits_for(1, mesh, 3)
        else:
            mesh.begin([(0, torch.zeros(2))], [])()
            waits_for(0, mesh)

    assert "8 bytes came from rank 1 where 12 were expected" in str(ranks(2, work)[0])


def test_who_does_not_come_or_says_nothing_is_named() -> None:
    with pytest.raises(TransportError, match=r"rank 1 has not come within 0\.2 s: has it been started"):
        ZeroMQTransport(Meeting(HashStore(), 0, 2, "127.0.0.1"), 0.2)

    over = threading.Event()

    def work(mesh: ZeroMQTransport) -> None:
        if mesh.rank == 1:
            over.wait()
            return
        try:
            waits_for(1, mesh)
        finally:
            over.set()

    assert str(ranks(2, work, 0.5)[0]) == "nothing came from rank 1 for 0.5 s"


def test_addresses_that_are_not_this_hosts_or_cannot_be_reached() -> None:
    with pytest.raises(TransportError, match=r"cannot listen at 192\.0\.2\.1 .*: is it an address of this host\?"):
        ZeroMQTransport(Meeting(HashStore(), 0, 2, "192.0.2.1"), 1.0)
    store = HashStore()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        place = endpoint("127.0.0.1", str(unused.getsockname()[1]))
    Meeting(store, 1, 2, "").tell("place", f"{place} {zmq.curve_keypair()[0].decode()}")
    with pytest.raises(TransportError, match=f"rank 0 reaches no rank 1 at {place} within 0.5 s: hosts must let"):
        ZeroMQTransport(Meeting(store, 0, 2, "127.0.0.1"), 0.5)


def test_a_place_that_cannot_be_is_refused_and_nothing_waits_for_it() -> None:
    store = HashStore()
    Meeting(store, 1, 2, "").tell("place", f"tcp://127.0.0.1:port {zmq.curve_keypair()[0].decode()}")
    with pytest.raises(zmq.ZMQError):
        ZeroMQTransport(Meeting(store, 0, 2, "127.0.0.1"), 0.5)


def test_strangers_are_not_heard() -> None:
    """Neither who speaks without a key, nor with another one, nor who speaks otherwise."""
    lies = HEAD.pack(1, zeromq.FAILED), b"lies"

    def work(mesh: ZeroMQTransport) -> Any:
        if mesh.rank == 0:
            place = mesh.place
            context, lines = zmq.Context(), []
            for key in (None, zmq.curve_keypair()[0]):
                line = context.socket(zmq.PUSH)
                if key is not None:
                    line.curve_publickey, line.curve_secretkey = zmq.curve_keypair()
                    line.curve_serverkey = key
                line.connect(place)
                line.send_multipart(lies)
                lines.append(line)
            with socket.create_connection(("127.0.0.1", int(place.rpartition(":")[2]))) as raw:
                raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
                heard = mesh._hear(lambda: [1], 0.5)  # rank 1 says nothing meanwhile
            context.destroy(linger=0)
            assert heard == [1]
        return [bytes(frames[0]) for frames in mesh.gather([b"%d" % mesh.rank])]

    assert ranks(2, work) == [[b"0", b"1"]] * 2


def test_the_launchers_host_learns_how_others_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows itself by a name that leads to the loopback, as /etc/hosts of many systems says."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    torchrun = {
        "RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port,
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }  # fmt: skip
    for name, value in torchrun.items():
        monkeypatch.setenv(name, str(value))
    for number in (1, 2):  # as often as they meet
        PrefixStore(f"{number}", PrefixStore("girih/loops/", store)).set("route/1", f"10.1.2.4 10.1.2.{number}")
        assert launched("loops", "", 20.0).address == f"10.1.2.{number}"
    assert launched("tables", "10.9.8.7", 20.0).address == "10.9.8.7"
    PrefixStore("2", PrefixStore("girih/tables/", store)).set("route/1", "10.1.2.4 10.1.2.2")
    assert launched("tables", "localhost", 20.0).address == "10.1.2.2"  # a name, which leads to the loopback
    with pytest.raises(TransportError, match=r"no way to no\.such\.host\.invalid"):
        launched("tables", "no.such.host.invalid", 20.0)
    with pytest.raises(TransportError, match=r"rank 1 has not come within 0\.1 s"):
        launched("loops", "", 0.1)


def test_a_launcher_that_nobody_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    for name, value in {"RANK": 1, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(TransportError, match=f"not all ranks have come to 127.0.0.1:{port} within 1 s"):
        launched("loops", "", 1.0)


def test_routes() -> None:
    own, other = route("localhost", 9)
    assert is_loopback(own)
    assert is_loopback(other)
    assert numeric("tcp://127.0.0.1:7000") == "tcp://127.0.0.1:7000"
    assert numeric("tcp://[::1]:7000") == "tcp://[::1]:7000"
    assert numeric("tcp://*:7000") == "tcp://*:7000"
    assert numeric("ipc://place") == "ipc://place"
    with pytest.raises(TransportError, match=r"finds no way to no-such-host\.invalid"):
        numeric("tcp://no-such-host.invalid:7000")
