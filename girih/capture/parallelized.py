"""What PyTorch's `fully_shard` and `parallelize_module` have made of a module: read from it, and undone in a copy.

Parameters of such a module are DTensors, whose meshes and placements say how they lie over the ranks. Hooks that
`parallelize_module` has registered say how tensors lie that go into a module and come out of it. Nothing is run, and
the module stays as it is.
"""

from __future__ import annotations

import copy
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Placement

from girih.capture.errors import CaptureError
from girih.capture.torch.training import Inference, TrainingStep

PYTORCHS = "torch.distributed"
LEFT_BEHIND = ("_distribute_module_applied", "_is_fsdp_managed_module", "_fsdp_use_orig_params", "__composable_api")
"""How the names begin that it gives a module's attributes of its own."""


@dataclass(frozen=True, order=True)
class RankAxis:
    """An axis of a device mesh by the numbers of its ranks: so many, each `stride` behind the one before."""

    stride: int
    size: int


@dataclass(frozen=True)
class StatedPlacements:
    """How the tensors lie that go into a module, or come out of it, over these axes; None: nothing is said."""

    axes: tuple[RankAxis, ...]
    places: tuple[Placement | None, ...]


@dataclass(frozen=True)
class Parallelism:
    """How a module is laid out over ranks.

    cuts: by the path of a parameter, the dimension that each axis divides; parameters without any are whole on each
    rank. data: the axes of `fully_shard`, over which the batch is divided. tensor: all other axes that are used.
    outputs: by the path of a module. alone: by the path of a module that makes its input whole for itself, how it
    lies before; its gradient is brought back to there behind each of them.
    """

    ranks: int
    cuts: Mapping[str, Mapping[RankAxis, int]]
    data: frozenset[RankAxis]
    tensor: frozenset[RankAxis]
    outputs: Mapping[str, StatedPlacements]
    alone: Mapping[str, StatedPlacements]


def parallelism_of(module: torch.nn.Module) -> Parallelism:
    """How a module is laid out.

    Raises:
        CaptureError: neither `fully_shard` nor `parallelize_module` has laid it out; or it has parts that girih cannot
            say, which the message names.
    """
    parameters = {path: item for path, item in module.named_parameters() if isinstance(item, DTensor)}
    if not parameters:
        raise CaptureError(
            f"no parameter of the {type(module).__name__} is a DTensor: call fully_shard or parallelize_module on the "
            "model before the step is made, as under torchrun"
        )
    cuts: dict[str, dict[RankAxis, int]] = {}
    used: set[RankAxis] = set()
    for path, item in parameters.items():
        axes = axes_of(item.device_mesh)
        used |= {axis for axis in axes if axis.size > 1}
        cuts[path] = {}
        for axis, place in zip(axes, item.placements, strict=True):
            if place.is_partial():
                raise CaptureError(f"{path!r} lies as {item.placements}: a parameter is never a partial sum")
            if not place.is_replicate() and axis.size > 1:
                cuts[path][axis] = place.dim % item.ndim
    data: set[RankAxis] = set()
    outputs: dict[str, StatedPlacements] = {}
    alone: dict[str, StatedPlacements] = {}
    prepared: list[str] = []
    for path, part in module.named_modules():
        if isinstance(part, FSDPModule):
            data |= {axis for mesh in _meshes_of(part) for axis in axes_of(mesh) if axis.size > 1}
        border = _output_of(part)
        if border is not None:
            outputs[path] = border
        border, together = _input_of(part)
        if together:
            prepared.append(path)
        elif border and not any(path == other or path.startswith(f"{other}.") or not other for other in prepared):
            alone[path] = border
    return Parallelism(
        torch.distributed.get_world_size(), cuts, frozenset(data), frozenset(used - data), outputs, alone
    )


def axes_of(mesh: DeviceMesh) -> tuple[RankAxis, ...]:
    """The axes of a mesh, from the outermost.

    Raises:
        CaptureError: its ranks are not at equal distances.
    """
    ranks = mesh.mesh
    axes = []
    for number, size in enumerate(ranks.shape):
        first = ranks.movedim(number, 0).reshape(size, -1)[:, 0]
        steps = set((first[1:] - first[:-1]).tolist())
        if len(steps) > 1:
            raise CaptureError(f"the ranks {first.tolist()} of {mesh} are not at equal distances: expected such a mesh")
        axes.append(RankAxis(steps.pop() if steps else 1, size))
    return tuple(axes)


def _meshes_of(part: FSDPModule) -> Iterator[DeviceMesh]:
    """The meshes over which `fully_shard` divides the parameters of a module."""
    state = part._get_fsdp_state()  # PyTorch has no other way to ask
    groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    return (group.mesh_info.mesh for group in groups if group is not None)


