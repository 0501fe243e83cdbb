"""Measured costs in one SQLite file: operators by device, library version and shape, and machines' profiles.

A measurement belongs to a `Setting` and a call: another version of PyTorch, another number of threads, or another
number of processes that compute at the same time is another row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from girih.cost.calls import Call
from girih.cost.work import Work
from girih.machine.units import MachineError

VERSION = 1

_TABLES = """
CREATE TABLE operators (
    device TEXT, library TEXT, threads INTEGER, together INTEGER, call TEXT,
    operator TEXT, kind TEXT, operations REAL, bytes REAL,
    seconds REAL, spread REAL, repeats INTEGER, measured TEXT,
    PRIMARY KEY (device, library, threads, together, call)
) WITHOUT ROWID;
CREATE TABLE profiles (
    machine TEXT, backend TEXT, device TEXT, library TEXT, threads INTEGER, together INTEGER, profile TEXT,
    measured TEXT, PRIMARY KEY (machine, backend, device, library, threads)
) WITHOUT ROWID;
"""
_SETTING = "device = ? AND library = ? AND threads = ? AND together = ?"


@dataclass(frozen=True)
class Setting:
    """Where and how something was measured.

    device: the processor or card. library: its version. threads: of each process.
    together: how many processes did the same at the same time on the same host.
    """

    device: str
    library: str
    threads: int
    together: int


@dataclass(frozen=True)
class Measurement:
    """seconds: the median. spread: interquartile range / median. when: ISO 8601, UTC."""

    seconds: float
    spread: float
    repeats: int
    when: str


class Store:
    """An open file of costs. Several processes may read it; writing takes turns.

    Raises, in every method:
        MachineError: the file is no store of costs, or of another version.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with self._errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=30.0)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0 and not self._connection.execute("SELECT name FROM sqlite_master").fetchone():
            with self._connection:
                self._connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
        elif version != VERSION:
            raise MachineError(
                f"{self.path} is no store of costs of version {VERSION} (it says {version}): delete it, or give "
                "another path; costs can be measured again"
            )

    def put(self, setting: Setting, rows: Iterable[tuple[Call, Measurement]]) -> None:
        """Keep measurements; those of equal calls in the same setting are replaced."""
        values = [
            (*astuple(setting), call.key, call.operator, call.work.kind, call.work.operations, call.work.bytes,
             *astuple(measured))
            for call, measured in rows
        ]  # fmt: skip
        with self._errors(), self._connection:
            self._connection.executemany(f"INSERT OR REPLACE INTO operators VALUES ({','.join('?' * 13)})", values)

    def get(self, setting: Setting, call: Call) -> Measurement | None:
        return self.measured(setting, (call,)).get(call.key)

    def measured(self, setting: Setting, calls: Iterable[Call]) -> dict[str, Measurement]:
        """What is known of these calls, by key."""
        wanted = {call.key for call in calls}
        return {key: measurement for key, measurement in self.every(setting).items() if key in wanted}

    def every(self, setting: Setting) -> dict[str, Measurement]:
        """All that was measured in a setting, by the calls' keys."""
        query = f"SELECT call, seconds, spread, repeats, measured FROM operators WHERE {_SETTING}"
        with self._errors():
            rows = self._connection.execute(query, astuple(setting))
            return {key: self._measurement(rest) for key, *rest in rows}

    def samples(self, setting: Setting) -> list[tuple[Work, float]]:
        """(work, seconds) of everything measured in a setting: what a roofline is fitted to."""
        query = f"SELECT kind, operator, operations, bytes, seconds FROM operators WHERE {_SETTING} ORDER BY call"
        with self._errors():
            rows = self._connection.execute(query, astuple(setting))
            return [(Work(*row[:2], *self._numbers(row[2:4])), self._numbers(row[4:])[0]) for row in rows]

    def _measurement(self, row: Sequence[Any]) -> Measurement:
        seconds, spread, repeats = self._numbers(row[:3])
        return Measurement(seconds, spread, repeats, str(row[3]))

    def _numbers(self, row: Sequence[Any]) -> Sequence[Any]:
        """SQLite keeps what it is given, also a text in a column of numbers."""
        if not all(type(item) in (int, float) and 0 <= item < float("inf") for item in row):
            raise MachineError(f"{self.path} holds {list(row)!r:.100} where numbers were measured: delete it")
        return row

    def count(self, setting: Setting | None = None) -> int:
        """Measurements in a setting, or in all."""
        with self._errors():
            if setting is None:
                rows = self._connection.execute("SELECT count(*) FROM operators")
            else:
                rows = self._connection.execute(f"SELECT count(*) FROM operators WHERE {_SETTING}", astuple(setting))
            return int(rows.fetchone()[0])

    def put_profile(self, machine: str, backend: str, setting: Setting, profile: str, when: str) -> None:
        """Keep a profile's text; see `girih.cost.profile`."""
        values = (machine, backend, *astuple(setting), profile, when)
        with self._errors(), self._connection:
            self._connection.execute(f"INSERT OR REPLACE INTO profiles VALUES ({','.join('?' * 8)})", values)

    def profile_texts(self, where: Mapping[str, str | int]) -> list[str]:
        """The texts of the profiles with these column values, the newest first."""
        condition = " AND ".join(f"{column} = ?" for column in where) or "1"
        query = f"SELECT profile FROM profiles WHERE {condition} ORDER BY measured DESC"
        with self._errors():
            return [text for (text,) in self._connection.execute(query, tuple(where.values()))]

    def forget(self, machine: str | None = None) -> int:
        """Remove the profiles of a machine, or of all, and what was measured in their settings; how many profiles."""
        condition, values = ("1", ()) if machine is None else ("machine = ?", (machine,))
        with self._errors(), self._connection:
            columns = "device, library, threads, together"
            if machine is None:
                self._connection.execute("DELETE FROM operators")
            else:
                self._connection.execute(
                    f"DELETE FROM operators WHERE ({columns}) IN (SELECT {columns} FROM profiles WHERE {condition})",
                    values,
                )
            return int(self._connection.execute(f"DELETE FROM profiles WHERE {condition}", values).rowcount)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError) as error:
            reason = " ".join(str(error).split())
            raise MachineError(f"{self.path} cannot be used as a store of costs: {reason}") from error
