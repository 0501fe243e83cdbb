"""Plan: the noun, its file, its law, predictions, comparisons."""
