"""`girih.fit`: a plain training loop, within a memory limit; and models that share a device."""

from __future__ import annotations

import copy
import os
import signal
import threading

import pytest
import torch
from torch.nn.functional import cross_entropy

import girih
from girih.run.errors import WorkerError


def network(width: int = 48, layers: int = 4) -> torch.nn.Module:
    torch.manual_seed(0)
    pairs = [layer for _ in range(layers) for layer in (torch.nn.Linear(width, width), torch.nn.BatchNorm1d(width))]
    return torch.nn.Sequential(*pairs, torch.nn.Linear(width, 8))


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(1)
    return [(torch.randn(64, 48, generator=draw), torch.randint(8, (64,), generator=draw)) for _ in range(count)]


def parts(model: torch.nn.Module) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)  # Adam turns rounding into steps
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


@pytest.mark.parametrize("memory", [None, "160KB"])
def test_a_plain_loop_trains_as_in_pytorch(memory: str | None) -> None:
    model = network()
    plain, losses = copy.deepcopy(model), []
    optimizer, scheduler = parts(plain)
    for x, y in batches(5):
        optimizer.zero_grad()
        loss = cross_entropy(plain(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    optimizer, scheduler = parts(model)
    before = copy.deepcopy(model.state_dict())
    with girih.fit(model, cross_entropy, optimizer, batches(1)[0], memory=memory) as train:
        assert bool(train.plan.choice.residency) == (memory is not None)
        assert all(torch.equal(train.state_dict()[key], before[key]) for key in before)
        own = []
        for x, y in batches(5):
            own.append(train(x, y))
            scheduler.step()
        inside = train.state_dict()
    torch.testing.assert_close(torch.tensor(own), torch.tensor(losses), rtol=1e-4, atol=1e-5)
    for key, tensor in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[key], tensor, rtol=1e-3, atol=1e-4)
        assert torch.equal(model.state_dict()[key], inside[key])


OPTIMIZERS = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, dampening=0.5),
    "plain": lambda parameters: torch.optim.SGD(parameters, lr=0.05),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3, amsgrad=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3, momentum=0.9),
    "nadam": lambda parameters: torch.optim.NAdam(parameters, lr=1e-3),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=1e-2),
    "asgd": lambda parameters: torch.optim.ASGD(parameters, lr=1e-2),
    "rprop": lambda parameters: torch.optim.Rprop(parameters, lr=1e-3),
}


def plainly(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer.zero_grad()
    cross_entropy(model(x), y).backward()
    optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_optimizer_goes_on_where_the_plan_has_stopped(name: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(48, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8)).double()
    plain = copy.deepcopy(model)
    data = [(x.double(), y) for x, y in batches(6)]
    optimizers = [OPTIMIZERS[name](each.parameters()) for each in (model, plain)]
    for x, y in data:
        plainly(plain, optimizers[1], x, y)
    with girih.fit(model, cross_entropy, optimizers[0], data[0]) as train:
        train(*data[0])
        halfway = train.module  # which does not disturb what comes
        assert halfway is model
        train(*data[1])
    plainly(model, optimizers[0], *data[2])
    train(*data[3])  # new workers begin with what PyTorch has left
    train.close()
    for x, y in data[4:]:
        plainly(model, optimizers[0], x, y)
    for own, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-6, atol=1e-9)
    kept = [optimizer.state_dict()["state"] for optimizer in optimizers]
    assert kept[0].keys() == kept[1].keys()
    for number, theirs in kept[1].items():
        assert {key for key, item in kept[0][number].items() if item is not None} == {
            key for key, item in theirs.items() if item is not None
        }
        for key, item in theirs.items():
            if isinstance(item, torch.Tensor):
                torch.testing.assert_close(kept[0][number][key], item, rtol=1e-5, atol=1e-8)


def test_a_limit_changes_no_bit() -> None:
    ended = []
    for memory in (None, "160KB"):
        model = network()
        with girih.fit(model, cross_entropy, parts(model)[0], batches(1)[0], memory=memory, hold="swap") as train:
            losses = [train(x, y) for x, y in batches(4)]
        ended.append((losses, model.state_dict()))
    assert ended[0][0] == ended[1][0]
    assert all(tensor.equal(ended[1][1][key]) for key, tensor in ended[0][1].items())


