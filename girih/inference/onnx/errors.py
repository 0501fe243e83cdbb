"""What cannot be read of an ONNX file."""

from __future__ import annotations

from girih.capture.errors import CaptureError


class OnnxError(CaptureError):
    """An ONNX file that is damaged, or holds what girih cannot say; the message is one line and names it."""
