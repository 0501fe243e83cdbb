"""How workers hand tensors, and work, to each other."""
