"""Arrays that the workers do not have yet: in the driver's memory, or sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from girih.capture.lazy.sources import Source

READ_AT_ONCE = 1 << 26
"""Bytes of a source that the driver copies elsewhere in one go."""


def placed_content(content: np.ndarray | Source) -> Any:
    """What the workers are sent of an array that they do not have yet."""
    if isinstance(content, Source):
        content.check()
        return content
    return torch.from_numpy(content)


def portions(content: np.ndarray | Source) -> Iterator[tuple[tuple[slice, ...], np.ndarray]]:
    """An array that the workers do not have, some rows at a time where it is a source."""
    if isinstance(content, np.ndarray):
        yield (...,), content  # type: ignore[misc]
        return
    rows = max(1, READ_AT_ONCE * content.shape[0] // max(content.nbytes, 1))
    for start in range(0, content.shape[0], rows):
        stop = min(start + rows, content.shape[0])
        rest = content.shape[1:]
        yield (slice(start, stop),), content.read((start, *(0 for _ in rest)), (stop, *rest))
