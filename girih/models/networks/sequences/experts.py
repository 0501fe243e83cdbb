"""A layer of experts: every word goes to the few networks that a router chooses for it.

Shazeer et al., 2017 (arXiv:1701.06538), routed as in Lepikhin et al., 2020 (GShard, arXiv:2006.16668, algorithm 1) and
Mesh-TensorFlow: each word chooses the `choices` experts with the highest gates; an expert has a fixed number of slots,
which fill up with first choices before second ones, earlier words before later ones; who finds no slot passes by. So
all shapes are fixed, and only the values of indices depend on the data. The random drop of second choices and the
auxiliary loss that balances the experts are left out.

Words reach their slots in one of two ways that compute the same:

- dense, the published one: tensors of ones and zeros, `[words, experts, slots]`, in products. Experts times slots is
  a multiple of the number of words, so these tensors grow with its square, however many experts there are.
- sparse (TensorFlowMem, thesis §6.5.3): the number of each slot's word, and words are gathered by index.
"""

from __future__ import annotations

import math

import torch
from torch import nn


class Experts(nn.Module):
    """`[batch, sequence, width]` → the same: each word's experts, weighted by their gates; zeros where none had a slot.

    capacity: slots of all experts for each choice of a word. groups: the experts' weights lie in so many tensors, and
    one group is computed after the other (VMesh-TensorFlow's partitions within a device, §6.5.2).
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        experts: int,
        choices: int = 2,
        capacity: float = 1.25,
        groups: int = 1,
        sparse: bool = True,
    ) -> None:
        super().__init__()
        if experts % groups or choices > experts:
            raise ValueError(
                f"groups must divide the experts, and a word cannot choose more than there are; "
                f"got experts={experts}, groups={groups}, choices={choices}"
            )
        self.experts = experts
        self.choices = choices
        self.capacity = capacity
        self.sparse = sparse
        self.router = nn.Linear(width, experts, bias=False)
        size = experts // groups
        self.expand, self.contract = (
            nn.ParameterList(torch.randn(size, inputs, outputs) / math.sqrt(inputs) for _ in range(groups))
            for inputs, outputs in ((width, hidden), (hidden, width))
        )

    def route(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
        """`[words, width]` → gates, experts and places in their slots, each `[choices, words]`; slots of an expert.

        A place that is not less than the number of slots is none: that choice is dropped.
        """
        gates, chosen = self.router(words).softmax(-1).topk(self.choices)
        if self.choices > 1:
            gates = gates / gates.sum(-1, keepdim=True)
        chosen = chosen.t()
        asked = _one_hot(chosen.reshape(-1), self.experts)
        queue = asked.cumsum(0).gather(1, chosen.reshape(-1, 1)) - 1  # how many asked for the expert before
        slots = min(len(words), math.ceil(self.capacity * self.choices * len(words) / self.experts))
        return gates.t(), chosen, queue.view(chosen.shape), slots

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        words = x.flatten(0, 1)
        return (self.gathered if self.sparse else self.multiplied)(words, *self.route(words)).view(x.shape)

    def multiplied(
        self, words: torch.Tensor, gates: torch.Tensor, chosen: torch.Tensor, places: torch.Tensor, slots: int
    ) -> torch.Tensor:
        """The dense way: c choices, w words, e experts, s slots, m width."""
        experts, taken = (_one_hot(*pair).to(words.dtype) for pair in ((chosen, self.experts), (places, slots)))
        dispatch = torch.einsum("cwe,cws->wes", experts, taken)
        combine = torch.einsum("cwe,cws->wes", experts * gates[..., None], taken)
        result = torch.zeros_like(words)
        groups = len(self.expand)
        for group, (sent, weighted) in enumerate(zip(dispatch.chunk(groups, 1), combine.chunk(groups, 1), strict=True)):
            answers = self.compute(group, torch.einsum("wes,wm->esm", sent, words))
            result = result + torch.einsum("wes,esm->wm", weighted, answers)
        return result

    def gathered(
        self, words: torch.Tensor, gates: torch.Tensor, chosen: torch.Tensor, places: torch.Tensor, slots: int
    ) -> torch.Tensor:
        """The sparse way. An empty slot computes the first word, and nobody reads its answer."""
        last = self.experts * slots
        slot = torch.where(places < slots, chosen * slots + places, last)
        numbers = torch.arange(len(words), device=words.device).expand(slot.shape)
        word_of_slot = slot.new_zeros(last + 1).scatter(0, slot.flatten(), numbers.flatten())[:last]
        groups = len(self.expand)
        answers = [
            self.compute(group, words[word_of_slot_in_group.view(-1, slots)]).flatten(0, 1)
            for group, word_of_slot_in_group in enumerate(word_of_slot.chunk(groups))
        ]
        weights = torch.where(places < slots, gates, 0.0)
        read = torch.cat(answers)[slot.clamp(max=last - 1)]  # [choices, words, width]
        return (read * weights[..., None]).sum(0)

    def compute(self, group: int, words: torch.Tensor) -> torch.Tensor:
        """`[experts of the group, slots, width]` → the same."""
        return torch.bmm(torch.relu(torch.bmm(words, self.expand[group])), self.contract[group])


def _one_hot(numbers: torch.Tensor, count: int) -> torch.Tensor:
    """True where the last axis, of `count`, is the number; nowhere for numbers beyond."""
    return numbers[..., None] == torch.arange(count, device=numbers.device)
