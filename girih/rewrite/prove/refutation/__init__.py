"""Tensors for which the two sides of a rule differ: `instances` (both sides, computed), `refute` (finds them)."""
