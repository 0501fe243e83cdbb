"""PyTorch step → Graph. Loads torch when one of its names is first used, not before."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from girih.capture.errors import CaptureError
    from girih.capture.torch.initial import Initial
    from girih.capture.torch.state import state_of
    from girih.capture.torch.trace import Captured, capture
    from girih.capture.torch.training import Inference, TrainingStep

_PLACES = {
    "CaptureError": "errors",
    "Captured": "torch.trace",
    "Inference": "torch.training",
    "Initial": "torch.initial",
    "TrainingStep": "torch.training",
    "capture": "torch.trace",
    "state_of": "torch.state",
}

__all__ = ["CaptureError", "Captured", "Inference", "Initial", "TrainingStep", "capture", "state_of"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
