"""Do two graphs compute the same? Both are run on random inputs, on one device, by PyTorch."""

from __future__ import annotations

import torch

from girih.graph import Graph
from girih.kernels.evaluate import interpret
from girih.rewrite.rewriting import RewriteError

INTEGERS = 2
"""Integers are drawn below this number, since they may be indices, labels or masks."""


def check_results(before: Graph, after: Graph, *, seed: int = 0, rtol: float | None = None) -> None:
    """Run both graphs on the same random inputs and compare what leaves them, in order.

    rtol: the relative difference that is allowed; without it that of `torch.testing.assert_close`, which is meant for
    the rounding of each dtype.

    Raises:
        RewriteError: naming the first output that differs, and by how much.
    """
    inputs = _random_inputs(before, seed)
    was, now = interpret(before, inputs), interpret(after, inputs)
    for old, new in zip(before.outputs, after.outputs, strict=True):
        atol = None if rtol is None else rtol
        try:
            torch.testing.assert_close(now[new.name], was[old.name], rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            raise RewriteError(f"output {old.name!r} differs: {error}") from error


def _random_inputs(graph: Graph, seed: int) -> dict[str, torch.Tensor]:
    """For each input of the graph: small normal numbers, integers below `INTEGERS`, or booleans."""
    generator = torch.Generator().manual_seed(seed)
    inputs = {}
    for item in graph.inputs:
        value = graph.values[item.name]
        dtype = getattr(torch, value.dtype)
        if dtype.is_floating_point or dtype.is_complex:
            wide = torch.complex128 if dtype.is_complex else torch.float64
            inputs[item.name] = (0.1 * torch.randn(value.shape, generator=generator, dtype=wide)).to(dtype)
        else:
            inputs[item.name] = torch.randint(INTEGERS, value.shape, generator=generator).to(dtype)
    return inputs
