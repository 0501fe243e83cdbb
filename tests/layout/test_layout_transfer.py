"""The cost of transfers against a simulation with sets, and the laws of routes."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from counts import random_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from placements import changes, reduced_axes, wanted

from girih.layout import (
    PARTIAL,
    PARTIAL_BY,
    REPLICATE,
    Links,
    Mesh,
    Placement,
    Placements,
    Transfers,
    kept_terms,
    level_volumes,
    reducer_of,
    route,
)
from girih.program.exchange import exchange

ITEM = 4


def transfers(mesh: Mesh, objective: str) -> Transfers:
    per_byte = tuple(1e-6 / 3.0**axis for axis in range(mesh.axes))
    latency = tuple(1e-5 / 2.0**axis for axis in range(mesh.axes))
    return Transfers(mesh, Links(per_byte, latency), objective)


def by_sets(mesh: Mesh, source: Placement, target: Placement) -> np.ndarray:
    """[devices, axes]: elements received over each level."""
    volumes = np.zeros((mesh.devices, mesh.axes), np.int64)
    for device, _, _, level in wanted(mesh, source, target):
        volumes[device, level] += 1
    return volumes


@given(changes())
@settings(max_examples=random_cases(200))
def test_volumes_are_what_devices_lack(case: tuple) -> None:
    mesh, _, source, target = case
    assert (level_volumes(mesh, source, target) == by_sets(mesh, source, target)).all()


@given(changes())
@settings(max_examples=random_cases(200))
def test_direct_costs_what_devices_lack(case: tuple) -> None:
    mesh, _, source, target = case
    volumes = by_sets(mesh, source, target)
    one, other = Placements.single(source), Placements.single(target)
    assert transfers(mesh, "bytes").direct(one, other, ITEM)[0, 0] == volumes.sum() * ITEM
    links = transfers(mesh, "seconds").links
    each = volumes * ITEM * np.asarray(links.seconds_per_byte) + (volumes > 0) * np.asarray(links.latency)
    found = transfers(mesh, "seconds").direct(one, other, ITEM)[0, 0]
    assert np.isclose(found, each.sum(axis=1).max(), rtol=1e-12, atol=0)


@given(changes(possible=False))
@settings(max_examples=random_cases(200))
def test_partial_sums_are_made_of_what_lies_there_for_nothing(case: tuple) -> None:
    """Every element that a group of devices wants is the term of one of them, or else it costs a hop more."""
    mesh, _, source, target = case
    pairs = list(zip(source.partial, target.partial, strict=True))
    cost = transfers(mesh, "bytes").direct(Placements.single(source), Placements.single(target), ITEM)[0, 0]
    if all(not wanted or held == wanted for held, wanted in pairs):
        assert np.isfinite(cost)
        return
    fresh = [axis for axis, (held, wanted) in enumerate(pairs) if wanted and not held]
    lies: dict[tuple, Counter] = {}
    wants: dict[tuple, set] = {}
    kept = kept_terms(mesh, source, target).regions
    for device, place in enumerate(mesh.coordinates.tolist()):
        group = tuple(part for axis, part in enumerate(place) if axis not in fresh)
        if boxed := elements(target.regions[device]):
            wants.setdefault(group, set()).update(boxed)
            lies.setdefault(group, Counter()).update(elements(kept[device]))
    able = all(not held or held == wanted for held, wanted in pairs)
    if reducer_of(target.partial) == "sum":
        there = all(lies[group] == Counter(wanted) for group, wanted in wants.items())
    else:  # it does not matter how many hold the same term
        there = all(lies[group].keys() == wanted for group, wanted in wants.items())
    assert (cost == 0) == (able and there)
    assert cost in (0, np.inf)
    if cost == 0:
        assert not level_volumes(mesh, source, target).any()
        assert all(message.source == message.target for message in exchange(mesh, source, target).messages)


def elements(region: np.ndarray) -> set[tuple[int, ...]]:
    return set(product(*(range(start, stop) for start, stop in region.tolist())))


@given(changes(), st.sampled_from(["bytes", "seconds"]))
@settings(max_examples=random_cases(200))
def test_the_table_is_no_dearer_than_one_hop_or_two(case: tuple, objective: str) -> None:
    mesh, shape, source, target = case
    work = transfers(mesh, objective)
    one, other = Placements.single(source), Placements.single(target)
    direct = work.direct(one, other, ITEM)[0, 0]
    table = work.table(one, other, shape, ITEM)[0, 0]
    between = work.between(shape)
    two = (work.direct(one, between, ITEM)[0] + work.direct(between, other, ITEM)[:, 0]).min()
    assert table <= min(direct, two)
    assert table == min(direct, two) or work.cuts  # over links of different speed more hops may help


@given(changes(), st.sampled_from(["bytes", "seconds"]))
@settings(max_examples=random_cases(200))
def test_a_route_costs_what_the_table_says(case: tuple, objective: str) -> None:
    mesh, shape, source, target = case
    work = transfers(mesh, objective)
    hops = route(work, source, target, shape, ITEM)
    cost, last = 0.0, source
    for place in hops:
        cost += work.direct(Placements.single(last), Placements.single(place), ITEM)[0, 0]
        last = place
    assert cost == work.table(Placements.single(source), Placements.single(target), shape, ITEM)[0, 0]
    assert len(hops) <= (4 if work.cuts else 2)
    if hops:
        assert hops[-1] is target
    else:
        assert source.partial == target.partial
        assert not level_volumes(mesh, source, target).any()


@given(changes())
def test_one_source_costs_alone_what_it_costs_among_others(case: tuple) -> None:
    mesh, shape, source, target = case
    between = transfers(mesh, "bytes").between(shape)
    both = Placements(
        np.concatenate([source.regions[None], between.regions]),
        np.concatenate([np.asarray([source.partial]), between.partial]),
    )
    for objective in ("bytes", "seconds"):
        work = transfers(mesh, objective)
        among = work.table(both, Placements.single(target), shape, ITEM)
        for number in range(len(both)):
            alone = work.table(Placements.single(both[number]), Placements.single(target), shape, ITEM)
            assert among[number, 0] == alone[0, 0]


@given(changes())
def test_distinct_placements(case: tuple) -> None:
    _, _, source, target = case
    items = Placements(
        np.stack([source.regions, target.regions, source.regions]),
        np.asarray([source.partial, target.partial, source.partial]),
    )
    different, number = items.distinct()
    assert len(number) == 3
    assert number[0] == number[2]
    for position in range(3):
        again = different[int(number[position])]
        assert (again.regions == items[position].regions).all()
        assert again.partial == items[position].partial


def test_an_all_reduce_goes_by_a_reduce_scatter_and_an_all_gather() -> None:
    mesh = Mesh((4,))
    source, target = (Placement.of(layout, (8, 8), mesh) for layout in ((PARTIAL,), (REPLICATE,)))
    work = transfers(mesh, "bytes")
    direct = work.direct(Placements.single(source), Placements.single(target), ITEM)[0, 0]
    table = work.table(Placements.single(source), Placements.single(target), (8, 8), ITEM)[0, 0]
    assert direct == 4 * 3 * 64 * ITEM
    assert table == 2 * 3 * 64 * ITEM  # the least that a ring all-reduce moves
    assert len(route(work, source, target, (8, 8), ITEM)) == 2


def test_between_hosts_each_part_goes_once_and_is_spread_inside() -> None:
    mesh = Mesh((2, 4))
    work = Transfers(mesh, Links((1e-6, 1e-9), (0.0, 0.0)), "seconds")
    source, target = (Placement.of(layout, (8, 8), mesh) for layout in ((0, REPLICATE), (REPLICATE, REPLICATE)))
    slow = work.direct(Placements.single(source), Placements.single(target), ITEM)[0, 0]
    fast = work.table(Placements.single(source), Placements.single(target), (8, 8), ITEM)[0, 0]
    assert slow == 32 * ITEM * 1e-6
    assert fast < slow / 3
    assert reduced_axes(source, target) == []


@pytest.mark.parametrize("reducer", ["sum", "max"])
@pytest.mark.parametrize(("hosts", "inside"), [(2, (4,)), (3, (4,)), (2, (2, 2)), (4, (2,))])
def test_terms_are_combined_inside_of_a_host_before_they_go_to_others(
    reducer: str, hosts: int, inside: tuple[int, ...]
) -> None:
    """Over the slow links go as many numbers as a ring all-reduce among the hosts sends of the whole."""
    mesh, shape = Mesh((hosts, *inside)), (24, 8)
    work = Transfers(mesh, Links((1e-6, *(1e-9,) * len(inside)), (1e-8,) * mesh.axes), "seconds")
    partial, everywhere = (PARTIAL_BY[reducer],) * mesh.axes, (REPLICATE,) * mesh.axes
    slow = {}
    for name, layout in (("everywhere", everywhere), ("split", (0,) * mesh.axes)):
        at, target = (Placement.of(one, shape, mesh) for one in (partial, layout))
        hops = route(work, at, target, shape, ITEM)
        assert hops[0].partial == (at.partial[0], *(0,) * len(inside))
        slow[name] = 0
        for hop in hops:
            assert len(exchange(mesh, at, hop).messages)
            slow[name] += int(level_volumes(mesh, at, hop)[:, 0].sum())
            at = hop
        assert (at.regions == target.regions).all()
    assert slow == {"everywhere": 2 * (hosts - 1) * 24 * 8, "split": (hosts - 1) * 24 * 8}
