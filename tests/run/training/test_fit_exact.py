"""Steps that are planned with exact=True have the very bits of plain PyTorch's, in the same process."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from counts import but_long
from torch import nn
from torch.nn import functional as F

import girih
from girih.capture import CaptureError
from girih.graph import format_graph, parse_graph
from girih.plans.plan import PlanError

STEPS = 5


class Recurrent(nn.Module):
    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.cell = kind(8, 12, batch_first=True, **options)
        self.head = nn.LazyLinear(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0][:, -1])


class Attending(nn.Module):
    """A causal decoder of one layer, with tied weights and grouped heads."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(23, 16)
        self.query, self.keys = nn.Linear(16, 16, bias=False), nn.Linear(16, 32)
        self.norm = nn.RMSNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.table(x)
        query, key, value = (
            item.unflatten(-1, (4, 4)).transpose(1, 2) for item in (self.query(x), *self.keys(x).chunk(2, -1))
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = self.norm(x + mixed.transpose(1, 2).flatten(2))
        return (x @ self.table.weight.T).transpose(1, 2)


class Dropping(nn.Module):
    """Two dropouts, of which torch.utils.checkpoint repeats one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, 16), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.utils.checkpoint.checkpoint(lambda x: F.dropout(self.first(x).tanh(), 0.4), x, use_reentrant=False)
        return self.last(F.dropout(x, 0.1))


def classes(*shape: int, count: int = 5) -> torch.Tensor:
    return torch.randint(count, shape)


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, stride=2, groups=2), nn.GroupNorm(3, 12), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(12, 5),
    )  # fmt: skip


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation="gelu", batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(96, 5))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 5))


def pixels_last() -> nn.Module:
    return convolutions().to(memory_format=torch.channels_last)


def decoding() -> nn.Module:
    return nn.Sequential(
        nn.Linear(10, 24), nn.Unflatten(1, (6, 2, 2)), nn.ConvTranspose2d(6, 4, 3, 2), nn.BatchNorm2d(4), nn.ELU(),
        nn.Upsample(scale_factor=2), nn.ReflectionPad2d(1), nn.Conv2d(4, 2, 3), nn.Sigmoid(), nn.Flatten(),
    )  # fmt: skip


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[torch.Tensor, torch.Tensor]], Any]] = {
    "perceptron": (perceptron, lambda: (torch.randn(9, 20), classes(9)), F.cross_entropy),
    "convolutions": (convolutions, lambda: (torch.randn(6, 3, 12, 12), classes(6)), F.cross_entropy),
    "pixels last": (pixels_last, lambda: (torch.randn(6, 3, 12, 12), classes(6)), F.cross_entropy),
    "encoder": (encoder, lambda: (torch.randn(4, 6, 16), classes(4)), F.cross_entropy),
    "decoding": (decoding, lambda: (torch.randn(5, 10), torch.rand(5, 200)), F.mse_loss),
    "gated recurrent": (
        lambda: Recurrent(nn.GRU, bidirectional=True),
        lambda: (torch.randn(4, 4, 8), classes(4)),
        F.cross_entropy,
    ),
    "attending": (Attending, lambda: (classes(3, 8, count=23), classes(3, 8, count=23)), F.cross_entropy),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(30, 8), nn.Flatten(), nn.Linear(40, 5)),
        lambda: (classes(8, 5, count=30), classes(8)),
        F.cross_entropy,
    ),
    "bag": (
        lambda: nn.Sequential(nn.EmbeddingBag(30, 8, mode="mean"), nn.Linear(8, 5), nn.Softplus()),
        lambda: (classes(8, 5, count=30), torch.rand(8, 5)),
        F.smooth_l1_loss,
    ),
    "dropping": (Dropping, lambda: (torch.randn(8, 12), classes(8)), F.cross_entropy),
}

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, nesterov=True),
    "plain": lambda p: torch.optim.SGD(p, lr=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=3e-3, weight_decay=1e-2, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=3e-3),
}


def made(name: str, dtype: torch.dtype) -> tuple[nn.Module, list[tuple[torch.Tensor, torch.Tensor]], Any]:
    torch.manual_seed(7)
    make, batch, loss = MODELS[name]
    batches = [tuple(item.to(dtype) if item.is_floating_point() else item for item in batch()) for _ in range(STEPS)]
    model = make().to(dtype)
    model(batches[0][0])  # what is lazy gets its shape
    return model, batches, loss


def plain_steps(model: nn.Module, optimizer: Any, loss: Any, batches: Any, clip: float | None) -> list[float]:
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(value.item())
    return losses


def check_bits(
    model: nn.Module,
    batches: Any,
    loss: Any,
    optimizer: Callable[[Any], Any],
    *,
    clip: float | None = None,
    **options: Any,
) -> girih.api.Plan:
    """Five steps of both, from the same weights and the same random numbers: losses, weights, buffers, state."""
    other = copy.deepcopy(model)
    ours, theirs = optimizer(model.parameters()), optimizer(other.parameters())
    torch.manual_seed(11)
    expected = plain_steps(other, theirs, loss, batches, clip)
    after = torch.get_rng_state()
    torch.manual_seed(11)
    with girih.fit(model, loss, ours, batches[0], exact=True, clip_grad_norm=clip, **options) as train:
        assert [train(*batch) for batch in batches] == expected
        plan = train.plan
    assert torch.equal(torch.get_rng_state(), after)
    for key, tensor in other.state_dict().items():
        assert torch.equal(model.state_dict()[key], tensor), key
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        for key, item in theirs.state[two].items():
            assert torch.equal(torch.as_tensor(ours.state[one][key]), torch.as_tensor(item)), key
    return plan


CASES = [
    *((name, "adamw", torch.float32) for name in MODELS),
    *(("perceptron", name, torch.float32) for name in OPTIMIZERS if name != "adamw"),
    *((name, "momentum", torch.float64) for name in ("convolutions", "encoder", "gated recurrent")),
    *((name, "nesterov", torch.bfloat16) for name in ("perceptron", "attending", "convolutions")),
    ("encoder", "adam", torch.bfloat16),
]


LIKE_OTHERS = [("encoder", "momentum", torch.float64), ("encoder", "adam", torch.bfloat16)]
"""Their parts are tried by others in these types."""


@pytest.mark.parametrize(("name", "optimizer", "dtype"), but_long(CASES, LIKE_OTHERS))
def test_bits_are_those_of_plain_pytorch(name: str, optimizer: str, dtype: torch.dtype) -> None:
    check_bits(*made(name, dtype), OPTIMIZERS[optimizer])


@pytest.mark.parametrize(
    ("name", "share", "hold"),
    [("perceptron", 0.82, "swap"), ("perceptron", 0.9, "recompute"), ("dropping", 0.8, "auto")],
)
def test_bits_under_a_limit_are_those_of_plain_pytorch(name: str, share: float, hold: str) -> None:
    """Tensors leave and come back, are computed again, or another order needs less; nothing is computed in pieces."""
    model, batches, loss = made(name, torch.float32)
    step = girih.TrainingStep(model, loss, OPTIMIZERS["momentum"](model.parameters()), exact=True)
    limit = int(share * girih.plan(step, batches[0], machine="local:1", compare=()).peak)
    plan = check_bits(model, batches, loss, OPTIMIZERS["momentum"], memory=limit, hold=hold)
    assert plan.peak <= limit
    assert plan.choice.sequence is not None
    assert bool(plan.choice.residency) == (hold == "swap")
    assert not plan.choice.pieces


def test_gpt2_of_transformers_has_the_bits_of_plain_pytorch() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config)
    batches = [(tokens, tokens) for tokens in torch.randint(40, (STEPS, 3, 12))]

    def loss(out: Any, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    check_bits(model, batches, loss, OPTIMIZERS["adamw"], clip=0.1)


def test_bits_of_other_batches_and_of_a_whole_step_are_those_of_plain_pytorch() -> None:
    """The last batch is short; the step calls backward and its optimizer itself, and computes in bfloat16."""
    model, batches, loss = made("perceptron", torch.float32)
    other = copy.deepcopy(model)
    ours, theirs = (OPTIMIZERS["adamw"](each.parameters()) for each in (model, other))
    batches = [*batches[:3], (batches[3][0][:4], batches[3][1][:4])]

    def stepping(optimizer: Any) -> Callable[[nn.Module, Any], torch.Tensor]:
        def step(model: nn.Module, batch: Any) -> torch.Tensor:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                value = loss(model(batch[0]), batch[1])
            value.backward()
            torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
            optimizer.step()
            return value

        return step

    expected = [stepping(theirs)(other, batch).item() for batch in batches]
    with girih.fit(model, step=stepping(ours), optimizer=ours, batch=batches[0], exact=True) as train:
        assert [train(*batch) for batch in batches] == expected
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_numbers_of_a_schedule_keep_their_digits() -> None:
    """Rates and momenta are another at each step, and their products are made by Python's numbers."""
    model, batches, loss = made("perceptron", torch.float32)
    other = copy.deepcopy(model)

    def scheduled(model: nn.Module) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2)
        return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=STEPS)

    (ours, our_schedule), (theirs, their_schedule) = scheduled(model), scheduled(other)
    for batch in batches:
        plain_steps(other, theirs, loss, [batch], None)
        their_schedule.step()
    with girih.fit(model, loss, ours, batches[0], exact=True) as train:
        for batch in batches:
            train(*batch)
            our_schedule.step()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_plan_reads_back_and_its_graph_names_pytorchs_operators() -> None:
    model, batches, loss = made("perceptron", torch.float32)
    step = girih.TrainingStep(model, loss, OPTIMIZERS["adamw"](model.parameters()))
    plan = girih.plan(step, batches[0], machine="local:1", exact=True)
    graph = plan.graph
    assert any(note.startswith("exact: it makes PyTorch's own calls") for note in plan.notes)
    assert parse_graph(format_graph(graph)) == graph
    called = {node.attributes.get("operator") for node in graph.nodes}
    assert {"aten.addmm", "aten.native_layer_norm", "aten.gelu_backward", "aten.addcdiv"} <= called


