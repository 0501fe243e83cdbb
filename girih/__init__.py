"""girih lays a machine-learning program written for one device out over many, and proves how good the layout is.

    step = girih.TrainingStep(model, loss=cross_entropy, optimizer=SGD(model.parameters(), lr=0.1))
    plan = girih.plan(step, batch, machine="local:4", memory="600MB")

Importing this module is quick and does not load torch; names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from girih.lazily import lazily

__version__ = "0.1.0"

__getattr__ = lazily(
    __name__,
    {
        "girih.api": "Plan fit infer load plan",
        "girih.array.session.clusters": "cluster",
        "girih.capture.errors": "CaptureError",
        "girih.capture.torch.training": "Inference TrainingStep",
        "girih.inference.facade": "load_optimized optimize read_exported read_onnx",
        "girih.plans.plan": "PlanError",
        "girih.published.divisions.parallelized": "as_parallelized",
    },
)

__all__ = [
    "CaptureError",
    "Inference",
    "Plan",
    "PlanError",
    "TrainingStep",
    "__version__",
    "as_parallelized",
    "cluster",
    "fit",
    "infer",
    "load",
    "load_optimized",
    "optimize",
    "plan",
    "read_exported",
    "read_onnx",
]

if TYPE_CHECKING:
    from girih.api import Plan, fit, infer, load, plan
    from girih.array.session.clusters import cluster
    from girih.capture.errors import CaptureError
    from girih.capture.torch.training import Inference, TrainingStep
    from girih.inference.facade import load_optimized, optimize, read_exported, read_onnx
    from girih.plans.plan import PlanError
    from girih.published.divisions.parallelized import as_parallelized


def __dir__() -> list[str]:
    return sorted(__all__)
