"""What is in memory at the peak of each device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from girih.program import Program
from girih.program.life.accounts import MemoryUse

if TYPE_CHECKING:
    from girih.plans.plan import Plan

WHAT = {
    "parameter": "parameter",
    "buffer": "buffer",
    "data": "data",
    "state": "optimizer state",
    "batch": "batch",
    "scalar": "scalar",
    "seed": "seed",
}


def holdings_data(plan: Plan) -> dict[str, Any]:
    """For each device whose memory was followed: the largest tensors at its peak, and what else is there."""
    return {
        "limit": plan.limit,
        "given": plan.memory is not None,
        "devices": [_device(plan.program, use) for use in plan.memory_by_device],
    }


def _device(program: Program, use: MemoryUse) -> dict[str, Any]:
    return {
        "device": use.device,
        "state": use.state,
        "peak": use.peak,
        "node": use.at,
        "tensors": [[buffer, size, what_is(program, buffer)] for buffer, size in use.largest],
    }


def what_is(program: Program, buffer: str) -> str:
    """What a buffer holds, in words."""
    value = program.value_of.get(buffer)
    if value is None:  # not a buffer of the program: what an exchange stages
        return "messages on their way"
    if "^" in buffer:
        return f"{_role(program, value)}, moved in or to be moved out"
    if buffer != value:
        fetched = buffer.startswith(f"{value}@")
        return "fetched for " + buffer.removeprefix(f"{value}@").rpartition(".")[0] if fetched else "made, not yet sent"
    return _role(program, value)


def _role(program: Program, value: str) -> str:
    graph = program.graph
    role = graph.role_of(value)
    if role is not None:
        return WHAT[role]
    phase = graph.nodes[graph.producer[value]].phase
    return {"forward": "activation", "backward": "gradient", "update": "new state"}[phase]
