"""What each step of a program takes on each device by itself: the simulator's input besides the links."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]  # [steps, devices]


@dataclass(frozen=True)
class Prices:
    """Seconds that a device itself works in each step of a program, waiting not counted: [steps, devices].

    before: all of a compute step; of a transfer, what is done until its messages are handed over (packing).
    after: of a transfer, what is done once everything has arrived (placing, combining). 0 elsewhere.
    """

    before: Seconds
    after: Seconds
