"""Layers written in plain operators against PyTorch's own."""

import pytest
import torch
import torch.nn.functional as F

from girih.models import alexnet, example, gpt, inception_v3, mlp, rnn
from girih.models.networks.layers import RootMeanSquareNorm, dropout_layer
from girih.models.networks.sequences.attention import Attention, future_mask, rotary_angles, rotate
from girih.models.networks.sequences.rnn import LSTMCell


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_equals_torch(kv_heads: int, causal: bool) -> None:
    attention = Attention(32, heads=4, kv_heads=kv_heads)
    x = torch.randn(2, 6, 32)

    def by_head(projected: torch.Tensor) -> torch.Tensor:
        return projected.view(2, 6, -1, 8).transpose(1, 2)

    mixed = F.scaled_dot_product_attention(
        by_head(attention.query(x)),
        by_head(attention.key(x)),
        by_head(attention.value(x)),
        is_causal=causal,
        enable_gqa=True,
    )
    expected = attention.output(mixed.transpose(1, 2).reshape(2, 6, 32))
    actual = attention(x, future_mask(6, x.device) if causal else None)
    torch.testing.assert_close(actual, expected)


def test_rotated_products_depend_on_distance_alone() -> None:
    query, key = torch.randn(2, 8).unbind(0)
    angles = rotary_angles(12, 8, 10_000.0, like=query)
    queries = rotate(query.expand(1, 1, 12, 8), angles)[0, 0]
    keys = rotate(key.expand(1, 1, 12, 8), angles)[0, 0]
    products = queries @ keys.T
    torch.testing.assert_close(products[1:, 1:], products[:-1, :-1])
    torch.testing.assert_close(products[3, 3], query @ key)
    assert not torch.allclose(products[3, 3], products[3, 5])


def test_norm_equals_torch() -> None:
    norm, x = RootMeanSquareNorm(16), torch.randn(3, 5, 16)
    torch.nn.init.normal_(norm.weight)
    torch.testing.assert_close(norm(x), F.rms_norm(x, (16,), norm.weight, eps=1e-5))


def test_lstm_cell_equals_torch() -> None:
    cell, reference = LSTMCell(5, 7), torch.nn.LSTMCell(5, 7)
    with torch.no_grad():
        reference.weight_ih.copy_(cell.from_input.weight)
        reference.weight_hh.copy_(cell.from_hidden.weight)
        reference.bias_ih.copy_(cell.from_input.bias)
        reference.bias_hh.zero_()
    x, hidden, memory = torch.randn(3, 5), torch.randn(3, 7), torch.randn(3, 7)
    torch.testing.assert_close(cell(x, hidden, memory), reference(x, (hidden, memory)))


@pytest.mark.parametrize("name", ["gpt-tiny", "llama-tiny"])
def test_causal_models_do_not_see_the_future(name: str) -> None:
    shown = example(name, device="cpu")
    tokens = shown.inputs["tokens"]
    changed = tokens.clone()
    changed[:, 10:] = (changed[:, 10:] + 1) % 64
    before, after = shown.module(tokens), shown.module(changed)
    torch.testing.assert_close(before[:, :10], after[:, :10])
    assert not torch.allclose(before[:, 10:], after[:, 10:])


@pytest.mark.parametrize("name", ["gpt-tiny", "llama-tiny", "bert-tiny"])
def test_transformers_run_in_bfloat16(name: str) -> None:
    shown = example(name, device="cpu")
    loss = shown.step(shown.module.bfloat16(), shown.inputs)
    assert loss.dtype == torch.bfloat16
    assert torch.isfinite(loss)


def test_dropout_is_in_the_graph_only_when_asked_for() -> None:
    assert isinstance(dropout_layer(0.0), torch.nn.Identity)
    assert isinstance(dropout_layer(0.1), torch.nn.Dropout)
    model = gpt(1, 16, 2, sequence=4, vocabulary=8, dropout=0.5)
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    assert not torch.equal(model(tokens), model(tokens))
    assert torch.equal(model.eval()(tokens), model(tokens))


def test_inception_with_auxiliary_head_adds_its_loss() -> None:
    plain = example("inception", batch=2, scale=1 / 16, device="meta")
    paired = example("inception", batch=2, scale=1 / 16, auxiliary=True, device="meta")
    assert plain.module(plain.inputs["images"]).shape == (2, 1000)
    assert [part.shape for part in paired.module(paired.inputs["images"])] == [(2, 1000), (2, 1000)]
    assert paired.step(paired.module, paired.inputs).shape == ()


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="75×75 and up; got 64"):
        inception_v3(image=64)
    with pytest.raises(ValueError, match="auxiliary=False or take larger"):
        inception_v3(image=75, auxiliary=True)
    with pytest.raises(ValueError, match="under 63×63; got image=32"):
        alexnet(image=32)
    with pytest.raises(ValueError, match=r"got \(3,\)"):
        mlp((3,))
    with pytest.raises(ValueError, match="width=32, heads=3"):
        Attention(32, heads=3)
    with pytest.raises(ValueError, match="unrolled for 4 steps"):
        rnn(1, 8, steps=4, input=3)(torch.zeros(2, 5, 3))
