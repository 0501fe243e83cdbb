"""Applications of loops, as estimators."""
