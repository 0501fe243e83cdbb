"""Copies between memory and files: by the worker itself, or by the copiers' own threads and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from girih.run.worker import moves
from girih.run.worker.moves import Copiers, HostMemory, When, copiers_of, copy_alone

TASKS = Path("/proc/self/task")


@pytest.fixture
def copiers() -> Iterator[Copiers]:
    made = Copiers(HostMemory(torch.device("cpu")), torch.device("cpu"))
    yield made
    made.close()


@pytest.mark.skipif(not TASKS.exists(), reason="counts the threads of this process by what Linux tells")
def test_copies_wait_on_no_core_that_computes(copiers: Copiers) -> None:
    """PyTorch would give each copier OpenMP threads, which spin behind each copy while a step computes."""
    tensor, threads = torch.randn(1 << 20), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        (tensor + 1).sum()  # this thread's own
        before = {task.name for task in TASKS.iterdir()}
        for _ in range(3):
            back = copiers.into(copiers.out(tensor, "x"), "x", []).result()
        assert len({task.name for task in TASKS.iterdir()} - before) == len(copiers.threads)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(back, tensor)


@pytest.mark.skipif(not TASKS.exists(), reason="counts the threads of this process by what Linux tells")
def test_a_worker_that_computes_on_all_cores_copies_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("girih.machine.names.cores_here", lambda: 2 * torch.get_num_threads())
    copiers = copiers_of(torch.device("cpu"), 2)
    tensor = torch.randn(1 << 20)
    tensor.neg()  # this thread's own
    before = {task.name for task in TASKS.iterdir()}
    host = copiers.out(tensor, "x").result()
    back = copiers.into(host, "x", [])
    assert torch.equal(host, tensor)
    assert torch.equal(back.result(), tensor)
    assert {task.name for task in TASKS.iterdir()} <= before
    copiers.close()


def test_copies_that_wait_for_a_disk_go_to_threads(monkeypatch: pytest.MonkeyPatch, copiers: Copiers) -> None:
    reads = iter(range(1000))
    monkeypatch.setattr(moves, "_read_from_disk", lambda: next(reads))
    copiers.when = "now"
    tensor = torch.randn(100)
    host = copiers.out(tensor, "x")
    for number in range(moves.WAITED + 2):
        assert copiers.when == ("now" if number < moves.WAITED else "beside")
        assert torch.equal(copiers.into(host, "x", []).result(), tensor)


def test_copies_are_beside_computation_where_there_are_cores_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("girih.machine.names.cores_here", lambda: 2 * torch.get_num_threads() + 2)
    copiers = copiers_of(torch.device("cpu"), 2)
    assert isinstance(copiers, Copiers)
    assert copiers.when == "beside"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.complex64])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("when", ["now", "beside", "latest"])
def test_a_copy_is_the_same_in_any_order_and_dtype(
    dtype: torch.dtype, order: tuple[int, ...], when: When, copiers: Copiers
) -> None:
    copiers.when = when
    tensor = (torch.randn(3, 4, 5) * 3).to(dtype).permute(order)
    back = copiers.into(copiers.out(tensor, "x"), "x", []).result()
    assert torch.equal(back, tensor)
    assert back.stride() == tensor.stride()


COMPLEX = torch.randn(3, 4, dtype=torch.complex64)


@pytest.mark.parametrize(
    "tensor",
    [torch.tensor(2.0), torch.empty(0, 3), torch.randn(4, 6)[:, ::2], COMPLEX.conj(), COMPLEX.conj().imag,
     torch.randn(3, requires_grad=True)],
)  # fmt: skip
@torch.no_grad()
def test_what_does_not_lie_as_it_reads_is_copied(tensor: torch.Tensor) -> None:
    """Scalars, nothing, strides with gaps, conjugates that PyTorch has not computed yet."""
    copy = copy_alone(torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype), tensor)
    assert torch.equal(copy, tensor)
