"""Groups of workers, by a torch.distributed made up of threads: who carries what, and replies that are tensors."""

from __future__ import annotations

import pickle
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, local
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from girih.run.transport import group
from girih.run.transport.gloo import TRANSPORT
from girih.run.transport.group import HostTransport, backend_of, form, gathered, transport_on
from girih.run.transport.transport import GroupTransport, exchange

CARD = torch.device("cuda", 1)


class Ranks:
    """A torch.distributed of so many threads. said: bytes of objects. broadcasts: (source, bytes), as of rank 0."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.mine = local()
        self.barrier = Barrier(size)
        self.words: list[Any] = [None] * size
        self.said: list[int] = []
        self.broadcasts: list[tuple[int, int]] = []
        self.lines = {(one, other): queue.SimpleQueue[Any]() for one in range(size) for other in range(size)}

    def get_backend_config(self) -> str:
        return "cpu:gloo,cuda:nccl"

    def get_world_size(self) -> int:
        return self.size

    def all_gather_object(self, into: list[Any], own: Any) -> None:
        data = pickle.dumps(own)
        self.said.append(len(data))
        self.words[self.mine.rank] = data
        self.barrier.wait(20)
        into[:] = map(pickle.loads, self.words)
        self.barrier.wait(20)

    def broadcast(self, tensor: Any, source: int) -> None:
        if self.mine.rank == 0:
            self.broadcasts.append((source, tensor.nbytes))
        if self.mine.rank == source:
            self.words[source] = tensor
        self.barrier.wait(20)
        tensor.copy_(self.words[source])
        self.barrier.wait(20)

    def isend(self, tensor: Any, peer: int) -> Any:
        self.lines[self.mine.rank, peer].put(tensor.clone())
        return SimpleNamespace(wait=lambda: None)

    def irecv(self, tensor: Any, peer: int) -> Any:
        line = self.lines[peer, self.mine.rank]
        return SimpleNamespace(wait=lambda: tensor.copy_(line.get(timeout=20)))

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        def own(rank: int) -> Any:
            self.mine.rank = rank
            return work(rank)

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(own, range(self.size)))


def test_state_is_not_gathered_as_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(3)
    monkeypatch.setattr(group, "dist", ranks)
    parts = [
        {"weight": torch.arange(40_000.0).reshape(200, 200), "loss": torch.tensor(0.5)},
        {"half": torch.ones(50_000, dtype=torch.bfloat16).t(), "turned": torch.arange(90_000).reshape(300, 300).t()},
        7,
    ]
    for replies in ranks.run(lambda rank: gathered(parts[rank], rank, 3)):
        assert replies[2] == 7
        assert [list(reply) for reply in replies[:2]] == [["loss", "weight"], ["half", "turned"]]
        for reply, part in zip(replies, parts[:2], strict=False):
            assert all(reply[name].equal(tensor) for name, tensor in part.items())  # type: ignore[union-attr]
            assert all(reply[name].dtype == tensor.dtype for name, tensor in part.items())  # type: ignore[union-attr]
    assert ranks.broadcasts == [(0, 160_000), (1, 100_000), (1, 720_000)]
    assert max(ranks.said) < 2_000


def test_messages_between_gpus_may_go_through_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(2)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)

    def swapped(rank: int) -> tuple[Any, list[int]]:
        transport = HostTransport()
        transport.dist = ranks
        place = torch.zeros(3, 4)
        exchange(transport, [(1 - rank, torch.full((3, 4), float(rank)))], [(1 - rank, place)])
        return place, transport.received

    (first, received), (second, _) = ranks.run(swapped)
    assert first.eq(1).all()
    assert second.eq(0).all()
    assert received == [0, 48]


@pytest.mark.parametrize(
    ("device", "chosen", "backend", "named"),
    [
        (torch.device("cpu"), "", "gloo", None),
        (CARD, "", "cpu:gloo,cuda:nccl", CARD),
        (CARD, "gloo", "gloo", None),
    ],
)
def test_a_group_is_formed_with_its_device(
    device: Any, chosen: str, backend: str, named: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRANSPORT, chosen)
    formed: list[Any] = []
    monkeypatch.setattr(group.dist, "init_process_group", lambda *given, **options: formed.append((given, options)))
    form(device, rank=0, world_size=2)
    ((given, options),) = formed
    assert given == (backend,) == (backend_of(device),)
    assert options.pop("device_id", None) == named
    assert options == {"rank": 0, "world_size": 2}


@pytest.mark.parametrize(("backend", "kind"), [("cuda:nccl", GroupTransport), ("cpu:gloo,cuda:gloo", HostTransport)])
def test_workers_on_gpus_meet_before_their_first_messages(
    backend: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: done.append(("current", device)))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: done.append(("done", device)))
    monkeypatch.setattr(torch, "zeros", lambda size, device: device)
    monkeypatch.setattr(group.dist, "get_backend_config", lambda: backend)
    monkeypatch.setattr(group.dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(group.dist, "all_reduce", lambda tensor: done.append(("met", tensor)))
    transport = transport_on(CARD)
    assert type(transport) is kind
    assert transport.batched == (kind is GroupTransport)
    meeting = [("met", CARD), ("done", CARD)] if kind is GroupTransport else []
    assert done == [("current", CARD), *meeting]
