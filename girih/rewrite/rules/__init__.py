"""Rules: two ways to compute the same tensors; how they are written, generated, proved, and applied."""
