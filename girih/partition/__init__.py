"""Searches over Strategies. `girih.search.table` has them by name; workers need only `strategy`."""

from girih.partition.strategy import Certificate, SearchResult, Strategy

__all__ = ["Certificate", "SearchResult", "Strategy"]
