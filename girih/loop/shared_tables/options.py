"""What a user chooses of tables: their rows, how stale reads may be, and what may be sent when."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from girih.machine.units import BYTES_PER_SECOND, parse_amount, parse_bytes

Priority = Literal["magnitude", "random", "round-robin", "absolute", "relative"]
PRIORITIES: tuple[Priority, ...] = ("magnitude", "random", "round-robin", "absolute", "relative")
FUNCTION = ("columns", "seen", "start", "apply")
"""What a function of the servers has (`ServerFunction`)."""
DTYPES = ("float32", "float64", "int32", "int64")


class TableError(ValueError):
    """A table, row, key or option that cannot be; the message says what was expected."""


@dataclass(frozen=True)
class TableSpec:
    """A table as all processes know it.

    rows, width: how many rows there are, and columns in each. sparse: a row is a map from columns to values, of which
    zeros are not kept. memory: bytes that a worker may use for it, cache and buffered updates together. half: float
    updates travel in 16 bits. function: what the servers do with an update in place of adding it; None: they add.
    """

    name: str
    rows: int
    width: int
    dtype: str = "float32"
    sparse: bool = False
    memory: int = 256 << 20
    half: bool = False
    function: Any = None

    def __post_init__(self) -> None:
        if self.rows < 1 or self.width < 1:
            raise TableError(f"table {self.name!r}: {self.rows} rows of {self.width}; both must be at least 1")
        if self.dtype not in DTYPES:
            raise TableError(f"table {self.name!r}: dtype {self.dtype!r}; it must be one of {', '.join(DTYPES)}")
        if self.rows >= 1 << 31:
            raise TableError(f"table {self.name!r}: {self.rows} rows; there can be at most {(1 << 31) - 1}")
        if self.half and not self.dtype.startswith("float"):
            raise TableError(f"table {self.name!r}: only updates of floats travel in 16 bits, not of {self.dtype}")
        if self.function is not None and (self.sparse or not self.dtype.startswith("float")):
            raise TableError(f"table {self.name!r}: a function of the servers needs dense rows of floats")
        if missing := [name for name in FUNCTION if self.function is not None and not hasattr(self.function, name)]:
            raise TableError(
                f"table {self.name!r}: function {self.function!r} has no {', '.join(missing)}: expected an object with "
                f"{', '.join(FUNCTION)}, such as AdaRevision(step=0.1)"
            )
        if self.memory < 4096:
            raise TableError(f"table {self.name!r}: memory {self.memory} bytes; a worker needs at least 4096")

    @cached_property
    def kind(self) -> np.dtype:
        return np.dtype(self.dtype)

    def local_rows(self, server: int, servers: int) -> int:
        """How many rows the server has: row r lies on server r mod servers, as its row r div servers."""
        return (self.rows - server + servers - 1) // servers


@dataclass(frozen=True)
class TableOptions:
    """How workers and servers keep each other up to date.

    workers, servers: how many. staleness: by how many clocks a read may lag (S of the paper); 0 is bulk synchronous.
    bandwidth: bytes per second that a process may send beside what the staleness demands; 0: nothing is sent between
    clocks. priority: which rows go first then (see `order_of`). queue: bytes of one such message. silence: seconds
    without an acknowledgement after which a link counts as overloaded. patience: seconds after which a worker that
    holds others is named. timeout: seconds after which a worker that is held gives up. snapshot_every: clocks from one
    snapshot to the next; 0: none are taken. folder: where they lie. keep: how many.
    """

    workers: int
    servers: int = 1
    staleness: int = 2
    bandwidth: float = 0.0
    priority: Priority = "magnitude"
    queue: int = 64 << 10
    silence: float = 0.2
    patience: float = 5.0
    timeout: float = 300.0
    snapshot_every: int = 0
    folder: str = ""
    keep: int = 2
    seed: int = 0
    tick: float = field(default=0.002)

    def __post_init__(self) -> None:
        for name in ("workers", "servers", "staleness", "snapshot_every", "keep", "seed"):
            if not isinstance(found := getattr(self, name), int | np.integer):
                raise TableError(f"{name} {found!r}: it is a whole number")
        if not (self.patience > 0 and self.timeout > 0):
            raise TableError(f"patience {self.patience} s, timeout {self.timeout} s: both are above 0")
        if self.workers < 1 or self.servers < 1:
            raise TableError(f"{self.workers} workers and {self.servers} servers: at least one of each is needed")
        if self.workers > 1 << 15 or self.servers > 1 << 15:
            raise TableError(f"{self.workers} workers and {self.servers} servers: at most {1 << 15} of each")
        if self.staleness < 0:
            raise TableError(f"staleness {self.staleness}: it is a number of clocks, at least 0")
        if self.priority not in PRIORITIES:
            raise TableError(f"priority {self.priority!r}: it must be one of {', '.join(PRIORITIES)}")
        if self.snapshot_every < 0 or self.keep < 1:
            raise TableError("snapshots are taken every 1 clock or more, and at least one is kept")
        if self.snapshot_every and not self.folder:
            raise TableError("snapshots need a folder: give snapshots=FOLDER")
        if self.queue < 1024 or self.bandwidth < 0:
            raise TableError(f"queue {self.queue} bytes, bandwidth {self.bandwidth} B/s: at least 1024, and at least 0")

    @cached_property
    def managed(self) -> bool:
        return self.bandwidth > 0

    def order_of(self, spec: TableSpec) -> Priority:
        """Which of a table's rows go first. By magnitude, numbers of any size go by their relative change; of counts, a
        change of one matters as much where much was counted, and the absolute change is the better order."""
        if self.priority != "magnitude":
            return self.priority
        return "relative" if spec.kind.kind == "f" else "absolute"

    @cached_property
    def held(self) -> bool:
        """Whether servers keep the updates of a clock until all workers have ended it, and add them in the order of
        the workers: with staleness 0 nobody may see them earlier, and so all sums have the same bits in every run."""
        return self.staleness == 0 and not self.managed


def bytes_of(size: str | int) -> int:
    """`"64 KB"`, or a number of bytes."""
    try:
        return parse_bytes(size)
    except ValueError as error:
        raise TableError(str(error)) from None


def rate_of(rate: str | float) -> float:
    """`"200 Mbit/s"`, or a number of bytes per second."""
    found = parse_amount(rate, BYTES_PER_SECOND) if isinstance(rate, str) else float(rate)
    if found is None:
        raise TableError(f"{rate!r} is no bandwidth: expected a number with Mbit/s, Gbit/s, MB/s or GB/s")
    return found
