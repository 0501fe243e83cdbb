"""Functions that reduce, scan, sort and count."""
