"""Searches over Strategies. `girih.partition.searches` has them by name; workers need only `strategy`."""

from girih.partition.strategy import Certificate, SearchResult, Strategy

__all__ = ["Certificate", "SearchResult", "Strategy"]
