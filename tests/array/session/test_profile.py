"""`join_update` is planned by what its function was seen to update: fewer bytes, the same results."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import girih.array as gnp

ROWS, COLUMNS = 400, 300
VALUES = np.random.default_rng(0).normal(size=(ROWS, COLUMNS))
SMALL = (20, 10)
ALONE = ["girih.join_update"]
FIRST = ["girih.join_parts", "girih.join_reduced"]
WINDOWS = ["girih.join_parts", "girih.join_placed"]


def own_rows(place, tile):
    return (place.start, 0), 2 * tile


def own_columns(place, tile):
    return (0, place.start), tile.T


def a_corner(tile):
    """Of the whole result, of which all but a corner stays as it is."""
    made = np.zeros((ROWS, COLUMNS))
    made[SMALL[0], : SMALL[1]] = tile.sum(0)[: SMALL[1]]
    return made


def corner():
    made = np.zeros((ROWS, COLUMNS))
    made[SMALL[0], : SMALL[1]] = VALUES.sum(0)[: SMALL[1]]
    return made


def product(tile):
    return tile.T @ tile


def evaluated(cluster, made, expected):
    """The operators of its plan and the bytes that it moves, which are those that were planned; its value is right."""
    plan = gnp.explain(made)
    before = received(cluster)
    made.persist()
    moved = received(cluster) - before
    assert moved == plan.bytes
    np.testing.assert_allclose(made.compute(), expected, atol=1e-9)
    return [node.operator for node in plan.plan.graph.nodes], moved


def received(cluster):
    return sum(item.bytes_received for item in cluster.run.statistics())


@pytest.mark.parametrize("search", ["exact", "spartan"])
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_a_small_part_of_the_result(workers, search):
    with gnp.cluster(workers=workers, backend="threads", timeout=60.0, search=search) as cluster:
        x = gnp.array(VALUES).persist()
        found = [
            evaluated(cluster, gnp.join_update(a_corner, x, axis=0, shape=(ROWS, COLUMNS)), corner()) for _ in range(3)
        ]
    assert [operators for operators, _ in found] == [FIRST, WINDOWS, WINDOWS]
    whole, second, third = (moved for _, moved in found)
    assert whole >= (workers - 1) * VALUES.nbytes
    assert second == third < whole / 100
    assert cluster.planned == 2


@pytest.mark.parametrize(("function", "expected"), [(own_rows, 2 * VALUES), (own_columns, VALUES.T)])
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_tiles_that_update_their_own_part(workers, function, expected):
    """The parts lie where they are made; a row more or less, where they cannot be cut equally, moves."""
    with gnp.cluster(workers=workers, backend="threads", timeout=60.0) as cluster:
        x = gnp.array(VALUES).persist()
        first, second, third = (
            evaluated(cluster, gnp.join_update(function, x, axis=0, shape=expected.shape, location=True), expected)
            for _ in range(3)
        )
    assert first[0] == FIRST
    assert first[1] >= (workers - 1) * VALUES.nbytes
    assert second == third
    assert "aten.view" in second[0]
    assert second[1] <= (0 if ROWS % workers == 0 else 4 * workers * ROWS * 8)


def test_whole_results_move_as_before():
    with gnp.cluster(workers=2, backend="threads", timeout=60.0) as cluster:
        x = gnp.array(VALUES).persist()
        shape = (COLUMNS, COLUMNS)
        found = [
            evaluated(cluster, gnp.join_update(product, x, axis=0, shape=shape), VALUES.T @ VALUES) for _ in range(2)
        ]
        assert [operators for operators, _ in found] == [FIRST, ALONE]
        assert found[0][1] == found[1][1]
        told = gnp.explain(gnp.join_update(product, x, axis=0, shape=shape) + 1).observed
        assert "product was seen to update 720.00 KB of 720.00 KB for each of 2 tiles" in told[0]
        assert "the whole result is what may move" in told[0]


def at_row(place, tile, row):
    return (int(row[0]), 0), tile.max(0)[None]


def test_windows_may_be_anywhere():
    with gnp.cluster(workers=4, backend="threads", timeout=60.0) as cluster:
        x = gnp.array(VALUES).persist()
        for number, row in enumerate([5, 5, 50, ROWS - 1, 0]):
            made = gnp.join_update(
                at_row, x, gnp.array(np.array([float(row)])), axis=(0, -1), shape=(ROWS, COLUMNS),
                location=True, accumulate="max",
            )  # fmt: skip
            expected = np.full((ROWS, COLUMNS), -np.inf)
            expected[row] = VALUES.max(0)
            operators, _ = evaluated(cluster, made, expected)
            assert operators == (WINDOWS if number else FIRST)
        assert cluster.planned == 2


def growing(tile, count):
    return (0, 0), tile[:1].repeat(int(count[0]), 0)


@pytest.mark.parametrize("saved", [False, True])
def test_updates_that_do_not_fit_are_made_again(saved, tmp_path):
    """Right from the first value that is seen on, with nothing left behind; what always grows is left as it stands."""
    place = tmp_path if saved else None
    with gnp.cluster(workers=4, backend="threads", timeout=60.0, checkpoint=place) as cluster:
        x = gnp.array(VALUES).persist()
        firsts = VALUES[:: ROWS // 4].sum(0)
        evaluations = []
        for count in (2, 2, 1, 3, 4, 4, 6, 9, 2):
            before = cluster.evaluations
            made = gnp.join_update(growing, x, gnp.array(np.array([float(count)])), axis=(0, -1), shape=(ROWS, COLUMNS))
            expected = np.zeros((ROWS, COLUMNS))
            expected[:count] = firsts
            np.testing.assert_allclose(made.compute(), expected)
            evaluations.append(cluster.evaluations - before)
            operators = [node.operator for node in gnp.explain(made).plan.graph.nodes]
            del made
            gc.collect()
        assert evaluations == [1, 1, 1, 2, 2, 1, 2, 1, 1]
        assert operators == ALONE
        float(x.sum())
        assert [sum(own.values()) for own in cluster.run.tiles()] == [VALUES.nbytes // 4 + 8] * 4  # x, and its sum


def test_what_is_known_is_of_a_function_and_shapes():
    with gnp.cluster(workers=2, backend="threads", timeout=60.0) as cluster:
        x, shape = gnp.array(VALUES).persist(), (ROWS, COLUMNS)
        gnp.join_update(own_rows, x, axis=0, shape=shape, location=True).persist()
        again = gnp.join_update(own_rows, x * 1, axis=0, shape=shape, location=True)
        text = " ".join(str(gnp.explain(again)).split())  # long lines are wrapped
        assert "own_rows was seen to update 480.00 KB of 960.00 KB for each of 2 tiles" in text
        assert gnp.explain(again).bytes == 0
        for other in (
            gnp.join_update(own_rows, x[:300], axis=0, shape=(300, COLUMNS), location=True),
            gnp.join_update(own_rows, x, axis=0, shape=shape, location=True, accumulate="max"),
            gnp.join_update(lambda place, tile: own_rows(place, tile), x, axis=0, shape=shape, location=True),
        ):
            assert gnp.explain(other).observed == ()
            assert gnp.explain(other).bytes > 0
        assert cluster.evaluations == 1


def test_in_processes():
    with gnp.cluster(workers=2, backend="processes", timeout=60.0, copies="10 MB") as cluster:
        x = gnp.array(VALUES).persist()
        made = [
            evaluated(cluster, gnp.join_update(a_corner, x, axis=0, shape=(ROWS, COLUMNS)), corner()) for _ in range(2)
        ]
    assert [operators for operators, _ in made] == [FIRST, WINDOWS]


REDUCERS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def test_any_windows_and_reducers(cluster):
    """What each row updates depends on its numbers alone: it may be nothing, and may lie across workers' parts."""

    @settings(max_examples=12, deadline=None, derandomize=True, database=None)
    @given(st.integers(16, 40), st.sampled_from(sorted(REDUCERS)), st.sampled_from(["float64", "int64"]), st.data())
    def check(rows, reducer, kind, more):
        height, width = more.draw(st.integers(1, 4)), more.draw(st.integers(1, 6))
        places = np.array(more.draw(st.lists(st.integers(-30, 60 - height), min_size=rows, max_size=rows)))
        values = np.random.default_rng(rows).integers(1, 5, size=(rows, width)).astype(kind)
        identity = {"sum": 0, "prod": 1}.get(reducer)
        if identity is None:
            limits = np.finfo(kind) if kind == "float64" else np.iinfo(kind)
            low, high = (-np.inf, np.inf) if kind == "float64" else (limits.min, limits.max)
            identity = low if reducer == "max" else high

        def update(tile, places):
            made = np.full((60, 12), identity, kind)
            for row, place in zip(tile, places, strict=True):
                if place >= 0:
                    REDUCERS[reducer](
                        made[place : place + height, :width], row, out=made[place : place + height, :width]
                    )
            return made

        x, y = gnp.array(values), gnp.array(places)
        for _ in range(3):
            made = gnp.join_update(update, x, y, axis=0, shape=(60, 12), accumulate=reducer, dtype=kind)
            np.testing.assert_array_equal(made.compute(), update(values, places))

    check()
