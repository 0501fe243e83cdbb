"""Shardings: their text round-trips, stated shares cut where they say, and what is impossible is told."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placements import shardings

from girih.layout import Mesh, Sharding, Split, bounds_of, parse_sharding, regions_of, sharding_of
from girih.layout.mesh import PARTIAL, PARTIAL_BY, REPLICATE, among
from girih.layout.transfer import held_by_levels

meshes = st.sampled_from([(), (2,), (3,), (2, 2), (2, 3), (2, 2, 2)]).map(Mesh)


def test_text() -> None:
    assert str(sharding_of((0, REPLICATE, PARTIAL))) == "S0·R·P"
    assert str(sharding_of((among(1, (0, 2)), among(REPLICATE, (1,)), PARTIAL - 1))) == "S1@0,2·R@1·P1"
    assert str(Sharding((Split(0, (7, 3)),))) == "S0[7:3]"
    assert str(sharding_of((PARTIAL_BY["max"], among(PARTIAL_BY["max"], (1,))))) == "Pmax·Pmax@1"
    assert str(sharding_of(())) == "whole"


@given(st.data(), meshes)
def test_texts_and_codes_round_trip(data: st.DataObject, mesh: Mesh) -> None:
    sharding = data.draw(shardings(mesh, 3))
    assert parse_sharding(str(sharding)) == sharding
    assert hash(parse_sharding(str(sharding))) == hash(sharding)
    assert not sharding.misfit(mesh, 3)
    if not sharding.shares:
        assert sharding_of(sharding.codes) == sharding
        assert sharding.even_codes == sharding.codes


def test_parts_of_stated_shares() -> None:
    assert regions_of(parse_sharding("S0[7:3]"), (10,), Mesh((2,)))[:, 0].tolist() == [[0, 7], [7, 10]]
    assert regions_of(parse_sharding("S0[7:3]"), (5,), Mesh((2,)))[:, 0].tolist() == [[0, 3], [3, 5]]
    assert regions_of(parse_sharding("S0[3:1]@0,2"), (8,), Mesh((3,)))[:, 0].tolist() == [[0, 6], [0, 0], [6, 8]]
    both = regions_of(parse_sharding("S0[3:1]·S0[1:2]"), (24,), Mesh((2, 2)))[:, 0].tolist()
    assert both == [[0, 6], [6, 18], [18, 20], [20, 24]]


@given(st.data(), meshes, st.integers(1, 40))
def test_parts_cover_what_is_divided_once(data: st.DataObject, mesh: Mesh, extent: int) -> None:
    sharding = data.draw(shardings(mesh, 1, partial=False))
    regions = regions_of(sharding, (extent,), mesh)[:, 0]
    ends = sorted({0, *regions[regions[:, 0] < regions[:, 1]].ravel().tolist()})
    parts = {tuple(part) for part in regions.tolist() if part[0] < part[1]}
    assert ends[-1] == extent
    assert parts == set(pairwise(ends))


@given(st.data(), meshes, st.integers(1, 40))
def test_equal_shares_are_equal_parts(data: st.DataObject, mesh: Mesh, extent: int) -> None:
    plain = Sharding((Split(0),) * mesh.axes)
    stated = Sharding(tuple(Split(0, (data.draw(st.integers(1, 9)),) * size) for size in mesh.sizes))
    assert (regions_of(plain, (extent,), mesh) == regions_of(stated, (extent,), mesh)).all()


@given(st.data(), meshes, st.integers(1, 40))
def test_devices_of_a_host_hold_a_box_together(data: st.DataObject, mesh: Mesh, extent: int) -> None:
    sharding = Sharding(tuple(data.draw(st.sampled_from([Split(0), Split(0, tuple(range(1, size + 1)))]))
                              for size in mesh.sizes))  # fmt: skip
    regions = regions_of(sharding, (extent,), mesh)
    held = held_by_levels(regions[None], mesh)[0]
    for level in range(mesh.axes + 1):
        for device in range(mesh.devices):
            same = (mesh.coordinates[:, :level] == mesh.coordinates[device, :level]).all(axis=1)
            together = (regions[same, 0, 1] - regions[same, 0, 0]).sum()
            assert held[level, device, 0, 1] - held[level, device, 0, 0] == together


def test_shares_of_large_extents_do_not_overflow() -> None:
    mesh, fine = Mesh((2, 2)), parse_sharding("S0[1000000:1]·S0[1000000:1]")
    starts, stops = bounds_of(fine, (1 << 20,), mesh)
    assert (starts[0, 0], stops[-1, 0]) == (0, 1 << 20)
    assert (starts[1:] == stops[:-1]).all()
    with pytest.raises(ValueError, match="state smaller numbers"):
        bounds_of(fine, (1 << 40,), mesh)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is no entry"),
        ("S", "'S' is no entry"),
        ("S0·", "'' is no entry"),
        ("S0[]", "is no entry"),
        ("S0[7:-3]", "is no entry"),
        ("S0[7:3", "is no entry"),
        ("R[7:3]", "is no entry"),
        ("S٣", "is no entry"),
        ("S0[0:3]", "whole numbers from 1"),
        ("S0[9999999999:1]", "together at most"),
        ("S0@2,1", "in rising order"),
        ("S0@1,1", "in rising order"),
        ("S0@48", "coordinates below 48"),
        ("S2000", "a number from 0 to 1023"),
        ("Pprod", "is no entry"),
    ],
)
def test_what_is_no_sharding_is_told(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_sharding(text)


@pytest.mark.parametrize("shares", [(0.5, 1), (-1, 2), (), (True, "1")])
def test_shares_are_whole_numbers(shares: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="whole numbers from 1"):
        Sharding((Split(0, shares),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("S0", "it has 1 axes, the mesh 2×2 has 2"),
        ("S0·S2", "splits dimension 2 of 2"),
        ("S0·R@2", "names coordinate 2 of an axis of 2"),
        ("S0[7:2:1]·R", "states 3 shares for 2 parts"),
        ("S0[7:3]@1·R", "states 2 shares for 1 parts"),
        ("R·P1", "expected P"),
        ("Pmax·P", "mixes partial sums, maxima and minima"),
    ],
)
def test_what_does_not_fit_a_mesh_is_told(text: str, message: str) -> None:
    assert message in parse_sharding(text).misfit(Mesh((2, 2)), 2)


def test_empty_parts_are_told() -> None:
    mesh = Mesh((2,))
    assert "leaves nothing of 10 to a device" in parse_sharding("S0[1:19]").empty_part((10,), mesh)
    assert not parse_sharding("S0[9:1]").empty_part((10,), mesh)
    assert not parse_sharding("R@1").empty_part((10,), mesh)