def refused(model: nn.Module, x: torch.Tensor, y: torch.Tensor, loss: Any = F.cross_entropy, **options: Any) -> Any:
    return girih.fit(model, loss, torch.optim.SGD(model.parameters(), 0.1), (x, y), exact=True, **options)


def lstm(x: torch.Tensor, **options: Any) -> nn.Module:
    model = Recurrent(nn.LSTM, **options)
    model(x)
    return model


@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True, "dropout": 0.3}, {"bias": False}, {"proj_size": 6}]
)
def test_an_lstm_has_the_bits_of_onednns_layers(options: dict[str, Any]) -> None:
    x, y = torch.randn(4, 4, 8), classes(4)
    check_bits(lstm(x, **options), [(x, y), (2 * x, y)], F.cross_entropy, OPTIMIZERS["momentum"])


def test_an_lstm_of_another_kernel_of_onednns_is_refused() -> None:
    x, y = torch.randn(4, 4, 8), classes(4)
    check_bits(lstm(x).double(), [(x.double(), y)] * 2, F.cross_entropy, OPTIMIZERS["momentum"])
    model = lstm(x)
    teacher = torch.no_grad()(lstm(x))
    with pytest.raises(CaptureError, match=r"LSTM under torch.no_grad\(\) by another kernel.*float64"):
        refused(model, x, y, loss=lambda made, y: F.cross_entropy(made - teacher(x), y))


