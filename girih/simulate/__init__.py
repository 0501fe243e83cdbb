"""Prices a Program: the very steps that run, on devices and links as resources."""
