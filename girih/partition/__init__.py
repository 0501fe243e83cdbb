"""Searches over Strategies. `girih.search.table` has them by name; workers need only `strategy`."""

from girih.partition.strategy import SearchResult, Strategy
from girih.rewrite.certificate import Certificate

__all__ = ["Certificate", "SearchResult", "Strategy"]
