"""Stores of costs that are damaged, or written by others: one line of a MachineError, whatever is in them."""

from __future__ import annotations

import copy
import json
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from girih.cost.calls import Call
from girih.cost.profile import Profile, parse_profile
from girih.cost.roofline import Rates, Roofline
from girih.cost.store import Measurement, Setting, Store
from girih.cost.work import Work
from girih.machine import MachineError
from girih.machine.machine import Device
from girih.machine.sizes import SizeTable

HERE = Setting("some processor", "torch", 2, 4)
TABLE = SizeTable((1, 1000), (1e-6, 2e-6), (0.1, 0.1))
DEVICE = Device("some processor", 1e9, 10**9, 1e9, 1e-6)
RATES = Rates(1e-6, ((1e4, 0.5),), ((4096.0, 0.5),), 7)
PROFILE = Profile(
    "local:2", "processes", HERE, Roofline(DEVICE, (("aten.mm", RATES),), (("aten.mm", 1.5),), None),
    (("ring", TABLE),), TABLE, TABLE, "2026-11-21", False, TABLE,
)  # fmt: skip
NASTY: tuple[Any, ...] = (
    None, True, "x", -1, 0, 1e999, float("nan"), 10**400, [], {}, [None], [[1]], "9" * 300, {"a": 1}, "x\ny", -0.5,
)  # fmt: skip


def places(item: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place:
        yield place
    pairs = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    for key, part in pairs:
        yield from places(part, (*place, key))


def test_broken_profiles_are_one_line() -> None:
    text = json.dumps(asdict(PROFILE))
    assert parse_profile(text) == PROFILE
    whole = json.loads(text)
    chance, refused = random.Random(0), []
    for _ in range(1000):
        data = copy.deepcopy(whole)
        *way, last = chance.choice(list(places(data)))
        parent = data
        for key in way:
            parent = parent[key]
        if chance.random() < 0.2:
            del parent[last]
        else:
            parent[last] = chance.choice(NASTY)
        broken = json.dumps(data)
        if chance.random() < 0.1:
            broken = broken[: chance.randrange(len(broken))]
        try:
            found = parse_profile(broken)
        except MachineError as error:
            refused.append(str(error))
        else:
            assert all(table.seconds(100.0) >= 0 for _, table in found.links)
            assert found.copy.line()[1] > 0
    assert len(refused) > 300
    assert not [text for text in refused if len(text.splitlines()) != 1 or len(text) > 500]
    for deep in ("[" * 100_000, '{"machine": ' * 100_000):
        with pytest.raises(MachineError, match="no profile of a machine"):
            parse_profile(deep)


@pytest.mark.parametrize("value", ["text", None, -1.0, 1e999, b"\x80\x02"])
def test_a_time_that_is_none_is_refused(tmp_path: Path, value: object) -> None:
    path = tmp_path / "costs.sqlite"
    call = Call("aten.mm", (), (), (), Work("matmul", "aten.mm", 1.0, 1.0))
    with Store(path) as store:
        store.put(HERE, [(call, Measurement(1e-3, 0.1, 3, "2026"))])
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE operators SET seconds = ?", (value,))
    connection.close()
    with Store(path) as store:
        for read in (store.every, store.samples):
            with pytest.raises(MachineError, match="where numbers were measured: delete it") as caught:
                read(HERE)
            assert len(str(caught.value).splitlines()) == 1


def test_files_that_are_cut_or_flipped(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    with Store(path) as store:
        store.put_profile("local:2", "processes", HERE, json.dumps(asdict(PROFILE)), "2026")
    whole = path.read_bytes()
    chance, refused = random.Random(0), []
    for number in range(100):
        raw = bytearray(whole)
        for _ in range(chance.choice((1, 20))):
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        broken = tmp_path / f"{number}.sqlite"
        broken.write_bytes(bytes(raw[: chance.randrange(len(raw))] if chance.random() < 0.3 else raw))
        try:
            with Store(broken) as store:
                for text in store.profile_texts({"machine": "local:2"}):
                    parse_profile(text)
                store.every(HERE)
                store.samples(HERE)
        except MachineError as error:
            refused.append(str(error))
    assert refused
    assert not [text for text in refused if len(text.splitlines()) != 1]
