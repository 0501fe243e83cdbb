"""Exchanges carried out with NumPy arrays: every device gets exactly its region, at exactly the predicted cost."""

from __future__ import annotations

from itertools import product, starmap

import numpy as np
import pytest
from counts import random_cases
from hypothesis import given, settings
from placements import changes, reduced_axes

from girih.layout import PARTIAL, REPLICATE, Links, Mesh, Placement, Placements, Transfers, level_volumes, route
from girih.program import Message, exchange
from girih.program.exchange import is_local, message_arrays, messages_of, terms_of


def data_of(mesh: Mesh, shape: tuple[int, ...], source: Placement) -> dict[tuple[int, ...], np.ndarray]:
    """For each coordinate on the partial axes a whole array: that contribution, in numbers that add exactly."""
    random = np.random.default_rng(0)
    axes = [axis for axis in range(mesh.axes) if source.partial[axis]]
    present = mesh.coordinates[(source.regions[..., 1] > source.regions[..., 0]).all(axis=1)]
    return {
        term: random.integers(-1000, 1000, shape or (1,)).astype(np.float64)
        for term in product(*(np.unique(present[:, axis]).tolist() for axis in axes))
    }


def parts_of(mesh: Mesh, place: Placement, terms: dict[tuple[int, ...], np.ndarray]) -> list[np.ndarray]:
    """What each device holds."""
    axes = [axis for axis in range(mesh.axes) if place.partial[axis]]
    anything = next(iter(terms.values()))
    return [
        terms.get(tuple(int(mesh.coordinates[device][axis]) for axis in axes), anything)[cut(region)]
        for device, region in enumerate(place.regions)
    ]


def cut(region: np.ndarray, origin: np.ndarray | None = None) -> tuple[slice, ...]:
    first = np.zeros(len(region), np.int64) if origin is None else origin[:, 0]
    return tuple(slice(int(low - zero), int(high - zero)) for (low, high), zero in zip(region, first, strict=True))


def carry_out(mesh: Mesh, source: Placement, target: Placement, held: list[np.ndarray]) -> list[np.ndarray]:
    """Run the messages. Each element of a buffer is written once for each term."""
    swap = exchange(mesh, source, target)
    made = []
    for device in range(mesh.devices):
        region = target.regions[device]
        extent = tuple(int(high - low) for low, high in region)
        buffer = np.zeros((swap.terms, *extent))
        times = np.zeros((swap.terms, *extent), np.int64)
        for message in swap.messages:
            if message.target != device:
                continue
            box = np.asarray(message.box, np.int64).reshape(-1, 2)
            there = (message.term, *cut(box, region))
            buffer[there] = held[message.source][cut(box, source.regions[message.source])]
            times[there] += 1
        assert (times == 1).all()
        made.append(buffer.sum(axis=0))
    return made


def expected(mesh: Mesh, source: Placement, target: Placement, terms: dict) -> list[np.ndarray]:
    partial = [axis for axis in range(mesh.axes) if source.partial[axis]]
    reduced = reduced_axes(source, target)
    sums: dict[tuple[int, ...], np.ndarray] = {}
    for term, array in terms.items():
        kept = tuple(part for axis, part in zip(partial, term, strict=True) if axis not in reduced)
        sums[kept] = sums[kept] + array if kept in sums else array
    return parts_of(mesh, target, sums)


@given(changes())
@settings(max_examples=random_cases(250))
def test_every_device_gets_its_region(case: tuple) -> None:
    mesh, shape, source, target = case
    terms = data_of(mesh, shape, source)
    made = carry_out(mesh, source, target, parts_of(mesh, source, terms))
    for got, want in zip(made, expected(mesh, source, target, terms), strict=True):
        assert got.shape == want.shape
        assert (got == want).all()


@given(changes())
@settings(max_examples=random_cases(100))
def test_routes_of_two_hops_bring_the_same(case: tuple) -> None:
    mesh, shape, source, target = case
    terms = data_of(mesh, shape, source)
    links = Links(tuple(1e-3 / 10.0**axis for axis in range(mesh.axes)), (0.0,) * mesh.axes)
    held, last = parts_of(mesh, source, terms), source
    for place in route(Transfers(mesh, links, "seconds"), source, target, shape, 4):
        held, last = carry_out(mesh, last, place, held), place
    for device, want in enumerate(expected(mesh, source, target, terms)):
        assert (held[device][cut(target.regions[device], last.regions[device])] == want).all()


@given(changes())
@settings(max_examples=random_cases(250))
def test_messages_carry_what_was_predicted_over_each_level(case: tuple) -> None:
    mesh, _, source, target = case
    received = np.zeros((mesh.devices, mesh.axes), np.int64)
    for message in exchange(mesh, source, target).messages:
        assert message.elements > 0
        if message.source != message.target:
            differs = mesh.coordinates[message.source] != mesh.coordinates[message.target]
            received[message.target, int(np.argmax(differs))] += message.elements
    assert (received == level_volumes(mesh, source, target)).all()


