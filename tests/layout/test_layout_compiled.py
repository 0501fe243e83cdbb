"""Functions that are compiled once there is enough work: both ways compute the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from girih.layout import Mesh, Placements, kernels
from girih.layout.compiled import Compiled, _Budget, compiled, inside
from girih.layout.jit import numba
from girih.layout.transfer import full_layouts, held_by_levels


def regions(shape: tuple[int, ...], mesh: Mesh) -> Placements:
    return Placements.of(full_layouts(shape, mesh), shape, mesh)


@pytest.mark.parametrize("sizes", [(2,), (2, 3)], ids=str)
@pytest.mark.parametrize("shape", [(8,), (7, 6), (4, 5, 6)], ids=str)
def test_loops_of_transfers_are_the_same_in_plain_python(sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    mesh = Mesh(sizes)
    some, extents = regions(shape, mesh), np.asarray(sizes, np.int64)
    held = held_by_levels(some.regions, mesh)
    rate, start = np.linspace(1e-9, 2e-9, len(sizes)), np.linspace(1e-6, 2e-6, len(sizes))
    calls = (
        (kernels.hulls, (np.ascontiguousarray(some.regions), extents)),
        (kernels.volumes, (some.regions, some.partial, some.regions, some.partial, extents)),
        (kernels.becoming, (some.regions, some.partial, some.regions, some.partial + extents, extents)),
        (kernels.costs, (held, some.partial, some.regions, some.partial, extents, rate, start)),
    )
    for function, arguments in calls:
        assert isinstance(function, Compiled)
        np.testing.assert_array_equal(function.plain(*arguments), function.machine(*arguments))
    table = kernels.volumes.machine(*calls[1][1])
    one, two = table.copy(), table.copy()
    kernels.min_plus.plain(table, table, one)
    kernels.min_plus.machine(table, table, two)
    np.testing.assert_array_equal(one, two)


def test_rows_are_numbered_alike_by_both_ways() -> None:
    rows = np.random.default_rng(0).integers(0, 3, (400, 3))
    for one, two in zip(kernels.distinct_rows(rows), kernels._distinct_rows(rows), strict=True):
        np.testing.assert_array_equal(one, two)


@inside()
def _twice(x: float) -> float:
    return 2 * x


@compiled(lambda values: values.size)
def _doubled(values: np.ndarray) -> float:
    total = 0.0
    for place in range(values.size):
        total += _twice(values[place])
    return total


def test_a_function_is_compiled_when_the_work_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Budget, "left", 10.0)
    monkeypatch.setattr(_doubled, "own", 13.0)  # two calls, which no other function's work takes away
    for left in (7.0, 1.0):
        assert _doubled(np.arange(6.0)) == 30.0
        assert (_doubled.own, _doubled._machine) == (left, None)
    values = np.arange(6.0)
    assert _doubled(values) == 30.0
    assert _doubled._machine is None
    assert _Budget.left == 4.0
    assert _doubled(values) == 30.0
    assert _doubled._machine is not None
    assert _Budget.left == 4.0


@inside()
def _places(values: np.ndarray, step: int) -> int:
    return len(values) // step


@compiled()
def _all_places(values: np.ndarray, step: int) -> int:
    return _places(values, step) + _places(values, values[0]) + _places(values, 2) + _places(values, True)


def test_an_inner_function_is_compiled_once_for_all_integers() -> None:
    values, types = numba.typeof(np.arange(3)), numba.types
    for kind in (types.int8, types.int32, types.int64, types.literal(2), types.literal(-1)):
        _places.machine.get_call_template((values, kind), {})
    assert [kinds for kinds in _places.machine.signatures if kinds[0] == values] == [(values, types.int64)]
    for kind in (types.uint64, types.boolean, types.literal(True)):
        _places.machine.get_call_template((values, kind), {})
    kept = {(values, kind) for kind in (types.int64, types.uint64, types.boolean)}
    assert {kinds for kinds in _places.machine.signatures if kinds[0] == values} == kept


def test_an_inner_function_stays_plain_python_when_python_calls_it() -> None:
    assert _all_places(np.arange(2, 8, dtype=np.int32), 3) == 14
    assert _places._machine is not None
    assert _places(np.arange(4), 2) == 2
    assert _all_places.plain(np.arange(2, 8, dtype=np.int32), 3) == 14
