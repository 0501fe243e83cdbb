"""Kills, stops, full disks and damaged snapshots."""

from __future__ import annotations

import errno
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import forked_programs
import msgspec
import numpy as np
import pytest

import girih.loop as gl
from girih.loop.shared_tables import snapshots
from girih.loop.shared_tables.options import TableOptions, TableSpec
from girih.loop.shared_tables.server import Server
from girih.loop.shared_tables.session import Event, Restarted, TablesError, WorkersLate
from girih.loop.shared_tables.snapshots import SnapshotError, clocks_of
from girih.run.engines.folders import new_folder
from girih.store import durable, stored

TICKS = 10


def work(t: Any, rank: int, gate: str = "") -> tuple[int, float]:
    """Adds what depends on what it reads. gate: at clock 5 worker 1 waits for this file, and is there."""
    begun, own = t.ticks, 0.0 if t.state is None else float(t.state["own"])
    for tick in range(t.ticks, TICKS):
        if gate and tick == 5 and rank == 1 and not Path(gate).exists():
            Path(gate + ".there").touch()
            while not Path(gate).exists():
                time.sleep(0.005)
        rows = np.unique(np.random.default_rng((rank, tick)).integers(0, 40, 15))
        x = t["x"].get_rows(rows)
        own += float(x.sum())
        t["x"].inc_rows(rows, 1.0 - 0.1 * x)
        t["n"].inc_entries(rows, rows, np.ones(len(rows)))
        t.clock(state=lambda kept=own: {"own": kept})
    return begun, own


def tables(t: Any) -> tuple[Any, Any]:
    return t.dense("x", 40, 3, "float64", initial=np.ones((40, 3))), t.sparse("n", 40, 40, "int32")


def undisturbed() -> tuple[list[float], np.ndarray, np.ndarray]:
    with gl.tables(2, 0, servers=2, backend="threads") as t:
        x, n = tables(t)
        results = t.run(work)
        return [own for _, own in results], x.read(), n.read().toarray()


def wait_until(true: Any) -> None:
    deadline = time.monotonic() + 30
    while not true() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert true()


