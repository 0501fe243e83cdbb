"""What follows from a description alone."""
