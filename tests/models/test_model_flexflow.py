"""The models of FlexFlow's evaluation: their sizes by formula, their batches, and what their layers compute."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from girih.models import example, nmt, rnnlm, rnntc
from girih.models.networks.dlrm import CRITEO_KAGGLE_ROWS, DLRM, FLEXFLOW_ROWS
from girih.models.networks.sequences.nmt import DotAttention


def parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def lstm(layers: int, inputs: int, hidden: int) -> int:
    """Four gates, each with weights from the input and from the last state, and a bias."""
    first = 4 * hidden * (inputs + hidden + 1)
    return first + (layers - 1) * 4 * hidden * (2 * hidden + 1)


def linear(*sizes: int) -> int:
    return sum(outputs * (inputs + 1) for inputs, outputs in pairwise(sizes))


SIZES = {
    "rnntc": 18_765 * 1024 + lstm(4, 1024, 1024) + linear(1024, 2),
    "rnnlm": 10_000 * 2048 + lstm(2, 2048, 2048) + linear(2048, 10_000),
    "rnnlm-2-2k-2": 10_000 * 2048 + lstm(2, 2048, 2048) + linear(2048, 10_000),
    "nmt": 2 * 32_000 * 1024 + 2 * lstm(2, 1024, 1024) + 2 * 1024 * 1024 + linear(1024, 32_000),
    "dlrm-criteo": sum(FLEXFLOW_ROWS) * 64 + linear(13, 512, 512, 64) + linear(27 * 64, 1024, 1024, 1024, 1),
    "candle-uno": sum(linear(n, 1000, 1000, 1000) for n in (942, 5270, 2048)) + linear(3000, 1000, 1000, 1000, 1),
}


@pytest.mark.parametrize("name", SIZES)
def test_parameter_count(name: str) -> None:
    assert parameters(example(name).module) == SIZES[name]


def test_vocabularies_are_as_the_paper_says() -> None:
    assert len(FLEXFLOW_ROWS) == 26
    assert (min(FLEXFLOW_ROWS), max(FLEXFLOW_ROWS)) == (3, 1_700_000)
    assert all(ours <= theirs for ours, theirs in zip(FLEXFLOW_ROWS, CRITEO_KAGGLE_ROWS, strict=True))


@pytest.mark.parametrize(
    ("name", "batch", "shapes"),
    [
        ("lenet", 64, {"images": (64, 1, 32, 32)}),
        ("alexnet", 256, {"images": (256, 3, 224, 224)}),
        ("inception", 64, {"images": (64, 3, 299, 299)}),
        ("resnet-101", 64, {"images": (64, 3, 224, 224)}),
        ("rnntc", 64, {"tokens": (64, 40), "labels": (64,)}),
        ("rnnlm", 64, {"tokens": (64, 40), "targets": (64, 40)}),
        ("rnnlm-2-2048-2", 64, {"tokens": (64, 2), "targets": (64, 2)}),
        ("nmt", 64, {"source": (64, 40), "tokens": (64, 40), "targets": (64, 40)}),
        ("dlrm-criteo", 64, {"dense": (64, 13), "clicks": (64,)}),
        ("candle-uno", 64, {"cell": (64, 942), "responses": (64,)}),
    ],
)
def test_batches_are_the_papers_for_one_device(name: str, batch: int, shapes: dict[str, tuple[int, ...]]) -> None:
    shown = example(name)
    assert shown.batch == batch
    assert {key: tuple(shown.inputs[key].shape) for key in shapes} == shapes
    assert example(name, batch=4 * batch).batch == 4 * batch
    if name == "candle-uno":
        assert [tuple(x.shape) for x in shown.inputs["drugs"]] == [(64, 5270), (64, 2048)]


def copy_weights(ours: torch.nn.ModuleList, theirs: torch.nn.LSTM) -> None:
    with torch.no_grad():
        for layer, cell in enumerate(ours):
            getattr(theirs, f"weight_ih_l{layer}").copy_(cell.from_input.weight)
            getattr(theirs, f"weight_hh_l{layer}").copy_(cell.from_hidden.weight)
            getattr(theirs, f"bias_ih_l{layer}").copy_(cell.from_input.bias)
            getattr(theirs, f"bias_hh_l{layer}").zero_()


def test_unrolled_layers_equal_torch() -> None:
    tokens = torch.randint(0, 9, (3, 5))
    reference = torch.nn.LSTM(8, 8, num_layers=2, batch_first=True)
    reader, classifier = rnnlm(2, 8, 5, vocabulary=9), rnntc(2, 8, 5, vocabulary=9, classes=3)
    copy_weights(reader.cells, reference)
    expected = reader.head(reference(reader.words(tokens))[0])
    torch.testing.assert_close(torch.stack(reader(tokens), 1), expected)
    copy_weights(classifier.cells, reference)
    expected = classifier.head(reference(classifier.words(tokens))[0][:, -1])
    torch.testing.assert_close(classifier(tokens), expected)


def test_translator_equals_torch() -> None:
    source, tokens = torch.randint(0, 9, (2, 3, 5)).unbind(0)
    model = nmt(2, 8, 5, vocabulary=9)
    encoder, decoder = (torch.nn.LSTM(8, 8, num_layers=2, batch_first=True) for _ in range(2))
    copy_weights(model.encoder, encoder)
    copy_weights(model.decoder, decoder)
    encoded, states = encoder(model.source_words(source))
    written, _ = decoder(model.target_words(tokens), states)
    context = F.scaled_dot_product_attention(written, encoded, encoded, scale=1.0)
    expected = model.head(torch.tanh(model.attention.combine(torch.cat([context, written], -1))))
    torch.testing.assert_close(torch.stack(model(source, tokens), 1), expected)


def test_attention_looks_where_the_query_points() -> None:
    attention = DotAttention(2)
    with torch.no_grad():
        attention.combine.weight.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]]))  # the context alone
    encoded = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]])
    torch.testing.assert_close(
        attention(torch.tensor([[0.0, 30.0]]), encoded), torch.tanh(torch.tensor([[0.0, 1.0]])), atol=1e-6, rtol=0
    )


def test_concatenation_keeps_every_vector() -> None:
    model = DLRM(rows=(4, 5), width=3, dense=2, bottom=(6,), top=(7,), interaction="concatenation")
    assert model.top[0].in_features == 3 * 3
    assert model(torch.randn(2, 2), [torch.zeros(2, 1, dtype=torch.int64)] * 2).shape == (2,)
    with pytest.raises(ValueError, match="'products' or 'concatenation', got 'sum'"):
        DLRM(rows=(4,), width=3, dense=2, bottom=(6,), top=(7,), interaction="sum")


def test_other_lengths_are_refused() -> None:
    tokens = torch.zeros(2, 5, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"unrolled for 4 steps, but the batch is \(2, 5\)"):
        rnnlm(1, 8, 4, vocabulary=3)(tokens)
    with pytest.raises(ValueError, match=r"unrolled for 4 steps, but the batch is \(2, 5\)"):
        rnntc(1, 8, 4, vocabulary=3)(tokens)
    with pytest.raises(ValueError, match=r"the translation is \(2, 5\)"):
        nmt(1, 8, 4, vocabulary=3)(tokens[:, :4], tokens)
