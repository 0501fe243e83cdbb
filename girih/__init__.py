"""girih lays a machine-learning program written for one device out over many, and proves how good the layout is.

    step = girih.TrainingStep(model, loss=cross_entropy, optimizer=SGD(model.parameters(), lr=0.1))
    plan = girih.plan(step, batch, machine="local:4", memory="600MB")

Importing this module is quick and does not load torch; names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "TrainingStep": "girih.capture.torch.training",
    "Inference": "girih.capture.torch.training",
    "CaptureError": "girih.capture.errors",
    "Plan": "girih.api",
    "PlanError": "girih.plans.plan",
    "plan": "girih.api",
    "fit": "girih.api",
    "infer": "girih.api",
    "load": "girih.api",
    "optimize": "girih.inference.facade",
    "load_optimized": "girih.inference.facade",
    "read_exported": "girih.inference.facade",
    "read_onnx": "girih.inference.facade",
    "cluster": "girih.array.session.clusters",
    "as_parallelized": "girih.published.divisions.parallelized",
}

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


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'girih' has no attribute {name!r}")
    from importlib import import_module

    result = getattr(import_module(home), name)
    globals()[name] = result
    return result


def __dir__() -> list[str]:
    return sorted(__all__)
