"""The graph networks in examples/gnn/ learn, and a loop of torch_geometric has the losses that it had."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "gnn"


def load(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"gnn_example_{name}", EXAMPLES / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_karate_club_is_learned_on_two_workers() -> None:
    right = load("karate").main(epochs=40)
    assert right["train"] == 1
    assert right["test"] > 0.6  # a quarter by chance; one member of each community is known


def test_a_loop_of_torch_geometric_has_the_same_losses() -> None:
    module = load("from_geometric")
    plain, planned = module.main(epochs=20)
    np.testing.assert_allclose(planned, plain, rtol=1e-4)
    assert planned[-1] < planned[0] / 2
    text = (EXAMPLES / "from_geometric.py").read_text()
    for line in (line.strip() for line in module.__doc__.splitlines()):  # what the diff says is what is run
        if line.startswith(("-", "+")):
            bare = line[1:].strip().split(" for ")[0].replace(" as train:", "").removeprefix("losses = [")
            assert text.count(bare.split("range")[0]) > 1, line


def test_a_layer_of_ones_own_learns() -> None:
    assert load("own_layer").main(epochs=30) > 0.6
