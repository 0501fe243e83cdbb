"""Searches, and what judges them. Every search of `girih.search.table` is here by the name of its class:

from girih.search import Exact
plan = girih.plan(step, batch, search=Exact(seconds=10))
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from girih.search.table import SEARCHES, class_of

    for search, place in SEARCHES.items():
        if place.rpartition(".")[2] == name:
            return class_of("search", search)
    raise AttributeError(f"module 'girih.search' has no attribute {name!r}")
