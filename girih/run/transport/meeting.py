"""Where processes of several hosts meet before they have lines to each other: a store of torch.distributed.

The store carries what they need to find each other, addresses and keys, and nothing else. Whoever can write to it can
join them, as with torchrun itself.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from ipaddress import ip_address
from typing import Any

from girih.run.errors import TransportError

LOOK_SECONDS = 0.02  # between looks at what the others have told


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
        deadline = time.monotonic() + seconds
        found: dict[int, str] = {}
        for rank in ranks:
            key = f"{what}/{rank}"
            while not self.store.check([key]):
                if time.monotonic() > deadline:
                    raise TransportError(f"rank {rank} has not come within {seconds:g} s: has it been started?")
                time.sleep(LOOK_SECONDS)
            found[rank] = self.store.get(key).decode()
        return found


@cache
def _store_at(host: str, port: str, restarts: str, seconds: float) -> Any:
    """The store of torchrun, or of whoever set the environment that these are from; this process has one."""
    from torch.distributed.rendezvous import rendezvous

    try:
        store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=seconds)))
    except RuntimeError as error:
        raise TransportError(f"not all ranks have come to {host}:{port} within {seconds:g} s: {error}") from error
    return store


def launched(what: str, address: str, seconds: float) -> Meeting:
    """The processes that a launcher has started, who each ask for this as often as the others.

    what: they meet for. address: of this host, by which the others reach it; "": the one by which it reaches that of
    the launcher's store.

    Raises:
        TransportError: one of them has not come within so many seconds.
    """
    from torch.distributed import PrefixStore

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    own, launcher = route(host, int(port))
    whole = PrefixStore(f"girih/{what}/{restarts}", _store_at(host, port, restarts, seconds))
    number = whole.add(f"{rank}", 1)
    listening = route(address, int(port))[1] if address else own  # ZeroMQ listens at addresses, and not at names
    meeting = Meeting(PrefixStore(f"{number}", whole), rank, size, listening)
    meeting.tell("route", f"{meeting.address} {launcher}")
    if is_loopback(meeting.address):
        # The launcher's host may know itself by a name that leads to the loopback: how others reach it they know.
        for words in meeting.hear("route", [other for other in range(size) if other != rank], seconds).values():
            theirs, _, seen = words.partition(" ")
            if not is_loopback(theirs):
                return replace(meeting, address=seen)
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


def numeric(place: str) -> str:
    """A place with its host's address in place of its name: ZeroMQ listens at addresses.

    Raises:
        TransportError: there is no such host.
    """
    kind, _, rest = place.partition("://")
    host, _, port = rest.rpartition(":")
    if kind != "tcp" or host == "*":
        return place
    return endpoint(route(host.strip("[]"), int(port))[1], port)
