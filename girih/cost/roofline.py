"""The roofline, and what measurements make of it.

    seconds = factor(operator) · (launch(kind) + max(operations / flops(kind, operations), bytes / memory(kind, bytes)))

Rates are shares of the device's peaks and depend on the size: small products run at a fraction of the peak, and what
fits into a cache moves faster than memory does. They are fitted for each kind of work by medians of ratios, in turns:
each measurement votes for the term that dominates it. An operator that was measured at several sizes has rates of its
own; others have a factor, which the fewer measurements there are the nearer is to 1. Without measurements the shares
are 1: the plain roofline of a data sheet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from girih.cost.work import Work
from girih.machine.machine import Device
from girih.ops.derive.kinds import CONTRACTIONS, COPY, ELEMENTWISE, VIEW

Floats = NDArray[np.float64]

BYTE_SIZES = (2.0**12, 2.0**16, 2.0**20, 2.0**24, 2.0**28)
"""Where memory rates are fitted: from what the nearest cache holds to what none does."""
OPERATION_SIZES = (1e4, 1e6, 1e8, 1e10)
"""Where arithmetic rates are fitted."""
LEAST_FOR_RATES = 6
"""Measurements of an operator from which it has rates of its own."""
TURNS = 30


@dataclass(frozen=True)
class Rates:
    """The rates of one kind of work. launch_seconds: of the smallest call. flops, memory: (size, share of the device's
    peak), between which logarithms are interpolated. measurements: how many it was fitted to."""

    launch_seconds: float
    flops: tuple[tuple[float, float], ...]
    memory: tuple[tuple[float, float], ...]
    measurements: int


@dataclass(frozen=True)
class Error:
    """How far predictions are off on the measurements that they were fitted to: |predicted / measured - 1|."""

    median: float
    largest: float
    measurements: int


@dataclass(frozen=True)
class Roofline:
    """Seconds by work for a device, whose peaks are measured where `rates` were fitted.

    rates: by operator or kind; what has none takes the plain roofline. factors: by operator, 1 where there is none.
    """

    device: Device
    rates: tuple[tuple[str, Rates], ...] = ()
    factors: tuple[tuple[str, float], ...] = ()
    error: Error | None = None

    def seconds(self, works: Sequence[Work]) -> Floats:
        """Estimates, [works]. Views take their launch, which is nothing in the plain roofline."""
        operations = np.asarray([work.operations for work in works], float)
        sizes = np.asarray([work.bytes for work in works], float)
        peaks = np.asarray([self.device.flops(work.dtype) for work in works], float)
        rates, factors = dict(self.rates), dict(self.factors)
        groups: dict[str, list[int]] = {}
        for number, work in enumerate(works):
            groups.setdefault(work.operator if work.operator in rates else work.kind, []).append(number)
        seconds = np.zeros(len(works))
        for name, members in groups.items():
            rate = rates.get(name) or (None if name == VIEW else _plain(self.device))
            if rate is not None:
                seconds[members] = _predict(rate, self.device, operations[members], sizes[members], peaks[members])
        seconds *= np.asarray([factors.get(work.operator, 1.0) for work in works])
        return seconds

    def of_operator(self, kind: str, operator: str, operations: Floats, sizes: Floats, dtype: str) -> Floats:
        """The same of calls of one operator, in arrays of any shape."""
        rates = dict(self.rates)
        name = operator if operator in rates else kind
        if name == VIEW and name not in rates:
            return np.zeros(operations.shape)
        rate, factor = rates.get(name, _plain(self.device)), dict(self.factors).get(operator, 1.0)
        return _predict(rate, self.device, operations, sizes, self.device.flops(dtype)) * factor

    def calibrated(self, work: Work) -> bool:
        """Do measurements speak of this operator or of its kind?"""
        return any(name in (work.operator, work.kind) for name, _ in self.rates)

    def on(self, device: Device) -> Roofline:
        """The same shares on another device: its peaks and its launch; of the memory rates that of the largest size,
        because the other's caches are others."""
        moved = tuple(
            (kind, replace(item, launch_seconds=device.launch_seconds, memory=item.memory[-1:]))
            for kind, item in self.rates
        )
        return Roofline(device, moved, self.factors)


def _plain(device: Device) -> Rates:
    return Rates(device.launch_seconds, ((1.0, 1.0),), ((1.0, 1.0),), 0)


def _share(table: tuple[tuple[float, float], ...], sizes: Floats) -> Floats:
    at, share = np.asarray(table).T
    logs = np.interp(np.log(np.maximum(sizes, 1.0)), np.log(at), np.log(share))
    shares: Floats = np.exp(logs)
    return shares


def _predict(rates: Rates, device: Device, operations: Floats, sizes: Floats, peaks: Floats | float) -> Floats:
    arithmetic = operations / (peaks * _share(rates.flops, operations))
    traffic = sizes / (device.memory_bytes_per_second * _share(rates.memory, sizes))
    seconds: Floats = rates.launch_seconds + np.maximum(arithmetic, traffic)
    return seconds


# ------------------------------------------------------------------------------------------- fitting