@pytest.mark.parametrize("who", ["worker", "server"])
def test_a_kill_ends_in_the_same_bits(who: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with gl.tables(2, 0, servers=2, snapshots=tmp_path / "kept", every=2, restarts=1, timeout=60) as t:
        x, n = tables(t)
        x.read([0])

        def strike() -> None:
            wait_until(Path(f"{gate}.there").exists)
            wait_until((tmp_path / "kept" / "clock-000004" / "server-1").exists)
            pids = t.pids if who == "worker" else t.server_pids
            os.kill(pids[1], signal.SIGKILL)
            gate.touch()

        thread = threading.Thread(target=strike)
        thread.start()
        results = t.run(work, str(gate))
        thread.join()
        back = [event for event in t.events if isinstance(event, Restarted)]
        assert [event.clock for event in back] == [4]
        assert back[0].why == f"{who} 1 was killed by SIGKILL"
        assert [begun for begun, _ in results] == [4, 4]
        own, dense, sparse = undisturbed()
        assert [value for _, value in results] == own
        assert np.array_equal(x.read(), dense)
        assert np.array_equal(n.read().toarray(), sparse)
        assert len(clocks_of(str(tmp_path / "kept"))) == 2


def test_without_snapshots_a_kill_is_an_error(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with gl.tables(2, 0, timeout=60) as t:
        tables(t)

        def strike() -> None:
            wait_until(Path(f"{gate}.there").exists)
            os.kill(t.pids[0], signal.SIGKILL)

        thread = threading.Thread(target=strike)
        thread.start()
        with pytest.raises(TablesError, match=r"worker 0 was killed by SIGKILL; with snapshots=FOLDER"):
            t.run(work, str(gate))
        thread.join()


def test_a_stopped_worker_is_named_and_holds_the_others_for_the_staleness(tmp_path: Path) -> None:
    events: list[Event] = []
    gate = tmp_path / "gate"

    def named() -> bool:
        return any(isinstance(event, WorkersLate) and event.clock == 5 for event in events)

    with gl.tables(2, 2, patience=0.4, timeout=60, observer=events.append) as t:
        tables(t)

        def strike() -> None:
            wait_until(Path(f"{gate}.there").exists)
            os.kill(t.pids[1], signal.SIGSTOP)
            gate.touch()
            wait_until(named)
            os.kill(t.pids[1], signal.SIGCONT)

        thread = threading.Thread(target=strike)
        thread.start()
        t.run(work, str(gate))
        thread.join()
    (held,) = (event for event in events if isinstance(event, WorkersLate) and event.clock == 5)
    assert (held.workers, held.waiting) == ((1,), (0,))
    assert str(held) == "worker 1 is at clock 5 and holds worker 0"


@pytest.mark.parametrize("who", ["worker", "server"])
def test_a_stop_takes_no_longer_than_the_timeout(who: str, tmp_path: Path) -> None:
    """Not the half minute in which ZeroMQ would wait for who was stopped to take its messages."""
    gate = tmp_path / "gate"
    struck = [0.0]
    with gl.tables(2, 0, servers=2, patience=0.2, timeout=3) as t:
        tables(t)

        def strike() -> None:
            wait_until(Path(f"{gate}.there").exists)
            struck[0] = time.monotonic()
            os.kill((t.pids if who == "worker" else t.server_pids)[1], signal.SIGSTOP)
            gate.touch()

        thread = threading.Thread(target=strike)
        thread.start()
        with pytest.raises(TablesError, match=r"waited \d s at clock \d"):
            t.run(work, str(gate))
        thread.join()
    assert time.monotonic() - struck[0] < 20  # on a machine with nothing else to do, under 5


KILLED = """
import os, signal, sys
import numpy as np
import girih.loop as gl

def work(t, rank, driver):
    for _ in range(100):
        t["x"].get_row(0)
        t.clock()
        if t.ticks == 5 and rank == 0:
            os.kill(driver, signal.SIGKILL)

with gl.tables(2, 0) as t:
    t.dense("x", 2, 2)
    print(t._host.folder, flush=True)
    {ending}
    t.run(work, os.getpid())
"""


def test_a_killed_driver_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that outlive it remove it; where all were killed at once, whoever makes one next."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for ending, left in (("", False), ("os.kill(os.getpid(), signal.SIGKILL)", True)):
        code, environment = KILLED.format(ending=ending), {**os.environ, "TMPDIR": str(tmp_path)}
        done = forked_programs.run([sys.executable, "-c", code], environment, timeout=120)
        assert done.returncode == -signal.SIGKILL
        folder = Path(done.stdout.strip())
        assert folder.parent == tmp_path
        if left:
            assert folder.exists()
            new_folder("tables").close()
        wait_until(lambda folder=folder: not folder.exists())
    one, other = new_folder("tables"), new_folder("run")
    assert one.path.exists()  # its driver is there
    one.close()
    other.close()
    assert not list(tmp_path.iterdir())


def test_who_waits_too_long_names_who_holds_it() -> None:
    def slow(t: Any, rank: int) -> None:
        for _ in range(4):
            if rank == 0:
                t["x"].get_row(0)
            else:
                time.sleep(1.0)
            t.clock()

    with gl.tables(2, 0, backend="threads", timeout=0.5, patience=0.1) as t:
        tables(t)
        with pytest.raises(TablesError, match=r"worker 0 waited .* staleness 0 it is held by worker 1"):
            t.run(slow)


def kept(folder: Path, **options: Any) -> tuple[list[Any], np.ndarray]:
    with gl.tables(2, 0, servers=2, backend="threads", snapshots=folder, **options) as t:
        x, _ = tables(t)
        return t.run(work), x.read()


def test_a_run_goes_on_from_any_kept_clock(tmp_path: Path) -> None:
    results, table = kept(tmp_path, every=2, keep=5)
    assert clocks_of(str(tmp_path)) == [10, 8, 6, 4, 2]
    for clock in (4, 8):
        again, same = kept(tmp_path, every=2, keep=5, resume=clock)
        assert [begun for begun, _ in again] == [clock, clock]
        assert [own for _, own in again] == [own for _, own in results]
        assert np.array_equal(same, table)
    with pytest.raises(ValueError, match="resume=True goes on from them; a new run needs a new folder"):
        kept(tmp_path, every=2)
    with gl.tables(2, 0, backend="threads", snapshots=tmp_path, resume=8) as t:
        tables(t)
        with pytest.raises(SnapshotError, match="of 2 servers and 2 workers; this run has 1 and 2"):
            t.run(work)


def test_a_snapshot_is_strictly_after_its_clock(tmp_path: Path) -> None:
    """Worker 0 is always ahead by the staleness: what it adds then is in the tables, and not in the snapshot."""

    def ahead(t: Any, rank: int) -> None:
        for tick in range(t.ticks, 8):
            if rank == 1:
                time.sleep(0.02)
            t["x"].inc_row(rank, [1, 1, 1])
            t["n"].inc(rank, tick, 1)
            t.clock()

    options: dict[str, Any] = {"backend": "threads", "snapshots": tmp_path, "every": 1, "keep": 20}
    with gl.tables(2, 3, **options) as t:
        tables(t)
        t.run(ahead)
    with gl.tables(2, 3, resume=3, **options) as t:
        x, n = tables(t)
        assert x.read()[:2].tolist() == [[4, 4, 4], [4, 4, 4]]
        assert n.read().toarray()[:2, :5].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0]]


