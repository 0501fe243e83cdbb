"""numpy.lib: the parts that have to do with arrays."""

from __future__ import annotations

from typing import Any

from girih.array import stride_tricks as stride_tricks
from girih.array.core.unsupported import missing


def __getattr__(name: str) -> Any:
    raise missing(__name__, name, globals())
