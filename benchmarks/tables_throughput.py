"""Reads and updates of shared rows per second: girih's tables beside a Ray actor and redis doing the same.

What: a table of 100,000 rows of 16 numbers on one server; two clients, each of which reads 32 random rows and adds to
the same rows, again and again. Every row that is read and every row that is added to counts as one operation.
How: all on this host, each client a process, by turns; the figure is the median of the runs' operations per second of
wall time, from the first client's start to the last one's end, after a warm-up; beside it, the processor time of
clients and server for each operation. Nobody has the rows in the client: a client of girih may use 64 KB (cache,
buffered updates and updates on their way together), ends a clock after every 32 batches, and runs with staleness 2 over
ZeroMQ. Ray: an actor that holds a NumPy array and takes and gives whole batches of rows; updates are not waited for,
beyond 64 KB of them. Clients ask for batches eight ahead, within those 64 KB. redis: one string for each row, read by
MGET; updates by BITFIELD … INCRBY, one command for each row of 16 integers, and, the other way, by one script for each
batch that adds floats; the faster way counts. A pipeline has the updates of eight batches and the reads of the next
eight.
Against: Ray and redis. Floors: 10 times Ray (`--floor`), 2 times redis. Where there is no redis-server, that floor is
missed by name.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Report, Row, note, repeats_option, times

ROWS, WIDTH, BATCH, CLIENTS = 100_000, 16, 32, 2
AHEAD = 8
TICK = 32
WARM = 40
MEMORY = 64 << 10
REDIS_FLOOR = 2.0
SCRIPT = """
local width = tonumber(ARGV[1])
local format = '<' .. string.rep('f', width)
for i, key in ipairs(KEYS) do
  local row = {struct.unpack(format, redis.call('GET', key))}
  local more = {struct.unpack(format, string.sub(ARGV[2], (i - 1) * width * 4 + 1, i * width * 4))}
  for j = 1, width do row[j] = row[j] + more[j] end
  redis.call('SET', key, struct.pack(format, unpack(row, 1, width)))
end
return 1
"""


Span = tuple[float, float, int, float]
"""Of a client: when it began, when it ended, operations, its processor seconds."""


@dataclass(frozen=True)
class Rate:
    """Operations per second of the wall's clock, and processor seconds of each."""

    rate: float
    cpu: float


def batches(rank: int, count: int) -> list[np.ndarray]:
    generator = np.random.default_rng(rank)
    return [np.unique(generator.integers(0, ROWS, BATCH)) for _ in range(count)]


# ------------------------------------------------------------------------------------------------- girih


def table_client(t: Any, rank: int, count: int) -> Span:
    rows = batches(rank, count)
    deltas = np.ones((BATCH, WIDTH), np.float32)
    table = t["rows"]
    table.inc_rows(rows[0], table.get_rows(rows[0]) * 0)
    t.clock()
    for own in rows[:AHEAD]:
        table.prefetch(own)
    began, busy = time.time(), time.process_time()
    done = 0
    for number, own in enumerate(rows):
        table.get_rows(own)
        if number + AHEAD < count:
            table.prefetch(rows[number + AHEAD])
        table.inc_rows(own, deltas[: len(own)])
        done += 2 * len(own)
        if number % TICK == TICK - 1:
            t.clock()
    t.clock()
    return began, time.time(), done, time.process_time() - busy


def girih(count: int) -> Callable[[], Rate]:
    import girih.loop as gl

    def run() -> Rate:
        with gl.tables(workers=CLIENTS, staleness=2, memory=MEMORY) as t:
            table = t.dense("rows", ROWS, WIDTH)
            t.run(table_client, WARM)  # the server is there, and has loaded its machine code
            rate = rate_of(t.server_pids[0], lambda: t.run(table_client, count))
            total = float(table.read().sum(dtype=np.float64))
            added = [own for rank in range(CLIENTS) for many in (WARM, count) for own in batches(rank, many)]
            expected = WIDTH * sum(map(len, added))
            if total != expected:
                raise RuntimeError(f"the table holds {total}, not {expected}")
        return rate

    return run


# ------------------------------------------------------------------------------------------------- Ray


