"""The simulation's loops, and the arrays on which they work."""
