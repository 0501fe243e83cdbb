"""Tests on one side of the border of small work: of what the workers do (`of_large`), of what NumPy does at once
(`of_small`)."""

from __future__ import annotations

import math

import pytest

of_large = pytest.mark.parametrize("border", [0], indirect=True, scope="module")
of_small = pytest.mark.parametrize("border", [math.inf], indirect=True, scope="module")