class RowActor:
    def __init__(self) -> None:
        self.rows = np.zeros((ROWS, WIDTH), np.float32)

    def get(self, rows: np.ndarray) -> np.ndarray:
        return self.rows[rows]

    def pid(self) -> int:
        return os.getpid()

    def add(self, rows: np.ndarray, deltas: np.ndarray) -> None:
        self.rows[rows] += deltas


def ray_client(server: Any, rank: int, count: int) -> Span:
    import ray

    rows = batches(rank, count)
    deltas = np.ones((BATCH, WIDTH), np.float32)
    ray.get(server.get.remote(rows[0]))
    began, busy = time.time(), time.process_time()
    done, waiting = 0, []
    coming = deque(server.get.remote(own) for own in rows[:AHEAD])
    for number, own in enumerate(rows):
        ray.get(coming.popleft())
        if number + AHEAD < count:
            coming.append(server.get.remote(rows[number + AHEAD]))
        waiting.append(server.add.remote(own, deltas[: len(own)]))
        if len(waiting) * BATCH * WIDTH * 4 >= MEMORY:
            ray.get(waiting.pop(0))
        done += 2 * len(own)
    ray.get(waiting)
    return began, time.time(), done, time.process_time() - busy


def ray_peer(count: int) -> Callable[[], Rate]:
    import ray

    if not ray.is_initialized():
        ray.init("local", num_cpus=CLIENTS + 1, include_dashboard=False, logging_level="error", log_to_driver=False)
    server = ray.remote(num_cpus=1)(RowActor).remote()
    client = ray.remote(num_cpus=1)(ray_client)
    pid = ray.get(server.pid.remote())
    return lambda: rate_of(pid, lambda: ray.get([client.remote(server, rank, count) for rank in range(CLIENTS)]))


# ------------------------------------------------------------------------------------------------- redis


def redis_client(path: str, rank: int, count: int, way: str) -> Span:
    import redis

    connection = redis.Redis(unix_socket_path=path)
    keys = [[b"r%d" % row for row in own.tolist()] for own in batches(rank, count)]
    script = connection.register_script(SCRIPT)
    deltas = np.ones((BATCH, WIDTH), np.float32)
    adds = [part for column in range(WIDTH) for part in ("INCRBY", "i32", f"#{column}", 1)]
    connection.script_load(SCRIPT)
    connection.mget(keys[0])
    began, busy = time.time(), time.process_time()
    done = 0
    with connection.pipeline(transaction=False) as pipeline:
        for begin in range(0, count, AHEAD):
            for own in keys[begin : begin + AHEAD]:
                pipeline.mget(own)
            answers = pipeline.execute()[-len(keys[begin : begin + AHEAD]) :]
            for own, answer in zip(keys[begin : begin + AHEAD], answers, strict=True):
                np.frombuffer(b"".join(answer), np.float32).reshape(len(own), WIDTH)
                if way == "script":
                    pipeline.evalsha(script.sha, len(own), *own, WIDTH, deltas[: len(own)].tobytes())
                else:
                    for key in own:
                        pipeline.execute_command("BITFIELD", key, *adds)
                done += 2 * len(own)
        pipeline.execute()
    return began, time.time(), done, time.process_time() - busy


class RedisServer:
    """A redis-server of one's own, without persistence, at a socket file. A context manager."""

    path: str
    pid: int

    def __enter__(self) -> RedisServer:
        import redis

        self._directory = tempfile.mkdtemp(prefix="girih-redis-")
        path = self.path = f"{self._directory}/socket"
        command = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen([*command, "--dir", self._directory], stdout=subprocess.DEVNULL)
        self.pid = self._process.pid
        deadline = time.monotonic() + 10
        while not Path(path).exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        connection = redis.Redis(unix_socket_path=path)
        for begin in range(0, ROWS, 10_000):
            connection.mset({b"r%d" % row: bytes(4 * WIDTH) for row in range(begin, begin + 10_000)})
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


