"""Groups of nodes that run block by block."""
