"""Operators that multiply and add up."""
