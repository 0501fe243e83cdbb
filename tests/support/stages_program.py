"""What `test_export_dtensor.py` runs as ranks, beside a copy of `dtensor_apply.py` and without girih: stages of a
pipeline take steps by `torch.distributed.pipelining`; the last rank leaves the losses.

Command line: a folder with stages.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dtensor_apply as page
import torch
import torch.distributed as dist
from torch import nn


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(item for _ in range(4) for item in (nn.Linear(16, 16), nn.Tanh())))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(8, 16, generator=draw), torch.randn(8, 16, generator=draw)


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    exported, (x, y) = page.read(folder / "stages.json"), batch()
    rank, last, found = dist.get_rank(), dist.get_world_size() - 1, []
    parts = exported["stages"]["micro_batches"]
    schedule, stage = page.pipeline_of(model(), exported, (x[: len(x) // parts],), nn.functional.mse_loss)
    optimizer = torch.optim.SGD(stage.parameters(), 0.1, 0.9)
    for _ in range(3):
        optimizer.zero_grad()
        losses = []
        given = (x,) if rank == 0 else ()
        schedule.step(*given, **({"target": y, "losses": losses} if rank == last else {}))
        optimizer.step()
        found.append(sum(item.item() for item in losses) / parts)
    own = {name: tensor.tolist() for name, tensor in stage.state_dict().items()}
    every: list[dict[str, list[float]]] = [{}] * (last + 1)
    dist.all_gather_object(every, own)
    if rank == last:
        state = {name: tensor for part in every for name, tensor in part.items()}
        (folder / "seen.json").write_text(json.dumps({"losses": found, "state": state}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
