"""Lays a module out over ranks by placements of DTensor that girih has written (`plan.export("dtensor").save(FILE)`).

This page needs PyTorch alone: copy it beside your training script.

    exported = read("placements.json")
    mesh = mesh_of(exported)
    apply(model, exported, mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    with implicit_replication():  # of torch.distributed.tensor.experimental: masks and positions that a forward makes
        loss = step(model, batch_of(batch, exported, mesh))
        loss.backward()
    optimizer.step()
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

Tensor = Any


def read(file: str | Path) -> dict[str, Any]:
    """What the file says."""
    exported: dict[str, Any] = json.loads(Path(file).read_text(encoding="utf-8"))
    return exported


def mesh_of(exported: Mapping[str, Any], device: str = "cpu") -> DeviceMesh:
    """The mesh of all ranks, with the names of its axes."""
    return init_device_mesh(device, tuple(exported["mesh"]), mesh_dim_names=tuple(exported["names"]))


def placements_of(words: Sequence[str]) -> list[Placement]:
    """One for each axis of the mesh: `S0` (Shard), `R` (Replicate), `P` (Partial)."""
    kinds: dict[str, Placement] = {"R": Replicate(), "P": Partial()}
    return [kinds.get(word) or Shard(int(word.removeprefix("S"))) for word in words]


def laid_out(tensor: Tensor, mesh: DeviceMesh, words: Sequence[str]) -> DTensor:
    """A tensor, of which every rank has the whole or which is a DTensor already, as placed by these words.

    Along an axis where it should be partial and is not, it stays as it is: DTensor makes no parts of what is whole.
    """
    if not isinstance(tensor, DTensor):
        tensor = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
    wanted = [
        old if isinstance(new, Partial) else new
        for old, new in zip(tensor.placements, placements_of(words), strict=True)
    ]
    made: DTensor = tensor.redistribute(mesh, wanted)
    return made


def batch_of(batch: Any, exported: Mapping[str, Any], mesh: DeviceMesh, path: tuple[str, ...] = ()) -> Any:
    """The whole batch, which every rank has, with its tensors laid out: in tuples, lists and dictionaries."""
    if isinstance(batch, Mapping):
        return {key: batch_of(item, exported, mesh, (*path, str(key))) for key, item in batch.items()}
    if isinstance(batch, (tuple, list)):
        return type(batch)(batch_of(item, exported, mesh, (*path, str(at))) for at, item in enumerate(batch))
    words = exported["batch"].get("/".join(path))
    return batch if words is None else laid_out(batch, mesh, words)


def apply(model: torch.nn.Module, exported: Mapping[str, Any], mesh: DeviceMesh) -> torch.nn.Module:
    """Parameters and buffers become DTensors, and hooks bring what goes into each module, and comes out, to its places.

    The model is changed, and returned. A parameter that is used otherwise than it is kept (gathered from its shards, as
    in FSDP) is brought there when its module reads it; its gradient goes the way back.
    """
    whole, shared = exported["parameters"], {}
    for name, module in model.named_modules():
        for kind in (module._parameters, module._buffers):
            for key, tensor in kind.items():
                words = whole.get(f"{name}.{key}" if name else key)
                if tensor is None or words is None:
                    continue
                if id(tensor) not in shared:
                    made: Tensor = laid_out(tensor.detach(), mesh, words["kept"])
                    if isinstance(tensor, torch.nn.Parameter):
                        made = torch.nn.Parameter(made, tensor.requires_grad)
                    shared[id(tensor)] = made, tensor  # the tensor too, so that no other takes its identity
                kind[key] = shared[id(tensor)][0]
        used = {
            key: _used(key, mesh, words["used"])
            for key in module._parameters
            if (words := whole.get(f"{name}.{key}" if name else key)) and words["used"] != words["kept"]
        }
        if used:
            module.__class__ = type(type(module).__name__, (type(module),), used)
        if (borders := exported["modules"].get(name)) is not None:
            module.register_forward_pre_hook(_into(mesh, borders["inputs"]))
            module.register_forward_hook(_out_of(mesh, borders["outputs"]))
    return model


def _used(key: str, mesh: DeviceMesh, words: Sequence[str]) -> property:
    return property(lambda module: laid_out(module._parameters[key], mesh, words))


def _into(mesh: DeviceMesh, borders: Sequence[Mapping[str, Any]]) -> Any:
    def hook(module: torch.nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return _placed(given, mesh, borders)

    return hook


def _out_of(mesh: DeviceMesh, borders: Sequence[Mapping[str, Any]]) -> Any:
    def hook(module: torch.nn.Module, given: tuple[Any, ...], made: Any) -> Any:
        if isinstance(made, torch.Tensor):
            return _placed((made,), mesh, borders)[0]
        return _placed(made, mesh, borders) if isinstance(made, tuple) else made

    return hook


def _placed(given: tuple[Any, ...], mesh: DeviceMesh, borders: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """Tensors brought to the places of the borders of their shapes, each of which is for one of them."""
    left, found = list(borders), []
    for item in given:
        border = next(
            (one for one in left if isinstance(item, torch.Tensor) and one["shape"] == list(item.shape)), None
        )
        if border is not None:
            left.remove(border)
            item = laid_out(item, mesh, border["places"])
        found.append(item)
    return tuple(found)
