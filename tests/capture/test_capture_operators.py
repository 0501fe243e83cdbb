"""Small functions, each with its gradients: what the rules make equals PyTorch, in operators that divide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from against_eager import check_text, first_inputs, run
from torch import nn

from girih.capture import Inference, TrainingStep, capture


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Holder(nn.Module):
    """A function of a parameter, so that its gradient is taken."""

    def __init__(self, start: torch.Tensor, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.w = nn.Parameter(start)
        self.function = function

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        return self.function(self.w, *batch)


def operators_of(function: Callable[..., torch.Tensor], start: torch.Tensor, *batch: torch.Tensor) -> list[str]:
    """Compare value and gradient with eager; returns the operators, sorted."""
    model = Holder(start.clone(), function)

    def step(net: nn.Module, given: Any) -> torch.Tensor:
        out = net(*given)
        return (out * torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).reshape(out.shape)).sum()

    whole = TrainingStep(model, step=step)
    captured = capture(whole, batch)
    check_text(captured.graph)
    made = run(captured.graph, first_inputs(captured, whole) | captured.flatten(batch))
    loss = step(model, batch)
    (grad,) = torch.autograd.grad(loss, [model.w])
    first, second = (made[output.name] for output in captured.graph.outputs)
    torch.testing.assert_close(first, loss.detach(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(second, grad, rtol=1e-10, atol=1e-10)
    return sorted({node.operator for node in captured.graph.nodes})


INDEX = torch.tensor([2, 0, 1, 2])
LABELS = torch.tensor([0, 2, -100, 1, 2])

CASES: dict[str, tuple[Callable[..., torch.Tensor], torch.Tensor, tuple[torch.Tensor, ...]]] = {
    "split": (lambda w: sum(w.split([1, 2, 1], dim=-1)[1:], w[:, :1]), draw(3, 4), ()),
    "unbind": (lambda w: torch.stack(w.unbind(1)[::-1], 0), draw(3, 4), ()),
    "strided slice": (lambda w: w[1::2, ::3], draw(5, 7), ()),
    "negative indices": (lambda w: w[-1] * w[..., -2:].sum(), draw(3, 4), ()),
    "write a slice": (lambda w: _write(w), draw(4, 5), ()),
    "in place on a view": (lambda w: _in_place(w), draw(4, 5), ()),
    "views of views": (lambda w: w.T.reshape(2, -1).unsqueeze(1).transpose(0, 2).squeeze(1), draw(4, 6), ()),
    "repeat": (lambda w: w.repeat(2, 1, 3), draw(2, 3), ()),
    "repeat_interleave": (lambda w: w.repeat_interleave(3, dim=1), draw(2, 3), ()),
    "expand": (lambda w: w[:, None].expand(2, 4, 3), draw(2, 3), ()),
    "pad": (lambda w: F.pad(w, (1, 2, 0, 1), value=0.5), draw(2, 3), ()),
    "addmm": (lambda w, x: torch.addmm(w, x, x.T, alpha=2.0, beta=0.5), draw(3, 3), (draw(3, 4),)),
    "baddbmm": (lambda w, x: torch.baddbmm(w, x, x.mT, alpha=0.1), draw(2, 3, 3), (draw(2, 3, 4),)),
    "matrix vector": (lambda w, x: w @ x, draw(3, 4), (draw(4),)),
    "dot": (lambda w, x: w @ x, draw(4), (draw(4),)),
    "einsum": (lambda w, x: torch.einsum("bij,kj->bik", x, w), draw(3, 4), (draw(2, 5, 4),)),
    "convolution 1d": (lambda w, x: F.conv1d(x, w, stride=2), draw(4, 3, 3), (draw(2, 3, 9),)),
    "convolution 3d": (lambda w, x: F.conv3d(x, w, padding=1), draw(2, 3, 3, 3, 3), (draw(1, 3, 4, 4, 4),)),
    "transposed": (
        lambda w, x: F.conv_transpose2d(x, w, w.sum((0, 2, 3)), stride=2, padding=1, output_padding=1),
        draw(3, 2, 3, 3),
        (draw(2, 3, 4, 5),),
    ),
    "max_pool1d": (lambda w: F.max_pool1d(w, 3, 2), draw(2, 3, 9), ()),
    "max_pool3d": (lambda w: F.max_pool3d(w, 2), draw(1, 2, 4, 4, 6), ()),
    "avg_pool": (lambda w: F.avg_pool2d(w, 3, 2, 1, count_include_pad=False), draw(1, 2, 7, 6), ()),
    "adaptive pool": (lambda w: F.adaptive_avg_pool2d(w, (2, 3)), draw(1, 2, 6, 6), ()),
    "uneven adaptive pool": (lambda w: F.adaptive_avg_pool2d(w, (2, 4)), draw(1, 2, 5, 6), ()),
    "softmax": (lambda w: F.softmax(w, 0), draw(3, 4), ()),
    "log_softmax": (lambda w: F.log_softmax(w, -1), draw(3, 4), ()),
    "batch_norm": (lambda w, x: F.batch_norm(x * w, None, None, training=True), draw(3, 1), (draw(4, 3, 5),)),
    "layer_norm": (lambda w, x: F.layer_norm(x, (3, 4), w, w.exp()), draw(3, 4), (draw(2, 3, 4),)),
    "group_norm": (lambda w, x: F.group_norm(x * w.sum(), 2, w, w * 2), draw(4), (draw(2, 4, 3, 3),)),
    "instance_norm": (lambda w, x: F.instance_norm(x, weight=w, bias=w), draw(3), (draw(2, 3, 5),)),
    "rms_norm": (lambda w, x: F.rms_norm(x, (4,), w), draw(4), (draw(2, 3, 4),)),
    "variance": (lambda w: w.var(1) + w.std((0, 1), correction=0) + torch.var_mean(w, 1)[1], draw(3, 4), ()),
    "norms": (lambda w: w.norm() + torch.linalg.vector_norm(w, dim=1), draw(3, 4), ()),
    "reductions": (lambda w: w.amax(1) + w.max(1).values + w.mean() + w.logsumexp((0, 1)), draw(3, 4), ()),
    "mse": (lambda w, x: F.mse_loss(w, x), draw(3, 4), (draw(3, 4, seed=1),)),
    "smooth_l1": (lambda w, x: F.smooth_l1_loss(w, x, beta=0.5), draw(3, 4), (draw(3, 4, seed=1),)),
    "huber": (lambda w, x: F.huber_loss(w, x, reduction="sum"), draw(3, 4), (draw(3, 4, seed=1),)),
    "bce": (
        lambda w, x: (
            F.binary_cross_entropy_with_logits(w, x.sigmoid()) + F.binary_cross_entropy(w.sigmoid(), x.sigmoid())
        ),
        draw(3, 4),
        (draw(3, 4, seed=1),),
    ),
    "kl": (lambda w, x: F.kl_div(F.log_softmax(w, 1), x.exp(), reduction="batchmean"), draw(3, 4), (draw(3, 4),)),
    "nll": (lambda w, y: F.nll_loss(w, y), draw(5, 3), (LABELS,)),
    "nll sum": (lambda w, y: F.nll_loss(w, y, reduction="sum"), draw(5, 3), (LABELS,)),
    "nll none": (lambda w, y: F.nll_loss(w, y, reduction="none"), draw(5, 3), (LABELS,)),
    "nll ignore": (lambda w, y: F.nll_loss(w, y.abs() % 3, ignore_index=2), draw(5, 3), (LABELS,)),
    "nll weights": (
        lambda w, y: F.nll_loss(w, y, weight=torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)),
        draw(5, 3),
        (LABELS,),
    ),
    "nll 2d": (lambda w, y: F.cross_entropy(w, y), draw(2, 3, 2, 2), (INDEX.reshape(1, 2, 2).repeat(2, 1, 1),)),
    "embedding": (lambda w, i: F.embedding(i, w, padding_idx=2), draw(3, 4), (INDEX,)),
    "index": (lambda w, i: w[i] + w[:, 1][i][:, None], draw(3, 4), (INDEX,)),
    "index a middle dimension": (lambda w, i: w[:, i - 3], draw(2, 3, 4), (INDEX.reshape(2, 2),)),
    "two indices": (lambda w, i: w[i, i], draw(3, 4), (INDEX,)),
    "gather": (lambda w, i: w.gather(0, i[:, None]), draw(3, 4), (INDEX,)),
    "scatter_add": (
        lambda w, i: torch.zeros_like(w).scatter_add(0, i[:, None].expand(1, 4), w[:1]),
        draw(3, 4),
        (INDEX[:1],),
    ),
    "attention with a mask": (
        lambda w, m: F.scaled_dot_product_attention(w, w, w, attn_mask=m > 0),
        draw(2, 3, 4, 5),
        (draw(4, 4).abs(),),
    ),
    "where": (lambda w: torch.where(w > 0, w, 0.1 * w).masked_fill(w > 1, 3.0), draw(3, 4), ()),
    "tril": (lambda w: w.tril().cumsum(1), draw(4, 4), ()),
    "constant": (lambda w: w * torch.tensor([1.0, 2.0, 3.0]), draw(2, 3), ()),
    "dtype": (lambda w: (w.float() * 2).double(), draw(2, 3), ()),
    "activations": (
        lambda w: (
            F.gelu(w, approximate="tanh")
            + F.silu(w)
            + F.elu(w)
            + F.softplus(w)
            + F.hardswish(w)
            + F.leaky_relu(w)
            + F.glu(torch.cat([w, w], 1), 1)
            + F.logsigmoid(w)
            + F.mish(w)
            + F.hardtanh(w)
        ),
        draw(3, 4),
        (),
    ),
    "nan_to_num": (
        lambda w, x: torch.nan_to_num(w + x).clamp(-5, 5) + torch.nan_to_num(w - x, 1.0, 2.0, 3.0),
        draw(3, 4),
        (torch.tensor([float("nan"), float("inf"), float("-inf"), 1.0], dtype=torch.float64),),
    ),
    "adaptive max pool": (
        lambda w: F.adaptive_max_pool2d(w, (2, 1)).sum() + F.adaptive_max_pool3d(w[None], 2).sum(),
        draw(2, 4, 6),
        (),
    ),
    "uneven adaptive max pool": (lambda w: F.adaptive_max_pool2d(w, (3, 4)), draw(2, 5, 6), ()),
    "diagonals": (
        lambda w: (
            torch.diag_embed(w, 1).sum()
            + torch.diag_embed(w, -2, 0, 1).prod(2).sum()
            + torch.diagonal(w, -1).prod()
            + torch.diag(w[0]) @ w.mT
        ),
        draw(3, 4),
        (),
    ),
    "write a diagonal": (
        lambda w, x: torch.diagonal_scatter(w, x, 1, 0, 2).sum(2) + torch.diagonal_scatter(x.T, w[0, 0, :3], -1),
        draw(4, 3, 5),
        (draw(3, 4),),
    ),
    "bilinear": (lambda w, x, y: F.bilinear(x, y, w, w.sum((1, 2))), draw(3, 4, 5), (draw(2, 4), draw(2, 5))),
    "block_diag": (lambda w: torch.block_diag(w, w[:1] * 2), draw(2, 3), ()),
    "pairs of a triangle": (
        lambda w: w[*torch.tril_indices(4, 4, -1)] * w[*torch.triu_indices(4, 4, 1)],
        draw(4, 4),
        (),
    ),
    "multilabel margin": (
        lambda w, y: (
            sum(F.multilabel_margin_loss(w, y, reduction=kind).sum() for kind in ("mean", "sum", "none"))
            + F.multilabel_margin_loss(w[0], y[0], reduction="none")
        ),
        draw(4, 3),
        (torch.tensor([[0, 2, -1], [1, -1, 2], [-1, 0, 0], [0, 1, 2]]),),
    ),
    "normal likelihood": (
        lambda w, x: F.gaussian_nll_loss(w, x, x.abs()) + torch.nn.GaussianNLLLoss(full=True)(x, w, w.square()),
        draw(4, 3),
        (draw(4, 3),),
    ),
    "temporal classification": (
        lambda w, y, times, sizes: (
            F.ctc_loss(w.log_softmax(2), y, times, sizes)
            + F.ctc_loss(w.log_softmax(2), y[0], times, sizes, zero_infinity=True, reduction="sum")
            + F.ctc_loss(w.log_softmax(2), y, (6, 6, 5), (2, 1, 3), blank=1)
            + F.ctc_loss(w.log_softmax(2), y[1], [6, 6, 5], [2, 1, 3], reduction="none").square().sum()
        ),
        draw(6, 3, 7),
        (torch.arange(18).reshape(3, 6) % 5 + 2, torch.tensor([6, 4, 3]), torch.tensor([2, 1, 3])),
    ),
    "interpolate": (lambda w: F.interpolate(w, scale_factor=2), draw(1, 2, 3, 3), ()),
}


def _write(w: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(4, 5, dtype=w.dtype)
    out[1:3, 2:] = w[1:3, 2:]
    out[0] = w[3] * 2
    return out


def _in_place(w: torch.Tensor) -> torch.Tensor:
    x = w * 1
    view = x.T[1]
    view.mul_(3)
    x += 1
    return x * view.sum()


@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name: str) -> None:
    function, start, batch = CASES[name]
    operators = operators_of(function, start, *batch)
    gone = ("view", "transpose", "select", "split", "addmm", "_softmax", "native_", "detach", "clone", "copy_")
    left = [op for op in operators if op.split(".")[1].startswith(gone)]
    assert not left, left


def test_batch_norm_in_evaluation() -> None:
    norm = nn.BatchNorm1d(3).double().eval()
    norm.running_mean.copy_(draw(3))
    model = Holder(draw(4, 3), norm)
    model.norm = norm
    captured = capture(TrainingStep(model, step=lambda net, batch: (net() * batch).sum()), draw(4, 3, seed=1))
    inputs = first_inputs(captured, TrainingStep(model, step=lambda net, batch: net()))
    made = list(run(captured.graph, inputs | captured.flatten(draw(4, 3, seed=1))).values())
    loss = (model() * draw(4, 3, seed=1)).sum()
    torch.testing.assert_close(made[0], loss.detach())
    for actual, wanted in zip(made[1:], torch.autograd.grad(loss, list(model.parameters())), strict=True):
        torch.testing.assert_close(actual, wanted)
    assert not captured.graph.updates


def test_inference() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)).double().eval()
    captured = capture(Inference(model, call=lambda net, x: {"logits": net(x), "twice": [2 * net(x)]}), draw(5, 3))
    check_text(captured.graph)
    assert [output.role for output in captured.graph.outputs] == ["result"] * 2
    assert [node.operator for node in captured.graph.nodes].count("aten.mm") == 2
    inputs = first_inputs(captured, Inference(model)) | captured.flatten(draw(5, 3))
    made = torch.utils._pytree.tree_unflatten(list(run(captured.graph, inputs).values()), captured.result_spec)
    torch.testing.assert_close(made["twice"][0], 2 * model(draw(5, 3)).detach())


def test_random_operators() -> None:
    def noisy(w: torch.Tensor) -> torch.Tensor:
        noise = torch.randn_like(w) + torch.rand(w.shape) + torch.empty_like(w).normal_(2, 3).uniform_(-1, 1)
        return w * noise * torch.bernoulli(w.sigmoid()) * torch.randint(0, 9, w.shape)

    model = Holder(draw(3, 4), noisy)
    captured = capture(TrainingStep(model, step=lambda net, batch: net().sum()), ())
    check_text(captured.graph)
    step = TrainingStep(model, step=lambda net, batch: net().sum())
    one, two, three = (
        next(iter(run(captured.graph, first_inputs(captured, step, seed)).values())) for seed in (0, 0, 1)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, three)
    kinds = {node.operator for node in captured.graph.nodes if "random" in node.operator}
    assert kinds == {"girih.random_normal", "girih.random_uniform", "girih.random_integers"}


def drawn_by(function: Callable[[torch.Tensor], torch.Tensor], weights: torch.Tensor, seed: int) -> torch.Tensor:
    step = Inference(nn.Identity(), call=lambda net, x: function(x))
    captured = capture(step, weights)
    check_text(captured.graph)
    given = {item.name: torch.tensor(seed) for item in captured.graph.inputs if item.role == "seed"}
    return next(iter(run(captured.graph, given | captured.flatten(weights)).values()))


def test_random_choices() -> None:
    weights = torch.tensor([[0.1, 0.6, 0.0, 0.3], [1.0, 1.0, 2.0, 4.0]], dtype=torch.float64).repeat(2000, 1)
    order = drawn_by(lambda x: torch.randperm(x.shape[0]), weights, 0)
    assert sorted(order.tolist()) == list(range(4000))
    assert order.tolist() != drawn_by(lambda x: torch.randperm(x.shape[0]), weights, 1).tolist()
    shares = weights[:2] / weights[:2].sum(1, keepdim=True)
    for count, replacement in ((1, False), (3, True)):
        chosen = drawn_by(lambda x, k=count, r=replacement: torch.multinomial(x, k, r), weights, 0)
        for row in range(2):
            found = torch.bincount(chosen[row::2].flatten(), minlength=4) / chosen[row::2].numel()
            torch.testing.assert_close(found, shares[row].float(), rtol=0, atol=0.03)
    two = drawn_by(lambda x: torch.multinomial(x, 2), weights[1::2], 0)
    assert bool((two[:, 0] != two[:, 1]).all())
    first = torch.bincount(two[:, 0], minlength=4) / len(two)
    torch.testing.assert_close(first, shares[1].float(), rtol=0, atol=0.03)


def test_normal_numbers_of_given_means() -> None:
    where = torch.linspace(-1, 1, 1000, dtype=torch.float64)
    for function in (
        lambda x: torch.normal(x, 0.5),
        lambda x: torch.normal(x, torch.full_like(x, 0.5)),
        lambda x: x + torch.normal(0.0, torch.full_like(x, 0.5)),
        lambda x: x + torch.normal(0.0, 0.5, x.shape),
    ):
        made = drawn_by(function, where, 3) - where
        assert abs(made.mean().item()) < 0.06
        assert abs(made.std().item() - 0.5) < 0.06


def test_what_a_batch_norm_keeps() -> None:
    """Between forward and backward live the input, its mean and its scale: nothing else of its size."""
    model = Holder(draw(3), lambda w, x: F.batch_norm(x * w[:, None], None, None, w, w, training=True))
    step = TrainingStep(model, step=lambda net, x: net(x).exp().sum())
    graph = capture(step, draw(2, 3, 9)).graph
    made = {name for node in graph.nodes if node.phase == "forward" for name in node.outputs}
    kept = {name for node in graph.nodes if node.phase == "backward" for name in node.inputs if name in made}
    assert sorted(name for name in kept if graph.values[name].elements == 54) == ["exp", "mul"]


def test_identical_small_nodes_are_made_once() -> None:
    model = Holder(draw(3), lambda w: w * torch.arange(3) + w * torch.arange(3))
    graph = capture(TrainingStep(model, step=lambda net, batch: net().sum()), ()).graph
    assert [node.operator for node in graph.nodes].count("aten.arange.start_step") == 1
