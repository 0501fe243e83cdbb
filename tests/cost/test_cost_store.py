"""The store of costs: what is put comes back, under its own key only."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from girih.cost.calls import Call, Operand
from girih.cost.store import Measurement, Setting, Store
from girih.cost.work import Work
from girih.graph import Ref
from girih.machine import MachineError

HERE = Setting("some processor, 8 cores", "torch 2.13.0", 2, 4)
TOOK = Measurement(1.25e-3, 0.05, 120, "2026-11-21T12:00:00+00:00")


def product(rows: int = 8, **changes: object) -> Call:
    operands = (Operand((rows, 16), "float32"), Operand((16, 4), "float32"))
    work = Work("matmul", "aten.mm", rows * 128.0, rows * 80.0 + 256.0)
    arguments = (("self", Ref("0")), ("mat2", Ref("1")))
    return replace(Call("aten.mm", arguments, operands, ((rows, 4),), work), **changes)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path):
    with Store(tmp_path / "deep" / "costs.sqlite") as opened:
        yield opened


def test_what_is_put_comes_back(store: Store) -> None:
    assert store.get(HERE, product()) is None
    store.put(HERE, [(product(), TOOK), (product(9), replace(TOOK, seconds=2e-3))])
    assert store.get(HERE, product()) == TOOK
    assert store.measured(HERE, [product(), product(9), product(10)]).keys() == {product().key, product(9).key}
    assert store.samples(HERE) == [(product().work, 1.25e-3), (product(9).work, 2e-3)]
    assert store.count() == store.count(HERE) == 2


def test_measuring_again_replaces(store: Store) -> None:
    store.put(HERE, [(product(), TOOK)])
    again = replace(TOOK, seconds=1e-3, repeats=3)
    store.put(HERE, [(product(), again)])
    assert store.get(HERE, product()) == again
    assert store.count() == 1


@pytest.mark.parametrize(
    "change",
    [{"device": "another"}, {"library": "torch 2.14.0"}, {"threads": 1}, {"together": 1}],
)
def test_another_setting_is_another_key(store: Store, change: dict[str, object]) -> None:
    store.put(HERE, [(product(), TOOK)])
    other = replace(HERE, **change)  # type: ignore[arg-type]
    assert store.get(other, product()) is None
    assert store.count(other) == 0
    assert store.samples(other) == []
    store.put(other, [(product(), replace(TOOK, seconds=9.0))])
    assert store.get(HERE, product()) == TOOK


def changed(**changes: object) -> Call:
    first, second = product().operands
    return product(operands=(replace(first, **changes), second))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "other",
    [
        product(9),
        product(operator="aten.matmul"),
        product(arguments=(("self", Ref("1")), ("mat2", Ref("0")))),
        product(arguments=(("self", Ref("0")), ("mat2", Ref("1")), ("alpha", 2))),
        changed(dtype="float64"),
        changed(strides=(1, 8)),
        changed(held=(8, 32)),
        changed(pads=((1, 0), (0, 0))),
    ],
)
def test_everything_that_time_depends_on_is_in_the_key(store: Store, other: Call) -> None:
    store.put(HERE, [(product(), TOOK)])
    assert store.get(HERE, other) is None


def test_keys_are_readable() -> None:
    assert product().key == "aten.mm(self=%0, mat2=%1) %0: float32[8, 16]; %1: float32[16, 4]"
    assert changed(held=(8, 32), strides=(1, 8), pads=((1, 0), (0, 2))).key == (
        "aten.mm(self=%0, mat2=%1) %0: float32[8, 16] of [8, 32] strides [1, 8] pads [[1, 0], [0, 2]]; "
        "%1: float32[16, 4]"
    )


def test_it_is_a_file_that_stays(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    with Store(path) as store:
        store.put(HERE, [(product(), TOOK)])
    with Store(path) as first, Store(path) as second:
        second.put(HERE, [(product(9), TOOK)])
        assert first.count() == 2


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be taken for one" * 40)
    with pytest.raises(MachineError, match=r"notes\.txt cannot be used as a store of costs"):
        Store(path)
    with pytest.raises(MachineError, match="cannot be used as a store of costs"):
        Store(tmp_path / "notes.txt" / "costs.sqlite")


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    with Store(path):
        pass
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(MachineError, match=r"of version 1 \(it says 99\): delete it"):
        Store(path)
