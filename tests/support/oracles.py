"""What answers by trying everything, or by definition: for tests to hold the real thing against."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from girih.partition.solver.elimination import Problem, Solution, cost_of
from girih.program.life.links import Integers, Links


def brute_force(problem: Problem) -> Solution:
    """Tries all labels, for problems of some thousands of combinations."""
    every = product(*(range(size) for size in problem.domains))
    cost, best = min((cost_of(problem, np.array(labels)), labels) for labels in every)
    if not cost < math.inf:
        raise ValueError("infeasible: every combination of labels has a forbidden entry")
    return Solution(np.array(best, np.int64), cost, cost, "brute force", "optimal")


def is_topological(links: Links, order: Integers) -> bool:
    """Does the order have every step once, behind all that it needs?"""
    count = len(links.after_starts) - 1
    if not np.array_equal(np.sort(order), np.arange(count)):
        return False
    position = np.empty(count, np.int64)
    position[order] = np.arange(count)
    needing = np.repeat(np.arange(count), np.diff(links.before_starts))
    return bool((position[links.before] < position[needing]).all())
