"""Plan Llama 3 8B on 8 hosts with 8 GPUs each, here and now: no weight is allocated, no GPU is needed.

python examples/plan_for_a_cluster.py [LAYERS]
"""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F

import girih
from girih.models import llama


def next_token(model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def main(layers: int = 32, machine: str = "8x8") -> girih.Plan:
    with torch.device("meta"):  # shapes and dtypes without memory
        model = llama(layers=layers, width=4096, heads=32, kv_heads=8, hidden=14336)
        tokens = torch.empty(64, 2048, dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    step = girih.TrainingStep(model, step=next_token, optimizer=optimizer)
    plan = girih.plan(step, (tokens, tokens), machine=machine, compare=("data", "megatron"))
    print(plan)
    return plan


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
