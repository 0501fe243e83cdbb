"""Loops over the blocks of a group: their form, and a printer for each target that runs them."""
