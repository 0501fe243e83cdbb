"""Loops over the blocks of a group: their form, its law, and a printer for each target that runs them."""
