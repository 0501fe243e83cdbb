"""What capture refuses, and how it says so."""

from __future__ import annotations


class CaptureError(ValueError):
    """A program that cannot become one graph; the message names the user's line and what to do."""


class MoreBuffersError(CaptureError):
    """A module has made buffers while it was captured, of what it found to be constant: capture it again with them."""
