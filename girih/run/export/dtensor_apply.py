"""Lays a module out over ranks by placements of DTensor that girih has written (`plan.export("dtensor").save(FILE)`).

This page needs PyTorch alone: copy it beside your training script.

    exported = read("placements.json")
    mesh = mesh_of(exported)
    apply(model, exported, mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    with training(exported, mesh):
        loss = step(model, batch_of(batch, exported, mesh))
        loss.backward()
    optimizer.step()
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch.distributed import _functional_collectives as functional_collectives
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, placement_types
from torch.distributed.tensor.experimental import implicit_replication, register_sharding
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

Tensor = Any


LABELS = (functional.cross_entropy, functional.nll_loss)
DIFFERENCES = (
    functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss,
    functional.binary_cross_entropy, functional.binary_cross_entropy_with_logits,
)  # fmt: skip
"""Losses of which DTensor takes the mean over what a rank has (PyTorch 2.13): over labels that count, or over all
numbers. Where ranks have unequally many labels, that is another loss; of the others, gradients are too large."""

COMPOSED = (functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss)
"""Of these, PyTorch computes a weighted mean step by step, and DTensor the same."""

EACH_IMAGE = (
    "avg_pool2d", "avg_pool2d_backward", "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward",
    "max_pool2d_with_indices", "max_pool2d_with_indices_backward",
)  # fmt: skip
"""ATen's operators that compute each channel of each image by itself. DTensor has no rule for most of them."""


def read(file: str | Path) -> dict[str, Any]:
    """What the file says."""
    exported: dict[str, Any] = json.loads(Path(file).read_text(encoding="utf-8"))
    return exported


def mesh_of(exported: Mapping[str, Any], device: str = "cpu") -> DeviceMesh:
    """The mesh of all ranks, with the names of its axes; one axis where `fully_shard` divides over all of them."""
    if exported["fully_sharded"]:
        return init_device_mesh(device, (prod(exported["mesh"]),), mesh_dim_names=("ranks",))
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
    with torch._C.DisableTorchFunction():  # what is called inside is no call of the program's
        made: DTensor = tensor.redistribute(mesh, wanted)
    return made


def batch_of(batch: Any, exported: Mapping[str, Any], mesh: DeviceMesh, path: tuple[str, ...] = ()) -> Any:
    """The whole batch, which every rank has, with its tensors laid out: in tuples, lists and dictionaries."""
    if isinstance(batch, Mapping):
        return {key: batch_of(item, exported, mesh, (*path, str(key))) for key, item in batch.items()}
    if isinstance(batch, (tuple, list)):
        return type(batch)(batch_of(item, exported, mesh, (*path, str(at))) for at, item in enumerate(batch))
    words = exported["batch"].get("/".join(path))
    return batch if words is None else laid_out(batch, mesh, words[: mesh.ndim])


@contextmanager
def training(exported: Mapping[str, Any] | None = None, mesh: DeviceMesh | None = None) -> Iterator[None]:
    """For the forward and the backward pass of a step: tensors that a forward makes, such as masks and positions, are
    whole on each rank; a mean that PyTorch's losses take is the mean over all ranks' numbers; batch norms add up what
    ranks have.

    exported, mesh: with these, what goes into each call of a function of PyTorch's, and comes out, is brought to the
    plan's places, too, and gradients. Without, DTensor goes its own way between modules, which makes the same numbers.
    """
    with implicit_replication(), _Means():
        if exported is None or mesh is None or not exported.get("calls"):
            yield
            return
        with _Calls(exported, mesh):
            yield


