"""Plans as programs of PyTorch's own engines, which run them without girih."""
