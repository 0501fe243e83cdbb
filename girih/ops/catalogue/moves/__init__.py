"""Operators that move elements: shapes, indices, tables, orders."""