class _Calls(TorchFunctionMode):
    """Counts calls by their names, as they were counted when the plan was exported, and brings tensors to places."""

    def __init__(self, exported: Mapping[str, Any], mesh: DeviceMesh) -> None:
        super().__init__()
        self.calls = {(call["function"], call["number"]): call for call in exported["calls"]}
        self.counts: Counter[str] = Counter()
        self.mesh = mesh

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if not name or name.startswith("__"):
            return func(*args, **kwargs)
        call = self.calls.get((name, self.counts[name]))
        self.counts[name] += 1
        if call is None or name.endswith("_"):  # what is written in place stays where it is
            return func(*args, **kwargs)
        args, kwargs = self.brought((args, kwargs), call["inputs"], call["made"])
        if func is functional.linear:
            return self.linear(call, *args, **kwargs)
        return self.brought(func(*args, **kwargs), call["outputs"], call["gradients"])

    def linear(self, call: Mapping[str, Any], input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The product, which may be a partial sum, brought to its places, and then the bias: with it DTensor makes no
        partial sums, and moves the weight instead."""
        product = self.brought(functional.linear(input, weight), call["outputs"], ())
        if bias is not None:
            product = product + bias
        return self.brought(product, (), call["gradients"])

    def brought(self, items: Any, borders: Sequence[Mapping[str, Any]], back: Sequence[Mapping[str, Any]]) -> Any:
        """Tensors brought to the places of borders, and their gradients to those of `back`; by shape, each once."""
        left, returning = list(borders), list(back)

        def bring(item: Any) -> Any:
            if not isinstance(item, DTensor):
                return item
            there, again = _taken(left, item), _taken(returning, item)
            if not item.requires_grad:
                return item if there is None else laid_out(item, self.mesh, there)
            return item if there is None and again is None else _Brought.apply(item, self.mesh, there, again)

        return tree_map(bring, items)


def _taken(borders: list[Mapping[str, Any]], tensor: Tensor) -> Sequence[str] | None:
    """The places of the first border of a tensor's shape, which is taken out."""
    for number, border in enumerate(borders):
        if border["shape"] == list(tensor.shape):
            places: Sequence[str] = borders.pop(number)["places"]
            return places
    return None


class _Brought(torch.autograd.Function):
    """A tensor at other places, and its gradient at those that the plan has for it, whatever the tensor's own are."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, mesh: DeviceMesh, there: Any, again: Any) -> Tensor:
        ctx.mesh, ctx.again = mesh, again
        return laid_out(tensor, mesh, there) if there is not None else tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        moved = gradient if ctx.again is None else laid_out(gradient, ctx.mesh, ctx.again)
        return moved, None, None, None


class _Means(TorchFunctionMode):
    """Losses with reduction="mean" of tensors that are laid out: the sum, divided by how many are counted."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.batch_norm:
            given = inspect.signature(func).bind(*args, **kwargs)
            given.apply_defaults()
            if given.arguments["training"] and isinstance(given.arguments["input"], DTensor):
                return _batch_norm(**given.arguments)
        if func not in LABELS and func not in DIFFERENCES:
            return func(*args, **kwargs)
        given = inspect.signature(func).bind(*args, **kwargs)
        given.apply_defaults()
        loss = given.arguments
        laid_out = any(isinstance(loss[name], DTensor) for name in ("input", "target"))
        old = loss.get("size_average"), loss.get("reduce")
        weighted = func in COMPOSED and loss.get("weight") is not None
        if not laid_out or weighted or loss["reduction"] != "mean" or old != (None, None):
            return func(*args, **kwargs)
        loss["reduction"] = "sum"
        total = func(*given.args, **given.kwargs)
        if func in LABELS:
            return total / _counted(loss)
        return total / prod(torch.broadcast_shapes(loss["input"].shape, loss["target"].shape))


def _batch_norm(
    input: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor, bias: Tensor, training: bool,
    momentum: float, eps: float,
) -> Tensor:  # fmt: skip
    """Step by step, so that ranks which have samples each add up numbers for each channel. DTensor's own rule divides
    channels, and brings all samples of a channel to one rank."""
    dimensions, channels = [at for at in range(input.dim()) if at != 1], [1, -1, *[1] * (input.dim() - 2)]
    count = input.numel() // input.shape[1]
    mean = _everywhere(input.sum(dimensions) / count)
    apart = input - mean.view(channels)
    variance = _everywhere(apart.square().sum(dimensions) / count)
    made = apart * (variance + eps).rsqrt().view(channels)
    if weight is not None:
        made = made * weight.view(channels)
    if bias is not None:
        made = made + bias.view(channels)
    if running_mean is not None:
        with torch.no_grad():
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_(variance.to(running_var.dtype) * (count / max(count - 1, 1)), momentum)
    return made


def _everywhere(tensor: DTensor) -> DTensor:
    """It and its gradient whole on each rank, so that both are added up while they are small."""
    places = [Replicate()] * tensor.device_mesh.ndim
    made: DTensor = tensor.redistribute(placements=places)
    if made.requires_grad:
        made.register_hook(lambda gradient: gradient.redistribute(placements=places))
    return made


def _counted(loss: Mapping[str, Any]) -> Any:
    """By what the mean over labels divides."""
    target, weight = loss["target"], loss["weight"]
    if target.is_floating_point():  # a share of each class
        return loss["input"].numel() // loss["input"].shape[min(1, loss["input"].dim() - 1)]
    counts = target != loss["ignore_index"]
    return counts.sum() if weight is None else (weight[target * counts] * counts).sum()


def _exchanged(tensor: Tensor, gather: int, shard: int, mesh: DeviceMesh, axis: int) -> Tensor:
    """A rank's part of a tensor that is cut along `gather`, cut along `shard` instead: ranks exchange parts.

    Over gloo DTensor (PyTorch 2.13) gathers the whole tensor, and says that gloo has no all-to-all, which it has.
    """
    parts = torch.stack(tensor.chunk(mesh.size(axis), shard))
    got = functional_collectives.all_to_all_single(parts, None, None, (mesh, axis))
    return torch.cat(functional_collectives.wait_tensor(got).unbind(), gather)


def _taught() -> None:
    """DTensor learns how `EACH_IMAGE` divide, and that processors exchange parts, too."""
    before = placement_types.shard_dim_alltoall

    def exchanged(tensor: Tensor, gather: int, shard: int, mesh: DeviceMesh, axis: int) -> Tensor:
        return (_exchanged if mesh.device_type == "cpu" else before)(tensor, gather, shard, mesh, axis)

    if before.__module__ != __name__:
        placement_types.shard_dim_alltoall = exchanged
    for name in EACH_IMAGE:
        operator = getattr(torch.ops.aten, name).default
        register_sharding(operator)(partial(_alike, len(operator._schema.returns)))


def _alike(results: int, *given: Any) -> list[tuple[list[Placement], list[Placement | None]]]:
    """The ways to divide an operator that computes each channel of each image by itself: all tensors alike."""
    tensors = [hasattr(item, "placements") for item in given]
    images = next(item.ndim for item in given if hasattr(item, "placements")) - 2
    return [
        ([place] * results, [place if tensor else None for tensor in tensors])
        for place in (Replicate(), *map(Shard, range(images)))
    ]


def apply(model: torch.nn.Module, exported: Mapping[str, Any], mesh: DeviceMesh) -> torch.nn.Module:
    """Parameters and buffers become DTensors, and hooks bring what goes into each module, and comes out, to its places.

    The model is changed, and returned. A parameter that is used otherwise than it is kept (gathered from its shards, as
    in FSDP) is brought there when its module reads it; its gradient goes the way back.
    """
    if exported["fully_sharded"]:
        return _fully_sharded(model, exported, mesh)
    _taught()
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
                        if tensor.requires_grad:
                            made.register_post_accumulate_grad_hook(_reduce)
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


def _reduce(parameter: Tensor) -> None:
    """A gradient is added up once, behind the backward pass, and not again by each operator of the optimizer."""
    parameter.grad = parameter.grad.redistribute(placements=parameter.placements)


def _fully_sharded(model: torch.nn.Module, exported: Mapping[str, Any], mesh: DeviceMesh) -> torch.nn.Module:
    """FSDP2 in the place of placements: a group of parameters for each module that has any.

    Modules see the samples of this rank, and the loss is one of DTensors: what comes out of the model is laid out
    again, so that a mean is one over all samples. So gradients are summed, not averaged.
    """
    words = {id(item): exported["parameters"][name]["kept"] for name, item in model.named_parameters()}

    def place(parameter: torch.nn.Parameter) -> Shard | None:
        dimension = next((int(word[1:]) for word in words[id(parameter)] if word.startswith("S")), 0)
        return Shard(dimension) if parameter.shape[dimension] % mesh.size() == 0 else None

    owners = [item for item in model.modules() if any(True for _ in item.parameters(recurse=False))]
    for module in dict.fromkeys([*reversed(owners), model]):
        again = exported.get("gathers_again", True)
        fully_shard(module, mesh=mesh, shard_placement_fn=place, reshard_after_forward=again)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)

    def into(module: torch.nn.Module, given: Any, named: Any) -> Any:
        return tree_map(lambda item: item.to_local() if isinstance(item, DTensor) else item, (given, named))

    def out_of(module: torch.nn.Module, given: Any, made: Any) -> Any:
        return tree_map(lambda item: _rows(item, mesh) if isinstance(item, torch.Tensor) and item.dim() else item, made)

    model.register_forward_pre_hook(into, prepend=True, with_kwargs=True)
    model.register_forward_hook(out_of)
    return model


