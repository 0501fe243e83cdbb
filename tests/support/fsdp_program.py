"""What `test_export_checkpoint.py` runs as ranks, without girih: a model under FSDP2 goes on from a checkpoint of
torch.distributed.checkpoint for some steps, and writes another one.

Command line: the checkpoint to read, the new one, a file of batches.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard

STATES = {"mean": "exp_avg", "square": "exp_avg_sq"}
"""What girih calls AdamW's state, and what PyTorch calls it."""


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 4))


def kept(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The state by the names that a checkpoint of girih has for it."""
    parameters = dict(module.named_parameters())
    state = {path: parameter.detach() for path, parameter in parameters.items()}
    for path, parameter in parameters.items():
        state |= {f"{path}/{own}": optimizer.state[parameter][theirs] for own, theirs in STATES.items()}
    return {**state, "optimizer/step": optimizer.state[next(iter(parameters.values()))]["step"]}


def main(before: str, after: str, batches: str) -> None:
    dist.init_process_group("gloo")
    module = model()
    for layer in (module[0], module[2], module):
        fully_shard(layer)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    for parameter in module.parameters():  # as a first step makes it, without one
        optimizer.state[parameter] = {name: torch.zeros_like(parameter) for name in STATES.values()}
        optimizer.state[parameter]["step"] = torch.zeros(())
    state = kept(module, optimizer)
    dcp.load(state, checkpoint_id=before)
    for parameter in module.parameters():
        optimizer.state[parameter]["step"].copy_(state["optimizer/step"])
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for x, y in torch.load(batches, weights_only=True):
        optimizer.zero_grad()
        nn.functional.mse_loss(module(x.chunk(ranks)[rank]), y.chunk(ranks)[rank]).backward()
        optimizer.step()
    dcp.save(kept(module, optimizer), checkpoint_id=after)
    dist.barrier()
    os._exit(0)  # all is written: once, on a busy machine, PyTorch's own threads ended the process with SIGABRT here


if __name__ == "__main__":
    main(*sys.argv[1:])
