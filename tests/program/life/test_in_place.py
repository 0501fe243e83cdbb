"""Results that take over the memory of an operand: which operators can, and that they compute the same."""

from __future__ import annotations

import inspect

import pytest
import torch
from counts import but_long

import girih
from girih.capture import capture
from girih.capture.torch.state import state_of
from girih.graph import Node
from girih.kernels.evaluate import interpret
from girih.kernels.own import KERNELS
from girih.models import example
from girih.ops import Operator
from girih.ops.catalogue import catalogue
from girih.ops.derive.in_place import INTO, NEVER, OVER_FIRST, OWN_MEMORY, writes_over
from girih.program.life.lifetimes import lifetimes
from girih.run.worker.compute import over_operand

ELEMENTWISE = [
    item
    for item in catalogue().values()
    if item.elementwise and (item.name.startswith("aten.") or item.name in OVER_FIRST | INTO)
]


def tensors(name: str) -> int:
    space, operator, *overload = name.split(".")
    if space == "girih":
        return len(inspect.signature(KERNELS[name]).parameters)
    function = getattr(getattr(getattr(torch.ops, space), operator), overload[0] if overload else "default")
    return sum(str(item.type) == "Tensor" for item in function._schema.arguments)


@pytest.mark.parametrize("operator", ELEMENTWISE, ids=lambda item: item.name)
def test_what_is_said_to_write_over_an_operand_has_a_kernel_for_it(operator: Operator) -> None:
    for operand in range(tensors(operator.name)):
        if writes_over(operator, operand):
            over_operand(operator.name, operand)
        elif operator.name.split(".")[1] in NEVER:
            with pytest.raises(LookupError, match="no kernel that writes over"):
                over_operand(operator.name, operand)


class Chain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        kept = x.view(-1).view(64, 64)
        z = torch.relu(y + 1).tanh() * y
        return torch.where(z > 0, z, kept).exp().t()


def test_a_chain_of_functions_lies_in_few_tensors() -> None:
    x = torch.randn(64, 64)
    plan = girih.plan(girih.Inference(Chain()), x, machine="local:1", objective="bytes")
    lives = lifetimes(plan.program)
    assert len(lives.taken) >= 4
    for step, storage in lives.taken.items():
        item = lives.storages[storage]
        assert item.last == step
        assert item.born >= 0  # the input is the caller's
    assert int(lives.used.max()) == plan.peak
    assert plan.peak < 3 * x.nbytes + x.nbytes // 2  # x, y or the result so far, and the mask of one byte each
    kept = x.clone()
    with plan.start() as run:
        assert torch.equal(run.step(x)[0], Chain()(x))
        assert run.run.peak_bytes(*run.inputs((x,), None)) == [plan.peak]
    assert torch.equal(x, kept)


class Exposed(torch.nn.Module):
    """Its state leaves it in three ways: as it is, as a view, and as the state of another."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(8))
        self.register_buffer("b", torch.zeros(8))
        self.register_buffer("c", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.a = self.a + x
        self.b = self.b * 2 + x
        self.c = self.b + 1
        return self.a, self.b.view(2, 4)


def test_what_was_returned_is_not_written_over() -> None:
    x = torch.arange(8.0)
    plan = girih.plan(girih.Inference(Exposed()), x, objective="bytes")
    with plan.start() as run:
        first = run.step(x)
        copies = [item.clone() for item in first]
        run.step(x)
        assert all(map(torch.equal, first, copies))


@pytest.mark.parametrize(
    "name",
    but_long(
        ["resnet-tiny", "nasnet-tiny", "inception-tiny", "gpt-tiny", "bert-tiny", "rnn-tiny", "sparse-moe-tiny"],
        ["nasnet-tiny"],
    ),
)
def test_results_of_own_kernels_look_at_no_operand(name: str) -> None:
    shown = example(name, device="cpu")
    step = girih.TrainingStep(shown.module, step=shown.step, optimizer=torch.optim.SGD(shown.module.parameters(), 0.1))
    captured = capture(step, shown.inputs)
    state, batch, kinds = state_of(step), captured.flatten(shown.inputs), captured.graph.values
    inputs = {
        item.name: batch[item.name]
        if item.name in batch
        else state.get(item.path, torch.ones(kinds[item.name].shape, dtype=getattr(torch, kinds[item.name].dtype)))
        for item in captured.graph.inputs
    }
    memory = {key: tensor.untyped_storage().data_ptr() for key, tensor in inputs.items()}
    seen = set()

    def look(node: Node, results: tuple[torch.Tensor, ...]) -> None:
        for key, tensor in zip(node.outputs, results, strict=True):
            memory[key] = tensor.untyped_storage().data_ptr()
        if node.operator in OWN_MEMORY:
            seen.add(node.operator)
            assert memory[node.outputs[0]] not in {memory[key] for key in node.inputs}, node
            assert results[0].untyped_storage().nbytes() == results[0].nbytes, node

    interpret(captured.graph, inputs, look)
    assert seen


class Normed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(2, 8, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.convolution(x)))


def test_a_norm_lies_where_the_convolution_lay() -> None:
    module, x = Normed().eval(), torch.randn(4, 2, 16, 16)
    torch.nn.init.uniform_(module.norm.running_mean)
    plan = girih.plan(girih.Inference(module), x, machine="local:1", objective="bytes")
    lives = lifetimes(plan.program)
    made = {plan.graph.nodes[lives.steps[step].node].operator for step in lives.taken}
    assert "girih.normalise" in made
    with plan.start() as run:
        torch.testing.assert_close(run.step(x)[0], module(x).detach())  # PyTorch's batch norm adds in another order
        assert run.run.peak_bytes(*run.inputs((x,), None)) == [plan.peak]
