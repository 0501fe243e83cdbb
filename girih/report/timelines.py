"""What is drawn of a timeline: of a large machine only some devices."""

from __future__ import annotations

import numpy as np

from girih.simulate.timeline import Memory, Timeline

MOST_DEVICES = 16  # that are all drawn


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
