"""The two unrolled recurrent networks of FlexFlow's evaluation that read one sequence: RNNTC and RNNLM.

Jia, "Automated discovery of machine learning optimizations", thesis, Stanford 2020, chapter 3 (FlexFlow), table
3.3 and section 3.7.1: "RNNTC uses four LSTM layers with a hidden size of 1024. RNNLM uses two LSTM layers with a
hidden size of 2048. Both RNN models include a softmax linear after the last LSTM layer"; 40 unrolled steps, 64
samples a GPU. For section 3.7.5, which compares with the optimum, RNNLM is unrolled for 2 steps.

What the paper leaves open, and what is taken here: words enter by an embedding as wide as the LSTM layers (one
lookup for the whole sequence, not one for each step, so that its gradient is one table and not forty); RNNTC
classifies the state after the last step, among the 2 classes and 18,765 words of the Movie Review data as
Kim (2014, arXiv:1408.5882, table 1) has them; RNNLM reads the 10,000 words of the Penn Treebank. The cell is
that of `rnn.py`: matrix products, `chunk`, sigmoid and tanh, so that every step of every layer is the same
piece of graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from girih.models.networks.sequences.rnn import LSTMCell

State = tuple[torch.Tensor, torch.Tensor]  # hidden and memory, each [batch, neurons]


def cells(layers: int, inputs: int, neurons: int) -> nn.ModuleList:
    """A stack of LSTM cells, the first of `inputs` numbers, the others of `neurons`."""
    return nn.ModuleList(LSTMCell(inputs if layer == 0 else neurons, neurons) for layer in range(layers))


def zero_states(stack: nn.ModuleList, neurons: int, like: torch.Tensor) -> list[State]:
    """Where a stack begins: zeros `[batch, neurons]` for every layer, the batch and type of `like`."""
    zeros = like.new_zeros((like.shape[0], neurons))
    return [(zeros, zeros) for _ in stack]


def unroll(
    stack: nn.ModuleList, inputs: Iterable[torch.Tensor], states: Sequence[State]
) -> tuple[list[torch.Tensor], list[State]]:
    """Runs a stack over `inputs`, each `[batch, width]`: (the last layer's output at every step, last states)."""
    now = list(states)
    outputs = []
    for x in inputs:
        for layer, cell in enumerate(stack):
            x, memory = cell(x, *now[layer])
            now[layer] = (x, memory)
        outputs.append(x)
    return outputs, now


def check_steps(tokens: torch.Tensor, steps: int, what: str = "batch") -> None:
    """Raises ValueError unless `tokens` is `[batch, steps]`."""
    if tokens.dim() != 2 or tokens.shape[1] != steps:
        raise ValueError(f"unrolled for {steps} steps, but the {what} is {tuple(tokens.shape)}")


class TextClassifier(nn.Module):
    """`tokens [batch, steps]` → logits `[batch, classes]` of the state after the last step."""

    def __init__(self, layers: int, hidden: int, steps: int, vocabulary: int, classes: int) -> None:
        super().__init__()
        self.steps = steps
        self.hidden = hidden
        self.words = nn.Embedding(vocabulary, hidden)
        self.cells = cells(layers, hidden, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        check_steps(tokens, self.steps)
        vectors = self.words(tokens)
        outputs, _ = unroll(self.cells, vectors.unbind(1), zero_states(self.cells, self.hidden, vectors))
        return self.head(outputs[-1])


class LanguageModel(nn.Module):
    """`tokens [batch, steps]` → a tuple of `steps` logits, each `[batch, vocabulary]`: the next word's.

    One tensor of logits per step, so that no step waits for another's output layer.
    """

    def __init__(self, layers: int, hidden: int, steps: int, vocabulary: int) -> None:
        super().__init__()
        self.steps = steps
        self.hidden = hidden
        self.words = nn.Embedding(vocabulary, hidden)
        self.cells = cells(layers, hidden, hidden)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        check_steps(tokens, self.steps)
        vectors = self.words(tokens)
        outputs, _ = unroll(self.cells, vectors.unbind(1), zero_states(self.cells, self.hidden, vectors))
        return tuple(self.head(x) for x in outputs)


def rnntc(
    layers: int = 4, hidden: int = 1024, steps: int = 40, vocabulary: int = 18_765, classes: int = 2
) -> TextClassifier:
    """FlexFlow's RNNTC, for text classification; see the class for shapes."""
    return TextClassifier(layers, hidden, steps, vocabulary, classes)


def rnnlm(layers: int = 2, hidden: int = 2048, steps: int = 40, vocabulary: int = 10_000) -> LanguageModel:
    """FlexFlow's RNNLM, for language modelling; see the class for shapes."""
    return LanguageModel(layers, hidden, steps, vocabulary)
