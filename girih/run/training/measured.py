"""The Timeline of a step as it was measured, instruction by instruction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from girih.layout import level_volumes
from girih.program import Program, Stream, TransferStep
from girih.run.worker.worker import MeasuredInterval
from girih.simulate.timeline import COMPUTE, Timeline


def measured_timeline(
    program: Program, intervals: Sequence[Sequence[MeasuredInterval]], streams: tuple[str, ...], one_clock: bool = True
) -> Timeline:
    """From the intervals of each worker (`Session.timeline`).

    one_clock: all workers read the same clock. Else each worker's step begins at 0: they begin a step together, to
    within a message's time.

    streams: the names of the streams, `compute` and one for each mesh axis. A transfer's span, from its wait to its
    end, lies on the outermost axis over which the device receives; frees are left out.
    """
    begins = [min((item.start for item in own), default=0.0) for own in intervals]
    if one_clock:
        begins = [min((first for first, own in zip(begins, intervals, strict=True) if own), default=0.0)] * len(begins)
    stream_of, amount_of = _transfers(program)
    rows: list[tuple[int, int, int, float, float, int]] = []
    for device, own in enumerate(intervals):
        for item in own:
            step = program.steps[item.step]
            if step.stream is Stream.MEMORY:
                continue
            stream = int(stream_of[item.step, device]) if item.step in amount_of else COMPUTE
            amount = int(amount_of[item.step][device]) if item.step in amount_of else 0
            rows.append((device, stream, item.step, item.start - begins[device], item.stop - begins[device], amount))
    columns = list(zip(*rows, strict=True)) if rows else [()] * 6
    return Timeline(
        program.mesh.devices,
        streams,
        np.asarray(columns[0], np.int32),
        np.asarray(columns[1], np.int32),
        np.asarray(columns[2], np.int32),
        np.asarray(columns[3], np.float64),
        np.asarray(columns[4], np.float64),
        np.asarray(columns[5], np.int64),
        measured=True,
    )


def _transfers(program: Program) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """(stream of each step on each device, bytes that each device receives in each transfer step)."""
    streams = np.full((len(program.steps), program.mesh.devices), COMPUTE, np.int64)
    amounts: dict[int, np.ndarray] = {}
    for position, step in enumerate(program.steps):
        if isinstance(step, TransferStep):
            volumes = level_volumes(program.mesh, step.before, step.after)
            amounts[position] = volumes.sum(axis=1) * program.graph.values[step.value].item_bytes
            over = (volumes > 0).argmax(axis=1)
            streams[position] = np.where(volumes.any(axis=1), over + 1, COMPUTE)
    return streams, amounts
