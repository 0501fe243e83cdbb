"""`with gl.tables(workers=4, staleness=2) as t:` tables of parameters that workers share, by bounded staleness.

import girih.loop as gl

def count(t, rank, words):
    for part in range(t.ticks, 10):
        t["counts"].inc_rows(words[part::10], np.ones((len(words[part::10]), 1)))
        t.clock()

with gl.tables(workers=4, staleness=2) as t:
    t.dense("counts", rows=1000, width=1)
    t.run(count, words)
    print(t["counts"].read())
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from girih.loop.shared_tables.options import Priority, TableError, TableOptions, bytes_of, rate_of
from girih.loop.shared_tables.rows.functions import AdaRevision, ServerFunction
from girih.loop.shared_tables.session import Event, Joining, Session
from girih.run.engines import launcher

__all__ = ["AdaRevision", "ServerFunction", "tables"]


def tables(
    workers: int | None = None,
    staleness: int = 2,
    *,
    servers: int | None = None,
    memory: str | int = "256 MiB",
    bandwidth: str | float | None = None,
    priority: Priority = "magnitude",
    queue: str | int = "64 KiB",
    snapshots: str | os.PathLike[str] | None = None,
    every: int = 1,
    keep: int = 2,
    restarts: int = 0,
    resume: bool | int = False,
    patience: float = 5.0,
    timeout: float = 300.0,
    backend: str = "processes",
    threads: int = 1,
    rank: int | None = None,
    addresses: Sequence[str] | None = None,
    address: str = "",
    key: str = "",
    observer: Callable[[Event], None] | None = None,
    seed: int = 0,
) -> Session:
    """Tables that `workers` share, as a context manager; see docs/tables.md.

    staleness: a read has all updates of the others but those of the last `staleness` clocks; 0 is bulk synchronous.
    memory: what a worker may use for each table. bandwidth: what each process may send between clocks, such as
    "200 Mbit/s", beside what the staleness demands; None: nothing. priority: what goes first then: "random",
    "round-robin", by "absolute" or "relative" change, or by "magnitude": relative for floats, absolute for whole
    numbers. queue: how much at once. snapshots: a folder, in which one is kept every `every` clocks, `keep` of them;
    restarts: how often workers that die start again from the last.
    resume: go on from the newest in the folder, or from that of a clock. patience: seconds after which a worker that
    holds others is named to the observer; timeout: seconds after which those others give up. backend: "processes" of
    this host, "threads", or actors of Ray: "ray" on the cluster that this process is connected to (or one of this
    host), "ray://host:port" on another. threads: that each process's libraries may use, and Ray reserves for it.

    Several programs that run the same code, on several hosts, give their `rank`, how many `workers` there are, and the
    `addresses` of the servers, such as ["tcp://10.0.0.1:7000"]; the program of rank r runs server r. All messages are
    encrypted by a `key` that all programs give, a long secret text, and servers drop what comes without; on one host
    the user's programs need not be given any. Under torchrun
    they find each other, without `workers`; `address` is this host's, by which the others reach it, where that is not
    the one by which it reaches torchrun's.

    Raises:
        TableError: an option cannot be.
    """
    join = None
    if addresses is None and rank is None and workers is None and os.environ.keys() >= launcher.VARIABLES:
        workers = int(os.environ["WORLD_SIZE"])
        join = Joining(int(os.environ["RANK"]), address=address)
        if servers is not None and servers > workers:
            raise TableError(f"{servers} servers, which the first of {workers} workers run: there are too many")
    elif address:
        raise TableError("address= is for programs that torchrun has started, without workers, rank or addresses")
    elif rank is None and addresses is None and (why := launcher.refusal_alone(f"gl.tables(workers={workers})")):
        raise TableError(f"{why}, or leave out workers: the ranks are then the workers")
    if workers is None:
        raise TableError("how many workers? give workers=N, or start the program by torchrun")
    if (rank is None) != (addresses is None):
        raise TableError("a program that joins others gives both its rank and the servers' addresses")
    if rank is not None and addresses is not None:
        if not 0 <= rank < workers:
            raise TableError(f"rank {rank} of {workers} workers: it must be 0 to {workers - 1}")
        if servers is not None and servers != len(addresses):
            raise TableError(f"{servers} servers at {len(addresses)} addresses: as many are needed")
        if len(addresses) > workers:
            raise TableError(f"{len(addresses)} servers, which the first of {workers} workers run: there are too many")
        join, servers = Joining(rank, tuple(addresses), key=key), len(addresses)
    elif key:
        raise TableError("key= is for programs that join others by addresses: all else makes keys of its own")
    if snapshots is not None and every == 0:
        raise TableError("every=0: snapshots are taken every 1 clock or more")
    if not isinstance(threads, int) or threads < 1 or not isinstance(restarts, int) or restarts < 0:
        raise TableError(f"threads={threads!r}, restarts={restarts!r}: whole numbers, at least 1, and at least 0")
    options = TableOptions(
        workers=workers,
        servers=1 if servers is None else servers,
        staleness=staleness,
        bandwidth=0.0 if bandwidth is None else rate_of(bandwidth),
        priority=priority,
        queue=bytes_of(queue),
        patience=patience,
        timeout=timeout,
        snapshot_every=0 if snapshots is None else every,
        folder="" if snapshots is None else str(Path(snapshots)),
        keep=keep,
        seed=seed,
    )
    return Session(
        options,
        memory=memory,
        backend=backend,
        threads=threads,
        restarts=restarts,
        resume=resume,
        observer=observer,
        join=join,
    )
