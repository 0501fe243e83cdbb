"""Graphs that networks learn on: read from files and objects, checked, mended, generated, kept in one mapped file."""