def fit(samples: Iterable[tuple[Work, float]], device: Device) -> Roofline:
    """A roofline from (work, measured seconds); `device` names the device and gives what was not measured.

    Peaks: the best arithmetic rate of products, and the rate at which the largest element-wise operators and copies
    run through memory. Cost: linear in the samples.
    """
    known = [(work, seconds) for work, seconds in samples if seconds > 0]
    if not known:
        return Roofline(device)
    device = _measured_device(known, device)
    rates = []
    for kind in sorted({work.kind for work, _ in known}):
        mine = [(work, seconds) for work, seconds in known if work.kind == kind]
        rates.append((kind, _fit_kind(kind, mine, device)))
    works, measured = [work for work, _ in known], np.asarray([seconds for _, seconds in known])
    ratios = np.log(measured / Roofline(device, tuple(rates)).seconds(works))
    factors = []
    for operator in sorted({work.operator for work in works}):
        chosen = [number for number, work in enumerate(works) if work.operator == operator and work.kind != VIEW]
        if len(chosen) >= LEAST_FOR_RATES:
            rates.append((operator, _fit_kind(works[chosen[0]].kind, [known[number] for number in chosen], device)))
        elif chosen:
            weight = len(chosen) / (len(chosen) + 1)
            factors.append((operator, float(np.exp(weight * np.median(ratios[chosen])))))
    fitted = Roofline(device, tuple(rates), tuple(factors))
    wrong = np.abs(fitted.seconds(works) / measured - 1)
    return replace(fitted, error=Error(float(np.median(wrong)), float(wrong.max()), len(known)))


def _measured_device(samples: Sequence[tuple[Work, float]], device: Device) -> Device:
    products = [work.operations / seconds for work, seconds in samples if work.kind in CONTRACTIONS]
    streams = sorted(
        (work.bytes, work.bytes / seconds)
        for work, seconds in samples
        if work.kind in (ELEMENTWISE, COPY) and work.bytes
    )
    largest = [rate for size, rate in streams if size >= streams[-1][0] / 4]
    launches = [seconds for work, seconds in samples if work.kind != VIEW]
    return replace(
        device,
        flops_per_second=max(products, default=device.flops_per_second),
        memory_bytes_per_second=float(np.median(largest)) if largest else device.memory_bytes_per_second,
        launch_seconds=min(launches, default=device.launch_seconds),
        rates=(),  # what was measured does not tell dtypes apart: shares of the best of all
    )


def _fit_kind(kind: str, samples: Sequence[tuple[Work, float]], device: Device) -> Rates:
    """Rates of one kind: in turns, each sample is counted to the term that dominates it, and each term is the median
    of its samples."""
    operations = np.asarray([work.operations for work, _ in samples])
    sizes = np.asarray([work.bytes for work, _ in samples])
    seconds = np.asarray([item for _, item in samples])
    launch = float(seconds.min())
    if kind == VIEW or not (operations.any() or sizes.any()):
        return Rates(float(np.median(seconds)), ((1.0, 1.0),), ((1.0, 1.0),), len(samples))
    counts_operations = kind in CONTRACTIONS
    flops = _Term(operations if counts_operations else np.zeros(len(samples)), OPERATION_SIZES, seconds, 0.0)
    # Products may all be bound by arithmetic: their memory is then the device's.
    memory = _Term(sizes, BYTE_SIZES, seconds, device.memory_bytes_per_second if counts_operations else 0.0)
    for _ in range(TURNS):
        arithmetic, traffic = flops.seconds(), memory.seconds()
        work = np.maximum(arithmetic, traffic)
        rest = np.maximum(seconds - launch, 0.1 * seconds)
        small = work < launch
        flops.learn(~small & (arithmetic >= traffic), rest)
        memory.learn(~small & (traffic > arithmetic), rest)
        if small.any():
            launch = float(np.median(np.maximum(seconds - work, 0.3 * seconds)[small]))
    return Rates(
        launch,
        flops.shares(device.flops_per_second) if counts_operations else ((1.0, 1e6),),
        memory.shares(device.memory_bytes_per_second),
        len(samples),
    )


class _Term:
    """Amounts and the rates at which they are done, by size: each sample belongs to the nearest size.

    least: the first guess of the rate, if no sample is faster.
    """

    def __init__(self, amounts: Floats, sizes: tuple[float, ...], seconds: Floats, least: float) -> None:
        self.amounts = amounts
        self.sizes = sizes
        distances = np.abs(np.log(np.maximum(amounts, 1.0))[:, None] - np.log(np.asarray(sizes))[None])
        self.nearest = distances.argmin(axis=1)
        busy = amounts > 0
        best = float(np.max(amounts[busy] / seconds[busy])) if busy.any() else 1.0
        self.rates = np.full(len(sizes), max(best, least))
        self.known = np.zeros(len(sizes), bool)

    def table(self) -> tuple[tuple[float, float], ...]:
        """Rates at the sizes of which something is known, or the best rate."""
        return tuple(
            (size, float(rate)) for size, rate, known in zip(self.sizes, self.rates, self.known, strict=True) if known
        ) or ((1.0, float(self.rates.max())),)

    def seconds(self) -> Floats:
        seconds: Floats = self.amounts / _share(self.table(), self.amounts)
        return seconds

    def learn(self, mine: NDArray[np.bool_], rest: Floats) -> None:
        for number in range(len(self.sizes)):
            here = mine & (self.nearest == number) & (self.amounts > 0)
            if here.any():
                self.rates[number] = float(np.median(self.amounts[here] / rest[here]))
                self.known[number] = True

    def shares(self, peak: float) -> tuple[tuple[float, float], ...]:
        return tuple((size, rate / peak) for size, rate in self.table())