def _output_of(part: torch.nn.Module) -> StatedPlacements | None:
    """How `parallelize_module` has its output lie; None where it says nothing of it."""
    found = None
    for hook in part._forward_hooks.values():
        known = _kept_by(hook)
        if "device_mesh" not in known:
            continue
        style, function = known.get("self"), known.get("output_fn")
        places = getattr(style, "desired_output_layouts", None)
        if places is None and function is not None:  # of ColwiseParallel and RowwiseParallel: (places, …)
            places = next((item for item in getattr(function, "args", ()) if isinstance(item, tuple)), None)
        if places:
            found = StatedPlacements(axes_of(known["device_mesh"]), tuple(places))
    return found


def _input_of(part: torch.nn.Module) -> tuple[StatedPlacements | None, bool]:
    """How the input lies of which `parallelize_module` makes a whole one; whether that is so for all that is inside."""
    for hook in part._forward_pre_hooks.values():
        known = _kept_by(hook)
        style, function = known.get("self"), known.get("input_fn")
        places: tuple[Any, ...]
        if style is not None:
            places = getattr(style, "input_layouts", None), getattr(style, "desired_input_layouts", None)
        else:
            places = tuple(item for item in getattr(function, "args", ()) if isinstance(item, tuple))
        if len(places) == 2 and all(places) and any(place is not None and place.is_replicate() for place in places[1]):
            return StatedPlacements(
                axes_of(known["device_mesh"]), places[0]
            ), style is not None and not style.use_local_output
    return None, False


def _kept_by(hook: Any) -> Mapping[str, Any]:
    """The variables that a hook of PyTorch's parallel styles keeps."""
    if not _is_pytorchs(hook) or not inspect.isfunction(hook):
        return {}
    return inspect.getclosurevars(hook).nonlocals


def _is_pytorchs(hook: Any) -> bool:
    function = getattr(hook, "func", hook)
    return str(getattr(function, "__module__", "")).startswith(PYTORCHS)


# ------------------------------------------------------------------------------------------- undone


def plain_step(step: TrainingStep | Inference) -> TrainingStep | Inference:
    """The step as it is for one device: its model with whole parameters, on the meta device, its optimizer over them.

    Raises:
        CaptureError: the optimizer has other parameters than the model.
    """
    copies: dict[int, Any] = {}
    model = _plain(step.model, copies, _on_meta)
    if isinstance(step, Inference) or step.optimizer is None:
        return replace(step, model=model)
    known = step.optimizer
    optimizer = copy.copy(known)
    optimizer.state = defaultdict(dict)
    optimizer.param_groups = [
        {**group, "params": [copies[id(item)] for item in group["params"] if id(item) in copies]}
        for group in known.param_groups
    ]
    return replace(step, model=model, optimizer=optimizer)


def copied(module: torch.nn.Module, make: Callable[[Any], Any]) -> torch.nn.Module:
    """A copy of a module, without what torch.distributed has added to it. make: a tensor in the place of another."""
    return _plain(module, {}, make)


def _plain(part: torch.nn.Module, copies: dict[int, Any], make: Callable[[Any], Any]) -> torch.nn.Module:
    """copies: of modules and tensors, by identity."""
    if id(part) in copies:
        made: torch.nn.Module = copies[id(part)]
        return made
    kind: Any = type(part)
    if isinstance(part, FSDPModule):
        kind = next(item for item in kind.__mro__ if not issubclass(item, FSDPModule))
    made = copies[id(part)] = kind.__new__(kind)
    own = {key: item for key, item in vars(part).items() if not key.startswith(LEFT_BEHIND)}
    for key, item in own.items():
        if key.endswith("_hooks") and isinstance(item, dict):
            own[key] = type(item)((number, hook) for number, hook in item.items() if not _is_pytorchs(hook))
    for key in ("_parameters", "_buffers"):
        own[key] = {name: _whole(tensor, copies, make) for name, tensor in own[key].items()}
    own["_modules"] = {name: child and _plain(child, copies, make) for name, child in own["_modules"].items()}
    made.__dict__.update(own)
    return made


def _on_meta(tensor: Any) -> Any:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _whole(tensor: Any, copies: dict[int, Any], make: Callable[[Any], Any]) -> Any:
    """What is made in the place of a tensor, the same for the same tensor."""
    if tensor is None or id(tensor) in copies:
        return copies.get(id(tensor))
    made = make(tensor)
    if isinstance(tensor, torch.nn.Parameter):
        made = torch.nn.Parameter(made, tensor.requires_grad)
    copies[id(tensor)] = made
    return made
