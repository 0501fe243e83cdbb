"""A Ray cluster to run on: one of this host, started for the purpose, or one that runs already."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType

CONNECT_SECONDS = 5.0
CLIENT = "ray://"
CLIENT_PORT = 10001


class RayUnavailableError(RuntimeError):
    """Ray is not installed, does not answer, or has no room for the workers."""


@dataclass(frozen=True)
class RayConnection:
    """started: by girih, which ends it again. processors: that the cluster has now. nodes: hosts with processors."""

    started: bool
    processors: float
    nodes: int

    def close(self) -> None:
        if self.started:
            imported().shutdown()


def imported() -> ModuleType:
    """Ray itself.

    Raises:
        RayUnavailableError: it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise RayUnavailableError("Ray is not installed; it comes with `pip install 'girih[ray]'`") from error
    module: ModuleType = ray
    return module


def connect(address: str = "") -> RayConnection:
    """Connect this process to a Ray cluster.

    address: `ray://host:port` of a cluster's client server, `host:port` of its head or `auto` where this host is one
    of its nodes; "" for the cluster that this process is connected to, else a new one of this host.

    Raises:
        RayUnavailableError: Ray is not installed, or nothing answers at the address.
    """
    ray = imported()
    connected = ray.is_initialized()
    if not connected:
        _probe(address)
        options = {"address": address} if address else {"include_dashboard": False}
        try:
            ray.init(**options, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
        except Exception as error:
            where = f"a Ray cluster at {address!r}" if address else "a Ray cluster of this host"
            raise RayUnavailableError(
                f"could not connect to {where}: {type(error).__name__}: {_first_line(error)}"
            ) from error
    alive = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]
    return RayConnection(not connected, sum(alive), sum(processors > 0 for processors in alive))


def _probe(address: str) -> None:
    """Does anybody listen there? Ray itself would try for half a minute."""
    if address in ("", "auto", "local"):
        return
    host, _, port = address.removeprefix(CLIENT).partition(":")
    number = port or (str(CLIENT_PORT) if address.startswith(CLIENT) else "")
    if not host or not number.isdigit():
        raise RayUnavailableError(f"Ray address {address!r}: expected 'ray://host:port', 'host:port' or 'auto'")
    if address.startswith(CLIENT) and find_spec("grpc") is None:
        raise RayUnavailableError(f"{address}: Ray's client needs grpcio; `pip install 'girih[ray]'`")
    try:
        socket.create_connection((host, int(number)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise RayUnavailableError(
            f"nothing answers at {address!r} ({error}): is the Ray cluster running, and this its "
            f"{'client server' if address.startswith(CLIENT) else 'head'}?"
        ) from error


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "")
