"""Deep Speech as Mozilla has it: dense layers on each frame of sound, one unrolled LSTM, dense layers again.

Hannun et al., "Deep Speech: scaling up end-to-end speech recognition", 2014 (arXiv:1412.5567), with Mozilla's LSTM in
place of the two recurrent layers and its sizes, which TensorFlowMem trains (thesis, tables 6.1 and 6.9): a frame is 26
features with 9 neighbours on either side, 494 numbers; layers of 2048; 47 million parameters. Its dropout is left out.
"""

from __future__ import annotations

import torch
from torch import nn

from girih.models.networks.sequences.rnn import cells, unroll, zero_states

LARGEST = 20.0  # of what a dense layer gives: ReLU, clipped


class DeepSpeech(nn.Module):
    """`frames [batch, steps, features]` → logits `[steps, batch, letters + 1]`, as the CTC loss takes them.

    Class 0 is the blank. The dense layers take all frames at once; only the LSTM goes step by step.
    """

    def __init__(self, hidden: int, features: int, letters: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.before = nn.ModuleList(nn.Linear(features if layer == 0 else hidden, hidden) for layer in range(3))
        self.cells = cells(1, hidden, hidden)
        self.behind = nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, letters + 1)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        x = frames.transpose(0, 1)
        for layer in self.before:
            x = layer(x).clamp(0.0, LARGEST)
        outputs = unroll(self.cells, x.unbind(0), zero_states(1, self.hidden, x[0]))
        return self.head(self.behind(torch.stack(list(outputs))).clamp(0.0, LARGEST))


def deep_speech(steps: int = 165, hidden: int = 2048, features: int = 494, letters: int = 28) -> DeepSpeech:
    """Mozilla's DeepSpeech. steps: what the batch is described with."""
    return DeepSpeech(hidden, features, letters)
