"""The unrolled LSTM of Tofu's evaluation.

Tofu (Wang, Huang, Li, "Supporting very large models using automatic dataflow graph partitioning", EuroSys
2019, section 7.1) takes the language model of Jozefowicz, Vinyals, Schuster, Shazeer, Wu (2016,
arXiv:1602.02410), 6 to 10 layers of 4K, 6K or 8K neurons, and unrolls it for 20 steps.

What Tofu's Table 2 leaves room for: in units of 2**30 bytes and with K = 1024, the LSTM weights alone, with
an input of width 512, are within 1% of all nine entries (taking 28.5 for RNN-8-6K as a misprint of 25.5).
With an output layer of even 10,000 words they would be up to 5% off, so the data are taken as embedded
vectors of width 512, and the output layer is small. The cell is written with matrix products, `chunk`,
sigmoid and tanh, as in MXNet's LSTMCell: `nn.LSTM` would be one opaque call.
"""

from __future__ import annotations

import torch
from torch import nn


class LSTMCell(nn.Module):
    """One step of one layer: `x [batch, inputs]`, `hidden` and `memory [batch, neurons]` → the next two.

    Hochreiter and Schmidhuber, 1997, with a forget gate. The four gates lie one after the other in the
    rows of both weights: input, forget, candidate, output.
    """

    def __init__(self, inputs: int, neurons: int) -> None:
        super().__init__()
        self.from_input = nn.Linear(inputs, 4 * neurons)
        self.from_hidden = nn.Linear(neurons, 4 * neurons, bias=False)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gates = self.from_input(x) + self.from_hidden(hidden)
        add, forget, candidate, output = gates.chunk(4, dim=1)
        memory = torch.sigmoid(forget) * memory + torch.sigmoid(add) * torch.tanh(candidate)
        return torch.sigmoid(output) * torch.tanh(memory), memory


class UnrolledLSTM(nn.Module):
    """`vectors [batch, steps, input]` → a tuple of `steps` logits, each `[batch, vocabulary]`.

    The graph is the full mesh of layers × steps. One tensor of logits per step, so that no step waits for
    another's output layer.
    """

    def __init__(self, layers: int, hidden: int, steps: int, input: int, vocabulary: int) -> None:
        super().__init__()
        self.steps = steps
        self.hidden = hidden
        self.cells = nn.ModuleList(LSTMCell(input if layer == 0 else hidden, hidden) for layer in range(layers))
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, vectors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if vectors.shape[1] != self.steps:
            raise ValueError(f"unrolled for {self.steps} steps, but the batch is {tuple(vectors.shape)}")
        zeros = vectors.new_zeros((vectors.shape[0], self.hidden))
        states = [(zeros, zeros) for _ in self.cells]
        logits = []
        for x in vectors.unbind(1):
            for layer, cell in enumerate(self.cells):
                x, memory = cell(x, *states[layer])
                states[layer] = (x, memory)
            logits.append(self.head(x))
        return tuple(logits)


class BidirectionalLSTM(nn.Module):
    """`vectors [batch, steps, input]` → a tuple of `steps` logits, each `[batch, vocabulary]`.

    Each layer reads the sequence forward and backward, with `hidden` neurons for each direction; both outputs of a step
    together are the next layer's input (Schuster and Paliwal, 1997; BRNN-L-H of SwapAdvisor §5.1).
    """

    def __init__(self, layers: int, hidden: int, steps: int, input: int, vocabulary: int) -> None:
        super().__init__()
        self.steps = steps
        self.hidden = hidden
        widths = [input, *[2 * hidden] * (layers - 1)]
        self.forwards, self.backwards = (nn.ModuleList(LSTMCell(width, hidden) for width in widths) for _ in range(2))
        self.head = nn.Linear(2 * hidden, vocabulary)

    def forward(self, vectors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if vectors.shape[1] != self.steps:
            raise ValueError(f"unrolled for {self.steps} steps, but the batch is {tuple(vectors.shape)}")
        zeros = vectors.new_zeros((vectors.shape[0], self.hidden))
        sequence = list(vectors.unbind(1))
        for forward, backward in zip(self.forwards, self.backwards, strict=True):
            read = [self.read(forward, sequence, zeros), self.read(backward, sequence[::-1], zeros)[::-1]]
            sequence = [torch.cat(pair, dim=1) for pair in zip(*read, strict=True)]
        return tuple(self.head(x) for x in sequence)

    @staticmethod
    def read(cell: nn.Module, sequence: list[torch.Tensor], zeros: torch.Tensor) -> list[torch.Tensor]:
        hidden = memory = zeros
        outputs = []
        for x in sequence:
            hidden, memory = cell(x, hidden, memory)
            outputs.append(hidden)
        return outputs


def rnn(layers: int, hidden: int, steps: int = 20, input: int = 512, vocabulary: int = 512) -> UnrolledLSTM:
    """Tofu's RNN; `hidden` is a number of neurons (RNN-8-8K is `rnn(8, 8192)`)."""
    return UnrolledLSTM(layers, hidden, steps, input, vocabulary)


def brnn(layers: int, hidden: int, steps: int = 20, input: int = 512, vocabulary: int = 512) -> BidirectionalLSTM:
    """SwapAdvisor's bidirectional RNN, of the sizes that `rnn` has (BRNN-4-8K is `brnn(4, 8192)`)."""
    return BidirectionalLSTM(layers, hidden, steps, input, vocabulary)
