"""Where processes of several hosts meet before they have lines to each other: a store of torch.distributed.

The store carries what they need to find each other, addresses and keys, and nothing else. Whoever can write to it can
join them, as with torchrun itself.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from ipaddress import ip_address
from typing import Any

from girih.run.errors import TransportError

LOOK_SECONDS = 5.0  # between looks at what the others have written: so often Ctrl-C is heard


@dataclass(frozen=True)
class Meeting:
    """One of several processes that meet. store: theirs alone. address: of this host, by which the others reach it."""

    store: Any
    rank: int
    size: int
    address: str

    def tell(self, what: str, words: str) -> None:
        """The others may read it under this process's rank."""
        self.store.set(f"{what}/{self.rank}", words)

    def hear(self, what: str, ranks: Sequence[int], seconds: float) -> dict[int, str]:
        """What others have told, by rank; waits for them.

        Raises:
            TransportError: one of them has told nothing for so long.
        """
        from torch.distributed import DistStoreError

        deadline = time.monotonic() + seconds
        found: dict[int, str] = {}
        for rank in ranks:
            key = f"{what}/{rank}"
            while rank not in found:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TransportError(f"rank {rank} has not come within {seconds:g} s: has it been started?")
                with suppress(DistStoreError):  # not yet
                    self.store.wait([key], timedelta(seconds=min(left, LOOK_SECONDS)))
                    found[rank] = self.store.get(key).decode()
        return found


@cache
def _launchers_store() -> Any:
    """Of this process: the store of torchrun, or of whoever set its environment."""
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://"))
    return store


def launched(what: str, address: str, seconds: float) -> Meeting:
    """The processes that a launcher has started, who each ask for this as often as the others.

    what: they meet for. address: of this host, by which the others reach it; "": the one by which it reaches the
    launcher's.

    Raises:
        TransportError: one of them has not come within so many seconds.
    """
    from torch.distributed import PrefixStore

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    whole = _launchers_store()
    number = whole.add(f"girih/{what}/{rank}", 1)
    store = PrefixStore(f"girih/{what}/{number}", whole)
    own, launcher = route(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    meeting = Meeting(store, rank, size, address or own)
    meeting.tell("route", f"{meeting.address} {launcher}")
    if is_loopback(meeting.address):
        # The launcher's host may know itself by a name that leads to the loopback: how others reach it they know.
        for words in meeting.hear("route", [other for other in range(size) if other != rank], seconds).values():
            theirs, _, seen = words.partition(" ")
            if not is_loopback(theirs):
                return Meeting(store, rank, size, seen)
    return meeting


def route(host: str, port: int) -> tuple[str, str]:
    """(the address of this host on the way to another, the other's). Nothing is sent.

    Raises:
        TransportError: there is no such host, or no way to it.
    """
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as unused:
            unused.connect(place)
            return str(unused.getsockname()[0]), str(place[0])
    except OSError as error:
        raise TransportError(f"this host finds no way to {host}: {error}") from error


def is_loopback(address: str) -> bool:
    return ip_address(address).is_loopback


def endpoint(address: str, port: str) -> str:
    """What ZeroMQ calls a port of an address."""
    return f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"
