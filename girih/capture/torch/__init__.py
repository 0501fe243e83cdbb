"""A PyTorch step or inference, recorded as one graph."""
