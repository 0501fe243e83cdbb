"""Run a captured step beside PyTorch's own, and compare every number."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from girih.capture import Captured, TrainingStep, capture, state_of
from girih.graph import Graph, Node, check, format_graph, parse_graph
from girih.kernels.evaluate import interpret


def check_text(graph: Graph) -> None:
    """The graph obeys its law, and its text form gives it back."""
    check(graph)
    assert parse_graph(format_graph(graph)) == graph


def first_inputs(captured: Captured, step: Any, seed: int = 0) -> dict[str, torch.Tensor]:
    """Everything but the batch, by name; learning rates from the optimizer."""
    state = state_of(step)
    given = {}
    for item in captured.graph.inputs:
        if item.role in ("parameter", "buffer", "state"):
            given[item.name] = state[item.path].clone()
        elif item.role == "scalar":
            group = int(item.path.partition("/")[2] or 0)
            dtype = getattr(torch, captured.graph.values[item.name].dtype)
            given[item.name] = torch.tensor(step.optimizer.param_groups[group]["lr"], dtype=dtype)
        elif item.role == "seed":
            given[item.name] = torch.tensor(seed)
    return given


def observer(graph: Graph) -> Any:
    """Hold each node to the shapes and dtypes that the graph declares."""

    def observe(node: Node, made: tuple[torch.Tensor, ...]) -> None:
        for name, tensor in zip(node.outputs, made, strict=True):
            value = graph.values[name]
            got = (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
            assert got == (value.shape, value.dtype), f"{node}: made {got}, declared {value}"

    return observe


def run(graph: Graph, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return interpret(graph, inputs, observer(graph))


def advance(graph: Graph, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """One step: (loss, the inputs of the next)."""
    made = run(graph, inputs)
    loss = next(made[output.name] for output in graph.outputs if output.role == "loss")
    return loss, inputs | {old: made[new] for old, new in graph.updates.items()}


def eager_step(step: TrainingStep, batch: Any) -> torch.Tensor:
    """One step as a person would write it."""
    step.optimizer.zero_grad()
    if step.autocast is None:
        loss = step.forward(step.model, batch)
    else:
        with torch.autocast("cpu", dtype=step.autocast):
            loss = step.forward(step.model, batch)
    loss.backward()
    if step.clip_grad_norm is not None:
        torch.nn.utils.clip_grad_norm_(step.model.parameters(), step.clip_grad_norm)
    step.optimizer.step()
    return loss.detach()


def compare(step: TrainingStep, batches: Sequence[Any], tolerance: float = 1e-10) -> Captured:
    """Capture, then take a step on each batch both ways: losses, and all state after each step, are equal."""
    before = copy.deepcopy(step.model.state_dict())
    captured = capture(step, batches[0])
    graph = captured.graph
    for name, tensor in step.model.state_dict().items():
        assert torch.equal(tensor, before[name]), f"capture changed {name}"
    check_text(graph)
    inputs = first_inputs(captured, step)
    for batch in batches:
        loss, inputs = advance(graph, inputs | captured.flatten(batch))
        expected = eager_step(step, batch)
        torch.testing.assert_close(loss, expected, rtol=tolerance, atol=tolerance)
        state = state_of(step)
        for item in graph.state_inputs:
            actual, wanted = inputs[item.name], state[item.path]
            if item.path == "optimizer/step" and isinstance(step.optimizer, torch.optim.SGD):
                actual = actual.clamp(max=1.0)  # torch's SGD does not count: it has momentum buffers or not
            wide = torch.complex128 if wanted.is_complex() else torch.float64
            difference = (actual.to(wide) - wanted.to(wide)).abs().max().item() if actual.numel() else 0.0
            bound = tolerance * (1 + wanted.to(wide).abs().max().item())
            assert difference <= bound, f"{item.path}: differs by {difference}"
    frozen = {path for path, parameter in step.model.named_parameters() if not parameter.requires_grad}
    trained = {item.name for item in graph.inputs if item.role in ("parameter", "state") and item.path not in frozen}
    assert trained <= set(graph.updates), sorted(trained - set(graph.updates))
    return captured
