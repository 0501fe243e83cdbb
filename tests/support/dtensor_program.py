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
                        "reduce_scatter_tensor": args[0].nbytes - made.nbytes,
                        "all_to_all_single": made.nbytes // 2}  # fmt: skip
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


def losses(module: nn.Module, x, y, exported=None, mesh=None, steps: int = 3) -> list[float]:
    optimizer, found = torch.optim.SGD(module.parameters(), 0.1, 0.9), []
    for _ in range(steps):
        optimizer.zero_grad()
        with page.training(exported, mesh):
            loss = nn.functional.cross_entropy(module(x), y)
            loss.backward()
        optimizer.step()
        found.append(loss.full_tensor().item() if isinstance(loss, page.DTensor) else loss.item())
    return found


def same_as_whole(mesh) -> dict[str, list[float]]:
    """How far losses, batch norms and their gradients under `training()`, of samples in parts, are from those of whole
    tensors. Of labels, ranks have unequally many that count."""
    draw, ways = torch.Generator().manual_seed(3), nn.functional
    x, y = (torch.randn(8, 6, generator=draw) for _ in range(2))
    labels = torch.tensor([-100, -100, -100, 1, 2, 3, 4, 5])
    weight, shares = torch.rand(6, generator=draw), torch.rand(8, 6, generator=draw)
    cases = {
        "mse": lambda x, y, _, __: ways.mse_loss(x, y),
        "smooth_l1": lambda x, y, _, __: ways.smooth_l1_loss(x, y, beta=0.5),
        "huber": lambda x, y, _, __: ways.huber_loss(x, y),
        "labels": lambda x, _, labels, __: ways.cross_entropy(x, labels),
        "weighted": lambda x, _, labels, __: ways.cross_entropy(x, labels, weight),
        "binary": lambda x, _, __, shares: ways.binary_cross_entropy_with_logits(x, shares),
        "norm": lambda x, y, _, __: ways.mse_loss(ways.batch_norm(x, None, None, training=True), y),
    }
    found = {}
    for name, case in cases.items():
        results = []
        for whole in (True, False):
            given = x.clone() if whole else page.laid_out(x, mesh, ["S0"])
            given.requires_grad_()
            others = [item if whole else page.laid_out(item, mesh, ["S0"]) for item in (y, labels, shares)]
            with page.training():
                loss = case(given, *others)
                loss.backward()
            results.append([item if whole else item.full_tensor() for item in (loss.detach(), given.grad)])
        found[name] = [float((one - other).abs().max()) for one, other in zip(*results, strict=True)]
    return found


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    seen = {}
    for file in sorted(folder.glob("*.placements.json")):
        exported = page.read(file)
        mesh = page.mesh_of(exported)
        module = page.apply(model(), exported, mesh)
        with Received() as got, CommDebugMode() as counted:
            first = losses(module, *page.batch_of(batch(), exported, mesh), exported, mesh, steps=1)
        module = page.apply(model(), exported, mesh)
        found = losses(module, *page.batch_of(batch(), exported, mesh), exported, mesh)
        total = torch.tensor(got.bytes)
        dist.all_reduce(total)
        whole = {key: tensor.full_tensor() for key, tensor in module.state_dict().items()}
        seen[file.name.partition(".")[0]] = {
            "losses": found, "first": first, "bytes": int(total), "calls": [got.calls, counted.get_total_counts()],
            "state": {key: tensor.tolist() for key, tensor in whole.items()},
        }  # fmt: skip
    seen["same as whole"] = same_as_whole(mesh)
    if dist.get_rank() == 0:
        (folder / "seen.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
