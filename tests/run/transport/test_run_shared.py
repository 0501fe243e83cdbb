"""Shared memory as transport: bytes in order through rings that are smaller than messages, waiting that ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from multiprocessing.connection import Pipe

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from girih.run.errors import TransportError
from girih.run.transport import shared, wire
from girih.run.transport.transport import exchange

pytestmark = pytest.mark.skipif(not shared.available(), reason="memory is shared in this way on Linux only")


@pytest.fixture
def files() -> Iterator[shared.Files]:
    made = shared.Files.made(2)
    yield made
    made.close()


def transports(files: shared.Files, timeout: float = 20.0) -> list[shared.SharedTransport]:
    return [shared.SharedTransport(files, rank, timeout) for rank in range(len(files.signs))]


def in_threads(actions) -> list[BaseException]:
    """Run all at once; what they raised."""
    raised = []

    def guarded(action) -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return raised


def test_messages_of_a_pair_keep_their_order(files: shared.Files):
    first, second = transports(files)
    sent = [torch.arange(3.0), torch.tensor(True), torch.arange(6).reshape(2, 3), torch.empty(0)]
    got = [torch.empty_like(tensor) for tensor in sent]
    wait = first.begin([(1, tensor) for tensor in sent], [])
    wait()  # they lie in the ring: the sender need not wait for the receiver
    exchange(second, [], [(0, tensor) for tensor in got])
    assert all(torch.equal(a, b) for a, b in zip(got, sent, strict=True))
    assert (first.sent, second.received) == ([0, 61], [61, 0])


@pytest.mark.parametrize("shape", [(1,), (1, 1), ()])
def test_one_element_that_was_expanded(files: shared.Files, shape: tuple[int, ...]):
    """PyTorch calls it contiguous, with stride 0."""
    first, second = transports(files)
    sent = torch.arange(5.0)[3].double().expand(shape)
    got = torch.zeros(1, dtype=torch.float64).as_strided(shape, (0,) * len(shape))
    first.begin([(1, sent)], [])()
    exchange(second, [], [(0, got)])
    assert torch.equal(sent, got)
    assert wire_copy(sent).equal(sent)


def wire_copy(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor after its way through a pipe."""
    ours, theirs = Pipe()
    with ours, theirs:
        wire.send(ours, tensor)
        return wire.receive(theirs)


def test_exchanges_may_end_in_another_order_than_they_began(files: shared.Files):
    first, second = transports(files)
    sent = [torch.arange(3.0), torch.arange(4.0), torch.arange(5.0)]
    got = [torch.empty(3), torch.empty(4), torch.empty(5)]
    for tensor in sent:
        first.begin([(1, tensor)], [])()
    receiving = [second.begin([], [(0, tensor)]) for tensor in got]
    for number in (1, 2, 0):
        receiving[number]()
    assert all(torch.equal(a, b) for a, b in zip(got, sent, strict=True))


@settings(max_examples=10, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9_000_000), min_size=9, max_size=9), min_size=1, max_size=3))
def test_all_to_all_with_messages_larger_than_rings(turns: list[list[int]]):
    """Each worker sends each other one a message of any size at once: nobody waits for ever, every byte is right."""
    files = shared.Files.made(3)
    try:
        ends = transports(files)
        assert shared.ring_bytes(3) < 9_000_000

        def body(rank: int, sizes: list[int], peer: int) -> torch.Tensor:
            """What a worker sends to a peer."""
            count = sizes[3 * rank + peer]
            return torch.arange(rank, rank + count, dtype=torch.int64).to(torch.uint8)

        def work(rank: int) -> None:
            peers = [peer for peer in range(3) if peer != rank]
            for sizes in turns:
                got = [(peer, torch.empty(sizes[3 * peer + rank], dtype=torch.uint8)) for peer in peers]
                exchange(ends[rank], [(peer, body(rank, sizes, peer)) for peer in peers], got)
                for peer, tensor in got:
                    assert torch.equal(tensor, body(peer, sizes, rank))

        raised = in_threads([lambda rank=rank: work(rank) for rank in range(3)])
        assert not raised, raised
    finally:
        files.close()


def test_waiting_ends(files: shared.Files):
    first, _ = transports(files, timeout=0.1)
    with pytest.raises(TransportError, match=r"exchanging with workers \[1\]: nothing happened for 0.1 s"):
        exchange(first, [], [(1, torch.empty(1))])
    too_much = torch.zeros(shared.ring_bytes(2) + 1, dtype=torch.uint8)
    with pytest.raises(TransportError, match="nothing happened"):
        exchange(first, [(1, too_much)], [])


def test_all_rings_together_have_a_limit():
    for workers in (2, 3, 4, 8, 16, 64):
        size = shared.ring_bytes(workers)
        assert size & (size - 1) == 0
        assert size * workers * (workers - 1) <= max(shared.ALL_RINGS, shared.SMALLEST_RING * workers * (workers - 1))