@given(changes())
@settings(max_examples=random_cases(400))
def test_one_devices_messages_and_their_arrays_are_those_of_the_whole_exchange(case: tuple) -> None:
    mesh, _, source, target = case
    swap = exchange(mesh, source, target)
    for device in range(mesh.devices):
        mine = tuple(message for message in swap.messages if device in (message.source, message.target))
        assert messages_of(mesh, source, target, device) == mine
    found = message_arrays(mesh, source, target)
    boxes = (tuple(map(tuple, box)) for box in found.box.tolist())
    every = zip(found.source.tolist(), found.target.tolist(), found.term.tolist(), boxes, strict=True)
    assert tuple(starmap(Message, every)) == swap.messages
    assert terms_of(mesh, source, target) == swap.terms
    assert is_local(mesh, source, target) == (swap.kind == "local copy")


def test_one_devices_messages_on_a_thousand() -> None:
    """A reduce-scatter and an all-gather among 1,024 devices: 1,023 messages each way, in the order of receivers."""
    mesh = Mesh((8, 128))
    partial, rows, whole = (Placement.of((code, code), (4096, 8), mesh) for code in (PARTIAL, 0, REPLICATE))
    for before, after in ((partial, rows), (rows, whole)):
        mine = messages_of(mesh, before, after, 500)
        assert sorted(message.source for message in mine if message.target == 500) == list(range(1024))
        assert [message.target for message in mine if message.source == 500] == list(range(1024))
        assert len(mine) == 2 * 1023 + 1
        received = sum(message.elements for message in mine if message.target == 500 != message.source)
        assert received == level_volumes(mesh, before, after)[500].sum()
    mine = messages_of(mesh, whole, rows, 7)
    assert [(message.source, message.target) for message in mine] == [(7, 7)]
    assert is_local(mesh, whole, rows)


def kind(sizes: tuple[int, ...], shape: tuple[int, ...], before: tuple, after: tuple) -> str:
    mesh = Mesh(sizes)
    return exchange(mesh, Placement.of(before, shape, mesh), Placement.of(after, shape, mesh)).kind


@pytest.mark.parametrize(
    ("sizes", "shape", "before", "after", "name"),
    [
        ((4,), (8, 8), (0,), (REPLICATE,), "all-gather"),
        ((2,), (8, 8), (1,), (REPLICATE,), "all-gather"),
        ((2, 2), (8, 8), (0, 1), (0, REPLICATE), "all-gather"),
        ((2, 2), (8, 8), (0, 1), (REPLICATE, REPLICATE), "all-gather"),
        ((3,), (7,), (0,), (REPLICATE,), "all-gather"),
        ((4,), (8, 8), (PARTIAL,), (0,), "reduce-scatter"),
        ((2, 2), (8, 8), (0, PARTIAL), (0, 1), "reduce-scatter"),
        ((4,), (8, 8), (PARTIAL,), (REPLICATE,), "all-reduce"),
        ((2, 2), (8, 8), (0, PARTIAL), (0, REPLICATE), "all-reduce"),
        ((2, 2), (8, 8), (PARTIAL, PARTIAL), (REPLICATE, REPLICATE), "all-reduce"),
        ((4,), (8, 8), (0,), (1,), "all-to-all"),
        ((2,), (8, 8), (0,), (1,), "all-to-all"),
        ((2, 2), (8, 8), (REPLICATE, 0), (REPLICATE, 1), "all-to-all"),
        ((4,), (8, 8), (REPLICATE,), (0,), "local copy"),
        ((4,), (8, 8), (0,), (0,), "local copy"),
        ((4,), (8, 8), (PARTIAL,), (PARTIAL,), "local copy"),
    ],
)
def test_collectives_are_recognised(sizes: tuple, shape: tuple, before: tuple, after: tuple, name: str) -> None:
    assert kind(sizes, shape, before, after) == name


def test_halos_and_broadcasts_are_recognised() -> None:
    mesh = Mesh((4,))
    rows = Placement.of((0,), (16, 3), mesh)
    wider = rows.regions.copy()
    wider[:, 0, 0] = np.maximum(wider[:, 0, 0] - 1, 0)
    wider[:, 0, 1] = np.minimum(wider[:, 0, 1] + 1, 16)
    assert exchange(mesh, rows, Placement(wider, (False,))).kind == "halo exchange"
    first = np.zeros((4, 2, 2), np.int64)
    first[0] = [[0, 16], [0, 3]]
    whole = Placement.of((REPLICATE,), (16, 3), mesh)
    assert exchange(mesh, Placement(first, (False,)), whole).kind == "broadcast"


def test_replicas_share_the_load() -> None:
    """Two replicas of two halves: each half-holder serves one of those who lack it."""
    mesh = Mesh((2, 2))
    source, target = (Placement.of(code, (8,), mesh) for code in ((0, REPLICATE), (REPLICATE, REPLICATE)))
    sent = [message.source for message in exchange(mesh, source, target).messages if message.source != message.target]
    assert sorted(sent) == [0, 1, 2, 3]


def test_one_device_sends_nothing() -> None:
    mesh = Mesh(())
    place = Placement.of((), (3, 2), mesh)
    swap = exchange(mesh, place, place)
    assert swap.kind == "local copy"
    assert [(message.source, message.target) for message in swap.messages] == [(0, 0)]
    assert len(Placements.single(place)) == 1
