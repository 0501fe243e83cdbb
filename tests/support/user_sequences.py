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


def attend_turned(m, x):
    """As Meta's Llama has it."""
    angles = torch.outer(torch.arange(6).double(), 10.0 ** -torch.arange(0, 4, 2).double())
    turns = torch.polar(torch.ones_like(angles), angles)[:, None, :]

    def turned(part):
        pairs = torch.view_as_complex(part.reshape(*part.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(3)

    q, k, v = (own(x).view(BATCH, 6, 2, 4) for own in (m.q, m.k, m.v))
    q, k, v = (part.transpose(1, 2) for part in (turned(q), turned(k), v))
    scores = torch.matmul(q, k.transpose(2, 3)) / 2.0 + torch.full((6, 6), float("-inf")).triu(1)
    return torch.matmul(scores.softmax(-1), v).transpose(1, 2).contiguous().view(BATCH, 6, -1)


program(
    "attention with rotary positions",
    lambda: Forward(attend_turned, q=nn.Linear(8, 8, False), k=nn.Linear(8, 8, False), v=nn.Linear(8, 8, False)),
    SEQUENCES,
)


def mix_frequencies(m, x):
    """A spectral convolution (Fourier neural operators), its weights complex."""
    found = torch.fft.rfft2(m.lift(x.unsqueeze(-1)).permute(0, 3, 1, 2))
    mixed = torch.zeros(BATCH, 3, 6, 5, dtype=found.dtype)
    mixed[:, :, :2, :2] = torch.einsum("bixy,ioxy->boxy", found[:, :, :2, :2], m.weight * (1 - 0.5j))
    return torch.fft.irfft2(mixed, s=x.shape[-2:]).mean(1)


program(
    "spectral convolution",
    lambda: Forward(mix_frequencies, lift=nn.Linear(1, 3), weight=torch.view_as_complex(draw(3, 3, 2, 2, 2))),
    pairs((6, 8), (6, 8)),
)


def convolve_states(m, x):
    """A diagonal state space (S4D): the kernel is a sum of complex exponentials, the convolution by fft."""
    a = -m.decay.exp() + 1j * m.turn
    weight = torch.view_as_complex(m.weight) * (torch.exp(a) - 1.0) / a
    kernel = 2 * torch.einsum("hn,hnl->hl", weight, torch.exp(a.unsqueeze(-1) * torch.arange(6))).real
    mixed = torch.fft.rfft(x.transpose(1, 2), n=12) * torch.fft.rfft(kernel, n=12)
    return m.head(torch.fft.irfft(mixed, n=12)[..., :6].transpose(1, 2))


program(
    "diagonal state space",
    lambda: Forward(
        convolve_states, decay=draw(8, 3), turn=draw(8, 3, seed=1), weight=draw(8, 3, 2), head=nn.Linear(8, 8)
    ),
    SEQUENCES,
)


def overlap_windows(m, x):
    """Windows are read where they lie: what is made of them must not be written over them."""
    windows = m.own(x).unfold(1, 8, 4) * m.window
    spectrum = torch.stft(m.own(x), 8, 4, window=m.window, return_complex=True).abs()
    strided = m.own(x).as_strided((4, 8), (16, 2))
    return m.head(torch.cat([windows.square().flatten(1), spectrum.flatten(1), strided], 1))


program(
    "overlapping windows",
    lambda: Forward(overlap_windows, own=nn.Linear(8, 16), window=torch.hann_window(8), head=nn.Linear(57, 3)),
    ROWS,
    undivided="aten.reflection_pad1d_backward aten.unfold_backward",
)


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


for mode in ("sum", "mean"):
    program(
        f"EmbeddingBag of one row in each, {mode}",
        lambda mode=mode: Forward(
            lambda m, tokens: m.head(m.words(tokens, torch.arange(len(tokens)))),
            words=nn.EmbeddingBag(11, 8, mode=mode),
            head=nn.Linear(8, 3),
        ),
        lambda seed: (whole(BATCH, high=11, seed=seed), draw(BATCH, 3, seed=seed + 50)),
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
