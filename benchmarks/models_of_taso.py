"""The models of TASO and of what came after it, as graphs of inference; nothing is allocated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Captured:
    """graph: without nodes of weights alone. weights: by the names of its inputs. module, data: what was captured, and
    what it is called with, by name."""

    name: str
    graph: Any
    weights: Mapping[str, Any]
    module: Any
    data: Mapping[str, Any]


def captured(name: str, device: str = "meta", sequence: int = 64) -> Captured:
    """A model for inference of one example; BERT of `sequence` tokens."""
    import torch

    from girih.capture import Inference, capture
    from girih.capture.torch.state import state_of
    from girih.models import example
    from girih.rewrite.constants import folded

    torch.manual_seed(0)
    shown = example(name, batch=1, device=device, **({"sequence": sequence} if name.startswith("bert") else {}))
    module = shown.module.eval()
    names = ("tokens", "segments") if name.startswith("bert") else (next(iter(shown.inputs)),)
    data = {key: shown.inputs[key] for key in names}
    inference = Inference(module)
    graph = capture(inference, tuple(data.values())).graph
    state = state_of(inference, graph)
    weights = {item.name: state[item.path] for item in graph.inputs if item.path in state}
    graph, weights = folded(graph, weights)
    return Captured(name, graph, weights, module, data)


def without_norms(found: Captured) -> tuple[Any, Mapping[str, Any]]:
    """The graph with its batch norms in the convolutions before them: published figures begin there, with models that
    have none."""
    from girih.rewrite.backtracking import Backtracking
    from girih.rewrite.constants import folded
    from girih.rewrite.rules.shipped import shipped
    from girih.rewrite.segments import joined, segments

    rules = [rule for rule in shipped() if rule.name == "norm_into_convolution"]
    parts = segments(found.graph, found.weights)

    def norms(graph: Any, node: Any) -> float:
        return float(node.operator == "girih.normalise")

    every = [Backtracking(patience=2).search(part, rules, norms).graph for part in parts]
    return folded(joined(found.graph, every, parts), found.weights)
