"""Models that PyTorch's own engines lay out, for `test_parallelized.py`, which reads them and runs them as ranks:
there each takes a step, and rank 0 leaves the bytes that its collectives receive.

Command line: a file to write, then the names of functions.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils._python_dispatch import TorchDispatchMode


class Attention(nn.Module):
    """Heads are counted by their size."""

    def __init__(self, width: int, size: int = 4) -> None:
        super().__init__()
        self.size = size
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A transformer's layer."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.first(x))
        return x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))


def pairs() -> dict[str, ParallelStyle]:
    """Columns, then rows, as PyTorch's tutorial has them: each of the three first matrices takes a whole input."""
    columns = {f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")}
    return {**columns, "attention.out": RowwiseParallel(), "wide": ColwiseParallel(), "narrow": RowwiseParallel()}


def joined() -> dict[str, ParallelStyle]:
    """The same, but the three take one whole input together."""
    whole = PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),))
    return {"attention": whole, **pairs()}


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 8))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(8, 16, generator=draw), torch.randn(8, 8, generator=draw)


def words() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(4, 8, 16, generator=draw), torch.randn(4, 8, 16, generator=draw)


def sharded() -> nn.Module:
    model = mlp()
    for layer in (model[0], model[2], model[4], model):
        fully_shard(layer)
    return model


def replicated_and_sharded() -> nn.Module:
    """HSDP: shards over pairs, copies over the pairs."""
    model, mesh = mlp(), init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("copies", "shards"))
    fully_shard(model, mesh=mesh)
    return model


def columns_and_rows() -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return parallelize_module(mlp(), mesh, plan)


def block() -> nn.Module:
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return parallelize_module(Block(), mesh, pairs())


def block_as_megatron() -> nn.Module:
    torch.manual_seed(0)
    return parallelize_module(Block(), init_device_mesh("cpu", (dist.get_world_size(),)), joined())


def block_by_sequence() -> nn.Module:
    """Norms and what lies between blocks are divided along the sequence (Korthikanti et al. 2022)."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    rows = RowwiseParallel(output_layouts=Shard(1), use_local_output=False)
    plan = {"first": SequenceParallel(), "second": SequenceParallel(), "attention.out": rows, "narrow": rows}
    columns = ("attention.query", "attention.key", "attention.value", "wide")
    plan |= {name: ColwiseParallel(input_layouts=Shard(1)) for name in columns}
    return parallelize_module(Block(), mesh, plan)


def block_and_shards() -> nn.Module:
    """Both, on a mesh of two axes."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))
    model = parallelize_module(Block(), mesh["tensor"], pairs())
    fully_shard(model, mesh=mesh["data"])
    return model


def outputs_as_said() -> nn.Module:
    """The last matrix is cut by columns, and what it makes is gathered."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return parallelize_module(mlp(), mesh, {"4": ColwiseParallel(output_layouts=Replicate())})


class Received(TorchDispatchMode):
    """Bytes that this rank receives by the collectives below DTensor and FSDP2."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        made = func(*args, **(kwargs or {}))
        name = func._schema.name
        if name in ("c10d::_allgather_base_", "c10d::_reduce_scatter_base_"):
            self.bytes += abs(args[0].nbytes - args[1].nbytes)
        elif name == "_c10d_functional::all_reduce":
            self.bytes += 2 * made.nbytes * (dist.get_world_size() - 1) // dist.get_world_size()
        elif name in ("_c10d_functional::all_gather_into_tensor", "_c10d_functional::reduce_scatter_tensor"):
            self.bytes += abs(made.nbytes - args[0].nbytes)
        return made


def main(file: Path, names: list[str]) -> None:
    dist.init_process_group("gloo")
    seen = {}
    for name in names:
        model = globals()[name]()
        x, y = words() if "block" in name else batch()
        if name == "sharded":
            x, y = (item.chunk(dist.get_world_size())[dist.get_rank()] for item in (x, y))
        with Received() as got, CommDebugMode() as counted:
            nn.functional.mse_loss(model(x), y).backward()
        total = torch.tensor(got.bytes)
        dist.all_reduce(total)
        seen[name] = {
            "bytes": int(total),
            "calls": {str(key): count for key, count in counted.get_comm_counts().items()},
        }
    if dist.get_rank() == 0:
        file.write_text(json.dumps(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
