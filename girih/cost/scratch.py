"""Measured scratch memory of libraries' kernels: a store in one SQLite file, and the record that a plan carries of it.

A measurement belongs to a `ScratchSetting` (processor, libraries) and to a call, whose key names its number of threads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from girih.machine.units import counted
from girih.ops.scratch import ScratchCall

MEASURED, ESTIMATE, BOUND = "measured", "estimate", "bound"
"""How bytes were told: of this very call; of one with fewer images, in proportion; from shapes alone."""
HOW = (MEASURED, ESTIMATE, BOUND)
NAMES = {MEASURED: "measuring", ESTIMATE: "fewer images", BOUND: "shapes alone"}
VERSION = 1
_TABLE = """
CREATE TABLE IF NOT EXISTS scratch (
    device TEXT, library TEXT, call TEXT, bytes INTEGER, how TEXT, PRIMARY KEY (device, library, call)
) WITHOUT ROWID
"""


class Told(NamedTuple):
    """Bytes of a call's scratch, and how they were told."""

    bytes: int
    how: str


@dataclass(frozen=True)
class ScratchSetting:
    """Where scratch was measured.

    device: the processor, the instruction sets that libraries may use of it, and its caches, by which they choose their
    kernels. library: versions of PyTorch and of oneDNN, and what the environment tells them.
    """

    device: str
    library: str

    @property
    def on_card(self) -> bool:
        """Was it measured on a GPU?"""
        return "CUDA" in self.library

    @property
    def processor(self) -> str:
        """Without instruction sets and caches."""
        return self.device.partition("; ")[0]


@dataclass(frozen=True)
class Scratch:
    """By what a plan's scratch memory was told, as the plan file keeps it. It is a `ScratchSource`.

    setting: where it was measured, None where nothing was. threads: of each worker. calls: by key.
    """

    setting: ScratchSetting | None
    threads: int
    calls: Mapping[str, Told] = field(default_factory=dict)

    def __call__(self, call: ScratchCall) -> int:
        """What was told; of a call that is not known the bound."""
        return self.calls[call.key].bytes if call.key in self.calls else call.bound

    @property
    def exact(self) -> bool:
        return all(told.how == MEASURED for told in self.calls.values())

    @property
    def words(self) -> str:
        """In one short phrase, what peaks are."""
        if not self.calls:
            return "exact"
        where = "" if self.setting is None else f" on {self.setting.processor}"
        if self.setting is not None and not self.setting.on_card:
            where += f", {counted(self.threads, 'thread')}"
        if self.exact:
            return f"exact: scratch of kernels measured{where}"
        counts = {how: sum(told.how == how for told in self.calls.values()) for how in HOW}
        if counts[BOUND] == len(self.calls):
            return "a bound: scratch of kernels was not measured, and is told by shapes"
        parts = ", ".join(f"for {count} calls by {NAMES[how]}" for how, count in counts.items() if count)
        kind = "an estimate" if counts[ESTIMATE] else "a bound"
        return f"{kind}: scratch of kernels told {parts}{where}"

    def to_json(self) -> dict[str, Any]:
        setting = None if self.setting is None else vars(self.setting)
        calls = {key: list(told) for key, told in sorted(self.calls.items())}
        return {"setting": setting, "threads": self.threads, "calls": calls}

    @staticmethod
    def from_json(data: Any) -> Scratch:
        """The inverse of `to_json`.

        Raises:
            ValueError: it is no such record.
        """
        if data is None:  # of a plan from before there was any
            return Scratch(None, 2)
        try:
            setting, threads, calls = data["setting"], data["threads"], data["calls"].items()
            by_key = {str(key): Told(amount, how) for key, (amount, how) in calls}
            where = None if setting is None else ScratchSetting(str(setting["device"]), str(setting["library"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is no record of scratch memory: {error!r}") from error
        good = all(type(told.bytes) is int and told.bytes >= 0 and told.how in HOW for told in by_key.values())
        if type(threads) is not int or threads < 1 or not good:
            raise ValueError(
                "a record of scratch memory has 1 or more threads, and of each call bytes and how it was told"
            )
        return Scratch(where, threads, by_key)


class ScratchStore:
    """A file of measurements, which several processes read and write at once. path: None: there is none, and nothing is
    kept.

    Measuring again costs little, so nothing that is wrong with the file stops anybody: what cannot be read was not
    measured, what cannot be written is kept by the caller. `trouble` then says why, else it is "".
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path = None if path is None else Path(path)
        self.trouble = ""

    def every(self, setting: ScratchSetting) -> dict[str, Told]:
        """What is known in a setting, by the calls' keys."""
        query = "SELECT call, bytes, how FROM scratch WHERE device = ? AND library = ?"
        rows = self._do(query, (setting.device, setting.library))
        return {key: Told(size, how) for key, size, how in rows if type(size) is int and size >= 0 and how in HOW}

    def put(self, setting: ScratchSetting, key: str, told: Told) -> None:
        self._do("INSERT OR REPLACE INTO scratch VALUES (?, ?, ?, ?, ?)", (setting.device, setting.library, key, *told))

    def _do(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        """A connection for each query: a process that is forked must not have its parent's."""
        if self.trouble or self.path is None:
            return []
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=5.0)) as connection, connection:
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                if version not in (0, VERSION):
                    raise sqlite3.DatabaseError(f"it is of version {version}, not {VERSION}")
                connection.execute("PRAGMA synchronous = OFF")  # what is lost is measured again
                connection.execute(_TABLE)
                if version == 0:
                    connection.execute(f"PRAGMA user_version = {VERSION}")
                return connection.execute(query, values).fetchall()
        except (sqlite3.Error, OSError) as error:
            self.trouble = (
                f"{self.path} cannot be used as a store of scratch measurements ({error}): what is measured is kept in "
                "memory. Delete the file, or make its folder writable"
            )
            return []
