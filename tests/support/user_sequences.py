"""Programs over sequences: attention, recurrent layers, embeddings, indices, mixtures."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from user_programs import BATCH, Forward, draw, pairs, program, whole, words

SEQUENCES = pairs((6, 8), (6, 8))
ROWS = pairs((8,), (3,))


def by_head(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def attend(m, x):
    q, k, v = (by_head(part, 2) for part in m.all(x).chunk(3, -1))
    return m.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


program("attention", lambda: Forward(attend, all=nn.Linear(8, 24), out=nn.Linear(8, 8)), SEQUENCES)


def share_keys(m, x):
    q, k, v = by_head(m.q(x), 4), by_head(m.k(x), 2), by_head(m.v(x), 2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2)


program(
    "grouped causal attention",
    lambda: Forward(share_keys, q=nn.Linear(8, 16), k=nn.Linear(8, 8), v=nn.Linear(8, 8)),
    pairs((6, 8), (6, 16)),
)


def attend_masked(m, x, seen):
    q, k, v = (by_head(part, 2) for part in m.all(x).chunk(3, -1))
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None, :], dropout_p=0.1)
    return mixed.transpose(1, 2).flatten(2)


program(
    "masked attention with dropout",
    lambda: Forward(attend_masked, all=nn.Linear(8, 24)),
    lambda seed: (draw(BATCH, 6, 8, seed=seed), torch.arange(6) < torch.tensor([[6], [4], [3], [1]]), draw(4, 6, 8)),
)
program(
    "MultiheadAttention",
    lambda: Forward(
        lambda m, x: m.own(x, x, x, need_weights=False)[0], own=nn.MultiheadAttention(8, 2, batch_first=True)
    ),
    SEQUENCES,
)


def attend_padded(m, x, padding):
    mixed, weights = m.own(x, x, x, key_padding_mask=padding)
    return mixed + weights.sum(-1, keepdim=True)


program(
    "MultiheadAttention with padding",
    lambda: Forward(attend_padded, own=nn.MultiheadAttention(8, 2, batch_first=True)),
    lambda seed: (draw(BATCH, 6, 8, seed=seed), torch.arange(6) >= torch.tensor([[6], [4], [3], [1]]), draw(4, 6, 8)),
)
program("TransformerEncoderLayer", lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), SEQUENCES)
program(
    "TransformerEncoder, norm first",
    lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True),
        2,
        enable_nested_tensor=False,
    ),
    SEQUENCES,
)


def transform(m, source, target):
    hidden = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    return m.own(source, target, tgt_mask=hidden, tgt_is_causal=True)


program(
    "Transformer",
    lambda: Forward(transform, own=nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True)),
    lambda seed: (draw(BATCH, 6, 8, seed=seed), draw(BATCH, 5, 8, seed=seed + 1), draw(BATCH, 5, 8, seed=seed + 2)),
)


def turn(m, x):
    angles = torch.polar(torch.ones(6, 4, dtype=torch.float64), torch.arange(24).double().reshape(6, 4) * 0.1)
    return torch.view_as_real(torch.view_as_complex(m.own(x).unflatten(-1, (4, 2))) * angles).flatten(2)


program("rotary positions by complex numbers", lambda: Forward(turn, own=nn.Linear(8, 8)), SEQUENCES)


def last_output(m, x):
    return m.head(m.own(x)[0][:, -1])


for kind, options, width in (
    ("GRU", {}, 6),
    ("LSTM", {"num_layers": 2, "bidirectional": True}, 12),
    ("LSTM", {"proj_size": 3}, 3),
    ("LSTM", {"num_layers": 2, "dropout": 0.2}, 6),
    ("GRU", {"num_layers": 3, "dropout": 0.2, "bidirectional": True}, 12),
):
    program(
        " ".join([kind, *options]),
        lambda kind=kind, options=options, width=width: Forward(
            last_output, own=getattr(nn, kind)(8, 6, batch_first=True, **options), head=nn.Linear(width, 3)
        ),
        pairs((5, 8), (3,)),
    )


def tied() -> nn.Module:
    model = Forward(
        lambda m, t: m.head(torch.tanh(m.words(t))), words=nn.Embedding(11, 8), head=nn.Linear(8, 11, False)
    )
    model.head.weight = model.words.weight
    return model


program(
    "tied weights",
    tied,
    lambda seed: (whole(BATCH, 5, high=11, seed=seed), whole(BATCH, 5, high=11, seed=seed + 9)),
    lambda output, target: F.cross_entropy(output.flatten(0, 1), target.flatten()),
)


def of_words(m, tokens):
    return m.head(m.words(tokens).flatten(1).unflatten(1, (-1, 8)).sum(1))


for name, make, left in (
    ("Embedding with padding", lambda: nn.Embedding(11, 8, padding_idx=0), ""),
    ("Embedding, sparse", lambda: nn.Embedding(11, 8, sparse=True), ""),
    ("Embedding of bounded norm", lambda: nn.Embedding(11, 8, max_norm=1.0), "aten.embedding_renorm"),
    ("EmbeddingBag, mean", lambda: nn.EmbeddingBag(11, 8), ""),
    ("EmbeddingBag, sum", lambda: nn.EmbeddingBag(11, 8, mode="sum", sparse=True), ""),
    ("EmbeddingBag with padding", lambda: nn.EmbeddingBag(11, 8, padding_idx=0), ""),
    (
        "EmbeddingBag, max",
        lambda: nn.EmbeddingBag(11, 8, mode="max"),
        "aten._embedding_bag aten._embedding_bag_backward",
    ),
):
    program(
        name,
        lambda make=make: Forward(of_words, words=make(), head=nn.Linear(8, 3)),
        words(5, 11, (3,)),
        undivided=left,
    )


def of_bags(m, tokens, offsets, weights=None):
    return m.head(m.words(tokens, offsets, weights))


def bags(seed, begins=(0, 3, 3, 9)):
    return whole(12, high=11, seed=seed), torch.tensor(begins)


for name, options, extra in (
    ("mean", {}, ()),
    ("mean, padding", {"padding_idx": 4}, ()),
    ("sum to the last offset", {"mode": "sum", "include_last_offset": True}, ()),
    ("sum of weighted rows", {"mode": "sum", "padding_idx": 4}, (draw(12, seed=7),)),
):
    program(
        f"EmbeddingBag with offsets, {name}",
        lambda options=options: Forward(of_bags, words=nn.EmbeddingBag(11, 8, **options), head=nn.Linear(8, 3)),
        lambda seed, options=options, extra=extra: (
            *bags(seed, (0, 3, 3, 9, 12) if "include_last_offset" in options else (0, 3, 3, 9)),
            *extra,
            draw(BATCH, 3, seed=seed + 50),
        ),
    )


def weigh(m, tokens, offsets):
    return m.head(m.words(tokens, offsets, m.weights))


program(
    "EmbeddingBag with trained weights",
    lambda: Forward(weigh, words=nn.EmbeddingBag(11, 8, mode="sum"), weights=draw(12), head=nn.Linear(8, 3)),
    lambda seed: (*bags(seed), draw(BATCH, 3, seed=seed + 50)),
)


def block():
    return nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)


def repeat_in_backward(m, x):
    return m.head(checkpoint(m.own, m.first(x), use_reentrant=m.reentrant))


def repeating(*layers, reentrant=False):
    parts = {"first": nn.Linear(8, 8), "own": nn.Sequential(*layers), "head": nn.Linear(8, 3)}
    return Forward(repeat_in_backward, reentrant=reentrant, **parts)


program("checkpoint", lambda: repeating(*block()), ROWS)
program("checkpoint, reentrant", lambda: repeating(*block(), reentrant=True), ROWS)
program("checkpoint with dropout", lambda: repeating(*block(), nn.Dropout(0.4), nn.Linear(8, 8), nn.Dropout(0.4)), ROWS)
program(
    "checkpoint_sequential",
    lambda: Forward(
        lambda m, x: checkpoint_sequential(m.own, 2, x, use_reentrant=False),
        own=nn.Sequential(*block(), nn.Linear(8, 3)),
    ),
    ROWS,
)


def linear(forward):
    return lambda: Forward(forward, own=nn.Linear(8, 3))


program("indices in a list", linear(lambda m, x: m.own(x)[:, [0, 2, 1]] + m.own(x)[:, torch.tensor([1, 1, 0])]), ROWS)
program(
    "the last token of each",
    linear(lambda m, x, n: m.own(x)[torch.arange(x.shape[0]), n]),
    lambda seed: (draw(BATCH, 5, 8, seed=seed), whole(BATCH, high=5, seed=seed), draw(BATCH, 3, seed=seed + 50)),
)
program(
    "gather and scatter_add",
    linear(lambda m, x, i: torch.zeros(BATCH, 3).double().scatter_add(1, i, torch.gather(m.own(x), 1, i))),
    lambda seed: (draw(BATCH, 8, seed=seed), whole(BATCH, 3, high=3, seed=seed), draw(BATCH, 3, seed=seed + 50)),
)


def mix_experts(m, x):
    chances = m.gate(x).softmax(-1)
    best, which = chances.topk(2, dim=-1)
    weights = torch.zeros_like(chances).scatter(-1, which, best)
    return (weights[..., None] * torch.stack([expert(x) for expert in m.experts], 1)).sum(1)


program(
    "mixture of experts by topk",
    lambda: Forward(mix_experts, gate=nn.Linear(8, 4), experts=nn.ModuleList(nn.Linear(8, 3) for _ in range(4))),
    ROWS,
)


def quantise(m, x):
    y = m.own(x)
    nearest = m.codes[torch.cdist(y, m.codes).argmin(1)]
    return y + (nearest - y).detach() + 0.1 * nearest


program("vector quantisation", lambda: Forward(quantise, own=nn.Linear(8, 3), codes=draw(5, 3)), ROWS)
