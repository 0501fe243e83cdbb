"""What one asks of a network that learns on a graph: its loss, its accuracy, its outputs."""

from __future__ import annotations

from typing import Any

import torch

from girih.gnn.data.data import SPLITS, Data
from girih.gnn.data.errors import DataError
from girih.gnn.data.resident import Resident

Tensor = Any  # torch is untyped for the type checker


def loss(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy over the training vertices of `Data.target`: of one class for each, or, where a vertex may have
    several, of each class apart."""
    if target.dim() == 1:
        return torch.nn.functional.cross_entropy(output, target)
    known = ~torch.isnan(target)
    goal = torch.where(known, target, torch.zeros_like(target))
    own = torch.nn.functional.binary_cross_entropy_with_logits(output, goal.to(output.dtype), reduction="none")
    return (own * known).sum() / known.sum()


def accuracy(output: Tensor, data: Data) -> dict[str, float]:
    """By split the share of its vertices whose class a network's output gets right; where a vertex may have several
    classes, the F1 score over all of them. Splits that the data has not are left out.

    Raises:
        DataError: there are no labels.
    """
    if data.labels is None:
        raise DataError(f"{data.name} has no labels to compare with: give labels=")
    scores = output.detach().float().cpu().numpy()
    found = {}
    for split in SPLITS:
        mask = getattr(data, split)
        if mask is None or not mask.any():
            continue
        labels, own = data.labels[mask], scores[mask]
        if labels.ndim == 1:
            known = labels >= 0
            found[split] = float((own[known].argmax(1) == labels[known]).mean()) if known.any() else 0.0
        else:
            both = float(((own > 0) & (labels > 0)).sum())
            found[split] = 2 * both / max(float((own > 0).sum() + (labels > 0).sum()), 1.0)
    return found


def predict(network: torch.nn.Module, data: Data) -> Tensor:
    """The network's outputs for all vertices, computed by this process, without dropout."""
    was, resident = network.training, Resident(network, data, learns=False)
    resident.eval()
    try:
        with torch.no_grad():
            return resident()  # type: ignore[no-any-return]
    finally:
        resident.train(was)  # and the graph, which others have too
