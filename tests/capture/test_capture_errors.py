"""Whatever goes wrong while a program is captured becomes a CaptureError that says where, at which call, and why."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from girih.capture import CaptureError, Inference, TrainingStep, capture
from girih.capture.canonicalize import products
from girih.capture.torch import record

X, Y = torch.ones(4, 3), torch.ones(4, 2)


def linear() -> nn.Linear:
    return nn.Linear(3, 2)


def loss_of(
    forward: Callable[[nn.Module, Any], Any], batch: Any = X, net: nn.Module | None = None
) -> Callable[[], Any]:
    return lambda: capture(TrainingStep(net or linear(), step=forward), batch)


def backward(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss = net(x).sum()
    loss.backward()
    return loss


def wrong_product(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (net(x) @ net(x)).sum()


# By name: what a user does, and what the message says.
PROGRAMS: dict[str, tuple[Callable[[], Any], str]] = {
    "a product of wrong shapes": (
        loss_of(wrong_product),
        r"errors.py:\d+: `return \(net\(x\) @ net\(x\)\).sum\(\)` fails at "
        r"aten.mm\(float32\[4, 2\], float32\[4, 2\]\): a and b must have same reduction dim",
    ),
    "layers that do not fit": (
        lambda: capture(TrainingStep(nn.Sequential(linear(), linear()), F.mse_loss), (X, Y)),
        r"linear.py:\d+: .*\(module '1'\) fails at aten.addmm\(float32\[2\], float32\[4, 2\], float32\[3, 2\]\)",
    ),
    "an impossible view": (
        loss_of(lambda net, x: net(x).view(5, 5).sum()),
        r"fails at aten.view\(float32\[4, 2\], \[5, 5\]\): shape '\[5, 5\]' is invalid for input of size 8",
    ),
    "a missing key": (loss_of(lambda net, x: net(x["images"]).sum(), {"image": X}), "raises KeyError: 'images'"),
    "a missing attribute": (loss_of(lambda net, x: net.head(x).sum()), "raises AttributeError: 'Linear' object has no"),
    "another batch size in the target": (
        lambda: capture(TrainingStep(linear(), F.cross_entropy), (X, torch.zeros(5, dtype=torch.int64))),
        r"raises ValueError: Expected input batch_size \(4\) to match target batch_size \(5\)",
    ),
    "targets of another type": (
        lambda: capture(TrainingStep(linear(), F.cross_entropy), (X, torch.zeros(4, dtype=torch.int32))),
        r"errors.py:\d+: the classes must be int64, got int32\[4\]",
    ),
    "a batch of another type": (
        lambda: capture(TrainingStep(linear(), F.mse_loss), (X.double(), Y)),
        r"a product of float64\[4, 3\] and float32\[3, 2\].*bring batch and model to one dtype",
    ),
    "images of another type": (
        lambda: capture(Inference(nn.Conv2d(3, 2, 1)), torch.ones(1, 3, 4, 4, dtype=torch.bfloat16)),
        r"conv.py:\d+: .* raises RuntimeError: Input type .* should be the same",
    ),
    "floating indices": (
        lambda: capture(Inference(nn.Embedding(4, 2)), X),
        r"fails at aten.embedding\(float32\[4, 2\], float32\[4, 3\]\): Expected tensor for argument #1 'indices'",
    ),
    "an error of the user's own": (loss_of(lambda net, x: 1 / 0), "raises ZeroDivisionError: division by zero"),
    "backward in the step": (loss_of(backward), "the step calls backward itself: it should only compute the loss"),
    "a loss without a tensor": (loss_of(lambda net, x: None), "a tensor of one floating-point number, got NoneType"),
    "a dictionary without a loss": (
        loss_of(lambda net, x: {"los": net(x).sum()}),
        "floating-point number, got NoneType",
    ),
    "a loss of whole numbers": (loss_of(lambda net, x: net(x).argmax()), r"number, got \(\) torch.int64"),
    "a loss that is detached": (loss_of(lambda net, x: net(x).sum().detach()), "requires gradients: .* not detached"),
    "a NumPy batch": (
        lambda: capture(TrainingStep(linear(), F.mse_loss), (X.numpy(), Y)),
        "the batch has a NumPy array at '0': make it a tensor, with torch.from_numpy",
    ),
    "a batch without tensors": (loss_of(lambda net, x: net(x).sum(), [1.0, 2]), "no tensors, only float, int"),
    "a batch that is an iterator": (loss_of(lambda net, x: net(next(x)).sum(), iter([X])), "only list_iterator"),
    "a sparse batch": (loss_of(lambda net, x: net(x).sum(), {"x": X.to_sparse()}), "'x' is torch.sparse_coo.*to_dense"),
    "a lazy layer": (lambda: TrainingStep(nn.LazyLinear(2), F.mse_loss), "'weight' of the model has no shape yet"),
    "TorchScript": (
        lambda: TrainingStep(torch.jit.trace(linear(), X), F.mse_loss),
        "the model is a TorchScript module",
    ),
    "a class in place of a model": (lambda: TrainingStep(nn.Linear, F.mse_loss), "got the class Linear"),
    "an optimizer's class": (
        lambda: TrainingStep(linear(), F.mse_loss, torch.optim.SGD),
        r"made from the model's parameters, such as torch.optim.SGD\(.*\); got the class SGD",
    ),
    "an optimizer by name": (lambda: TrainingStep(linear(), F.mse_loss, "sgd"), "got 'sgd'"),
    "an optimizer that computes the loss": (
        lambda: TrainingStep(model := linear(), F.mse_loss, torch.optim.LBFGS(model.parameters())),
        "LBFGS computes the loss by itself",
    ),
    "an optimizer of another model": (
        lambda: TrainingStep(linear(), F.mse_loss, torch.optim.SGD(linear().parameters(), lr=0.1)),
        "parameter 0 of the optimizer's group 0, shape .2, 3., is not one of the model's",
    ),
    "autocast by name": (
        lambda: TrainingStep(linear(), F.mse_loss, autocast="bf16"),
        "such as torch.bfloat16, got 'bf",
    ),
    "packed sequences": (
        loss_of(lambda net, x: nn.utils.rnn.pack_padded_sequence(net(x)[None], torch.tensor([4]), True).data.sum()),
        "_pack_padded_sequence.; give the recurrent layer the padded sequences, and mask",
    ),
    "a batch norm that counts": (
        lambda: capture(TrainingStep(nn.Sequential(nn.BatchNorm1d(3, momentum=None), linear()), F.mse_loss), (X, Y)),
        r"batchnorm.py:\d+: .*\(module '0'\) needs a tensor's value.*give the batch norm a number as momentum",
    ),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_bad_programs(name: str, logged: list[logging.LogRecord]) -> None:
    run, message = PROGRAMS[name]
    with pytest.raises(CaptureError, match=message) as caught:
        run()
    assert "\n" not in str(caught.value)
    assert not [entry for entry in logged if entry.levelno >= logging.ERROR]  # PyTorch logs no stack


def test_the_cause_is_kept() -> None:
    with pytest.raises(CaptureError) as caught:
        PROGRAMS["a missing key"][0]()
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("kind", [ValueError, TypeError, AssertionError, IndexError])
def test_failures_of_girih_itself_say_at_which_call(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, item: Any) -> None:
        raise kind("a mistake")

    monkeypatch.setattr(record.Recorder, "_noted", fail)
    with pytest.raises(
        CaptureError, match=r"errors.py:\d+: .* girih failed at aten.t\(float32\[2, 3\]\) with"
    ) as caught:
        loss_of(lambda net, x: net(x).sum())()
    assert f"{kind.__name__}: a mistake" in str(caught.value)
    assert isinstance(caught.value.__cause__, kind)


@pytest.mark.parametrize("kind", [ValueError, TypeError, AssertionError, IndexError])
def test_failures_of_a_rule_say_at_which_call(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(builder: Any, *operands: Any) -> None:
        raise kind("a mistake")

    monkeypatch.setattr(products, "mm", fail)  # of which the rule of addmm makes its product
    expected = (
        r"errors.py:\d+: aten.addmm\(float32\[2\], float32\[4, 3\], float32\[3, 2\], 1, 1\) cannot be put into a graph"
    )
    with pytest.raises(CaptureError, match=expected) as caught:
        loss_of(lambda net, x: net(x).sum())()
    assert isinstance(caught.value.__cause__, kind)


def test_failures_of_the_replay_say_at_which_call() -> None:
    """The first pass records; the second replays without writes, which this operator cannot do."""

    def forward(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.prims.copy_to(net(x).clone(), torch.ones(4, 2))

    with pytest.raises(CaptureError, match=r"errors.py:\d+: the program fails at prims.copy_to\(.*alias annotations"):
        capture(Inference(linear(), call=forward), X)


def test_nothing_is_left_behind() -> None:
    """After an error, PyTorch is as it was: random numbers, checks of distributions, decompositions, logs."""
    run = loss_of(lambda net, x: F.dropout(net(x)).view(7, 7), net=linear())
    helper = torch._decomp.decompositions._rnn_helper
    checked = torch.distributions.Distribution._validate_args  # TorchDynamo, once loaded, lets nothing check
    state, level = torch.get_rng_state(), logging.getLogger("torch._subclasses.fake_tensor").level
    with pytest.raises(CaptureError):
        run()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.distributions.Distribution._validate_args is checked
    assert torch._decomp.decompositions._rnn_helper is helper
    assert logging.getLogger("torch._subclasses.fake_tensor").level == level
    assert torch._C._get_mkldnn_enabled()


def test_a_padding_mask_that_makes_a_nested_tensor_is_told_with_what_to_do() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 1).eval()
    batch = {"src": torch.randn(2, 3, 8), "src_key_padding_mask": torch.tensor([[False] * 3, [False, True, True]])}
    with warnings.catch_warnings(action="ignore"):  # PyTorch's nested tensors are a prototype
        with pytest.raises(CaptureError, match=r"make it with enable_nested_tensor=False, or set its"):
            capture(Inference(model), batch)
        model.use_nested_tensor = False
        assert capture(Inference(model), batch).graph.nodes
