"""A model that PyTorch's own engines lay out, for the command line: what does that cost, and is there a better plan?

girih compare examples/parallelized.py:training --as-parallelized --machine local:4

Under torchrun the function is the same; there, each rank takes its own part of the batch.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import girih


def training() -> tuple[girih.TrainingStep, tuple[torch.Tensor, torch.Tensor]]:
    """Tensor parallelism over pairs of ranks, and FSDP2 over the pairs."""
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = girih.TrainingStep(model, loss=nn.functional.mse_loss, optimizer=optimizer)
    return step, (torch.randn(32, 64), torch.randn(32, 64))
