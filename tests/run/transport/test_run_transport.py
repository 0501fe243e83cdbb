"""Threads as transport: matched by order, nothing copied on the way, never waiting for ever."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from girih.run.errors import TransportError
from girih.run.transport.transport import NoTransport, ThreadHub, ThreadTransport, exchange


def test_messages_of_a_pair_keep_their_order():
    hub = ThreadHub(2, 5.0)
    first, second = ThreadTransport(hub, 0), ThreadTransport(hub, 1)
    got = [torch.empty(3), torch.empty(2, 2)]
    sent = [torch.arange(3.0), torch.arange(16.0).reshape(4, 4)[1:3, 1:3]]
    wait = first.begin([(1, tensor) for tensor in sent], [])
    exchange(second, [], [(0, tensor) for tensor in got])
    wait()
    assert all(torch.equal(a, b) for a, b in zip(got, sent, strict=True))
    assert (first.sent, second.received) == ([0, 28], [28, 0])


def test_exchanges_may_end_in_another_order_than_they_began():
    hub = ThreadHub(2, 5.0)
    first, second = ThreadTransport(hub, 0), ThreadTransport(hub, 1)
    sent = [torch.arange(3.0), torch.arange(4.0), torch.arange(5.0)]
    got = [torch.empty(3), torch.empty(4), torch.empty(5)]
    sending = [first.begin([(1, tensor)], []) for tensor in sent[:2]]
    receiving = [second.begin([], [(0, tensor)]) for tensor in got]
    sending.append(first.begin([(1, sent[2])], []))
    for number in (1, 2, 0):
        receiving[number]()
    for number in (2, 0, 1):
        sending[number]()
    assert all(torch.equal(a, b) for a, b in zip(got, sent, strict=True))
    assert second.received == [48, 0]


def test_a_sender_keeps_its_buffer_until_it_was_copied():
    hub = ThreadHub(2, 0.1)
    first, second = ThreadTransport(hub, 0), ThreadTransport(hub, 1)
    waiting = first.begin([(1, torch.ones(3))], [])
    with pytest.raises(TransportError, match=r"nothing was taken by worker 1 for 0.1 s"):
        waiting()
    got = torch.zeros(3)
    second.begin([], [(0, got)])  # what is there already is taken at once
    waiting()
    assert torch.equal(got, torch.ones(3))


def test_waiting_ends():
    hub = ThreadHub(2, 0.1)
    with pytest.raises(TransportError, match=r"nothing came from worker 1 for 0.1 s"):
        exchange(ThreadTransport(hub, 0), [], [(1, torch.empty(1))])


def test_aborting_wakes_everyone():
    hub = ThreadHub(2, 60.0)
    threading.Timer(0.1, hub.abort).start()
    began = time.monotonic()
    with pytest.raises(TransportError, match="the run was stopped while waiting for worker 1"):
        exchange(ThreadTransport(hub, 0), [], [(1, torch.empty(1))])
    assert time.monotonic() - began < 30  # the deadline is 60 s


def test_one_device_has_no_messages():
    exchange(NoTransport(), [], [])
    with pytest.raises(TransportError):
        exchange(NoTransport(), [(0, torch.empty(1))], [])
