"""Loops over blocks as TorchScript: girih's own kernels are compiled with them."""

from __future__ import annotations

import numpy as np
import torch

import girih
import girih.array as gnp
from girih.lower import BlockStep
from girih.run import blocks
from girih.run.block_text import Text


def test_a_mean_in_a_loop_is_compiled(monkeypatch):
    """The text is compiled where `blocks` compiles it: its names of types are those that the text means."""
    found = []
    unit = torch.jit.CompilationUnit

    def compiled(text: str):
        made = unit(text, _frames_up=1)
        found.append((text, made.run))
        return made

    monkeypatch.setattr(torch.jit, "CompilationUnit", compiled)
    content = np.random.default_rng(0).normal(size=(100_000, 50))
    with girih.cluster(1, backend="threads"):
        x = np.exp(gnp.array(content)).mean(1).persist()
        program = x.expression.kept.plan.program
        (step,) = (step for step in program.steps if isinstance(step, BlockStep))
        text = Text(program, step, 0).script
        assert blocks.SCRIPTED * step.rows <= len(content)
        np.testing.assert_allclose(x.compute(), np.exp(content).mean(1))
    assert [text] == [name for name, _ in found]
