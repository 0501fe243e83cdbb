"""What DTensor makes of an export, found out beforehand: the module is laid out and takes a step as rank 0 of so many,
on fake tensors and PyTorch's fake process group, so that nothing is computed and nothing is sent.

DTensor's way depends on the shapes and placements alone. So what it sends here it sends in a run, to the byte, and
where it fails here, for want of a rule or by a mistake of its own, it fails there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from girih.capture.batches import with_leaves
from girih.capture.parallelized import copied
from girih.capture.torch.training import loss_of
from girih.run.export import dtensor_apply as page

SMALL = 1 << 28
"""Bytes of a model whose step may be taken on zeros."""
NOT_SENDING = ("wait_tensor", "_wrap_tensor_autograd")


@dataclass(frozen=True)
class Rehearsal:
    """A step under DTensor. received: bytes, of all ranks together. calls: of collectives, on a rank, by name. failed:
    why it cannot be taken, or ""."""

    received: int = 0
    calls: Mapping[str, int] = field(default_factory=dict)
    failed: str = ""


class Received(TorchDispatchMode):
    """Bytes that a rank receives by the collectives below DTensor and FSDP2, as rings and pairs of ranks send them."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0.0
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        made = func(*args, **(kwargs or {}))
        space, _, name = func._schema.name.partition("::")
        if space == "c10d" and name in ("_allgather_base_", "_reduce_scatter_base_"):  # of FSDP2: (output, input, …)
            self.calls[name] += 1
            self.bytes += abs(args[0].nbytes - args[1].nbytes)
        elif space == "c10d" and name == "allreduce_":
            self.calls[name] += 1
            size = torch.distributed.ProcessGroup.unbox(args[1]).size()
            self.bytes += sum(item.nbytes for item in args[0]) * 2 * (size - 1) / size
        if space != "_c10d_functional" or name in NOT_SENDING:
            return made
        self.calls[name] += 1
        if name == "all_gather_into_tensor":
            self.bytes += made.nbytes - args[0].nbytes
        elif name == "reduce_scatter_tensor":
            self.bytes += args[0].nbytes - made.nbytes
        elif name in ("all_reduce", "all_to_all_single"):
            size = dist.distributed_c10d._resolve_process_group(args[-1]).size()
            self.bytes += made.nbytes * (size - 1) / size * (2 if name == "all_reduce" else 1)
        return made


def rehearsed(exported: Mapping[str, Any], step: Any, batch: Any) -> Rehearsal:
    """A step of an export, as its file says it. step: a TrainingStep, which stays as it is; batch: the whole one.

    Where it fails on fake tensors and the model is small, it is taken again on zeros: some of DTensor's rules are found
    by fake tensors of its own, and not within others.

    Raises:
        RuntimeError: this process has a process group of its own.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise RuntimeError("an export is rehearsed in a process without a process group")
    ranks = prod(exported["mesh"])
    small = sum(item.nbytes for item in step.model.parameters()) <= SMALL
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        mesh = page.mesh_of(exported)
        for around in (FakeTensorMode(allow_non_fake_inputs=True), *([nullcontext()] if small else ())):
            failed = ""
            try:
                with around, Received() as got:
                    _step(exported, step, batch, mesh)
                return Rehearsal(int(got.bytes * ranks), dict(got.calls))
            except (LookupError, RuntimeError, ValueError, AssertionError, TypeError, AttributeError) as error:
                said = str(error).strip().splitlines()
                failed = f"{type(error).__name__}: {said[0][:200] if said else 'no reason is given'}"
        return Rehearsal(failed=failed)
    finally:
        dist.destroy_process_group()


def _step(exported: Mapping[str, Any], step: Any, batch: Any, mesh: Any) -> None:
    model = copied(step.model, _zeros)
    page.apply(model, exported, mesh)
    own = with_leaves(batch, lambda leaf: _zeros(leaf) if isinstance(leaf, torch.Tensor) else leaf)
    with page.training(exported, mesh):
        loss = loss_of(step.forward(model, page.batch_of(own, exported, mesh)))
        loss.backward()
    if isinstance(loss, DTensor):
        loss.full_tensor()  # which a loop reads, and a plan gives


def _zeros(tensor: Any) -> Any:
    """A tensor of the same form; within a fake mode a fake one."""
    made = torch.zeros(tensor.shape, dtype=tensor.dtype)
    return made.requires_grad_(tensor.requires_grad) if made.dtype.is_floating_point else made
