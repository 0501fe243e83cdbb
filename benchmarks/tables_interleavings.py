"""Does the protocol keep its promise in every order of events? All of them are tried, for small cases.

The clients and servers are those that run over ZeroMQ; here lists take the place of lines, and at every point each
event that can happen next is followed: a message arrives, a worker takes its next step, a client or server sends early.
States that are the same are followed once. Worker w adds 1 to column w of a row, so that a row that is read shows how
many updates of whom it has. Checked at every read: of every other worker at least those of the ticks up to t − S − 1,
and no more than were made; of its own exactly all (read my writes). At the end: nobody waits for ever, and the servers
have the sum. Cost: the number of states, which grows exponentially with workers, ticks and reads.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from girih.loop.shared_tables.client import Client, Read
from girih.loop.shared_tables.options import TableOptions, TableSpec
from girih.loop.shared_tables.rows.cache import DenseCached
from girih.loop.shared_tables.rows.keyed import CachePlaces
from girih.loop.shared_tables.server import GONE, Server

Step = tuple[Literal["inc", "read"], int]


@dataclass(frozen=True)
class Case:
    """What is tried. program: of each worker, the steps of each tick; rows are 0 … rows − 1. slots: rows that a worker
    may have cached; early: whether updates and rows may be sent between clocks."""

    program: tuple[tuple[tuple[Step, ...], ...], ...]
    staleness: int
    servers: int = 1
    rows: int = 1
    slots: int = 8
    early: bool = False


@dataclass(frozen=True)
class Verdict:
    """states, events: how many were followed. violations: what was wrong, with the events that lead there. complete:
    False if it stopped at the limit."""

    states: int
    events: int
    violations: tuple[str, ...]
    complete: bool


class Box:
    """Collects what a client sends."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []

    def put(self, server: int, frame: bytes) -> None:
        self.frames.append((server, frame))


@dataclass
class World:
    """Everything, at one moment. up, down: messages on their way, by (worker, server)."""

    clients: list[Client]
    boxes: list[Box]
    servers: list[Server]
    up: dict[tuple[int, int], list[bytes]]
    down: dict[tuple[int, int], list[bytes]]
    tick: list[int]
    step: list[int]
    reads: list[Read | None]
    left: list[bool]
    made: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """made[worker, tick, row]: updates."""


def explore(
    case: Case, client: type[Client] = Client, server: type[Server] = Server, most_states: int = 2_000_000
) -> Verdict:
    """Follow all orders of events. client, server: other classes, to see that a wrong protocol is found out."""
    first = _world(case, client, server)
    data = pickle.dumps(first, protocol=5)
    seen = {hash(data)}
    stack: list[tuple[bytes, tuple[str, ...]]] = [(data, ())]
    events = 0
    violations: list[str] = []
    while stack and len(seen) < most_states and len(violations) < 10:
        data, path = stack.pop()
        here = pickle.loads(data)
        names = list(_possible(case, here))
        if not names:
            wrong = _at_the_end(case, here)
            if wrong:
                violations.append(f"{wrong}; after {', '.join(path)}")
            continue
        for name in names:
            world = pickle.loads(data)
            wrong = _happen(case, world, name)
            events += 1
            then = (*path, " ".join(map(str, name)))
            if wrong:
                violations.append(f"{wrong}; after {', '.join(then)}")
                continue
            now = pickle.dumps(world, protocol=5)
            key = hash(now)
            if key not in seen:
                seen.add(key)
                stack.append((now, then))
    return Verdict(len(seen), events, tuple(violations), not stack)


def _world(case: Case, client: type[Client], server: type[Server]) -> World:
    workers = len(case.program)
    ticks = max(len(ticks) for ticks in case.program)
    options = TableOptions(
        workers=workers, servers=case.servers, staleness=case.staleness, bandwidth=1e12 if case.early else 0.0
    )
    specs = (TableSpec("row", case.rows, workers, "int32", memory=4096),)
    boxes = [Box() for _ in range(workers)]
    clients = [client(rank, specs, options, boxes[rank].put) for rank in range(workers)]
    if case.slots < case.rows:
        for one in clients:
            table = one.tables[0]
            assert isinstance(table, DenseCached)
            table.places = CachePlaces(case.rows, case.slots)
            table.values = np.zeros((table.places.slots, workers), np.int32)
    servers = [server(number, specs, options) for number in range(case.servers)]
    lines = [(rank, number) for rank in range(workers) for number in range(case.servers)]
    return World(
        clients, boxes, servers, {line: [] for line in lines}, {line: [] for line in lines}, [0] * workers,
        [0] * workers, [None] * workers, [False] * workers, np.zeros((workers, ticks, case.rows), np.int32),
    )  # fmt: skip


Name = tuple[Any, ...]


