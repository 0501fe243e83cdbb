"""A Timeline as the page keeps it: lanes of spans in whole ticks, each begin counted from the end before it. Of a large
machine only some devices are drawn."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from girih.simulate.timeline import COMPUTE, Memory, Timeline

MOST_DEVICES = 16  # that are all drawn
MOST_POINTS = 6000  # of one device's memory over time


def tick(seconds: float) -> float:
    """The power of ten, in seconds, of which the longest time is at most 10⁹."""
    return float(10.0 ** max(-12, ceil(log10(max(seconds, 1e-9))) - 9))


def timeline_data(timeline: Timeline, devices: tuple[int, ...]) -> dict[str, Any]:
    """Lanes in the order of devices, and of streams in each; the lanes of a stream that nobody uses are there too."""
    unit = tick(timeline.seconds)
    order = np.lexsort((timeline.end, timeline.begin, timeline.stream, timeline.device))
    keys = timeline.device[order].astype(np.int64) * len(timeline.streams) + timeline.stream[order]
    lanes = []
    for device in devices:
        for stream in range(len(timeline.streams)):
            key = device * len(timeline.streams) + stream
            first, last = np.searchsorted(keys, [key, key + 1])
            lanes.append(_lane(timeline, order[first:last], device, stream, unit))
    return {
        "seconds": timeline.seconds,
        "unit": unit,
        "measured": timeline.measured,
        "streams": list(timeline.streams),
        "devices": list(devices),
        "lanes": lanes,
        "memory": [_memory(item, device, unit) for device, item in followed(timeline) if device in devices],
    }


def _lane(timeline: Timeline, spans: NDArray[np.intp], device: int, stream: int, unit: float) -> dict[str, Any]:
    begin = np.rint(timeline.begin[spans] / unit).astype(np.int64)
    end = np.maximum(np.rint(timeline.end[spans] / unit).astype(np.int64), begin)
    before = np.concatenate([[0], end[:-1]]) if len(end) else end
    steps = timeline.step[spans].astype(np.int64)
    lane = {
        "device": device,
        "stream": stream,
        "step": np.diff(steps, prepend=0).tolist(),
        "gap": (begin - before).tolist(),
        "took": (end - begin).tolist(),
        "busy": round(float((timeline.end[spans] - timeline.begin[spans]).sum()), 12),
    }
    if stream != COMPUTE:
        lane["bytes"] = timeline.amount[spans].tolist()
    return lane


def _memory(memory: Memory, device: int, unit: float) -> dict[str, Any]:
    kept = _highest_points(memory.bytes, MOST_POINTS)
    seconds = np.rint(memory.seconds[kept] / unit).astype(np.int64)
    return {
        "device": device,
        "seconds": np.diff(seconds, prepend=0).tolist(),
        "bytes": np.diff(memory.bytes[kept].astype(np.int64), prepend=0).tolist(),
    }


def _highest_points(amounts: NDArray[np.int64], most: int) -> NDArray[np.intp]:
    """Positions of at most `most` points: the highest and the lowest of each of equally many neighbours."""
    count = len(amounts)
    if count <= most:
        return np.arange(count)
    edges = list(pairwise(np.linspace(0, count, most // 2, dtype=np.int64).tolist()))
    highest = [low + int(np.argmax(amounts[low:high])) for low, high in edges]
    lowest = [low + int(np.argmin(amounts[low:high])) for low, high in edges]
    return np.unique(np.asarray([0, *highest, *lowest, count - 1]))


def chosen_devices(timeline: Timeline) -> tuple[tuple[int, ...], str]:
    """The devices to draw, and why these if they are not all."""
    count = timeline.devices
    if count <= MOST_DEVICES:
        return tuple(range(count)), ""
    reasons = {0: "the first", count - 1: "the last"}
    reasons.setdefault(int(np.argmax(timeline.busy())), "the one that computes longest")
    for stream in range(1, len(timeline.streams)):
        reasons.setdefault(
            int(np.argmax(timeline.busy(stream))), f"the one that receives longest over {timeline.streams[stream]}"
        )
    last = int(timeline.device[np.argmax(timeline.end)]) if len(timeline.end) else 0
    reasons.setdefault(last, "the one that ends last")
    for device, share in ((count // 4, "a quarter"), (count // 2, "half"), (3 * count // 4, "three quarters")):
        reasons.setdefault(device, f"the one at {share}")
    chosen = tuple(sorted(reasons))
    explained = "; ".join(f"{device} is {reasons[device]}" for device in chosen)
    return chosen, f"{len(chosen)} of {count} devices are drawn: {explained}."


def followed(timeline: Timeline) -> list[tuple[int, Memory]]:
    """(device, its memory); where fewer are followed than there are devices, they are the first ones and the last."""
    count = len(timeline.memory)
    numbers = range(count) if count == timeline.devices else [*range(count - 1), timeline.devices - 1]
    return list(zip(numbers, timeline.memory, strict=False))
