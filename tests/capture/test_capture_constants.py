"""What a step closes over is the same in every step: its values give shapes and Python numbers; NumPy reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from against_eager import compare
from torch import nn

from girih.capture import CaptureError, TrainingStep, capture

VERTICES = 9
MASK = torch.arange(VERTICES) % 3 > 0
CELLS = torch.arange(VERTICES * 3).reshape(VERTICES, 3) % 4 == 1
LABELS = torch.arange(VERTICES) % 3
GRAPHS = torch.arange(VERTICES) // 4
SCALES = torch.arange(VERTICES).double() / 10


def masked_loss(y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(y[MASK], LABELS[MASK])


def of_others(y: torch.Tensor) -> torch.Tensor:
    return y[~MASK & (LABELS < 2)].square().mean()


def cells(y: torch.Tensor) -> torch.Tensor:
    return y[CELLS].square().sum() + y[MASK, 1].sum() + y[:, torch.tensor([True, False, True])].sum()


def numpy_mask(y: torch.Tensor) -> torch.Tensor:
    return y[MASK.numpy()].square().sum()


def pooled(y: torch.Tensor) -> torch.Tensor:
    """The mean of each graph's vertices."""
    sums = y.new_zeros(int(GRAPHS.max()) + 1, 3).index_add(0, GRAPHS, y)
    return (sums / torch.bincount(GRAPHS)[:, None]).square().sum()


def each_graph(y: torch.Tensor) -> torch.Tensor:
    return torch.stack([y[graph == GRAPHS].square().mean() for graph in GRAPHS.unique()]).sum()


def listed(y: torch.Tensor) -> torch.Tensor:
    return y[MASK.nonzero().squeeze(1)].square().sum() + y[torch.where(~MASK)].sum()


def beside_a_write(y: torch.Tensor) -> torch.Tensor:
    """What is written by the mask stays a choice; the view is what makes capture replay the record."""
    y = y.clone()
    y.view(-1)[0] = 1
    y[MASK] = 0
    return y[~MASK].square().sum()


def written(y: torch.Tensor) -> torch.Tensor:
    """What the step itself has made of constants may be written into: each use has what is in it then."""
    degrees = torch.zeros(3, dtype=torch.int64).scatter_add_(0, LABELS, torch.ones_like(LABELS))
    mask, last = MASK.clone(), torch.tensor([True, False, False])
    first = y.detach()[mask].square().sum()
    mask[:2] = ~mask[:2]
    last[2:] = True
    return first + y[mask].sum() * int(degrees.max()) + y[:, last].square().sum()


def through_numpy(y: torch.Tensor) -> torch.Tensor:
    scales = torch.from_numpy(np.sqrt(SCALES.detach().numpy()))
    return (y * scales[:, None]).square().sum() * SCALES.cpu().numpy().sum() * SCALES.numpy()[3]


@pytest.mark.parametrize(
    "loss",
    [masked_loss, of_others, cells, numpy_mask, pooled, each_graph, listed, beside_a_write, written, through_numpy],
    ids=lambda loss: loss.__name__,
)
def test_values_of_constants_are_known(loss: Callable[[torch.Tensor], torch.Tensor]) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3).double()
    step = TrainingStep(model, step=lambda net, x: loss(net(x)), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    compare(step, [torch.randn(VERTICES, 4).double() for _ in range(2)])


def test_a_mask_is_one_list_of_rows_in_both_passes() -> None:
    """Its gradient puts rows where they came from, by the same numbers; of the mask itself nothing is left."""
    step = TrainingStep(nn.Linear(4, 3), step=lambda net, x: net(x)[MASK].sum())
    graph = capture(step, torch.ones(VERTICES, 4)).graph
    (constant,) = (node for node in graph.nodes if "constant" in node.operator)
    assert graph.values[constant.outputs[0]].shape == (int(MASK.sum()),)


class Kept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("mask", MASK)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def by_a_buffer(net: Any, x: torch.Tensor) -> torch.Tensor:
    return net(x)[net.mask].sum()


def by_what_is_drawn(net: Any, x: torch.Tensor) -> torch.Tensor:
    return net(x)[torch.rand(VERTICES) < 0.5].sum()


def by_what_is_computed(net: Any, x: torch.Tensor) -> torch.Tensor:
    mask = MASK.clone()
    mask[0] = x[0, 0] > 0
    return net(x)[mask].sum()


@pytest.mark.parametrize("step", [by_a_buffer, by_what_is_drawn, by_what_is_computed])
def test_values_of_others_are_not(step: Callable[..., Any]) -> None:
    with pytest.raises(CaptureError, match="What is the same in every step may be a plain tensor"):
        capture(TrainingStep(Kept(), step=step), torch.ones(VERTICES, 4))


def test_a_mask_of_another_shape_is_refused() -> None:
    step = TrainingStep(nn.Linear(4, 3), step=lambda net, x: net(x)[MASK].sum())
    with pytest.raises(
        CaptureError, match=r"test_capture_constants.py:\d+: a mask \[9\] cannot pick from a tensor \[8, 3\]"
    ):
        capture(step, torch.ones(VERTICES - 1, 4))
