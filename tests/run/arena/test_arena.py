"""An arena serves PyTorch's allocator from one region of memory, at the addresses that were said beforehand."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from girih.run.arena import arena as module
from girih.run.arena.arena import REQUEST, Arena, ArenaError
from girih.run.arena.packing import owners, packed


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    try:
        module.library()
    except ArenaError as error:
        pytest.skip(str(error))


def of_bytes(count: int) -> torch.Tensor:
    return torch.empty(count, dtype=torch.uint8)


def where(arena: Arena, *tensors: torch.Tensor) -> list[int]:
    return [tensor.data_ptr() - arena.start for tensor in tensors]


def test_results_lie_at_their_places_and_scratch_in_the_runs() -> None:
    arena = Arena(1 << 20)
    ticket = arena.ticket([(4096, 1000), (8192, 5000)], [(0, 1024), (65536, 1 << 20)])
    with arena.serving():
        arena.call(ticket)
        small, second, first, large = of_bytes(100), of_bytes(5000), of_bytes(1000), of_bytes(4000)
    assert where(arena, first, second, small, large) == [4096, 8192, 0, 65536]
    assert arena.state()["live"] == arena.state()["peak"] == 10100
    outside = of_bytes(1000)
    assert not arena.holds(outside)
    del first, second, small, large
    assert arena.state()["live"] == arena.state()["outside"] == 0


def test_a_tensor_lies_where_it_was_said() -> None:
    arena = Arena(1 << 16)
    with arena.at(512, 100):
        first = of_bytes(100)
    with arena.at(512, 100):
        second = of_bytes(100)  # it is taken: this one is the C library's
    assert where(arena, first) == [512]
    assert not arena.holds(second)
    assert arena.state() | {"peak": 0} == {**dict.fromkeys(module.STATE, 0), "live": 100, "misses": 1, "outside": 100,
                                          "outside_peak": 100, "outside_requests": 1}  # fmt: skip
    del second
    assert arena.state(restart=True)["outside"] == 0
    assert arena.state()["outside_peak"] == 0


def test_what_has_no_place_is_counted_or_refused() -> None:
    for strict in (False, True):
        arena = Arena(1 << 16, strict)
        ticket = arena.ticket([(0, 256)], [(1024, 2048)])
        with arena.serving():
            arena.call(ticket)
            fits = of_bytes(1024)
            if strict:
                with pytest.raises(RuntimeError, match="can't allocate memory"):
                    of_bytes(64)
                assert "64 B (64 bytes) have no place in the arena of 65.54 KB" in arena.refusal()
            else:
                more = of_bytes(64).fill_(7)
                assert arena.refusal() == ""
                assert arena.state()["outside_peak"] == 64
                assert int(more.sum()) == 7 * 64
                del more
        assert arena.state()["outside"] == 0
        del fits


def test_an_arena_learns_which_request_is_the_result() -> None:
    """Scratch of the result's size that is asked for first takes its place once, then lies elsewhere. Where the order
    of requests is another one, places go by sizes again."""
    arena = Arena(1 << 16)
    results, runs = [(0, 512)], [(1024, 9216)]
    ticket = arena.ticket(results, runs)
    for turn in range(3):
        with arena.serving():
            arena.call(ticket)
            scratch, result = of_bytes(512), of_bytes(512)
            del scratch
        found = where(arena, result)
        assert found == ([1024] if turn == 0 else [0])
        if turn == 0:
            requests = arena.requests(ticket)
            own = owners(requests, results, {0: 1024})
            assert own == {1: 0}
            places = packed(requests, own, runs)
            assert places is not None
            assert places.tolist() == [1024, 0]
            arena.teach(ticket, places)
        del result
    with arena.serving():
        arena.call(ticket)
        other, result = of_bytes(300), of_bytes(512)
        assert where(arena, other, result) == [1024, 0]


def test_requests_that_did_not_fit_are_packed() -> None:
    """As they come, the second one splits the run; packed, the third one fits beside it."""
    arena = Arena(1 << 16)
    results, runs = [(0, 256)], [(1024, 4096)]
    ticket = arena.ticket(results, runs)

    def call() -> torch.Tensor:
        arena.call(ticket)
        first, second = of_bytes(1024), of_bytes(1024)
        del first
        third, result = of_bytes(2048), of_bytes(256)
        del second, third
        return result

    with arena.serving():
        result = call()
        assert arena.state()["outside_requests"] == 1
        ((failed, requests),) = arena.failed()
        assert failed == ticket
        assert requests["bytes"].tolist() == [1024, 1024, 2048, 256]
        places = packed(requests, owners(requests, results, {}), runs)
        assert places is not None
        arena.teach(ticket, places)
        del result
        arena.state(restart=True)
        result = call()
        assert where(arena, result) == [0]
    assert arena.state()["outside_requests"] == 0
    assert list(arena.failed()) == []


def test_a_result_that_was_served_outside_is_known_by_its_size() -> None:
    """Scratch of the result's size takes its place, other scratch the run: the result lies outside once."""
    arena = Arena(1 << 16)
    results, runs = [(0, 512)], [(1024, 1536)]
    ticket = arena.ticket(results, runs)

    def call() -> torch.Tensor:
        arena.call(ticket)
        first, second = of_bytes(512), of_bytes(512)
        del first
        third, result = of_bytes(512), of_bytes(512)
        assert where(arena, third) == [0]
        del second, third
        return result

    with arena.serving():
        result = call()
        assert not arena.holds(result)
        requests = arena.requests(ticket)
        own = owners(requests, results, {0: -1})
        assert own == {3: 0}
        assert owners(requests, results, {}) == {}  # it was not looked at
        places = packed(requests, own, [*runs, (2048, 2560)])
        assert places is not None
        assert places[3] == 0
    two = np.array([(512, -1, -2, 0, -1), (512, -1, -2, 1, -1)], REQUEST)
    assert owners(two, results, {0: -1}) == {}  # either may be the result


