"""A user's tensors in files while a run has newer ones (`girih.run.training.aside`)."""

from __future__ import annotations

import errno
import gc
import mmap
import sys
from pathlib import Path

import pytest
import torch

import girih
from girih.run.training.aside import LEAST, Aside

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is mapped as Linux does")


def mapped(tensor: torch.Tensor) -> tuple[str, bool]:
    """Of the middle of the tensor's memory: the rights, with `p` for private, and whether there is a file behind it."""
    middle = tensor.data_ptr() + tensor.nbytes // 2
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= middle < last:
            return line.split()[1], line.split()[4] != "0"
    raise AssertionError("nothing is mapped there")


def in_file(tensor: torch.Tensor) -> bool:
    return mapped(tensor)[1]


def private_bytes() -> int:
    """Memory of this process without a file behind it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


def own_pages(elements: int) -> torch.Tensor:
    """Random numbers in memory that the C library does not give out again."""
    memory = mmap.mmap(-1, 4 * elements, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=torch.float32).normal_()


def test_tensors_keep_their_addresses_numbers_and_views() -> None:
    tensor, small = own_pages(3 * LEAST).view(3, LEAST), torch.randn(8)
    before, where, view = tensor.clone(), tensor.data_ptr(), tensor[1:, 5:]
    aside = Aside()
    aside.take([tensor, view, small])
    assert in_file(tensor)
    assert not in_file(small)
    assert tensor.data_ptr() == where
    assert torch.equal(tensor, before)
    assert torch.equal(view, before[1:, 5:])
    view.mul_(2)
    assert torch.equal(tensor[1:, 5:], before[1:, 5:] * 2)
    aside.back()
    assert not in_file(tensor)
    assert tensor.data_ptr() == where
    assert torch.equal(tensor[1:, 5:], before[1:, 5:] * 2)
    assert torch.equal(tensor[0], before[0])


def test_what_others_share_and_what_is_freed_meanwhile_is_let_alone() -> None:
    shared, mine = torch.randn(LEAST).share_memory_(), own_pages(LEAST)
    before, aside = shared.clone(), Aside()
    aside.take([shared, mine])
    assert in_file(mine)
    assert torch.equal(shared, before)
    assert shared.is_shared()
    mine.share_memory_()  # its old pages are freed
    gc.collect()
    other = own_pages(LEAST).fill_(1)  # perhaps where they were
    aside.back()
    assert bool((other == 1).all())
    assert not in_file(other)


def test_a_copy_is_in_a_file_and_takes_memory_where_it_is_written() -> None:
    """At the end it is this process's own, so that one that is forked does not write into it."""
    elements = 1 << 23
    tensor, aside = own_pages(elements + 3), Aside()
    before = private_bytes()
    copy = aside.copied(tensor)
    assert mapped(copy) == ("rw-s", True)
    assert torch.equal(copy, tensor)
    aside.back()
    assert mapped(copy) == ("rw-p", True)
    assert torch.equal(copy, tensor)
    assert private_bytes() - before < tensor.nbytes // 8
    copy.mul_(2)
    assert private_bytes() - before > tensor.nbytes // 8 * 7
    aside.take([copy])  # of the next run
    assert mapped(copy) == ("rw-s", True)
    assert private_bytes() - before < tensor.nbytes // 8
    aside.back()
    assert mapped(copy) == ("rw-p", True)
    assert torch.equal(copy, tensor.mul_(2))


def test_a_full_disk_leaves_tensors_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    tensor, aside = own_pages(LEAST), Aside()
    before = tensor.clone()
    aside.take([tensor])
    assert not in_file(tensor)
    assert torch.equal(tensor, before)
    assert torch.equal(aside.copied(tensor), before)


def test_a_model_is_in_files_while_it_is_trained_under_a_limit() -> None:
    """Who reads its parameters meanwhile finds what the table of docs/memory.md says. At the end it is in memory, at
    its old addresses; the state that the optimizer had not before stays in files of this process alone."""
    torch.manual_seed(0)
    models = [torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.Linear(512, 512)) for _ in "ab"]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in models]
    batch = torch.randn(16, 512), torch.randn(16, 512)

    def plain() -> None:
        optimizers[1].zero_grad()
        torch.nn.functional.mse_loss(models[1](batch[0]), batch[1]).backward()
        optimizers[1].step()

    weight = models[0][0].weight
    before, where = weight.detach().clone(), weight.data_ptr()
    with girih.fit(models[0], torch.nn.functional.mse_loss, optimizers[0], batch, memory="5MB") as train:
        assert train.plan.told_scratch.threads == torch.get_num_threads()
        assert not in_file(weight)
        train(*batch)
        plain()
        assert in_file(weight)
        assert not torch.equal(weight, before)  # who reads it has the numbers of now
        torch.testing.assert_close(train.module[0].weight, models[1][0].weight)
        assert in_file(weight)
        assert in_file(optimizers[0].state[weight]["momentum_buffer"])
        train(*batch)
        plain()
        train.close()
        assert not in_file(weight)
        assert mapped(optimizers[0].state[weight]["momentum_buffer"]) == ("rw-p", True)
        train(*batch)
        plain()
        assert mapped(optimizers[0].state[weight]["momentum_buffer"]) == ("rw-s", True)
    assert not in_file(weight)
    assert mapped(optimizers[0].state[weight]["momentum_buffer"]) == ("rw-p", True)
    assert weight.data_ptr() == where
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict())
    for kept, wanted in zip(optimizers[0].state.values(), optimizers[1].state.values(), strict=True):
        torch.testing.assert_close(kept, wanted)
