"""Functions that make arrays and change their shapes."""
