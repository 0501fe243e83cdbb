"""Functions of each element by itself, and what is made of a few of them."""
