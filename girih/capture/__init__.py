"""PyTorch step → Graph. Loads torch when one of its names is first used, not before."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from girih.capture.errors import CaptureError
    from girih.capture.initial import Initial
    from girih.capture.state import state_of
    from girih.capture.trace import Captured, capture
    from girih.capture.training import Inference, TrainingStep

_PLACES = {
    "CaptureError": "errors",
    "Captured": "trace",
    "Inference": "training",
    "Initial": "initial",
    "TrainingStep": "training",
    "capture": "trace",
    "state_of": "state",
}

__all__ = ["CaptureError", "Captured", "Inference", "Initial", "TrainingStep", "capture", "state_of"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
