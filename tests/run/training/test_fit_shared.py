"""Two steps that share weights, as those of a GAN, each under its own optimizer, train as in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

import girih


def networks() -> tuple[Any, Any, Any, Any]:
    torch.manual_seed(0)
    first = torch.nn.Linear(3, 8, bias=False)
    generator = torch.nn.Sequential(first, torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    judge = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    generator, judge = generator.double(), judge.double()
    optimizers = torch.optim.Adam(generator.parameters(), 0.01), torch.optim.SGD(judge.parameters(), 0.1, momentum=0.9)
    return generator, judge, *optimizers


def judged(judge: Any, batch: Any) -> Any:
    real, drawn = judge(batch[0]), judge(batch[1])
    return cross_entropy(real, torch.ones_like(real)) + cross_entropy(drawn, torch.zeros_like(drawn))


def deceived(both: Any, noise: Any) -> Any:
    logits = both[1](both[0](noise))
    return cross_entropy(logits, torch.ones_like(logits))


@pytest.mark.parametrize("order", ["djdj", "ddjddj", "jjdj"])
def test_the_steps_of_a_gan_take_turns(order: str) -> None:
    """d: the judge learns, j: the generator does, by way of the judge."""
    noise = torch.randn(len(order), 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    real = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 2.0
    losses, ends = [], []
    for plain in (True, False):
        generator, judge, of_generator, of_judge = networks()
        both = torch.nn.ModuleList([generator, judge])
        losses.append([])
        trains = {} if plain else {
            "d": girih.fit(judge, step=judged, optimizer=of_judge, batch=(real, real)),
            "j": girih.fit(both, step=deceived, optimizer=of_generator, batch=noise[0]),
        }  # fmt: skip
        for kind, drawn in zip(order, noise, strict=True):
            with torch.no_grad():
                batch = (real, generator(drawn)) if kind == "d" else drawn
            if plain:
                of_generator.zero_grad()
                of_judge.zero_grad()
                loss = judged(judge, batch) if kind == "d" else deceived(both, batch)
                loss.backward()
                (of_judge if kind == "d" else of_generator).step()
                losses[-1].append(loss.item())
            else:
                losses[-1].append(trains[kind](batch))
        for train in trains.values():
            train.close()
        ends.append(both.state_dict())
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-9, atol=1e-11)
