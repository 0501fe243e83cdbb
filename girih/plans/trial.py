"""Before a plan from a file starts: would it fit into this host, and do its operators take what it gives them?

Every different call is made once on PyTorch's meta device, which computes shapes and dtypes and no numbers; girih's own
kernels, which compute, have their arguments held against their parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch

from girih.graph import Graph, GraphError, Node, Ref, Value
from girih.host import memory_here
from girih.kernels.evaluate import call, resolve
from girih.machine.units import format_bytes
from girih.plans.check import one_line
from girih.plans.plan import Plan, PlanError

MOST_WORKERS = 256


def try_plan(plan: Plan, workers: int, device: str = "cpu") -> None:
    """Raises PlanError, naming the node or the memory, where starting could only fail later or worse. workers: of the
    plan's, how many this process starts on this host, and on which device each computes."""
    if workers > MOST_WORKERS:
        raise PlanError(
            f"{plan.file}: the plan is for {plan.machine.devices} devices, and one host starts at most {MOST_WORKERS} "
            "workers: plan for fewer, or start it on several hosts with torchrun"
        )
    known: set[Any] = set()
    for node in plan.graph.nodes:
        key = _key(plan.graph, node)
        if key not in known:
            known.add(key)
            if why := refused_call(plan.graph, node):
                raise PlanError(f"{plan.file}: node {node.name!r}, {node.operator}, {why}")
    _check_memory(plan, workers, device)


def _check_memory(plan: Plan, workers: int, device: str) -> None:
    """Do the plan's devices of this host fit into it, or each into its GPU?"""
    on_card = device != "cpu"
    here = torch.cuda.get_device_properties(0).total_memory if on_card else memory_here()
    try:
        uses = plan.memory_by_device
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise PlanError(
            f"{plan.file}: what its operators need cannot be told, so that some of their arguments are wrong "
            f"({type(error).__name__}: {one_line(error)})"
        ) from error
    needed = plan.peak if workers == 1 or on_card else sum(use.peak for use in uses) * workers // len(uses)
    if needed > here:
        raise PlanError(
            f"{plan.file}: the plan needs {format_bytes(needed)} of memory ({format_bytes(plan.peak)} on a device), "
            f"and this {'GPU' if on_card else 'host'} has {format_bytes(here)}: start it on a larger one, or plan for "
            f"more {'GPUs' if on_card else 'hosts'}"
        )


def _key(graph: Graph, node: Node) -> Any:
    """Equal for equal calls; a bool is not the number that it equals."""
    return (
        node.operator,
        repr([(name, _typed(graph, item)) for name, item in node.arguments]),
        tuple((graph.values[name].shape, graph.values[name].dtype) for name in node.outputs),
    )


def _typed(graph: Graph, item: Any) -> Any:
    if isinstance(item, Ref):
        value = graph.values[item.name]
        return Value("", value.shape, value.dtype)
    return tuple(_typed(graph, part) for part in item) if isinstance(item, tuple) else item


def refused_call(graph: Graph, node: Node) -> str:
    """Why a call cannot be made; "" if it can, or if that shows only with numbers."""
    if node.operator.startswith("girih."):
        return _refused_by_kernel(node)
    try:
        schema = resolve(node.operator)._schema  # type: ignore[attr-defined]
        on_meta = {name: _on_meta(graph, item) for name, item in node.arguments}
        if any(item.name == "device" for item in schema.arguments):
            on_meta["device"] = torch.device("meta")
        results = call(node.operator, on_meta)
    except NotImplementedError:  # it has no rule for the meta device
        return ""
    except GraphError as error:
        return f"cannot be called: {one_line(error)}"
    except Exception as error:
        return f"does not take these arguments: {one_line(error)}"
    return _other_results(graph, node, results if isinstance(results, (tuple, list)) else (results,))


def _on_meta(graph: Graph, item: Any) -> Any:
    if isinstance(item, Ref):
        value = graph.values[item.name]
        return torch.empty(value.shape, dtype=getattr(torch, value.dtype), device="meta")
    return tuple(_on_meta(graph, part) for part in item) if isinstance(item, tuple) else item


def _other_results(graph: Graph, node: Node, tensors: Iterable[Any]) -> str:
    results = list(tensors)
    if len(node.outputs) > len(results):
        return f"makes {len(results)} tensors, and the plan says {len(node.outputs)}"
    for number, (name, tensor) in enumerate(zip(node.outputs, results, strict=False)):
        if not isinstance(tensor, torch.Tensor):  # it was not asked for
            continue
        # What stands beside the first result one kind of device may leave empty, and another fill.
        if number and 0 in (tensor.numel(), graph.values[name].elements):
            continue
        value, dtype = graph.values[name], str(tensor.dtype).removeprefix("torch.")
        if (tuple(tensor.shape), dtype) != (value.shape, value.dtype):
            return (
                f"makes {name} {dtype}{list(tensor.shape)}, and the plan says {value.dtype}{list(value.shape)}: "
                "plan it again"
            )
    return ""


def _refused_by_kernel(node: Node) -> str:
    """Why one of girih's own kernels would refuse the node's arguments, by its parameters; "" where it takes them."""
    try:
        parameters = inspect.signature(resolve(node.operator)).parameters
        arguments = dict(node.arguments)
        inspect.signature(resolve(node.operator)).bind(**arguments)
    except (TypeError, GraphError) as error:
        return f"does not take these arguments: {one_line(error)}"
    for name, item in arguments.items():
        if not _fits(item, str(parameters[name].annotation)):
            return f"takes {name} as {parameters[name].annotation}, and the plan says {_short(item)}"
    return ""


def _fits(item: Any, kind: str) -> bool:
    """Is this what a parameter with this annotation takes? What is not known here is taken to fit."""
    if item is None:
        return "None" in kind or kind == "Any"
    if kind.startswith("Tensor"):
        return isinstance(item, Ref)
    if kind in ("Sizes", "Sequence[int]"):
        return isinstance(item, tuple) and all(type(part) is int for part in item)
    if kind.startswith("Sequence[Tensor"):
        return isinstance(item, tuple) and all(isinstance(part, Ref) or part is None for part in item)
    if kind in ("int", "bool", "str"):
        return type(item).__name__ == kind or (kind == "int" and isinstance(item, Ref))
    if kind == "float":
        return isinstance(item, (int, float, Ref))
    return True


def _short(item: Any) -> str:
    text = repr(item)
    return text if len(text) <= 60 else f"{text[:56]}…"
