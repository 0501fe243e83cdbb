"""A worker under a limit holds no more than its arena: the operating system would not let it."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from girih.run.arena import arena as module
from girih.run.arena.arena import OWN, Arena, ArenaError
from girih.run.worker.moves import HostMemory

# What the interpreter and the plan have, the cap, and SLACK bytes for threads' stacks, small objects and MKL's buffers:
# a product for which MKL gets no buffer is computed another way, in other bits.
UNDER_A_LIMIT = """
import hashlib, resource, sys
import torch, girih
from girih.capture import capture, state_of
from girih.run.worker.worker import Worker

CAP, PLANNED, SLACK = 50_000_000, 42_000_000, 40_000_000
torch.set_num_threads(1)
torch.manual_seed(0)
layers = [layer for _ in range(8) for layer in (torch.nn.Linear(256, 256), torch.nn.Tanh())]
model = torch.nn.Sequential(*layers, torch.nn.Linear(256, 8))
step = girih.TrainingStep(
    model, loss=torch.nn.functional.cross_entropy, optimizer=torch.optim.SGD(model.parameters(), lr=0.01)
)
batch = (torch.randn(8192, 256), torch.randint(8, (8192,)))
capped, limited = sys.argv[1] == "capped", sys.argv[2] == "limited"
plan = girih.plan(step, batch, machine="local:1", compare=(), memory=PLANNED if capped else None)
assert capped or plan.peak > CAP + SLACK, plan.peak
states = state_of(step)
graph = plan.graph
state = {item.name: states[item.path].detach() for item in graph.state_inputs}
inputs = capture(step, batch).flatten(batch)
rates = {item.name: torch.tensor(0.01, dtype=getattr(torch, graph.values[item.name].dtype))
         for item in graph.inputs if item.role == "scalar"}
torch.mm(torch.ones(256, 8192), torch.ones(8192, 256))  # MKL takes its buffers at the first call
if limited:
    used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData")) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (used + CAP + SLACK, resource.RLIM_INFINITY))
worker = Worker(plan.program, 0, memory=CAP if capped else None)
assert (worker.arena is not None) == capped, worker.without
worker.take_state(state)
digest = hashlib.sha256()
for _ in range(3):
    for tensor in worker.step(dict(inputs) | rates).values():
        digest.update(tensor.numpy().tobytes())
for name in sorted(worker.state):
    digest.update(worker.state[name].numpy().tobytes())
if capped:
    assert worker.arena.state()["peak"] <= plan.peak <= PLANNED, (worker.arena.state(), plan.peak)
print(digest.hexdigest())
"""


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    try:
        module.library()
    except ArenaError as error:
        pytest.skip(str(error))


def test_the_limit_of_the_system_breaks_the_undivided_step_and_not_the_capped_one() -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", UNDER_A_LIMIT, *arguments], capture_output=True, text=True)

    free, broken, capped = run("free", "unlimited"), run("free", "limited"), run("capped", "limited")
    assert free.returncode == 0, free.stderr
    assert broken.returncode != 0
    assert "can't allocate memory" in broken.stderr
    assert capped.returncode == 0, capped.stderr
    assert capped.stdout == free.stdout


def test_a_full_disk_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    host = HostMemory(torch.device("cpu"), str(tmp_path))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        host.place("small", torch.empty(1 << 10))
        with pytest.raises(OSError, match=r"cannot leave memory for a file in .*: File too large; make room there"):
            host.place("large", torch.empty(1 << 16))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_blocks_are_given_joined_and_refused() -> None:
    arena = Arena(1 << 20)
    with arena.serving():
        first, second, third = (torch.empty(1 << 18, dtype=torch.uint8) for _ in range(3))
        assert all(arena.holds(tensor) for tensor in (first, second, third))
        assert arena.state()["live"] == 3 << 18
        starts = [tensor.data_ptr() for tensor in (first, second, third)]
        assert starts == [starts[0] + part * (1 << 18) for part in range(3)]
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            torch.empty((1 << 18) + 1, dtype=torch.uint8)
        assert "262.14 KB are free, at most 262.14 KB of them in one piece" in arena.refusal()
        del first, second
        both = torch.empty(1 << 19, dtype=torch.uint8)
        assert both.data_ptr() == starts[0]
    outside = torch.empty(1 << 18, dtype=torch.uint8)
    assert not arena.holds(outside)
    del both, third
    assert arena.state() | {"peak": 0} == arena.state(restart=True) | {"peak": 0}
    assert arena.state()["live"] == 0


def test_a_step_that_is_repeated_gets_its_planned_addresses() -> None:
    arena = Arena(1 << 16)
    for log in (True, False):
        arena.begin(log)
        with arena.serving():
            first = torch.empty(1000, dtype=torch.uint8)
            second = torch.empty(500, dtype=torch.uint8)
        if log:
            requests = arena.log()
            assert requests["size"].tolist() == [1000, 500]
            assert requests["number"].tolist() == [0, 1]
            arena.plan(OWN, requests["start"][::-1] + 4096)
        else:
            assert second.data_ptr() + 1024 == first.data_ptr()
            assert arena.state()["misses"] == 0
        del first, second


def test_two_arenas_serve_two_threads() -> None:
    arenas = [Arena(1 << 20), Arena(1 << 20)]
    seen: list[list[bool]] = []

    def work(own: int) -> None:
        with arenas[own].serving():
            for _ in range(200):
                tensors = [torch.empty(size, dtype=torch.uint8) for size in (100, 10_000, 100_000)]
                seen.append([arenas[own].holds(item) and not arenas[1 - own].holds(item) for item in tensors])

    threads = [threading.Thread(target=work, args=(own,)) for own in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 400
    assert all(all(item) for item in seen)
    assert [arena.state()["live"] for arena in arenas] == [0, 0]


def test_a_tensor_outlives_its_arena() -> None:
    arena = Arena(1 << 16)
    with arena.serving():
        tensor = torch.full((100,), 7.0)
    del arena
    assert tensor.sum() == 700


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(ArenaError, match="no-such-compiler cannot be run"):
        module._compiled()
    monkeypatch.setenv("CC", "false")
    with pytest.raises(ArenaError, match="false fails"):
        module._compiled()
