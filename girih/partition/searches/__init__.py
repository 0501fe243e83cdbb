"""Searches over Strategies."""
