"""What a PyTorch loop changes between two steps of `girih.fit` is taken up at the next step, or refused with a
reason."""

import copy
import sys

import torch
from torch.nn.functional import mse_loss

import girih


def setting(kind):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(5, 8), torch.nn.Dropout(0.0), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3)]
    layers.append(torch.nn.LeakyReLU(0.9))
    model = torch.nn.Sequential(*layers).double()
    model[0].bias.requires_grad_(False)
    optimizer = kind(model.parameters())
    return model, optimizer, torch.randn(12, 5, dtype=torch.float64), torch.randn(12, 3, dtype=torch.float64)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


def swap(model, optimizer, kept):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)


def clip(model, optimizer, kept):
    with torch.no_grad():
        model[3].weight.clamp_(-0.1, 0.1)


def load(model, optimizer, kept):
    model.load_state_dict(kept[0])


def data(model, optimizer, kept):
    model[3].bias.data = torch.ones_like(model[3].bias)


def statistics(model, optimizer, kept):
    model[2].running_mean.zero_()


def rate(model, optimizer, kept):
    optimizer.param_groups[0]["lr"] = 0.001


def decay(model, optimizer, kept):
    optimizer.param_groups[0]["weight_decay"] = 0.3


def momentum(model, optimizer, kept):
    group = optimizer.param_groups[0]
    group.update({"momentum": 0.5} if "momentum" in group else {"betas": (0.5, 0.9)})


def loaded(model, optimizer, kept):
    optimizer.load_state_dict(kept[1])


def unfrozen(model, optimizer, kept):
    model[0].bias.requires_grad_(True)


def evaluated(model, optimizer, kept):
    model.eval()


def added(model, optimizer, kept):
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))]})


def module(model, optimizer, kept):
    model[3] = torch.nn.Identity()


def hook(model, optimizer, kept):
    model[0].register_forward_hook(lambda module, inputs, output: 2 * output)


def forward(model, optimizer, kept):
    model[0].forward = lambda x: torch.zeros(12, 8, dtype=x.dtype)


def slope(model, optimizer, kept):
    model[4].negative_slope = 0.5


CHANGES = [swap, clip, load, data, statistics, rate, decay, momentum, loaded, unfrozen, evaluated, added]
CHANGES += [module, hook, forward, slope]
WRITES = [swap, clip, data, statistics]  # of what is stale in the model, unless it comes by train.module
MAY_BE_REFUSED = [unfrozen, evaluated, added, module, hook, forward]
failures, refused = [], []
for kind in (sgd, adamw):
    for change in CHANGES:
        for through in ("module", "model"):  # written to by way of train.module, or to the user's own object
            model, optimizer, x, y = setting(kind)
            twin = copy.deepcopy(model)
            other = kind(twin.parameters())
            kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            name = f"{kind.__name__}, {change.__name__} by {through}"
            with girih.fit(model, mse_loss, optimizer, (x, y)) as train:
                got, expected = [], []
                try:
                    for number in range(5):
                        if number == 2:
                            change(train.module if through == "module" else model, optimizer, kept)
                        got.append(train(x, y))
                except girih.PlanError as error:
                    refused.append(f"{name}: {error}")
                    if change in MAY_BE_REFUSED or (through == "model" and change in WRITES):
                        continue
                    failures.append(f"{name}: refused, {error}")
                    continue
            for number in range(5):
                if number == 2:
                    change(twin, other, kept)
                other.zero_grad()
                loss = mse_loss(twin(x), y)
                loss.backward()
                other.step()
                expected.append(loss.item())
            apart = max(abs(a - b) for a, b in zip(got, expected))
            if not apart < 1e-9:
                failures.append(f"{name}: losses differ by {apart:.3g}")
if len(sys.argv) > 1:
    print("\n".join(["refused:", *refused, "failures:", *failures]))
if failures:
    sys.exit(f"{len(failures)} changes were ignored or mistaken, {len(refused)} refused: {failures[0]}")
