"""The Timeline: when each device computed, waited and received in one step, predicted or measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COMPUTE = 0  # the stream of a device's own work; stream 1 + a is receiving over mesh axis a


@dataclass(frozen=True)
class Memory:
    """Bytes in use on one device over time: `bytes[i]` from `seconds[i]` to `seconds[i + 1]`. Exact by liveness."""

    seconds: NDArray[np.float64]
    bytes: NDArray[np.int64]


@dataclass(frozen=True)
class Timeline:
    """Spans of time in one step of a program, by device and stream; begin and end in seconds from the step's start.

    Equal positions in the arrays are one span. step: the position in `program.steps` that the span belongs to.
    streams: names of the streams (`compute`, then the machine's level of each mesh axis). amount: bytes received, for
    spans of transfers, else 0. memory: of each device, where it was followed. measured: by a run, not predicted.
    """

    devices: int
    streams: tuple[str, ...]
    device: NDArray[np.int32]
    stream: NDArray[np.int32]
    step: NDArray[np.int32]
    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    amount: NDArray[np.int64]
    memory: tuple[Memory, ...] = ()
    measured: bool = False

    @property
    def seconds(self) -> float:
        """The makespan: when the last span ends."""
        return float(self.end.max()) if len(self.end) else 0.0

    def busy(self, stream: int = COMPUTE) -> NDArray[np.float64]:
        """Seconds that each device is busy on a stream: [devices]."""
        mine = self.stream == stream
        total = np.bincount(self.device[mine], (self.end - self.begin)[mine], minlength=self.devices)
        return total.astype(np.float64)
