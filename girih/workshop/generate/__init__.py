"""Rules that nobody wrote down: enumerated, fingerprinted, pruned, and proved (TASO §2.3 to §2.5).

In the order of the data: `vocabulary` (operators by name, inputs, constants), `exact` (a description as a function of
many tensors at once, on whole numbers), `table` (classes of equal terms, level by level), `candidates` (pairs of equal
terms, without those that others imply), `general` (symbols for sizes and attributes), `generation` (all of it).
"""

from girih.workshop.generate.generation import Generated, Generation

__all__ = ["Generated", "Generation"]
