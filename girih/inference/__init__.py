"""Graphs of inference as PyTorch modules, and what their operators take here."""
