"""What computes an operator where PyTorch alone does not."""

from typing import Any


def is_fake(tensor: Any) -> bool:
    """Has a tensor a shape and no numbers? Then its operators are not computed but written down (`girih.run.export`),
    and kernels must do without what depends on numbers."""
    return type(tensor).__name__ == "FakeTensor"
