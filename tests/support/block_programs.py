"""Programs of arrays in blocks so small that everything is cut."""

from __future__ import annotations

import girih.array as gnp
from girih.array.session.clusters import current
from girih.capture.lazy.expressions import needed
from girih.lower import Blocks, BlockStep, Program, check

TINY = Blocks(cache=256, call=0.0, small=0)


def program_of(*arrays: gnp.Array) -> Program:
    made = current().plan_of(needed([array.expression for array in arrays])).program
    check(made)
    return made


def groups(program: Program) -> list[BlockStep]:
    return [step for step in program.steps if isinstance(step, BlockStep)]
