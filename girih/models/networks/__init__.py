"""The architectures, as ordinary PyTorch modules."""
