"""Networks for images (and vectors, for those that make images): convolutions."""
