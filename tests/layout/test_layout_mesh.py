"""Meshes and layouts: parts cover a tensor exactly, outer axes cut first, sizes differ by at most one."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from girih.layout import PARTIAL, REPLICATE, Mesh, among, bounds, full_layouts, part_shape, regions_of, taking_part
from girih.layout.transfer import held_by_levels

meshes = st.sampled_from([(), (1,), (2,), (3,), (2, 2), (2, 3), (3, 2), (2, 1, 2), (2, 2, 2)]).map(Mesh)
shapes = st.lists(st.integers(1, 13), max_size=3).map(tuple)


@st.composite
def laid(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], Mesh]:
    mesh, shape = draw(meshes), draw(shapes)
    layout = tuple(draw(st.sampled_from([REPLICATE, PARTIAL, *range(len(shape))])) for _ in range(mesh.axes))
    return layout, shape, mesh


def test_coordinates_count_the_last_axis_fastest() -> None:
    assert Mesh((2, 3)).coordinates.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert Mesh(()).coordinates.shape == (1, 0)
    assert (Mesh(()).devices, Mesh(()).axes, str(Mesh(())), str(Mesh((2, 3)))) == (1, 0, "1", "2×3")


@given(laid())
def test_parts_cover_each_element_as_often_as_there_are_copies(case: tuple) -> None:
    layout, shape, mesh = case
    held = Counter(
        element
        for region in regions_of(layout, shape, mesh)
        for element in product(*(range(start, stop) for start, stop in region))
    )
    copies = prod(size for size, code in zip(mesh.sizes, layout, strict=True) if code < 0)
    assert held == dict.fromkeys(product(*map(range, shape or (1,))), copies)


@given(laid())
def test_parts_of_a_dimension_differ_by_at_most_one(case: tuple) -> None:
    layout, shape, mesh = case
    regions = regions_of(layout, shape, mesh)
    lengths = regions[..., 1] - regions[..., 0]
    for dimension in range(len(shape)):
        assert lengths[:, dimension].max() - lengths[:, dimension].min() <= 1


@given(laid(), st.integers(0, 2))
def test_inner_axes_cut_what_outer_axes_have_cut(case: tuple, depth: int) -> None:
    """What the devices of one host hold together is the host's part on the mesh of the outer axes alone."""
    layout, shape, mesh = case
    depth = min(depth, mesh.axes)
    outer = Mesh(mesh.sizes[:depth])
    expected = regions_of(layout[:depth], shape, outer)
    together = held_by_levels(regions_of(layout, shape, mesh)[None], mesh)[0, depth]
    host = np.arange(mesh.devices) // (mesh.devices // outer.devices)
    nonempty = [d for d in range(mesh.devices) if all(lo < hi for lo, hi in expected[host[d]])]
    assert (together[nonempty] == expected[host[nonempty]]).all()


@given(laid())
def test_levels_end_with_the_device_itself_and_begin_with_everything(case: tuple) -> None:
    layout, shape, mesh = case
    regions = regions_of(layout, shape, mesh)
    levels = held_by_levels(regions[None], mesh)[0]
    assert levels.shape == (mesh.axes + 1, *regions.shape)
    assert (levels[-1] == regions).all()
    assert (levels[0] == np.asarray([[0, size] for size in shape or (1,)])).all()


@given(laid())
def test_many_assignments_at_once_are_each_alone(case: tuple) -> None:
    _, shape, mesh = case
    codes = np.asarray(list(product([REPLICATE, *range(len(shape))], repeat=mesh.axes)), np.int64)
    codes = codes.reshape(codes.shape[0] if mesh.axes else 1, mesh.axes)
    starts, stops = bounds(codes, shape, mesh)
    for number, row in enumerate(codes):
        alone = regions_of(tuple(int(code) for code in row), shape, mesh)
        assert (starts[number] == alone[..., 0]).all()
        assert (stops[number] == alone[..., 1]).all()


@given(laid(), st.data())
def test_what_takes_no_part_holds_nothing(case: tuple, data: st.DataObject) -> None:
    """Also of a scalar; and those that take part hold what a mesh of them alone would."""
    layout, shape, mesh = case
    some = [data.draw(st.sets(st.integers(0, size - 1), min_size=1)) for size in mesh.sizes]
    codes = tuple(among(code, chosen) for code, chosen in zip(layout, some, strict=True))
    inside = [all(at in chosen for at, chosen in zip(row, some, strict=True)) for row in mesh.coordinates.tolist()]
    assert taking_part(np.asarray([codes], np.int64).reshape(1, mesh.axes), mesh).tolist() == [inside]
    regions = regions_of(codes, shape, mesh)
    small = regions_of(layout, shape, Mesh(tuple(len(chosen) for chosen in some)))
    assert (regions[inside] == small).all()
    assert not regions[~np.asarray(inside)].any()


def test_the_shape_of_a_scalars_part() -> None:
    regions = regions_of((among(REPLICATE, (1,)),), (), Mesh((2,)))
    assert [part_shape(region, ()) for region in regions] == [(0,), ()]
    assert part_shape(np.asarray([[0, 1]]), (1,)) == (1,)


def test_uneven_parts_by_hand() -> None:
    assert regions_of((0,), (7,), Mesh((3,)))[:, 0].tolist() == [[0, 2], [2, 4], [4, 7]]
    nested = regions_of((0, 0), (10,), Mesh((2, 2)))[:, 0].tolist()
    assert nested == [[0, 2], [2, 5], [5, 7], [7, 10]]
    assert regions_of((1, 0), (2, 4), Mesh((2, 2))).tolist()[1] == [[1, 2], [0, 2]]


@given(shapes, meshes)
def test_full_layouts_are_those_without_empty_parts(shape: tuple[int, ...], mesh: Mesh) -> None:
    def full(layout: tuple[int, ...]) -> bool:
        parts = Counter(dict.fromkeys(range(len(shape)), 1))
        for size, code in zip(mesh.sizes, layout, strict=True):
            parts[code] *= size if code >= 0 else 1
        return all(parts[d] <= shape[d] for d in range(len(shape)))

    every = product([REPLICATE, *range(len(shape))], repeat=mesh.axes)
    found = full_layouts(shape, mesh)
    assert sorted(found) == sorted(filter(full, every))
    for layout in found:
        regions = regions_of(layout, shape, mesh)
        assert (regions[..., 1] > regions[..., 0]).all()
