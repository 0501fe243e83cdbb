"""Programs of arrays in blocks so small that everything is cut."""

from __future__ import annotations

from loop_form_law import check as check_loop

import girih.array as gnp
from girih.array.session.clusters import current
from girih.capture.lazy.expressions import needed
from girih.program import Blocks, BlockStep, Program, check
from girih.run.loops.build import build

TINY = Blocks(cache=256, call=0.0, small=0)
FUSED = [
    lambda np, x: ((x * 2 + 1) / 3 - x**2).sum(),
    lambda np, x: (x - x.mean(0)) / x.std(0),
    lambda np, x: np.exp(x) + np.log(np.abs(x) + 1) * np.where(x > 0, x, 0.5),
    lambda np, x: ((x[:, None, :] - x[None, :4]) ** 2).sum(-1).argmin(1),
    lambda np, x: np.stack([x.min(0), x.max(0), x.prod(0), x.sum(0)]),
    lambda np, x: np.stack([(x > 0).all(0), (x > 1).any(0)]),
    lambda np, x: (x * 0.5).T @ (x + 1),
    lambda np, x: np.tanh(x @ x[:3].T).sum(1),
    lambda np, x: (x - x.mean(0)) @ ((x - x.mean(0)).T @ (x - x.mean(0))),
    lambda np, x: x[(x * 2).sum(1) > 0].mean(0),
    lambda np, x: (np.arange(x.shape[0])[:, None] * x).max(),
    lambda np, x: (x[1:] - x[:-1]) ** 2,
    lambda np, x: (x * 2 + 1).argmax(1),
    lambda np, x: (x + 1).T * 3,
    lambda np, x: np.abs(x).astype(np.float32).sum(0),
    lambda np, x: np.linalg.norm(x * 2, axis=1) + (x**3)[:, 0],
]


def program_of(*arrays: gnp.Array) -> Program:
    """Of the current cluster; it and its loops keep their laws."""
    program = current().plan_of(needed([array.expression for array in arrays])).program
    check(program)
    for step in groups(program):
        for device in range(program.mesh.devices):
            check_loop(build(program, step, device))
    return program


def groups(program: Program) -> list[BlockStep]:
    return [step for step in program.steps if isinstance(step, BlockStep)]
