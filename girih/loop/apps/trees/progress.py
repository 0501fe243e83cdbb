"""How far boosting is, and its checkpoints: one file, as `gl.save` writes (girih/loop/checkpoint.py).

A checkpoint has the trees, what they say of each row to the last bit, and the state of the random numbers; bins are
found anew, from the same sample. So the trees that follow are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from girih.loop.apps.checks import same_fit
from girih.loop.apps.trees.forest import Forest, forest_of
from girih.loop.apps.trees.grow import Growth, Tree
from girih.loop.checkpoint import LoopCheckpointError, checksum, read, write


@dataclass(frozen=True)
class TreesSaving:
    """Where and how often boosting is saved, who is told of each tree, and what the trees depend on beside the seed."""

    place: Path | None
    every: int
    observer: Callable[[int], None] | None
    identity: dict[str, Any]


@dataclass
class TreesProgress:
    """trees: that are grown. raw: what they say of each row. random: what rows are drawn by, as it is after them."""

    seed: int
    base: float
    trees: list[Tree]
    raw: np.ndarray
    random: np.random.Generator


def begun(seed: int, base: float, rows: int) -> TreesProgress:
    """Before the first tree."""
    return TreesProgress(seed, base, [], np.full(rows, base), np.random.default_rng(seed))


def save(saving: TreesSaving, progress: TreesProgress) -> None:
    """Write a checkpoint; one that was there before is kept until this one is whole."""
    assert saving.place is not None
    forest = forest_of(progress.base, progress.trees)
    arrays = {item.name: getattr(forest, item.name) for item in fields(Forest)[1:]}
    others = {
        "identity": saving.identity,
        "seed": progress.seed,
        "base": progress.base,
        "random": progress.random.bit_generator.state,
    }
    write(saving.place, arrays | {"raw": progress.raw}, {"trees": others})


def restored(saving: TreesSaving, seed: int | None) -> TreesProgress:
    """As `save` wrote it. seed: that it must have been begun with; None: any.

    Raises:
        LoopCheckpointError: it is damaged, or of other data or parameters, which are named.
    """
    assert saving.place is not None
    arrays, others = read(saving.place)
    if "trees" not in others:
        raise LoopCheckpointError(f"{saving.place} is a checkpoint of other things than boosted trees")
    head = others["trees"]
    expected = saving.identity if seed is None else saving.identity | {"random_state": seed}
    found = head["identity"] | {"random_state": head["seed"]}
    same_fit(saving.place, found, expected)
    progress = begun(head["seed"], head["base"], 0)
    progress.random.bit_generator.state = head["random"]
    progress.raw = arrays["raw"]
    ends = [*arrays["starts"][1:], len(arrays["features"])]
    nowhere = np.empty(0, np.int64)
    for first, last in zip(arrays["starts"], ends, strict=True):
        nodes = {item.name: arrays[item.name][first:last] for item in fields(Forest)[2:]}
        progress.trees.append(Tree(**nodes, begins=nowhere, ends=nowhere))
    return progress


def identity_of(
    x: np.ndarray, target: np.ndarray, weights: np.ndarray, growth: Growth, options: dict[str, Any]
) -> dict[str, Any]:
    """What must be equal for the trees that follow to be the same, besides the seed."""
    named = asdict(growth) | options
    return {
        **{name: value.item() if isinstance(value, np.generic) else value for name, value in named.items()},
        "shape": list(x.shape),
        "X (checksum)": checksum(x),
        "y (checksum)": checksum(target),
        "sample_weight (checksum)": checksum(weights),
    }