def _possible(case: Case, world: World) -> Iterator[Name]:
    for line, frames in world.up.items():
        if frames:
            yield ("up", *line)
    for line, frames in world.down.items():
        if frames:
            yield ("down", *line)
    for rank, client in enumerate(world.clients):
        if world.left[rank]:
            continue
        read = world.reads[rank]
        if read is not None:
            if read.done or (not read.begun and min(client.ages) >= client.clock - case.staleness):
                yield ("read", rank)
        elif client.may_go_on():
            yield ("step", rank)
        if case.early and len(client.tables[0].log.waiting()):
            yield ("send", rank)
    if case.early:
        for number, server in enumerate(world.servers):
            active = [rank for rank, clock in enumerate(server.clocks) if clock != GONE]
            if server.tables[0].dirty[active].any():
                yield ("push", number)


def _happen(case: Case, world: World, name: Name) -> str:
    """Let it happen; what is wrong then, or ""."""
    kind, rank = name[0], name[1]
    if kind == "up":
        number = name[2]
        world.servers[number].receive(rank, world.up[rank, number].pop(0))
    elif kind == "down":
        number = name[2]
        world.clients[rank].receive(number, world.down[rank, number].pop(0))
    elif kind == "send":
        world.clients[rank].communicate(0.0)
    elif kind == "push":
        world.servers[rank].communicate(0.0)
    elif kind == "read":
        read = world.reads[rank]
        assert read is not None
        if world.clients[rank].continue_read(read):
            wrong = _check(case, world, rank, read)
            world.reads[rank] = None
            world.step[rank] += 1
            if wrong:
                return wrong
    else:
        _step(case, world, rank)
    for rank, box in enumerate(world.boxes):
        for number, frame in box.frames:
            world.up[rank, number].append(frame)
        box.frames.clear()
    for number, server in enumerate(world.servers):
        for rank, frame in server.outbox:
            world.down[rank, number].append(frame)
        server.outbox.clear()
        for link in server._links:  # time does not pass here: a link is always free
            link.bucket.level = 0.0
            link.waiting.clear()
    for client in world.clients:
        for link in client._links:
            link.bucket.level = 0.0
            link.waiting.clear()
    return ""


def _step(case: Case, world: World, rank: int) -> None:
    client, tick = world.clients[rank], world.tick[rank]
    if tick == len(case.program[rank]):
        client.leave()
        world.left[rank] = True
        return
    steps = case.program[rank][tick]
    if world.step[rank] == len(steps):
        client.end_tick()
        world.tick[rank] += 1
        world.step[rank] = 0
        return
    kind, row = steps[world.step[rank]]
    if kind == "inc":
        delta = np.zeros((1, len(world.clients)), np.int32)
        delta[0, rank] = 1
        client.inc_dense(0, np.array([row]), delta)
        world.made[rank, tick, row] += 1
        world.step[rank] += 1
        return
    world.reads[rank] = client.begin_read(0, np.array([row]))


def _check(case: Case, world: World, rank: int, read: Read) -> str:
    row, tick = int(read.rows[0]), world.tick[rank]
    for other, value in enumerate(read.values[0].tolist()):
        made = world.made[other, :, row]
        least = made.sum() if other == rank else made[: max(0, tick - case.staleness)].sum()
        if not least <= value <= made.sum():
            return (
                f"worker {rank} read row {row} in tick {tick} with {value} updates of worker {other}; "
                f"expected {least} to {made.sum()}"
            )
    return ""


def _at_the_end(case: Case, world: World) -> str:
    if not all(world.left):
        return f"worker {world.left.index(False)} waits for ever"
    for server in world.servers:
        rows = np.arange(server.tables[0].count)
        values = server.tables[0].store.get(rows)[0]
        expected = world.made.sum(axis=1)[:, rows * case.servers + server.number].T
        if not np.array_equal(values, expected):
            return f"server {server.number} has {values.tolist()}; expected {expected.tolist()}"
    return ""


def small_cases() -> dict[str, Case]:
    """Two workers, one or two servers, staleness 0 to 2; with evictions, and with early sends."""
    plain: tuple[Step, ...] = (("inc", 0), ("read", 0))
    two: tuple[Step, ...] = (("inc", 0), ("read", 1), ("inc", 1), ("read", 0))
    cases = {}
    for staleness in (0, 1, 2):
        ticks = staleness + 2
        cases[f"S={staleness}, one server"] = Case(((plain,) * ticks, (plain,) * ticks), staleness)
        cases[f"S={staleness}, two servers"] = Case(((plain, two[:2]), (two[2:], plain)), staleness, servers=2, rows=2)
        cases[f"S={staleness}, evictions"] = Case(
            (
                ((("read", 0), ("read", 1)), (("read", 2),), (("read", 0),)),
                ((("inc", 0),), (("inc", 1),), (("inc", 0),)),
            ),
            staleness,
            rows=3,
            slots=2,
        )
        cases[f"S={staleness}, early sends"] = Case(((plain, plain), (plain, plain)), staleness, early=True)
    return cases
