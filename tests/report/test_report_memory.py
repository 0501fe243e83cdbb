"""Who holds what on a device, and when: the curve, the stays and the copies of plans under memory limits."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import perceptron

import girih
from girih.api import Plan, plan_graph
from girih.cli.programs import program
from girih.machine.units import format_bytes
from girih.report.memory import curve, memory_numbers, memory_table, strip, words
from girih.report.storages import DeviceMemory, StorageMove, StorageOverTime, device_memory
from girih.report.tables import render


@pytest.fixture(scope="module")
def free() -> Plan:
    named = program("lenet-tiny", 16, "momentum")
    return girih.plan(named.step, named.batch, machine="local:1", compare=(), objective="bytes")


def held(memory: DeviceMemory) -> np.ndarray:
    """Bytes of the storages that lie on the device in each operator."""
    total = np.zeros(len(memory.used), np.int64)
    for storage in memory.storages:
        for first, last in storage.stays:
            total[max(first, 0) : last + 1] += storage.bytes
    return total


def test_the_curve_is_the_accounts(free: Plan, capped: Plan) -> None:
    for plan in (capped, free):
        memory = device_memory(plan)
        assert memory.peak == plan.peak
        assert len(memory.used) == len(memory.operators) + 1
        assert memory.used[-1] >= sum(
            item.bytes for item in memory.storages if item.stays[-1][1] == len(memory.operators)
        )


def test_without_movements_every_storage_is_in_the_curve(free: Plan) -> None:
    memory = device_memory(free)
    extra = memory.used - held(memory)
    assert extra.min() == 0  # where a kernel holds nothing of its own
    assert all(len(item.stays) == 1 and not item.moves and not item.away for item in memory.storages)
    assert memory.moved(True) == memory.moved(False) == (0, 0)
    assert memory.host == 0


def test_copies_are_those_of_the_plan(capped: Plan) -> None:
    memory = device_memory(capped)
    assert capped.choice.residency
    out, back = capped.choice.residency[0].copied_bytes(capped.lifetimes.touches)
    assert (memory.moved(True)[0], memory.moved(False)[0]) == (out, back)
    assert memory.moved(True)[1] + memory.moved(False)[1] == len(capped.program.moves)
    state = sum(capped.lifetimes.storages[number].bytes for number in capped.choice.residency[0].home) // 2
    assert memory.home == state > 0


def test_what_comes_back_is_on_the_device_while_it_is_copied_and_away_in_between(capped: Plan) -> None:
    graph = perceptron(6, 512, 64)  # activations are most of it, and come back
    free = plan_graph(graph, machine="local:1", objective="bytes")
    deep = plan_graph(graph, machine="local:1", memory=int(free.peak * 0.6), hold="swap", objective="bytes")
    memory = device_memory(capped)
    seen = 0
    for item in (*memory.storages, *device_memory(deep).storages):
        there = {operator for first, last in item.stays for operator in range(max(first, 0), last + 1)}
        assert there.isdisjoint(operator for first, last in item.away for operator in range(first, last + 1))
        for (_, gone), (back, _) in zip(item.stays, item.stays[1:], strict=False):
            arrival = next(move for move in item.moves if not move.out and move.span[0] == back)
            assert arrival.bytes == item.bytes
            assert gone < back
            seen += 1
    assert seen
    replaced = {item.what.removeprefix("new "): item for item in memory.storages if item.what.startswith("new ")}
    assert capped.choice.residency
    for number in capped.choice.residency[0].home:
        name = capped.lifetimes.storages[number].name
        if name in replaced:  # old state begins in the large memory, new state ends there
            new = replaced[name]
            assert len(memory.operators) in (new.moves[-1].span[1], new.away[-1][1] if new.away else None)
            assert next(item for item in memory.storages if item.name == name).stays[0][0] >= 0


def test_every_device_of_a_divided_plan() -> None:
    graph = perceptron()
    free = plan_graph(graph, machine="local:2", objective="bytes")
    capped = plan_graph(graph, machine="local:2", memory=int(free.peak * 0.6), hold="swap", objective="bytes")
    assert capped.choice.residency
    for plan in (free, capped):
        for device in range(2):
            memory = device_memory(plan, device)
            assert memory.peak == plan.memory_by_device[device].peak
            assert (memory.moved(True)[0] > 0) == (plan is capped)


HAND = DeviceMemory(
    0,
    ("a", "b", "c", "d"),
    np.asarray([4, 8, 2, 6, 0]),
    (
        StorageOverTime(
            "x",
            4,
            "activation",
            ((-1, 1), (3, 3)),
            (StorageMove(True, 4, (1, 1)), StorageMove(False, 4, (3, 3))),
            ((2, 2),),
        ),
    ),
    4,
    0,
)


def test_a_plot_and_a_strip_by_hand() -> None:
    lines = curve(HAND, 10)
    assert lines[0].split() == ["limit", "┄" * 64]
    body = [line.partition("┤")[2] for line in lines[1:9]]
    assert body == ["", " ▄", " █", " █ ▇", "▂█ █", "██ █", "██▅█", "████"]
    assert "limit" not in curve(HAND, 100)[0]  # far away it is not drawn
    assert strip(HAND, HAND.storages[0]) == "█░·░"
    assert strip(HAND, HAND.storages[0], 2) == "█░"
    assert words(HAND, HAND.storages[0]) == "start to b; d"


def test_long_lists_are_cut_with_a_count(capped: Plan) -> None:
    text = render(memory_table(capped, most=5), width=140)
    storages = len(device_memory(capped).storages)
    assert f"{storages - 5} smaller ones" in text
    assert f"limit {format_bytes(capped.memory)}" in text
    assert "go out to files" in text
    numbers = memory_numbers(capped)
    assert len(numbers["storages"]) == storages
    assert max(numbers["used"]) == numbers["peak"] == capped.peak