def _rows(tensor: Tensor, mesh: DeviceMesh) -> DTensor:
    made: DTensor = DTensor.from_local(tensor, mesh, [Shard(0)], run_check=False)
    return made


def pipeline_of(
    model: torch.nn.Module, exported: Mapping[str, Any], micro_batch: tuple[Any, ...], loss: Any, device: str = "cpu"
) -> tuple[Any, torch.nn.Module]:
    """The schedule of a pipeline on all ranks, and this rank's stage, or its stages, a module with their parameters.

    micro_batch: inputs of the model for one micro-batch, for their shapes. loss: of an output and a target, a mean over
    the micro-batch. `schedule.step(*inputs)` on the first rank, `schedule.step(target=…, losses=[])` on the last one
    and `schedule.step()` on others take a step forward and backward; the optimizer is over the stage's parameters.
    """
    from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B, SplitPoint, pipeline

    stages, rank, ranks = exported["stages"], torch.distributed.get_rank(), torch.distributed.get_world_size()
    pipe = pipeline(model, micro_batch, split_spec=dict.fromkeys(stages["begins"], SplitPoint.BEGINNING))
    own = [pipe.build_stage(at, torch.device(device)) for at in range(rank, len(stages["begins"]) + 1, ranks)]
    if stages["schedule"] == "interleaved":
        schedule = ScheduleInterleaved1F1B(own, stages["micro_batches"], loss_fn=loss)
        return schedule, Runs(stage.submod for stage in own)
    kind = Schedule1F1B if stages["schedule"] == "1f1b" else ScheduleGPipe
    return kind(own[0], stages["micro_batches"], loss_fn=loss), own[0].submod


class Runs(torch.nn.ModuleList):
    """Several runs of layers on one rank, as one module whose state has the names that it has in the model."""

    def state_dict(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        return {name: item for run in self for name, item in run.state_dict(*arguments, **options).items()}

    def load_state_dict(self, state_dict: Mapping[str, Any], *arguments: Any, **options: Any) -> None:
        for run in self:
            run.load_state_dict({name: state_dict[name] for name in run.state_dict()}, *arguments, **options)


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
