"""An arena serves PyTorch's allocator from one region of memory: what does not fit there is refused."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from lowered_programs import alone
from run_programs import rates, training

from girih.memory.lifetimes import lifetimes
from girih.memory.moves import moved
from girih.memory.residency import belady, floor
from girih.run.arena import arena as module
from girih.run.arena.arena import OWN, Arena, ArenaError
from girih.run.worker.measure import peak_bytes
from girih.run.worker.moves import HostMemory
from girih.run.worker.worker import Worker


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    try:
        module.library()
    except ArenaError as error:
        pytest.skip(str(error))


def test_a_worker_within_its_arena_has_the_same_bits_and_the_planned_peak() -> None:
    captured, state, batch = training((64, 32, 48, 16))
    program = alone(captured.graph)
    lives = lifetimes(program)
    cap = (floor(lives)[0] + int(lives.used.max())) // 2
    held = moved(lives, belady(lives, cap, np.ones(len(lives.steps))), cap)
    states = []
    for own, memory in ((program, None), (held, 2 * cap)):
        worker = Worker(own, 0, memory=memory)
        assert (worker.arena is not None) == (memory is not None), worker.without
        worker.take_state({item.name: state[item.path] for item in captured.graph.state_inputs})
        for _ in range(3):
            worker.step(dict(batch) | rates(captured.graph))
        states.append({name: tensor.clone() for name, tensor in worker.state.items()})
        if memory is not None:
            assert peak_bytes(worker, dict(batch) | rates(captured.graph)) <= memory
    assert all(states[0][name].equal(states[1][name]) for name in states[0])
    tight = Worker(program, 0, memory=1 << 12)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        tight.take_state({item.name: state[item.path] for item in captured.graph.state_inputs})


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
