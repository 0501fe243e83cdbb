"""Array, its views, and how arrays are made from arrays."""
