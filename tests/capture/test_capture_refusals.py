"""What cannot become one graph is refused, with the user's file and line, that line, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from girih.capture import CaptureError, Inference, TrainingStep, capture


def branch(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = net(x).sum()
    if y > 0:
        return y
    return -y


def item(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return net(x).sum() * x.max().item()


def mask(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return net(x)[x > 0].sum()


def nonzero(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return net(x).sum() * torch.nonzero(x).sum()


def by_a_sparse_attribute(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (ENDS @ net(x)).sum()


def by_sparse_values(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), net(x)[:, 0], (2, 2)) @ x).sum()


class Others:
    """As a library's batch of graphs has them: in what no container of Python opens."""

    def __init__(self) -> None:
        self.store = {"x": torch.ones(2, 3)}


def test_tensors_deep_in_an_object_of_a_batch_are_no_constants() -> None:
    step = TrainingStep(nn.Linear(3, 3), step=lambda net, batch: net(batch[0].store["x"]).sum() + batch[1].sum())
    with pytest.raises(CaptureError, match=r"an? Others at '0', whose tensors would be constants.*dictionary"):
        capture(step, (Others(), torch.ones(2)))


def self_loops(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    def without_self_loops(ends: torch.Tensor) -> torch.Tensor:
        return ends[:, ends[0] != ends[1]]

    return net(x).sum() + without_self_loops(x.long()).sum()


def test_layers_that_leave_out_self_loops_of_a_batch_are_told_another_way() -> None:
    with pytest.raises(CaptureError, match=r"shape depends on the data.*add_self_loops=False"):
        capture(TrainingStep(nn.Linear(3, 3), step=self_loops), torch.ones(2, 3))


ENDS = torch.eye(2).to_sparse()


@pytest.mark.parametrize(("step", "does"), [(by_a_sparse_attribute, "reads"), (by_sparse_values, "makes")])
def test_sparse_matrices(step: Callable[..., Any], does: str) -> None:
    """Of layers of graph networks, mostly: said by their line, with the two ways to write them."""
    with pytest.raises(CaptureError, match=rf"refusals.py:\d+ {does} a sparse matrix.*GraphBuffers.*index_add"):
        capture(TrainingStep(nn.Linear(3, 3), step=step), torch.ones(2, 3))


@pytest.mark.parametrize(
    ("step", "line", "mend"),
    [
        (branch, "if y > 0:", "torch.where instead of `if`"),
        (item, "return net(x).sum() * x.max().item()", "keep `.item()`"),
        (mask, "return net(x)[x > 0].sum()", "keep shapes fixed"),
        (nonzero, "return net(x).sum() * torch.nonzero(x).sum()", "keep shapes fixed"),
    ],
)
def test_data_dependence(step: Callable[..., Any], line: str, mend: str) -> None:
    with pytest.raises(CaptureError) as caught:
        capture(TrainingStep(nn.Linear(3, 3), step=step), torch.ones(2, 3))
    message = str(caught.value)
    numbers = range(step.__code__.co_firstlineno, step.__code__.co_firstlineno + 6)
    assert any(f"test_capture_refusals.py:{number}:" in message for number in numbers), message
    assert f"`{line}`" in message
    assert mend in message


def test_large_constants() -> None:
    table = torch.rand(5000)

    def step(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return (net(x).sum() * table).sum()

    with pytest.raises(CaptureError, match=r"5000 elements.*register_buffer"):
        capture(TrainingStep(nn.Linear(3, 3), step=step), torch.ones(2, 3))


def test_data_that_is_set() -> None:
    def step(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        net.weight.data = net.weight.data.clamp(-1, 1)
        return net(x).sum()

    with pytest.raises(CaptureError, match=r"sets `.data` of 'weight'.*\.copy_"):
        capture(TrainingStep(nn.Linear(3, 3), step=step), torch.ones(2, 3))


def test_strides() -> None:
    def call(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return net(x)[:, ::2].as_strided((2, 3), (3, 1))

    with pytest.raises(CaptureError, match=r"test_capture_refusals.py:\d+.*as_strided.*not its own.*unfold"):
        capture(Inference(nn.Linear(3, 3), call=call), torch.ones(2, 3))


def test_pooling_indices() -> None:
    def call(net: nn.Module, x: torch.Tensor) -> Any:
        return F.max_pool2d(x, 2, return_indices=True)

    with pytest.raises(CaptureError, match=r"max_pool2d_with_indices"):
        capture(Inference(nn.Linear(3, 3), call=call), torch.ones(1, 1, 4, 4))


def test_one_of_loss_and_step() -> None:
    with pytest.raises(ValueError, match=r"gives no loss of its own, but \(2, 3\).*give loss="):
        capture(TrainingStep(nn.Linear(3, 3)), (torch.ones(2, 3),))
    with pytest.raises(ValueError, match="got both"):
        TrainingStep(nn.Linear(3, 3), loss=F.mse_loss, step=branch)
    with pytest.raises(ValueError, match=r"torch.nn.Module, got function"):
        TrainingStep(branch, loss=F.mse_loss)


def test_batches_and_losses() -> None:
    with pytest.raises(ValueError, match=r"\(inputs, target\).*got Tensor"):
        capture(TrainingStep(nn.Linear(3, 3), loss=F.mse_loss), torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"one floating-point number, got \(2, 3\)"):
        capture(TrainingStep(nn.Linear(3, 3), step=lambda net, x: net(x)), torch.ones(2, 3))
    with pytest.raises(ValueError, match="depends on no parameter"):
        capture(TrainingStep(nn.Linear(3, 3), step=lambda net, x: x.sum()), torch.ones(2, 3))


def test_a_refusal_leaves_the_model_as_it_was() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3))
    weight = model[1].weight
    with pytest.raises(CaptureError):
        capture(TrainingStep(model, step=branch), torch.ones(2, 3))
    assert model[1].weight is weight
    assert not model[0]._forward_hooks
    assert not model[0]._forward_pre_hooks
    assert model(torch.ones(2, 3)).requires_grad


def test_random_numbers_that_no_seed_determines() -> None:
    def call(net: nn.Module, x: torch.Tensor) -> Any:
        return net(x) * torch.poisson(x)

    with pytest.raises(CaptureError, match=r"test_capture_refusals.py:\d+: aten.poisson draws random numbers"):
        capture(Inference(nn.Linear(3, 3), call=call), torch.ones(2, 3))


def test_numpy() -> None:
    def call(net: nn.Module, x: torch.Tensor) -> Any:
        return net(x) * float(x.numpy().sum())

    with pytest.raises(CaptureError, match=r"`return net\(x\) \* float\(x.numpy\(\).sum\(\)\)` needs a tensor's value"):
        capture(Inference(nn.Linear(3, 3), call=call), torch.ones(2, 3))


def test_dropout_that_is_drawn_anew() -> None:
    def step(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        again = torch.utils.checkpoint.checkpoint(
            lambda y: F.dropout(net(y)).exp(), x, use_reentrant=False, preserve_rng_state=False
        )
        return again.sum()

    with pytest.raises(CaptureError, match=r"test_capture_refusals.py:\d+: random numbers.*preserve_rng_state"):
        capture(TrainingStep(nn.Linear(3, 3), step=step), torch.ones(2, 3))


def test_a_batch_norm_that_averages_everything() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, momentum=None))
    with pytest.raises(CaptureError, match=r"module '1'.*give the batch norm a number as momentum"):
        capture(TrainingStep(model, step=lambda net, x: net(x).sum()), torch.ones(2, 3))