def test_what_cannot_be_packed_is_said() -> None:
    requests = np.array([(128, 0, -2, 0, 2), (128, -1, -2, 1, 3)], REQUEST)
    assert packed(requests, {}, [(0, 128)]) is None
    places = packed(requests, {}, [(0, 128), (192, 320)])
    assert places is not None
    assert sorted(places.tolist()) == [0, 192]
    in_turn = np.array([(128, 0, -2, 0, 1), (128, -1, -2, 2, 3)], REQUEST)
    assert packed(in_turn, {}, [(0, 128)]).tolist() == [0, 0]  # type: ignore[union-attr]


def test_two_arenas_serve_two_threads() -> None:
    arenas = [Arena(1 << 20), Arena(1 << 20)]
    seen: list[list[bool]] = []

    def work(own: int) -> None:
        ticket = arenas[own].ticket([], [(0, 1 << 20)])
        with arenas[own].serving():
            for _ in range(200):
                arenas[own].call(ticket)
                tensors = [of_bytes(size) for size in (100, 10_000, 100_000)]
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
    with arena.at(64, 400):
        tensor = torch.full((100,), 7.0)
    with arena.at(64, 400):
        outside = torch.full((100,), 3.0)
    del arena
    assert tensor.sum() == 700
    assert outside.sum() == 300


PRODUCT = """
import hashlib, os, resource
import torch
from girih.run.arena.arena import take_library_buffers

torch.manual_seed(0)
torch.set_num_threads(1)
a, b, c = torch.randn(4096, 256), torch.randn(256, 256), torch.empty(4096, 256)
for limited in (False, True):
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        continue
    if limited:
        take_library_buffers()
        held = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
        resource.setrlimit(resource.RLIMIT_DATA, (held,) * 2)
    torch.mm(a, b, out=c)
    print(hashlib.sha256(c.numpy().data).hexdigest(), flush=True)
    os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts what is mapped on Linux alone")
def test_libraries_have_their_buffers_before_the_system_can_refuse_them() -> None:
    """MKL, without memory to pack matrices into, computes with other kernels, which have other bits."""
    done = subprocess.run([sys.executable, "-c", PRODUCT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    free, limited = done.stdout.split()
    assert free == limited
