"""One region of memory in which all tensors of a step lie."""