def test_on_processes_the_loop_is_the_same() -> None:
    model = network(layers=1)
    x, y = batches(1)[0]
    with girih.fit(model, cross_entropy, parts(model)[0], (x, y), machine="local:2") as train:
        assert train.backend == "processes"
        first = train(x, y)
        assert train(x, y) < first
        assert train.state_dict()["0.weight"].equal(model[0].weight)  # who reads gets the weights of now
    before = train.state_dict()
    assert all(tensor.equal(model.state_dict()[key]) for key, tensor in before.items())


def test_what_went_wrong_in_a_worker_is_what_is_told() -> None:
    model = network(layers=1)
    before = copy.deepcopy(model.state_dict())
    x, y = batches(1)[0]
    train = girih.fit(model, cross_entropy, parts(model)[0], (x, y), backend="processes")

    def loop() -> None:
        with train:
            train(x, y)
            os.kill(train.run.run.crew.pids[0], signal.SIGKILL)
            train(x, y)

    with pytest.raises(WorkerError, match="worker 0 was killed by SIGKILL"):
        loop()
    assert train.run is None
    assert all(tensor.equal(before[key]) for key, tensor in model.state_dict().items())


def test_models_share_a_device_each_within_its_part() -> None:
    models = [network(layers=6).eval(), network(layers=3).eval()]
    x = batches(1)[0][0]
    plans = [
        girih.plan(girih.Inference(model, memory="50KB"), x, machine="local:1", compare=(), objective="bytes")
        for model in models
    ]
    assert [plan.memory for plan in plans] == [50_000, 50_000]
    assert all(plan.choice.residency and plan.peak <= 50_000 for plan in plans)
    with plans[0].start(backend="threads") as first, plans[1].start(backend="threads") as second:
        for _ in range(3):
            for run, model in ((first, models[0]), (second, models[1])):
                (answer,) = run.step(x)
                torch.testing.assert_close(answer, model(x))


class Branches(torch.nn.Module):
    """A model of two inputs, with outputs in a nesting."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = network(layers=6)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> dict[str, list[torch.Tensor]]:
        out = self.layers(x)
        return {"logits": [out, out * scale], "best": [out.argmax(1)]}


def test_a_model_is_called_within_its_part_of_a_device() -> None:
    model, x, scale = Branches().eval(), batches(1)[0][0], torch.tensor(2.0)
    with girih.infer(model, (x, scale), memory="50KB") as answer:
        assert answer.plan.choice.residency
        assert answer.plan.peak <= 50_000
        with torch.no_grad():
            wanted = model(x, scale)
        for own, theirs in zip(answer(x, scale)["logits"], wanted["logits"], strict=True):
            torch.testing.assert_close(own, theirs)
        assert answer(x, scale)["best"][0].equal(wanted["best"][0])
        with pytest.raises(girih.PlanError, match="shape"):
            answer(x[:2], scale)
        with torch.no_grad():
            model.layers[0].weight.zero_()
            wanted = model(x, scale)
        assert answer(x, scale)["best"][0].equal(wanted["best"][0])  # what was changed is taken up
        answer.close()
        torch.testing.assert_close(answer(x, scale)["logits"][0], model(x, scale)["logits"][0].detach())
    with pytest.raises(girih.PlanError, match="alone needs"):
        girih.infer(model, (x, scale), memory="10KB")


def test_threads_call_models_that_share_a_device() -> None:
    models = [network(layers=layers).eval() for layers in (6, 4, 3)]
    inputs = [x for x, _ in batches(8)]
    answers = [girih.infer(model, inputs[0], memory="50KB") for model in models]
    wrong: list[str] = []

    def serve(number: int) -> None:
        for turn, x in enumerate(inputs):
            which = (number + turn) % len(models)
            own = answers[which](x)
            if not torch.allclose(own, models[which](x), rtol=1e-4, atol=1e-5):
                wrong.append(f"thread {number}, model {which}")

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for answer in answers:
        answer.close()
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


def test_a_mistyped_option_is_named_as_it_was_called() -> None:
    model, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TypeError, match=r"girih.fit\(\) got .* 'serch': did you mean search=\?"):
        girih.fit(model, torch.nn.functional.mse_loss, optimizer, (x, x), serch="joint")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"girih.infer\(\) got .* 'machin': did you mean machine=\?"):
        girih.infer(model, x, machin="local:1")  # type: ignore[call-arg]


@pytest.mark.filterwarnings("ignore")
def test_a_module_that_was_quantized_says_what_to_give() -> None:
    made = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(4, 3)), {torch.nn.Linear})
    with pytest.raises(girih.CaptureError, match="Give the model before it was quantized"):
        girih.infer(made, torch.randn(2, 4))
