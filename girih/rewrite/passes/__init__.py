"""Fixed rewrites."""
