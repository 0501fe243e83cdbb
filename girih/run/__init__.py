"""Executes a Program on real workers."""
