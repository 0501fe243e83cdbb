"""girih's own models: the tiny ones equal eager; the papers' large ones are captured without memory."""

from __future__ import annotations

import collections
import resource
import time
from typing import Any

import pytest
import torch
from against_eager import check_text, compare
from counts import but_long
from torch import nn
from torch.utils._pytree import tree_map

from girih.capture import Initial, TrainingStep, capture

models = pytest.importorskip("girih.models")

# Batch norms over few elements: a change of 1e-14 in one weight moves their gradients by 1e-11 in one step.
TOLERANCE = {"inception-tiny": 1e-6, "inception4-tiny": 1e-6}


def exact(batch: Any) -> Any:
    return tree_map(lambda x: x.double() if x.is_floating_point() else x, batch)


def without_dropout(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    return model


# Made of the same parts as others, or of very many.
LONG_ONES = {
    "inception-tiny", "inception4-tiny", "nasnet-tiny", "wresnet-tiny", "densenet-tiny", "vgg-tiny", "brnn-tiny",
    "rnnlm-tiny", "transformer-tiny",
}  # fmt: skip


@pytest.mark.parametrize("name", but_long(models.tiny_names(), LONG_ONES))
def test_tiny_models_equal_eager(name: str) -> None:
    shown = models.example(name, device="cpu")
    model = without_dropout(shown.module.double())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batches = [exact(models.random_batch(name, seed=seed)) for seed in range(2)]
    compare(TrainingStep(model, step=shown.step, optimizer=optimizer), batches, TOLERANCE.get(name, 1e-10))


def test_a_large_model_takes_no_memory() -> None:
    """WResNet-50-10 has 11 GB of weights and momentum."""
    shown = models.example("wresnet-50-10", device="meta")
    optimizer = torch.optim.SGD(shown.module.parameters(), lr=0.1, momentum=0.9)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    captured = capture(TrainingStep(shown.module, step=shown.step, optimizer=optimizer), shown.inputs)
    assert time.process_time() - started < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024
    check_text(captured.graph)
    state = sum(captured.graph.values[item.name].bytes for item in captured.graph.state_inputs)
    assert state > 5e9
    assert all(parameter.device.type == "meta" for parameter in shown.module.parameters())
    counts = collections.Counter(node.operator for node in captured.graph.nodes)
    assert counts["aten.convolution"] == counts["girih.convolution_weight_gradient"] == 53
    assert counts["girih.normalise"] == counts["girih.normalise_input_gradient"] == 53


def test_initial_values_without_weights() -> None:
    model = nn.Sequential(nn.Embedding(9, 4), nn.LayerNorm(4), nn.Linear(4, 25), nn.BatchNorm1d(3))
    with torch.device("meta"):
        bare = nn.Sequential(nn.Embedding(9, 4), nn.LayerNorm(4), nn.Linear(4, 25), nn.BatchNorm1d(3))
    found = {}
    for net in (model, bare):
        optimizer = torch.optim.Adagrad(net.parameters(), initial_accumulator_value=0.25)
        step = TrainingStep(net, step=lambda m, x: m(x).sum(), optimizer=optimizer)
        found[net] = capture(step, torch.zeros(2, 3, dtype=torch.int64)).initial
    assert found[bare]["0.weight"] == Initial("normal", 0.0, 0.02)
    assert found[bare]["1.weight"] == Initial("constant", 1.0)
    assert found[bare]["2.weight"] == Initial("uniform", -0.5, 0.5)
    assert found[bare]["2.bias"] == Initial("constant", 0.0)
    assert found[bare]["3.running_var"] == Initial("constant", 1.0)
    assert found[bare]["0.weight/sum"] == Initial("constant", 0.25)
    measured = found[model]["0.weight"]
    assert measured.kind == "normal"
    assert measured.b == pytest.approx(model[0].weight.detach().std(correction=0).item())
    assert found[model]["3.running_mean"] == Initial("constant", 0.0)
    assert found[model].keys() == found[bare].keys()
