"""First states by recipe: every division gives the same numbers, and no worker makes more than its part."""

from __future__ import annotations

import pytest
import torch
from run_programs import program_of

from girih.capture import Initial
from girih.layout import Mesh
from girih.run.training.session import start
from girih.run.worker.initial import initial_parts, make, step_seed, stream_of
from girih.run.worker.parts import box_of


@pytest.mark.parametrize("sizes", [(1,), (2,), (3,), (2, 2)], ids=str)
def test_divisions_agree(example, sizes):
    recipes = {path: Initial("normal", 1.0, 2.0) for path in example.state}
    recipes["first.weight"] = Initial("uniform", -0.5, 0.5)
    values = {item.path or item.name: example.graph.values[item.name] for item in example.graph.state_inputs}
    expected = {
        path: make(recipes[path], path, value.shape, value.dtype, tuple((0, size) for size in value.shape), 3, "cpu")
        for path, value in values.items()
    }
    program = program_of(example.graph, Mesh(sizes), 1)
    for rank in range(program.mesh.devices):
        for name, part in initial_parts(program, rank, recipes, seed=3):
            assert tuple(part.shape) == tuple(b - a for a, b in box_of(program, name, rank))
    with start(program, recipes, backend="threads", seed=3) as run:
        for path, tensor in run.state().items():
            assert torch.equal(tensor, expected[path]), path


def test_recipes():
    box = ((0, 100), (0, 100))

    def made(kind, a, b, dtype="float32", seed=0, path="w"):
        return make(Initial(kind, a, b), path, (100, 100), dtype, box, seed, "cpu")

    normal = made("normal", 3.0, 2.0)
    assert float(normal.mean()) == pytest.approx(3.0, abs=0.1)
    assert float(normal.std()) == pytest.approx(2.0, abs=0.1)
    uniform = made("uniform", -1.0, 3.0, "float64")
    assert -1 <= float(uniform.min()) < -0.9
    assert 2.9 < float(uniform.max()) <= 3
    assert torch.equal(made("constant", 2.0, 0.0, "int64"), torch.full((100, 100), 2))
    assert set(made("uniform", 1.0, 3.0, "int64").unique().tolist()) == {1, 2, 3}
    assert not torch.equal(normal, made("normal", 3.0, 2.0, path="v"))
    assert not torch.equal(normal, made("normal", 3.0, 2.0, seed=1))
    assert torch.equal(normal, made("normal", 3.0, 2.0))
    with pytest.raises(ValueError, match="no recipe 'orthogonal'; expected constant, normal or uniform"):
        made("orthogonal", 0.0, 0.0)


def test_numbers_do_not_change_between_versions():
    """Seeds and streams are part of what a checkpoint means."""
    assert stream_of("first.weight") == stream_of("first.weight") < 2**63
    assert len({step_seed(0, step) for step in range(1000)}) == 1000
    assert step_seed(0, 0) == 2928822574489494037
    assert stream_of("weight") == 4787351827655473443
