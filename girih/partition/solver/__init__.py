"""Exact minima of sums of tables, bounds, and what is chosen under a limit of memory."""
