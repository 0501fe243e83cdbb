"""Equality saturation: all graphs that rules reach are kept at once, and the cheapest is taken out exactly.

In the order of the data: `egraph` (classes of equal values), `explore` (rules are applied until nothing is new or a
limit is met), `extract` (the cheapest graph without circles, as an integer program, with its bound), `search` (all of
it).
"""

from girih.rewrite.saturation.search import Saturation

__all__ = ["Saturation"]
