"""Random batches for a plan: data of its model's own kind, or of its shapes."""

from __future__ import annotations

import re
from typing import Any

from girih.plans.inputs import flatten_batch
from girih.plans.plan import Plan


def random_batch(plan: Plan, seed: int) -> dict[str, Any]:
    """A batch by path with the shapes of the plan: the model's own kind of data where it has a name."""
    import torch

    base, _, size = plan.origin.model.partition("@")
    if _is_of_size(plan):
        from girih.models import random_batch as of_model

        return flatten_batch(of_model(base, batch=int(size), seed=seed))
    generator = torch.Generator().manual_seed(seed)
    batch = {}
    for item in plan.graph.inputs:
        if item.role != "batch":
            continue
        value = plan.graph.values[item.name]
        dtype = getattr(torch, value.dtype)
        if dtype.is_floating_point:
            batch[item.path] = torch.randn(value.shape, generator=generator).to(dtype)
        else:
            high = plan.origin.ranges.get(item.path, 2)
            batch[item.path] = torch.randint(0, high, value.shape, generator=generator).to(dtype)
    return batch


def _is_of_size(plan: Plan) -> bool:
    """Has the plan a model's name, with its batch? A file may say any, and the data of another size than is planned
    could fill the memory."""
    base, _, size = plan.origin.model.partition("@")
    if not base or ".py:" in base or not size.isdecimal():
        return False
    extents = {
        extent for item in plan.graph.inputs if item.role == "batch" for extent in plan.graph.values[item.name].shape
    }
    numbers = re.findall(r"\d+", plan.origin.model)
    return all(len(number) <= 6 for number in numbers) and int(size) in extents
