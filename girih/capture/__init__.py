"""PyTorch step → Graph."""

from girih.capture.errors import CaptureError
from girih.capture.initial import Initial
from girih.capture.trace import Captured, capture, state_of
from girih.capture.training import Inference, TrainingStep

__all__ = ["CaptureError", "Captured", "Inference", "Initial", "TrainingStep", "capture", "state_of"]
