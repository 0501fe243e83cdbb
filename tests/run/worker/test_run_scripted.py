"""Loops over blocks as TorchScript: girih's own kernels are compiled with them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import girih
import girih.array as gnp
from girih.kernels.products import SCRIPT_NAMES
from girih.program import BlockStep
from girih.run.loops import loop as loops
from girih.run.loops import torchscript
from girih.run.loops.build import build


@pytest.fixture
def found(monkeypatch):
    """Texts that are compiled and their functions. A text is compiled where `torchscript` compiles it: its names of
    types are those that the text means."""
    found = []
    unit = torch.jit.CompilationUnit

    def compiled(text: str):
        made = unit(text, _frames_up=1)
        found.append((text, made.run))
        return made

    monkeypatch.setattr(torch.jit, "CompilationUnit", compiled)
    torchscript.compiled.cache_clear()
    return found


def test_a_mean_in_a_loop_is_compiled(found):
    content = np.random.default_rng(0).normal(size=(100_000, 50))
    with girih.cluster(1, backend="threads", small=0):
        x = np.exp(gnp.array(content)).mean(1).persist()
        program = x.expression.kept.plan.program
        (step,) = (step for step in program.steps if isinstance(step, BlockStep))
        text = torchscript.script_text(build(program, step, 0))
        assert loops.SCRIPTED * step.rows <= len(content)
        np.testing.assert_allclose(x.compute(), np.exp(content).mean(1))
    assert [text] == [name for name, _ in found]


@pytest.mark.parametrize(("columns", "long"), [(40, True), (4, False)])
def test_a_product_in_a_loop_is_compiled(found, columns, long):
    """A long one calls back into Python; a short one does not."""
    content = np.random.default_rng(0).normal(size=(6_000_000 // columns, columns))
    with girih.cluster(1, backend="threads", small=0):
        away = gnp.array(content) - 0.5
        made = (away.T @ away).compute()
    known = content - 0.5
    np.testing.assert_allclose(made, known.T @ known, rtol=1e-9, atol=1e-6)
    (text,) = (text for text, _ in found)
    assert (SCRIPT_NAMES["aten.mm"] in text) == long
    assert ("torch.ops.aten.mm" in text) != long


@pytest.mark.parametrize(("columns", "long"), [(32, True), (8, False)])
def test_places_in_rows_are_compiled(found, columns, long):
    """Long rows call back into Python."""
    content = np.random.default_rng(0).normal(size=(4_000_000 // columns, columns))
    with girih.cluster(1, backend="threads", small=0):
        made = (gnp.array(content) * 2.0).argmax(1).compute()
    np.testing.assert_array_equal(made, content.argmax(1))
    (text,) = (text for text, _ in found)
    assert ("torch.ops.girih.argmax(" in text) == long
