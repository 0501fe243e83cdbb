"""A Transformer of one's own: any loss by `step=`, AdamW, clipped gradients, a learning-rate schedule.

python examples/train_transformer.py
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

import girih

VOCABULARY, WIDTH, HEADS, SEQUENCE, BATCH = 64, 32, 4, 16, 8
WARM_UP, PEAK_RATE = 2, 3e-3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.network_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.output = nn.Linear(WIDTH, WIDTH)
        self.network = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.attention_norm(x)
        query, key, value = (
            part(normed).unflatten(2, (HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        return x + self.network(self.network_norm(x))


class Transformer(nn.Module):
    def __init__(self, blocks: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.randn(SEQUENCE, WIDTH) / 100)
        self.blocks = nn.Sequential(*(Block() for _ in range(blocks)))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.tokens(tokens) + self.positions))


def next_token_loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The batch may be any nesting of tensors; this function takes it apart."""
    logits = model(batch["tokens"])
    return F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), label_smoothing=0.1)


def learning_rate(step: int, steps: int) -> float:
    """Linear warm-up, then a cosine down to nothing."""
    if step < WARM_UP:
        return PEAK_RATE * (step + 1) / WARM_UP
    return PEAK_RATE * 0.5 * (1 + math.cos(math.pi * (step - WARM_UP) / max(1, steps - WARM_UP)))


def text(number: int) -> dict[str, torch.Tensor]:
    """Sequences that count upwards: something that a model can learn."""
    generator = torch.Generator().manual_seed(number)
    start = torch.randint(VOCABULARY, (BATCH, 1), generator=generator)
    sequence = (start + torch.arange(SEQUENCE + 1)) % VOCABULARY
    return {"tokens": sequence[:, :-1].contiguous(), "targets": sequence[:, 1:].contiguous()}


def main(steps: int = 10) -> list[float]:
    torch.manual_seed(0)
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, weight_decay=0.01)
    step = girih.TrainingStep(model, step=next_token_loss, optimizer=optimizer, clip_grad_norm=1.0)
    plan = girih.plan(step, text(0), machine="local:4", objective="bytes")  # every tensor is held once
    print(plan)

    losses = []
    with plan.start() as running:
        for number in range(steps):
            rate = learning_rate(number, steps)
            losses.append(running.step(text(number), lr=rate))
            print(f"step {number + 1:>2}: learning rate {rate:.2e}, loss {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
