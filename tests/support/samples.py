"""Random arguments for every described operator: the registry with all of its pages imported."""

import samples_lookup
import samples_moves
import samples_pointwise
import samples_reductions
import samples_tensors
import samples_tiles
from sampling import SAMPLES

__all__ = [
    "SAMPLES", "samples_lookup", "samples_moves", "samples_pointwise", "samples_reductions", "samples_tensors",
    "samples_tiles",
]  # fmt: skip
