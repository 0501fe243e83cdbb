"""Array expressions and their sources."""
