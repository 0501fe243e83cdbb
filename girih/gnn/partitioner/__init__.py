"""Cuts of a graph into pieces of equal work, by a cost that is learned from measured times (ROC, §4.4)."""
