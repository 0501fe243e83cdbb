"""Hugging Face's own models (tiny, random weights) are captured and equal eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from against_eager import compare
from torch import nn

from girih.capture import TrainingStep

transformers = pytest.importorskip("transformers")

BATCH, LENGTH, VOCABULARY = 2, 6, 50
Loss = Callable[[Any, dict[str, Any]], torch.Tensor]


def batch(seed: int) -> dict[str, torch.Tensor]:
    """Causal models get an explicit 4-D mask and positions: making them is data-dependent."""
    generator = torch.Generator().manual_seed(seed)
    later = torch.ones(LENGTH, LENGTH).triu(1).bool()
    mask = torch.zeros(BATCH, 1, LENGTH, LENGTH, dtype=torch.float64)
    return {
        "ids": torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator),
        "labels": torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator),
        "places": torch.arange(LENGTH).repeat(BATCH, 1),
        "causal": mask.masked_fill(later, torch.finfo(torch.float64).min),
        "open": mask,
    }


def causal(net: nn.Module, b: dict[str, Any]) -> torch.Tensor:
    options = {"position_ids": b["places"], "labels": b["labels"], "use_cache": False}
    return net(input_ids=b["ids"], attention_mask=b["causal"], **options).loss


def masked(net: nn.Module, b: dict[str, Any]) -> torch.Tensor:
    options = {"position_ids": b["places"], "token_type_ids": b["places"] * 0}
    return net(input_ids=b["ids"], attention_mask=b["open"], labels=b["labels"], **options).loss


def translate(net: nn.Module, b: dict[str, Any]) -> torch.Tensor:
    options = {"decoder_input_ids": b["labels"], "decoder_attention_mask": b["causal"], "use_cache": False}
    return net(input_ids=b["ids"], attention_mask=b["open"], labels=b["labels"], **options).loss


def bert() -> tuple[nn.Module, Loss]:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )
    return transformers.BertForMaskedLM(config), masked


def gpt2() -> tuple[nn.Module, Loss]:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=16,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    return transformers.GPT2LMHeadModel(config), causal


def llama() -> tuple[nn.Module, Loss]:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        attn_implementation="eager",
    )
    return transformers.LlamaForCausalLM(config), causal


def t5() -> tuple[nn.Module, Loss]:
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        attn_implementation="eager",
    )
    return transformers.T5ForConditionalGeneration(config), translate


@pytest.mark.parametrize("make", [bert, gpt2, llama, t5], ids=lambda make: make.__name__)
def test_equals_eager(make: Callable[[], tuple[nn.Module, Loss]]) -> None:
    torch.manual_seed(0)
    model, loss = make()
    model = model.double().train()
    step = TrainingStep(model, step=loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    # GPT-2 and Llama take their loss, Llama its positions and norms, in float32 whatever the model is.
    compare(step, [batch(seed) for seed in range(3)], 1e-10 if make in (bert, t5) else 1e-6)
