"""The unrolled LSTMs of Tofu's, SwapAdvisor's and FlexFlow's evaluations.

Tofu (Wang, Huang, Li, "Supporting very large models using automatic dataflow graph partitioning", EuroSys
2019, section 7.1) takes the language model of Jozefowicz, Vinyals, Schuster, Shazeer, Wu (2016,
arXiv:1602.02410), 6 to 10 layers of 4K, 6K or 8K neurons, and unrolls it for 20 steps.

What Tofu's Table 2 leaves room for: in units of 2**30 bytes and with K = 1024, the LSTM weights alone, with
an input of width 512, are within 1% of all nine entries (taking 28.5 for RNN-8-6K as a misprint of 25.5).
With an output layer of even 10,000 words they would be up to 5% off, so the data are taken as embedded
vectors of width 512, and the output layer is small. The cell is written with matrix products, `chunk`,
sigmoid and tanh, as in MXNet's LSTMCell, so that every step of every layer is the same piece of graph: `nn.LSTM` would
be one opaque call.

RNNTC and RNNLM: Jia, "Automated discovery of machine learning optimizations", thesis, Stanford 2020, chapter 3
(FlexFlow), table 3.3 and section 3.7.1: "RNNTC uses four LSTM layers with a hidden size of 1024. RNNLM uses two LSTM
layers with a hidden size of 2048. Both RNN models include a softmax linear after the last LSTM layer"; 40 unrolled
steps, 64 samples a GPU. For section 3.7.5, which compares with the optimum, RNNLM is unrolled for 2 steps.

What the paper leaves open, and what is taken here: words enter by an embedding as wide as the LSTM layers (one lookup
for the whole sequence, not one for each step, so that its gradient is one table and not forty); RNNTC classifies the
state after the last step, among the 2 classes and 18,765 words of the Movie Review data as Kim (2014, arXiv:1408.5882,
table 1) has them; RNNLM reads the 10,000 words of the Penn Treebank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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


State = tuple[torch.Tensor, torch.Tensor]  # hidden and memory, each [batch, neurons]


def cells(layers: int, inputs: int, neurons: int) -> nn.ModuleList:
    """A stack of LSTM cells, the first of `inputs` numbers, the others of `neurons`."""
    return nn.ModuleList(LSTMCell(inputs if layer == 0 else neurons, neurons) for layer in range(layers))


def zero_states(count: int, neurons: int, like: torch.Tensor) -> list[State]:
    """Where a stack of `count` cells begins: zeros `[batch, neurons]` for each, the batch and type of `like`."""
    zeros = like.new_zeros((like.shape[0], neurons))
    return [(zeros, zeros)] * count


def unroll(stack: Iterable[nn.Module], inputs: Iterable[torch.Tensor], states: list[State]) -> Iterator[torch.Tensor]:
    """Runs a stack over `inputs`, each `[batch, width]`: the last layer's output at every step.

    `states` has a state for each layer, and after each step those in which the layers are then.
    """
    for x in inputs:
        for layer, cell in enumerate(stack):
            x, memory = cell(x, *states[layer])
            states[layer] = (x, memory)
        yield x


def check_steps(x: torch.Tensor, steps: int, what: str = "batch", dimensions: int = 2) -> None:
    """Raises ValueError unless x is `[batch, steps]`, or `[batch, steps, …]` with more dimensions."""
    if x.dim() != dimensions or x.shape[1] != steps:
        raise ValueError(f"unrolled for {steps} steps, but the {what} is {tuple(x.shape)}")


class UnrolledLSTM(nn.Module):
    """`vectors [batch, steps, input]` → a tuple of `steps` logits, each `[batch, vocabulary]`.

    The graph is the full mesh of layers × steps. One tensor of logits per step, so that no step waits for
    another's output layer.
    """

    def __init__(self, layers: int, hidden: int, steps: int, input: int, vocabulary: int) -> None:
        super().__init__()
        self.steps = steps
        self.hidden = hidden
        self.cells = cells(layers, input, hidden)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, vectors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        check_steps(vectors, self.steps, dimensions=3)
        states = zero_states(len(self.cells), self.hidden, vectors)
        return tuple(self.head(x) for x in unroll(self.cells, vectors.unbind(1), states))


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
        check_steps(vectors, self.steps, dimensions=3)
        start = zero_states(1, self.hidden, vectors)
        sequence = list(vectors.unbind(1))
        for forward, backward in zip(self.forwards, self.backwards, strict=True):
            ahead = list(unroll([forward], sequence, start[:]))
            back = list(unroll([backward], sequence[::-1], start[:]))[::-1]
            sequence = [torch.cat(pair, dim=1) for pair in zip(ahead, back, strict=True)]
        return tuple(self.head(x) for x in sequence)


class _OverWords(nn.Module):
    """Layers over the vectors of words, and a linear layer behind them."""

    def __init__(self, layers: int, hidden: int, steps: int, vocabulary: int, out: int) -> None:
        super().__init__()
        self.steps = steps
        self.hidden = hidden
        self.words = nn.Embedding(vocabulary, hidden)
        self.cells = cells(layers, hidden, hidden)
        self.head = nn.Linear(hidden, out)

    def outputs(self, tokens: torch.Tensor) -> list[torch.Tensor]:
        """What the last layer makes in each step."""
        check_steps(tokens, self.steps)
        vectors = self.words(tokens)
        states = zero_states(len(self.cells), self.hidden, vectors)
        return list(unroll(self.cells, vectors.unbind(1), states))


class TextClassifier(_OverWords):
    """`tokens [batch, steps]` → logits `[batch, classes]` of the state after the last step."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.outputs(tokens)[-1])


class LanguageModel(_OverWords):
    """`tokens [batch, steps]` → a tuple of `steps` logits, each `[batch, vocabulary]`: the next word's.

    One tensor of logits per step, so that no step waits for another's output layer.
    """

    def __init__(self, layers: int, hidden: int, steps: int, vocabulary: int) -> None:
        super().__init__(layers, hidden, steps, vocabulary, vocabulary)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.head(x) for x in self.outputs(tokens))


def rnn(layers: int, hidden: int, steps: int = 20, input: int = 512, vocabulary: int = 512) -> UnrolledLSTM:
    """Tofu's RNN; `hidden` is a number of neurons (RNN-8-8K is `rnn(8, 8192)`)."""
    return UnrolledLSTM(layers, hidden, steps, input, vocabulary)


def brnn(layers: int, hidden: int, steps: int = 20, input: int = 512, vocabulary: int = 512) -> BidirectionalLSTM:
    """SwapAdvisor's bidirectional RNN, of the sizes that `rnn` has (BRNN-4-8K is `brnn(4, 8192)`)."""
    return BidirectionalLSTM(layers, hidden, steps, input, vocabulary)


def rnntc(
    layers: int = 4, hidden: int = 1024, steps: int = 40, vocabulary: int = 18_765, classes: int = 2
) -> TextClassifier:
    """FlexFlow's RNNTC, for text classification; see the class for shapes."""
    return TextClassifier(layers, hidden, steps, vocabulary, classes)


def rnnlm(layers: int = 2, hidden: int = 2048, steps: int = 40, vocabulary: int = 10_000) -> LanguageModel:
    """FlexFlow's RNNLM, for language modelling; see the class for shapes."""
    return LanguageModel(layers, hidden, steps, vocabulary)
