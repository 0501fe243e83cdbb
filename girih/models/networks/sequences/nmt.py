"""The unrolled translation network of FlexFlow's evaluation.

Jia, "Automated discovery of machine learning optimizations", thesis, Stanford 2020, chapter 3 (FlexFlow), section
3.7.1: "NMT includes an encoder and a decoder, both of which consist of 2 LSTM layers with a hidden size of 1024. To
improve model accuracy, we also use an attention layer on top of the last decoder LSTM layer"; a softmax linear; 40
unrolled steps on either side, 64 samples a GPU; WMT data.

The attention is Luong, Pham, Manning's (2015, arXiv:1508.04025) with the product as score: on top of the decoder,
as FlexFlow says, so that no step waits for another's attention. (Bahdanau's, which FlexFlow cites, would feed it
back into the next step.) 32,000 words on either side, the usual size for WMT since subwords.
"""

from __future__ import annotations

import torch
from torch import nn

from girih.models.networks.sequences.rnn import cells, check_steps, unroll, zero_states


class DotAttention(nn.Module):
    """`query [batch, hidden]`, `encoded [batch, steps, hidden]` → `tanh(W [context, query])`, `[batch, hidden]`.

    The context is the mean of `encoded` over its steps, weighted by the softmax of its products with the query.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.combine = nn.Linear(2 * hidden, hidden, bias=False)

    def forward(self, query: torch.Tensor, encoded: torch.Tensor) -> torch.Tensor:
        scores = torch.bmm(encoded, query[:, :, None])  # [batch, steps, 1]
        context = torch.bmm(scores.softmax(1).transpose(1, 2), encoded)  # [batch, 1, hidden]
        return torch.tanh(self.combine(torch.cat([context[:, 0], query], dim=1)))


class Translator(nn.Module):
    """`source`, `tokens [batch, steps]` → a tuple of `steps` logits, each `[batch, vocabulary]`.

    `tokens` are the words of the translation so far; a step's logits are those of the word that comes next. The
    decoder begins with the states in which the encoder ends.
    """

    def __init__(self, layers: int, hidden: int, steps: int, vocabulary: int) -> None:
        super().__init__()
        self.steps = steps
        self.hidden = hidden
        self.source_words = nn.Embedding(vocabulary, hidden)
        self.target_words = nn.Embedding(vocabulary, hidden)
        self.encoder = cells(layers, hidden, hidden)
        self.decoder = cells(layers, hidden, hidden)
        self.attention = DotAttention(hidden)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, source: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        check_steps(source, self.steps, "source")
        check_steps(tokens, self.steps, "translation")
        vectors = self.source_words(source)
        states = zero_states(len(self.encoder), self.hidden, vectors)
        encoded = torch.stack(list(unroll(self.encoder, vectors.unbind(1), states)), dim=1)
        written = list(unroll(self.decoder, self.target_words(tokens).unbind(1), states))
        return tuple(self.head(self.attention(x, encoded)) for x in written)


def nmt(layers: int = 2, hidden: int = 1024, steps: int = 40, vocabulary: int = 32_000) -> Translator:
    """FlexFlow's NMT; `layers` is the encoder's number and the decoder's. See the class for shapes."""
    return Translator(layers, hidden, steps, vocabulary)