def test_a_damaged_snapshot_is_refused_by_name(tmp_path: Path) -> None:
    kept(tmp_path, every=2, keep=3)
    path = tmp_path / "clock-000010" / "server-1"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(SnapshotError, match=r"clock-000010/server-1: damaged: .*resume=8 goes on from the newest"):
        kept(tmp_path, every=2, resume=True)
    with pytest.raises(SnapshotError, match="clock-000010/server-1: damaged"):
        kept(tmp_path, every=2, resume=10)
    for cut in (0, 20, len(data) - 1):
        path.write_bytes(bytes(data[:cut]))
        with pytest.raises(SnapshotError, match="damaged"):
            kept(tmp_path, every=2, resume=10)
    path.unlink()  # as after a kill in between: the one before counts
    results, _ = kept(tmp_path, every=2, resume=True)
    assert results[0][0] == 8


class Said(snapshots.SnapshotManifest, frozen=True, kw_only=True):
    """A manifest whose head is whatever it is."""

    head: Any


ODD = (None, -1, 0, 3, 41, 2**30, 10**30, "x", [], [None], {}, {"a": 1})


def test_a_snapshot_with_checksums_that_fit_is_held_against_the_tables(tmp_path: Path) -> None:
    """Whoever writes checksums writes fitting ones: shapes, rows and columns are looked at before loops that trust them
    are."""
    kept(tmp_path, every=10)
    path, options = tmp_path / "clock-000010" / "server-1", TableOptions(2, servers=2, staleness=0)
    head, arrays = snapshots.contents(path)
    specs = (
        TableSpec("x", 40, 3, "float64", False, 1 << 20), TableSpec("n", 40, 40, "int32", True, 1 << 20)
    )  # fmt: skip
    chance = random.Random(0)
    refusals: list[str] = []
    for number in range(200):
        said, own = msgspec.structs.asdict(head), {name: array.copy() for name, array in arrays.items()}
        name = chance.choice(sorted(own))
        if number % 4 == 0:
            said[chance.choice(sorted(said))] = chance.choice(ODD)
        elif number % 8 == 1:
            del own[name]
        elif number % 8 == 5:
            own[name] = chance.choice((own[name][1:], own[name].astype(np.int16), own[name][None]))
        else:
            whole = own[name].reshape(-1)
            whole[chance.randrange(len(whole))] = chance.choice((-1, 0, 1, 3, 41, 2**30, -(2**31)))
        stored.write(str(path), own, Said, head=said)
        try:
            snapshots.check_snapshot(str(tmp_path), 10, specs, options)
            snapshots.restore(Server(1, specs, options), str(tmp_path), 10)
        except SnapshotError as error:
            refusals.append(str(error))
    assert len(refusals) > 50
    assert all("clock-000010/server-1" in message for message in refusals)


def test_a_full_disk_is_said_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync
    full = [False]

    def fsync(descriptor: int) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(durable.os, "fsync", fsync)

    _, expected = kept(tmp_path / "other", every=5)
    with gl.tables(2, 0, servers=2, backend="threads", snapshots=tmp_path / "mine", every=5) as t:
        x, _ = tables(t)
        x.read([0])  # the snapshot of clock 0 is there
        full[0] = True
        with pytest.warns(RuntimeWarning) as caught:
            t.run(work)
        words = sorted(str(warning.message) for warning in caught)
        assert all(word.startswith("the snapshot of clock") and "No space left on device" in word for word in words)
        assert {word.split()[4] for word in words} == {"5", "10"}
        assert np.array_equal(x.read(), expected)
        assert {type(event).__name__ for event in t.events} == {"SnapshotTaken", "SnapshotFailed"}
    assert not list((tmp_path / "mine").rglob("*.part"))
    full[0] = False
    again, same = kept(tmp_path / "mine", every=5, resume=True)
    assert again[0][0] == 0
    assert np.array_equal(same, expected)