def test_what_cannot_have_the_bits_is_refused() -> None:
    model, x, y = perceptron(), torch.randn(8, 20), classes(8)
    with pytest.raises(PlanError, match="exact=True is for one processor"):
        refused(model, x, y, machine="local:2")
    with pytest.raises(CaptureError, match="exact=True and micro_batches=2"):
        refused(model, x, y, micro_batches=2)
    with pytest.raises(CaptureError, match="exact=True and an optimizer with fused=True"):
        girih.TrainingStep(model, None, torch.optim.AdamW(model.parameters(), fused=True), exact=True)
    with pytest.raises(PlanError, match=r"rewrite= computes a step by other operators"):
        refused(model, x, y, rewrite=True)
    with pytest.raises(CaptureError, match="is not contiguous"):
        refused(model, torch.randn(20, 8).T, y)
    with pytest.raises(PlanError, match=r"exact=True is of a girih\.TrainingStep, got Inference"):
        girih.plan(girih.Inference(model), x, exact=True)
    with pytest.raises(PlanError, match=r"exact=True keeps each operator whole"):
        refused(model, x, y, memory="9KB")


def test_a_batch_that_lies_otherwise_than_the_planned_one_is_refused() -> None:
    model, x, y = perceptron(), torch.randn(8, 20), classes(8)
    with refused(model, x, y) as train, pytest.raises(PlanError, match="is not contiguous"):
        train(torch.randn(20, 8).T, y)


SETTINGS = {
    "get_num_threads": (torch.set_num_threads, lambda: 1 + torch.get_num_threads() % 2, torch.get_num_threads),
    "get_float32_matmul_precision": (
        torch.set_float32_matmul_precision, lambda: "medium", torch.get_float32_matmul_precision
    ),
    "enabled of torch.backends.mkldnn": (
        torch._C._set_mkldnn_enabled, lambda: False, torch._C._get_mkldnn_enabled
    ),
}  # fmt: skip
"""By what a message says: what sets it, another value, what it is."""


@pytest.mark.parametrize("name", SETTINGS)
def test_what_kernels_depend_on_may_not_change_between_steps(name: str) -> None:
    """Nor may it differ between this process and workers in other ones, which have PyTorch's defaults."""
    put, other, get = SETTINGS[name]
    model, before = nn.Linear(6, 5), get()
    given = model, F.cross_entropy, torch.optim.SGD(model.parameters(), 0.1)
    batch = torch.randn(4, 6), torch.randint(5, (4,))
    with girih.fit(*given, batch, exact=True) as train:
        train(*batch)
        try:
            put(other())
            with pytest.raises(PlanError, match=f"{name}.* since the step was planned.*other bits"):
                train(*batch)
            if name != "get_num_threads":
                with pytest.raises(PlanError, match=f"{name}.*workers in processes"):
                    girih.fit(*given, batch, exact=True, backend="processes")
        finally:
            put(before)
        train(*batch)


def test_a_step_that_seeds_the_generator_is_refused() -> None:
    def seeded(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(5)
        return F.cross_entropy(F.dropout(out), y)

    with pytest.raises(CaptureError, match="seeds PyTorch's generator"):
        refused(perceptron(), torch.randn(8, 20), classes(8), seeded)
