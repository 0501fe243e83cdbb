"""PyTorch step → Graph. Loads torch when one of its names is first used, not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from girih.lazily import lazily

if TYPE_CHECKING:
    from girih.capture.errors import CaptureError
    from girih.capture.torch.initial import Initial
    from girih.capture.torch.state import state_of
    from girih.capture.torch.trace import Captured, capture
    from girih.capture.torch.training import Inference, TrainingStep

__getattr__ = lazily(
    __name__,
    {
        "girih.capture.errors": "CaptureError",
        "girih.capture.torch.initial": "Initial",
        "girih.capture.torch.state": "state_of",
        "girih.capture.torch.trace": "Captured capture",
        "girih.capture.torch.training": "Inference TrainingStep",
    },
)

__all__ = ["CaptureError", "Captured", "Inference", "Initial", "TrainingStep", "capture", "state_of"]
