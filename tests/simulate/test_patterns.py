"""The tasks of an exchange: the messages that lowering writes down, or the volumes of the search."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np
import pytest
from counts import random_cases
from hand_made import gather, machine, send
from hypothesis import given, settings
from placements import changes

from girih.layout import Mesh, Placement, level_volumes
from girih.machine import Device, Level, Machine
from girih.program import exchange
from girih.simulate.patterns import NOBODY, Pattern, pattern_of
from girih.simulate.ports import ports_of
from girih.simulate.ticks import TICKS_PER_SECOND, ticks

Change = tuple[Mesh, tuple[int, ...], Placement, Placement]


def members_of(pattern: Pattern) -> list[set[int]]:
    """The devices that post at each gate."""
    found: list[set[int]] = [set() for _ in pattern.members]
    for device, (first, last) in enumerate(zip(pattern.offsets, pattern.offsets[1:], strict=False)):
        for gate in pattern.gates[first:last]:
            found[gate].add(device)
    return found


def check_ports_and_durations(pattern: Pattern, at: Machine) -> None:
    ports = ports_of(at)
    for task in range(len(pattern)):
        axis, sender, receiver = int(pattern.axis[task]), int(pattern.sender[task]), int(pattern.receiver[task])
        assert pattern.ingress[task] == ports.ingress[axis, receiver]
        assert pattern.egress[task] == (NOBODY if sender == NOBODY else ports.egress[axis, sender])
        seconds = int(pattern.bytes[task]) / ports.levels[axis].bytes_per_second
        assert pattern.duration[task] == ticks(np.asarray([seconds]))[0]
        assert pattern.delay[task] == ticks(np.asarray([ports.levels[axis].latency_seconds]))[0]


@given(changes())
@settings(max_examples=random_cases(150))
def test_messages_are_those_of_the_exchange(case: Change) -> None:
    mesh, _, source, target = case
    at = machine(mesh.sizes, latency=0.25)
    pattern = pattern_of(mesh, source, target, 4, ports_of(at), "messages")
    expected: Counter[tuple[int, int]] = Counter()
    for message in exchange(mesh, source, target).messages:
        if message.source != message.target:
            expected[message.source, message.target] += 4 * message.elements
    pairs = zip(pattern.sender.tolist(), pattern.receiver.tolist(), strict=True)
    assert dict(zip(pairs, pattern.bytes.tolist(), strict=True)) == dict(expected)
    assert members_of(pattern) == [{a, b} for a, b in zip(pattern.sender, pattern.receiver, strict=True)]
    both = np.concatenate([pattern.sender, pattern.receiver])
    assert pattern.waits.tolist() == np.bincount(both, minlength=mesh.devices).tolist()
    check_ports_and_durations(pattern, at)


@given(changes())
@settings(max_examples=random_cases(150))
def test_volumes_are_those_of_the_search(case: Change) -> None:
    mesh, _, source, target = case
    at = machine(mesh.sizes, latency=0.25)
    pattern = pattern_of(mesh, source, target, 4, ports_of(at), "volumes")
    received = np.zeros((mesh.devices, mesh.axes), np.int64)
    received[pattern.receiver, pattern.axis] = pattern.bytes
    assert (received == level_volumes(mesh, source, target) * 4).all()
    assert pattern.waits.tolist() == (received > 0).sum(axis=1).tolist()
    # At a gate post those who agree on all axes before and have a part: all from whom its tasks receive, and they.
    gate = np.repeat(np.arange(len(pattern.members)), np.diff(pattern.first))
    members = members_of(pattern)
    assert [len(group) for group in members] == pattern.members.tolist()
    senders: dict[tuple[int, int], set[int]] = {}
    for message in exchange(mesh, source, target).messages:
        if message.source != message.target:
            axis = int(np.argmax(mesh.coordinates[message.source] != mesh.coordinates[message.target]))
            senders.setdefault((message.target, axis), set()).add(message.source)
    for task in range(len(pattern)):
        axis, receiver = int(pattern.axis[task]), int(pattern.receiver[task])
        size = prod(mesh.sizes[axis:])
        first = receiver // size * size
        assert members[gate[task]] <= set(range(first, first + size))
        assert {receiver, *senders[receiver, axis]} <= members[gate[task]]
    check_ports_and_durations(pattern, at)


def test_rounds_are_permutations() -> None:
    """In each round of a regular exchange every device sends to one and receives from one."""
    mesh = Mesh((2, 3))
    step = gather(mesh, "x")
    pattern = pattern_of(mesh, step.before, step.after, 1, ports_of(machine((2, 3))), "messages")
    assert len(pattern) == 6 * 5
    for begin in range(0, 30, 6):
        assert sorted(pattern.sender[begin : begin + 6]) == sorted(pattern.receiver[begin : begin + 6]) == [*range(6)]


def test_volumes_are_few_on_large_meshes() -> None:
    mesh = Mesh((32, 8))
    step = gather(mesh, "x", 1)
    pattern = pattern_of(mesh, step.before, step.after, 1, ports_of(machine((32, 8))), "volumes")
    assert len(pattern) == 2 * mesh.devices
    assert len(pattern.members) == 1 + 32
    assert len(pattern.gates) == 2 * mesh.devices


def test_who_has_no_part_is_not_waited_for() -> None:
    step = send(Mesh((8,)), "x", {0: 1})
    pattern = pattern_of(Mesh((8,)), step.before, step.after, 1, ports_of(machine((8,))), "volumes")
    assert members_of(pattern) == [{0, 1}]


def test_ports_belong_to_levels_and_parts() -> None:
    device = Device("test", 1e9, 10**9, 1e9, 1e-6)
    levels = (Level("net", (2,), 1.0, 0.0, shared=True), Level("switch", (2,), 1.0, 0.0, shared=True),
              Level("bus", (2, 2), 1.0, 0.0))  # fmt: skip
    ports = ports_of(Machine("three levels", device, levels))
    assert ports.count == 2 * (2 + 4 + 16)
    assert ports.egress[0].tolist() == [0] * 8 + [1] * 8
    assert ports.ingress[0].tolist() == [2] * 8 + [3] * 8
    assert ports.egress[1].tolist() == [4 + device // 4 for device in range(16)]
    assert (ports.egress[2] == ports.egress[3]).all()  # two mesh axes on one level
    assert len(set(ports.egress[3].tolist())) == 16
    assert ports.names[0] == "net, part 0, out"
    assert ports.names[12] == "bus, device 0, out"
    assert [level.name for level in ports.levels] == ["net", "switch", "bus", "bus"]


def test_a_message_takes_at_least_a_tick() -> None:
    at = Machine("fast", machine((2,)).device, (Level("bus", (2,), 1e30, 0.0),))
    step = send(Mesh((2,)), "a", {0: 1})
    assert pattern_of(at.mesh, step.before, step.after, 1, ports_of(at), "messages").duration.tolist() == [1]


def test_ticks_are_exact_on_their_grid() -> None:
    seconds = np.asarray([0.0, 0.5, 3.25, 1 / TICKS_PER_SECOND])
    assert (ticks(seconds) == np.asarray([0, 0.5, 3.25, 2.0**-40]) * 2**40).all()
    with pytest.raises(ValueError, match="expected seconds from 0"):
        ticks(np.asarray([np.inf]))


def test_messages_that_meet_take_what_was_measured_of_them() -> None:
    """Several that one device gets at once are in each other's way; one alone is not."""
    level = Level("net", (4,), 1e6, 1e-3, points=((1, 1.0), (1000, 2.0)), meeting_points=((1, 3.0), (1000, 4.0)))
    ports = ports_of(Machine("four", Device("cpu", 1e9, 1 << 30, 1e9, 1e-6), (level,)))
    sizes = np.asarray([1000, 1000, 1000, 1])
    meets = np.asarray([True, True, False, True])
    assert ports.duration(0, sizes, meets).tolist() == ticks(np.asarray([4.0, 4.0, 2.0, 3.0])).tolist()
    assert ports.duration(0, sizes).tolist() == ticks(np.asarray([2.0, 2.0, 2.0, 1.0])).tolist()
    mesh = Mesh((4,))
    for step, meeting in ((gather(mesh, "x"), True), (send(mesh, "x", {0: 1, 2: 3}), False)):
        pattern = pattern_of(mesh, step.before, step.after, 4, ports, "messages")
        seconds = [level.message_seconds(size, meeting) for size in pattern.bytes.tolist()]
        assert pattern.duration.tolist() == ticks(np.asarray(seconds)).tolist()
