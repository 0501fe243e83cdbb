"""`import girih.loop as gl`: serial loops, parallel without losing their meaning, and tables that workers share."""

from __future__ import annotations

import importlib
from typing import Any

_PLACES = {"tables": "girih.loop.shared", "AdaRevision": "girih.loop.shared"}
__all__ = ["AdaRevision", "tables"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value