def redis_peer(redis_server: RedisServer, count: int, way: str) -> Callable[[], Rate]:
    code = "import sys; from benchmarks.tables_throughput import redis_client as f; print(*f(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))"  # noqa: E501
    root = Path(__file__).resolve().parents[1]

    def spans() -> list[Span]:
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", code, redis_server.path, str(rank), str(count), way],
                stdout=subprocess.PIPE,
                text=True,
                cwd=root,
            )
            for rank in range(CLIENTS)
        ]
        said = [process.communicate()[0].split() for process in processes]
        return [(float(began), float(ended), int(done), float(busy)) for began, ended, done, busy in said]

    return lambda: rate_of(redis_server.pid, spans)


def rate_of(server: int, run: Callable[[], list[Span]]) -> Rate:
    """server: the process number of what serves the clients."""
    import psutil

    def busy() -> float:
        times = psutil.Process(server).cpu_times()
        return float(times.user + times.system)

    before = busy()
    spans = run()
    served = busy() - before
    began, ended = min(span[0] for span in spans), max(span[1] for span in spans)
    done = sum(span[2] for span in spans)
    return Rate(done / (ended - began), (served + sum(span[3] for span in spans)) / done)


# ------------------------------------------------------------------------------------------------- the benchmark


def measure(options: argparse.Namespace) -> Report:
    scale = 1 if options.quick else 8
    repeats = 1 if options.quick else options.repeats
    runs: dict[str, Callable[[], Rate]] = {"girih": girih(1000 * scale)}
    misses = []
    try:
        import ray

        runs["Ray actor"] = ray_peer(200 * scale)
    except ImportError:
        misses.append("Ray is not installed: not compared")
    server = None
    if shutil.which("redis-server") is None:
        misses.append("there is no redis-server: not compared with redis")
    else:
        try:
            import redis  # noqa: F401

            server = RedisServer()
        except ImportError:
            misses.append("redis-py is not installed: not compared with redis")
    try:
        if server is not None:
            server.__enter__()
            runs["redis, BITFIELD pipeline"] = redis_peer(server, 200 * scale, "bitfield")
            runs["redis, script"] = redis_peer(server, 400 * scale, "script")
        found: dict[str, list[Rate]] = {name: [] for name in runs}
        for _ in range(repeats):
            for name, run in runs.items():
                one = run()
                found[name].append(one)
                note({"system": name, "operations_per_second": one.rate, "processor_us_each": one.cpu * 1e6})
    finally:
        if server is not None:
            server.__exit__()
        if "Ray actor" in runs:
            ray.shutdown()
    rates = {name: statistics.median(one.rate for one in values) for name, values in found.items()}
    busy = {name: statistics.median(one.cpu for one in values) for name, values in found.items()}
    ours = rates["girih"]
    rows: list[Row] = [
        {
            "system": name,
            "rate": rate / 1e6,
            "ratio": times(rate, ours) if name != "girih" else None,
            "cpu": busy[name] * 1e6,
            "cpu_ratio": times(busy["girih"], busy[name]) if name != "girih" else None,
        }
        for name, rate in rates.items()
    ]
    summary = []
    if "Ray actor" in rates:
        ratio = ours / rates["Ray actor"]
        summary.append(f"{ratio:.3g} × Ray")
        if ratio < options.floor:
            misses.append(f"{ratio:.3g} × Ray, below {options.floor:g}")
    if server is not None:
        ratio = ours / max(rate for name, rate in rates.items() if name.startswith("redis"))
        summary.append(f"{ratio:.3g} × redis")
        if ratio < REDIS_FLOOR:
            misses.append(f"{ratio:.3g} × redis, below {REDIS_FLOOR:g}")
    return Report(
        f"rows read and updated per second, {CLIENTS} clients, batches of {BATCH}, {WIDTH} numbers a row",
        (
            ("system", "system"),
            ("million a second", "rate"),
            ("girih is", "ratio"),
            ("µs of CPU each", "cpu"),
            ("girih's is less", "cpu_ratio"),
        ),
        tuple(rows),
        ", ".join(summary),
        tuple(misses),
    )


BENCHMARK = Benchmark(
    "tables_throughput", __doc__ or "", measure, 10.0, "so many times a Ray actor's operations", repeats_option
)

if __name__ == "__main__":
    raise SystemExit(BENCHMARK.main())
