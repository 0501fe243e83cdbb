"""Every tiny example trains, is deterministic under its seed, needs no memory on meta, and can be captured."""

from collections.abc import Callable

import pytest
import torch
from counts import but_long
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten

from girih.models import example, names, random_batch, tiny_names
from girih.models.batches import IGNORED

every_tiny = pytest.mark.parametrize("name", tiny_names())
# Of networks with neither attention nor recurrence AlexNet, which has dropout, stands for all.
CONVOLUTIONAL = {
    "densenet-tiny", "inception-tiny", "inception4-tiny", "lenet-tiny", "nasnet-tiny", "resnet-tiny", "resnext-tiny",
    "squeezenet-tiny", "vgg-tiny", "wresnet-tiny",
}  # fmt: skip


def loss_and_gradients(
    module: nn.Module, step: Callable[..., torch.Tensor]
) -> Callable[..., tuple[torch.Tensor, tuple[torch.Tensor, ...]]]:
    """The training step as a pure function of parameters and batch, as girih captures it."""

    def run(parameters, buffers, inputs):  # type: ignore[no-untyped-def]
        def model(*arguments):  # type: ignore[no-untyped-def]
            copies = {name: buffer.clone() for name, buffer in buffers.items()}
            return torch.func.functional_call(module, {**parameters, **copies}, arguments)

        loss = step(model, inputs)
        return loss, torch.autograd.grad(loss, [item for item in parameters.values() if item.requires_grad])

    return run


@every_tiny
def test_trains(name: str) -> None:
    shown = example(name, device="cpu")
    optimizer = torch.optim.SGD(shown.module.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        loss = shown.step(shown.module, shown.inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(torch.isfinite(torch.tensor(losses)))
    assert losses[-1] < losses[0]
    for parameter_name, parameter in shown.module.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, parameter_name
        if parameter.grad is None:
            continue
        assert torch.isfinite(parameter.grad).all(), parameter_name


@every_tiny
def test_same_seed_same_numbers(name: str) -> None:
    state = torch.random.get_rng_state()
    first, second, other = (example(name, device="cpu", seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), state)
    for left, right in zip(first.module.parameters(), second.module.parameters(), strict=True):
        assert torch.equal(left, right)
    loss = first.step(first.module, first.inputs)
    assert torch.equal(loss, second.step(second.module, second.inputs))
    assert not torch.equal(loss, other.step(other.module, other.inputs))


@every_tiny
def test_meta_and_real_batches_agree(name: str) -> None:
    without_memory, real = example(name).inputs, random_batch(name, seed=1)
    assert without_memory.keys() == real.keys()
    for left, right in zip(tree_flatten(without_memory)[0], tree_flatten(real)[0], strict=True):
        assert (left.shape, left.dtype) == (right.shape, right.dtype)
    shown = example(name)
    assert shown.step(shown.module, shown.inputs).shape == ()


@pytest.mark.parametrize("name", but_long(tiny_names(), CONVOLUTIONAL))
def test_is_captured(name: str) -> None:
    """In operators that can be divided, and without random numbers."""
    if name == "deepspeech-tiny":
        pytest.skip("PyTorch cannot trace its CTC loss without values; girih can (tests/capture/test_capture_zoo.py)")
    with FakeTensorMode(allow_non_fake_inputs=True):
        shown = example(name, device="cpu")
        tensors = [*shown.module.parameters(), *tree_flatten(shown.inputs)[0]]
        assert all(isinstance(tensor, FakeTensor) for tensor in tensors)
        graph = make_fx(loss_and_gradients(shown.module, shown.step))(
            dict(shown.module.named_parameters()), dict(shown.module.named_buffers()), shown.inputs
        )
    called = {str(node.target) for node in graph.graph.nodes if node.op == "call_function"}
    assert not any("scaled_dot_product" in target or "lstm" in target for target in called)
    assert not any("rand" in target or "bernoulli" in target or "dropout" in target for target in called)


def test_large_models_build_under_fake_tensors() -> None:
    with FakeTensorMode():
        shown = example("wresnet-152-10", device="cpu")
        assert shown.step(shown.module, shown.inputs).shape == ()


def test_default_batches_are_tofus() -> None:
    batches = {name: example(name).batch for name in ("wresnet-152-10", "wresnet-50-4", "rnn-8-8k", "rnn-10-8k")}
    assert batches == {"wresnet-152-10": 8, "wresnet-50-4": 128, "rnn-8-8k": 512, "rnn-10-8k": 128}
    assert example("rnn-10-8192").batch == 128
    assert example("rnn-8-8k", batch=16).inputs["vectors"].shape == (16, 20, 512)


def test_overrides_reach_module_and_batch() -> None:
    shown = example("gpt2", batch=2, sequence=64, vocabulary=128)
    assert shown.module(shown.inputs["tokens"]).shape == (2, 64, 128)
    small_images = example("wresnet-50-2-32", batch=2)
    assert small_images.inputs["images"].shape == (2, 3, 32, 32)
    assert sum("MaxPool" in type(module).__name__ for module in small_images.module.modules()) == 0


def test_masked_tokens_are_a_minority_and_never_none() -> None:
    targets = torch.stack([random_batch("bert-tiny", batch=1, seed=seed)["targets"] for seed in range(64)])
    kept = targets != IGNORED
    assert kept.flatten(1).any(1).all()
    # 15% of all tokens, and the first of each batch: 0.15 + 0.85/16 on average.
    assert kept.float().mean().item() == pytest.approx(0.203, abs=0.05)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wresnt-152-10", "no model 'wresnt-152-10': did you mean wresnet-152-10"),
        ("gpt-tny", "no model 'gpt-tny': did you mean gpt-tiny"),
        ("zebra", "names are mlp.*, and FAMILY-tiny"),
        ("gpt3", "gpt2"),
        ("rnn-8", "rnn-LAYERS-HIDDEN"),
        ("rnn-8-8k-3", "rnn-LAYERS-HIDDEN"),
        ("rnn-8-eight", "did you mean rnn-8-8k"),
        ("rnnlm-2-2k-2-2", r"names of this family are rnnlm\[-LAYERS\[-HIDDEN\[-STEPS\]\]\], such as rnnlm"),
        ("dlrm-criteo-3", "names of this family are dlrm-criteo"),
        ("alexnet-7", "alexnet"),
        ("", "wresnet-DEPTH-WIDTH"),
        ("resnet-18", "got 18"),
        ("gpt-12-1000", "multiple of 64, .*; got 1000"),
    ],
)
def test_unknown_names_say_what_is_known(name: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as raised:
        example(name)
    assert name in str(raised.value) or "got" in str(raised.value)


def test_unknown_options_say_what_is_known() -> None:
    with pytest.raises(ValueError, match="gpt2 has no option length; its options are layers, width, heads, seq"):
        example("gpt2", length=3)
    with pytest.raises(ValueError, match="at least one sample; got batch=0"):
        example("gpt2", batch=0)


def test_names_describe_every_family() -> None:
    assert len({family.name for family in names()}) == len(names())
    for family in names():
        assert family.pattern.startswith(family.name)
        assert family.description
