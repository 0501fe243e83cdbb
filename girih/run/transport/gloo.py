"""Which network interface gloo sends over.

gloo takes the one that GLOO_SOCKET_IFNAME names, else that of the host's name, which is often the loopback, and there
may be none. So a process that knows by which address the others reach it says so.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from girih.machine import MachineError
from girih.run.transport.meeting import is_loopback

INTERFACE = "GLOO_SOCKET_IFNAME"
TRANSPORT = "GIRIH_TRANSPORT"


def through_host() -> bool:
    """Does the user want messages to be sent by gloo, those between GPUs through the host's memory?"""
    return os.environ.get(TRANSPORT) == "gloo"


def interface_of(address: str) -> str:
    """The network interface with an IPv4 address, or "" where that cannot be seen."""
    if sys.platform != "linux":
        return ""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            try:
                reply = fcntl.ioctl(any_socket, 0x8915, struct.pack("256s", name.encode()))  # SIOCGIFADDR
            except OSError:
                continue  # it has none
            if socket.inet_ntoa(reply[20:24]) == address:
                return name
    return ""


@contextmanager
def reached_at(address: str) -> Iterator[None]:
    """Groups that are formed inside send over the interface of an address, unless the user has named another one. A
    loopback is no choice: other hosts do not reach it, and gloo finds it by itself."""
    name = "" if INTERFACE in os.environ or is_loopback(address) else interface_of(address)
    if not name:
        yield
        return
    os.environ[INTERFACE] = name
    try:
        yield
    finally:
        os.environ.pop(INTERFACE, None)


def check_interface(default: str = "") -> None:
    """Raises MachineError, before any group is formed, where gloo would find no interface to send over.

    default: the one that is taken where nobody names one; "": that of the host's name.
    """
    from torch.distributed import ProcessGroupGloo

    named = os.environ.get(INTERFACE, default)
    try:
        if not named:
            ProcessGroupGloo.create_default_device()
        for name in filter(None, named.split(",")):
            ProcessGroupGloo.create_device(interface=name)
    except RuntimeError as error:
        found = f"{named} has no address" if named else "the host's name leads to none that is up"
        if INTERFACE in os.environ:
            found = f"{INTERFACE}={named} names none that is up"
        there = ", ".join(name for _, name in socket.if_nameindex())
        chosen = through_host()
        without = f", or leave out {TRANSPORT}=gloo: processes of one host then share memory" if chosen else ""
        raise MachineError(
            f"gloo finds no network interface to send over: {found}. Set {INTERFACE} to one that is up and has an "
            f"address (this host has {there or 'none'}){without}"
        ) from error
