"""What `test_export_dtensor.py` runs as ranks, beside a copy of `dtensor_apply.py` and without girih: each plan's
placements are applied to the model, which trains; rank 0 leaves what it has seen.

Command line: a folder with a file of placements for each plan.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dtensor_apply as page
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils._python_dispatch import TorchDispatchMode


class Received(TorchDispatchMode):
    """Bytes that this rank receives by the collectives below DTensor."""

    def __init__(self):
        super().__init__()
        self.bytes = self.calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(kind, page.DTensor) for kind in types):
            return NotImplemented
        made = func(*args, **(kwargs or {}))
        space, _, name = func._schema.name.partition("::")
        if name in ("_allgather_base_", "_reduce_scatter_base_"):  # of FSDP2
            self.bytes += abs(args[0].nbytes - args[1].nbytes)
            self.calls += 1
        if space == "_c10d_functional" and name not in ("wait_tensor", "_wrap_tensor_autograd"):
            received = {"all_gather_into_tensor": made.nbytes - args[0].nbytes, "all_reduce": made.nbytes,
                        "reduce_scatter_tensor": args[0].nbytes - made.nbytes}  # fmt: skip
            self.bytes += received[name]
            self.calls += 1
        return made


def model() -> nn.Module:
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.LayerNorm(16), nn.Linear(16, 32))
    return nn.Sequential(*inner, nn.ReLU(), nn.Linear(32, 8))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(8, 16, generator=draw), torch.randint(8, (8,), generator=draw)


def losses(module: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int = 3) -> list[float]:
    optimizer, found = torch.optim.SGD(module.parameters(), 0.1, 0.9), []
    for _ in range(steps):
        optimizer.zero_grad()
        with page.training():
            loss = nn.functional.cross_entropy(module(x), y)
            loss.backward()
        optimizer.step()
        found.append(loss.full_tensor().item() if isinstance(loss, page.DTensor) else loss.item())
    return found


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    seen = {}
    for file in sorted(folder.glob("*.placements.json")):
        exported = page.read(file)
        mesh = page.mesh_of(exported)
        module = page.apply(model(), exported, mesh)
        with Received() as got, CommDebugMode() as counted:
            first = losses(module, *page.batch_of(batch(), exported, mesh), steps=1)
        module = page.apply(model(), exported, mesh)
        found = losses(module, *page.batch_of(batch(), exported, mesh))
        total = torch.tensor(got.bytes)
        dist.all_reduce(total)
        whole = {key: tensor.full_tensor() for key, tensor in module.state_dict().items()}
        seen[file.name.partition(".")[0]] = {
            "losses": found, "first": first, "bytes": int(total), "calls": [got.calls, counted.get_total_counts()],
            "state": {key: tensor.tolist() for key, tensor in whole.items()},
        }  # fmt: skip
    if dist.get_rank() == 0:
        (folder / "seen.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
