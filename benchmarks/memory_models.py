"""TensorFlowMem's models (Tables 6.1 and 6.3) at the published sizes, as far as the paper tells them.

Transformer: 6 + 6 layers of width 512 with a network of 2048, 32,768 words shared by both sides: 61 million parameters.
With experts: each layer's network becomes a mixture of experts of 512 × 4096 × 512, 4.2 million parameters each: 12 in
a layer are the 0.66 billion parameters of Table 6.8, 48 the 2.5 billion. Sentences of 256 words are an assumption.
DeepSpeech: three dense layers, an LSTM of 2048 unrolled and a dense layer, 47 million parameters; the loss of each
frame is a cross-entropy in place of CTC.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from girih.models.networks.sequences.attention import Attention, future_mask
from girih.models.networks.sequences.rnn import LSTMCell

WORDS, WIDTH, HEADS, LAYERS, SENTENCE = 32768, 512, 8, 6, 256
EXPERT = 4096
DISPATCHED = 1024  # words that are dispatched together by products, Mesh-TensorFlow's `moe_group_size`
CAPACITY = 2.5  # slots of all experts for each word: two experts, and a quarter to spare
FRAME, FEATURES, LETTERS = 494, 2048, 29


class CrossAttention(Attention):
    """Attention of one sequence over another of the same length."""

    def forward(self, x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        query, key, value = (
            self._by_head(layer(of), self.heads)
            for layer, of in ((self.query, x), (self.key, source), (self.value, source))
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(self.head_width)
        return self.output((scores.softmax(-1) @ value).transpose(1, 2).reshape(x.shape))


class Dense(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.expand, self.contract = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.contract(torch.relu(self.expand(x)))


class Experts(nn.Module):
    """A mixture of experts, `[batch, words, width]` → the same.

    Each expert takes the words that have the highest gates for it, as many as it has slots, so that shapes are fixed
    (the published layer lets words choose; its tensors have the same sizes). groups: the experts' weights lie in so
    many tensors, and are computed one behind the other (VMesh's device shape). gather: words are gathered by index;
    else by products with dense tensors of ones and zeros, for 1,024 words at a time, as in Mesh-TensorFlow (§6.5.3).
    """

    def __init__(self, width: int, hidden: int, experts: int, groups: int, gather: bool) -> None:
        super().__init__()
        if experts % groups:
            raise ValueError(f"experts come in groups of one size: {experts} experts, {groups} groups")
        self.gather = gather
        size = experts // groups
        self.gate = nn.Linear(width, experts, bias=False)
        self.first = nn.ParameterList(torch.empty(size, width, hidden).normal_(0, 0.02) for _ in range(groups))
        self.second = nn.ParameterList(torch.empty(size, hidden, width).normal_(0, 0.02) for _ in range(groups))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        width, experts, groups = x.shape[-1], self.gate.out_features, len(self.first)
        count = x.shape[0] * x.shape[1]
        block = DISPATCHED if not self.gather and count % DISPATCHED == 0 else count
        words = x.reshape(count // block, block, width)  # each block of words has slots of its own
        blocks = len(words)
        slots = max(1, min(block, round(CAPACITY * block / experts)))
        gates, chosen = self.gate(words).softmax(-1).transpose(1, 2).topk(slots)  # [blocks, experts, slots]
        result = torch.zeros_like(words)
        parts = zip(gates.chunk(groups, 1), chosen.chunk(groups, 1), self.first, self.second, strict=True)
        for gate, index, first, second in parts:
            size = len(first)
            if self.gather:
                taken = words[0][index[0]]
            else:
                ones = (index[..., None] == torch.arange(block, device=x.device)).to(x.dtype).flatten(1, 2)
                taken = (ones @ words).view(blocks, size, slots, width).transpose(0, 1).flatten(1, 2)
            weight = gate.transpose(0, 1).reshape(size, -1, 1)
            made = torch.relu(taken @ first) @ second * weight  # [experts of the group, blocks · slots, width]
            if self.gather:
                result = result.index_add(1, index.flatten(), made.flatten(0, 1)[None])
            else:
                back = made.view(size, blocks, slots, width).transpose(0, 1).flatten(1, 2)
                result = result + ones.transpose(1, 2) @ back
        return result.view(x.shape)


class Layer(nn.Module):
    def __init__(self, width: int, network: nn.Module, decoder: bool) -> None:
        super().__init__()
        self.attention, self.norm = Attention(width, HEADS), nn.LayerNorm(width)
        self.cross = CrossAttention(width, HEADS) if decoder else None
        self.cross_norm = nn.LayerNorm(width) if decoder else None
        self.network, self.network_norm = network, nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, source: torch.Tensor | None = None) -> torch.Tensor:
        hidden = None if self.cross is None else future_mask(x.shape[1], x.device)
        x = self.norm(x + self.attention(x, hidden))
        if self.cross is not None and self.cross_norm is not None:
            x = self.cross_norm(x + self.cross(x, source))
        return self.network_norm(x + self.network(x))


class Translator(nn.Module):
    """`source`, `tokens [batch, words]` → logits `[batch, words, vocabulary]`."""

    def __init__(
        self,
        experts: int = 0,
        groups: int = 1,
        gather: bool = False,
        layers: int = LAYERS,
        width: int = WIDTH,
        hidden: int = 2048,
        expert: int = EXPERT,
        vocabulary: int = WORDS,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(SENTENCE, width)

        def layer(decoder: bool) -> Layer:
            network = Experts(width, expert, experts, groups, gather) if experts else Dense(width, hidden)
            return Layer(width, network, decoder)

        self.encoder = nn.ModuleList(layer(False) for _ in range(layers))
        self.decoder = nn.ModuleList(layer(True) for _ in range(layers))

    def forward(self, source: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        places = self.places(torch.arange(tokens.shape[1], device=tokens.device))
        read, x = self.embedding(source) + places, self.embedding(tokens) + places
        for layer in self.encoder:
            read = layer(read)
        for layer in self.decoder:
            x = layer(x, read)
        return x @ self.embedding.weight.t()


class DeepSpeech(nn.Module):
    """`frames [batch, steps, 494]` → logits of each step, `[batch, letters]`."""

    def __init__(self, features: int = FEATURES, frame: int = FRAME) -> None:
        super().__init__()
        self.before = nn.ModuleList(nn.Linear(frame if at == 0 else features, features) for at in range(3))
        self.cell = LSTMCell(features, features)
        self.behind, self.head = nn.Linear(features, features), nn.Linear(features, LETTERS)

    def forward(self, frames: torch.Tensor) -> list[torch.Tensor]:
        hidden = memory = frames.new_zeros((len(frames), self.cell.from_hidden.in_features))
        logits = []
        for x in frames.unbind(1):
            for layer in self.before:
                x = torch.relu(layer(x)).clamp(max=20.0)
            hidden, memory = self.cell(x, hidden, memory)
            logits.append(self.head(torch.relu(self.behind(hidden)).clamp(max=20.0)))
        return logits


def translation_loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    logits = model(batch["source"], batch["tokens"])
    return F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())


def speech_loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    steps = zip(model(batch["frames"]), batch["letters"].unbind(1), strict=True)
    return torch.stack([F.cross_entropy(logits, letters) for logits, letters in steps]).mean()


def sentences(pairs: int, words: int = SENTENCE) -> dict[str, torch.Tensor]:
    """A batch of sentence pairs on the meta device."""
    with torch.device("meta"):
        return {name: torch.zeros(pairs, words, dtype=torch.int64) for name in ("source", "tokens", "targets")}


def speech(batch: int, steps: int, frame: int = FRAME) -> dict[str, torch.Tensor]:
    with torch.device("meta"):
        return {
            "frames": torch.zeros(batch, steps, frame),
            "letters": torch.zeros(batch, steps, dtype=torch.int64),
        }
