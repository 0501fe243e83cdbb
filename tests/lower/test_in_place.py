"""Results that take over the memory of an operand: which operators can, and that they compute the same."""

from __future__ import annotations

import pytest
import torch

import girih
from girih.memory.lifetimes import lifetimes
from girih.ops import Operator
from girih.ops.catalogue import catalogue
from girih.ops.derive.in_place import NEVER, writes_over
from girih.run.worker.compute import over_operand

ELEMENTWISE = [item for item in catalogue().values() if item.elementwise and item.name.startswith("aten.")]


def tensors(name: str) -> int:
    space, operator, *overload = name.split(".")
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
    plan = girih.plan(girih.Inference(Chain()), x, machine="local:1")
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
        assert run.run.peak_bytes(*run._inputs((x,), None)) == [plan.peak]
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
    plan = girih.plan(girih.Inference(Exposed()), x)
    with plan.start() as run:
        first = run.step(x)
        copies = [item.clone() for item in first]
        run.step(x)
        assert all(map(torch.equal, first, copies))
