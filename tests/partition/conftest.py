"""Programs of arrays are made in `benchmarks`, which lives beside girih, not in it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
