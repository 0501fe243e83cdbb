"""Where arrays are evaluated."""
