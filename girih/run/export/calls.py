"""Where a plan that is exported for DTensor has each call of a function of PyTorch's read and write.

Between the borders of modules there are calls that have no module with parameters: products of attention, softmax,
pooling, the loss. Left to itself, DTensor divides each as its operands happen to lie, forward and backward. So the
forward pass's calls are counted, by their names, once while the program is captured again, and the plan's nodes that
each has made say what goes into it and comes out, and the same of its backward pass. The page
(`dtensor_apply.training`) counts the same calls. What is brought to a place is the same tensor: a count that went wrong
would cost bytes, and change no number.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from girih.capture import capture
from girih.capture.torch.record import Recorder
from girih.capture.torch.training import TrainingStep
from girih.graph import Graph

MARK = "|"
"""Between the path of a module and a call inside it, in the scopes of a graph that is captured again."""


@dataclass(frozen=True)
class CallNodes:
    """The nodes that a call has made. function, number: its name, and how many of this name came before it."""

    function: str
    number: int
    forward: tuple[int, ...]
    backward: tuple[int, ...]


def calls_of(graph: Graph, step: TrainingStep, batch: Any) -> tuple[CallNodes, ...]:
    """The calls of functions in the forward pass of a step, in their order; none where the graph has not all nodes of
    the step's own, as after a rewriting. It may have copies besides, which a search has put in."""
    marked = capture(_Counted(**vars(step)), batch).graph
    place = {node.name: number for number, node in enumerate(graph.nodes)}
    if any(node.name not in place or graph.nodes[place[node.name]].operator != node.operator for node in marked.nodes):
        return ()
    found: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for node in marked.nodes:
        number = place[node.name]
        call = node.scope.partition(MARK)[2]
        if call and node.phase != "update":
            found[call][node.phase == "backward"].append(number)
    made = []
    for call, (forward, backward) in found.items():
        name, _, count = call.partition(MARK)
        made.append(CallNodes(name, int(count), tuple(forward), tuple(backward)))
    return tuple(made)


class _Counted(TrainingStep):
    """The same step, whose calls are marked."""

    def forward(self, model: Any, batch: Any) -> Any:
        with _Marked():
            return super().forward(model, batch)


class _Marked(TorchFunctionMode):
    """While a program is recorded, the scope of what a call makes is marked with the call."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        modes = _get_current_dispatch_mode_stack()
        recorder = next((mode for mode in modes if isinstance(mode, Recorder)), None)
        name = getattr(func, "__name__", "")
        if recorder is None or not name or name.startswith("__"):
            return func(*args, **(kwargs or {}))
        with self._scope(recorder, name):
            return func(*args, **(kwargs or {}))

    @contextmanager
    def _scope(self, recorder: Recorder, name: str) -> Iterator[None]:
        number = self.counts[name]
        self.counts[name] += 1
        outer = recorder.scopes[-1].partition(MARK)[0]
        recorder.scopes.append(f"{outer}{MARK}{name}{MARK}{number}")
        try:
            yield
        finally:
            recorder.scopes.pop()
