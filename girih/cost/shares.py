"""What share of a data sheet's rates calls reach by their size, where it was measured: for presets of such cards.

On one H200 with PyTorch 2.11, by `python -m benchmarks.gpu_rates`: square products from 64 to 16,384 in TF32, bfloat16
and float16, each against its own rate without the smallest call (medians of the three), copies, sums, softmax and
element-wise calls of 4 KB to 8 GB (within a twentieth of each other), and the smallest call of eager PyTorch. The H100
has the same processors and another memory. Convolutions were not measured, and are taken to reach what products reach.
"""

from __future__ import annotations

from girih.cost.roofline import Rates, Roofline
from girih.machine.machine import Device
from girih.ops.derive.kinds import CONVOLUTION, COPY, ELEMENTWISE, FUNCTION, MATMUL, REDUCTION

LAUNCH = 7.2e-6
PRODUCTS = (
    (3.4e7, 0.005), (2.7e8, 0.043), (2.1e9, 0.27), (1.7e10, 0.98), (1.4e11, 0.79), (1.1e12, 0.72), (8.8e12, 0.71),
)  # fmt: skip
MEMORY = ((1.3e8, 1.0), (5.4e8, 0.91), (2.1e9, 0.885))
SAMPLES = 27
_HOPPER = (
    *((kind, Rates(LAUNCH, PRODUCTS, ((1.0, MEMORY[-1][1]),), SAMPLES)) for kind in (MATMUL, CONVOLUTION)),
    *((kind, Rates(LAUNCH, ((1.0, 1.0),), MEMORY, SAMPLES)) for kind in (ELEMENTWISE, FUNCTION, REDUCTION, COPY)),
)
SHARES = {"H100": _HOPPER, "H200": _HOPPER}
"""By a word of the names of devices: of presets, and as PyTorch names cards (NVIDIA H200)."""


def data_sheet_roofline(device: Device) -> Roofline:
    """The roofline of a device that nobody has calibrated: with shares by size where they were measured on such a card,
    else its plain peaks."""
    return Roofline(device, next((shares for card, shares in SHARES.items() if card in device.name.split()), ()))
