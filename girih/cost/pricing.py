"""What each step of a program takes on each device by itself: measured where it was, by a roofline elsewhere.

Every different call is priced once: from the store of costs, else by the roofline that was fitted to measurements of
this machine (or of another, scaled to this one's peaks), else by the plain roofline of the machine's data sheet. Of
transfers the devices' own work is priced, packing, placing and combining, at the measured rates of copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from girih.cost.calls import Call
from girih.cost.device_calls import NOTHING, local_calls
from girih.cost.prices import Prices, Seconds
from girih.cost.profile import RING, Profile, load_profile
from girih.cost.shares import data_sheet_roofline
from girih.cost.store import Measurement, Setting, Store
from girih.cost.work import Work
from girih.layout import level_volumes
from girih.machine import Machine
from girih.machine.sizes import SizeTable
from girih.program import Program, StartStep, TransferStep
from girih.program.exchange import MessageArrays, message_arrays

MEASURED, CALIBRATED, PRESET = "measured", "calibrated", "preset"
SOURCES = (MEASURED, CALIBRATED, PRESET)  # from the best to the worst
MOST_DEVICES = 64
"""On more devices the messages of transfers are not written down one by one: everything counts as packed and placed."""


@dataclass(frozen=True)
class Priced:
    """Prices, and for how many compute steps they come from which source: of each step the worst of its devices'."""

    prices: Prices
    sources: dict[str, int]


class Pricing:
    """What calls, and the work of transfers, take on the devices of one machine.

    store: measured costs; those count that were measured in the profile's setting, and none is read later. profile:
    default the store's newest of this machine, with so many `threads` of each worker if that is given. A profile of
    another machine lends its efficiencies.
    """

    def __init__(
        self, machine: Machine, *, store: Store | None = None, profile: Profile | None = None, threads: int = 0
    ) -> None:
        if profile is None and store is not None:
            where: dict[str, str | int] = {"threads": threads} if threads else {}
            profile = load_profile(store, machine.name, where=where)
        here = profile is not None and profile.is_of(machine.name)
        setting = profile.setting if profile is not None and here else _setting_here(store, machine, threads)
        self.known = {} if store is None or setting is None else store.every(setting)
        self.rooflines = [data_sheet_roofline(kind) for kind in machine.kinds]
        self.calibrated = profile is not None
        if profile is not None:
            self.rooflines = [profile.roofline if here else profile.roofline.on(kind) for kind in machine.kinds]
        self.kind_of_device = machine.kind_of_device if machine.groups else 0
        self.copies = Copies.of(machine, profile if here else None)

    def calls(self, calls: Sequence[Call]) -> tuple[Seconds, NDArray[np.int8]]:
        """(seconds on each kind of device, number of the source) of each call: [calls, kinds] and [calls]."""
        fitted = [self.calibrated and self.rooflines[0].calibrated(call.work) for call in calls]
        sources = np.asarray([1 if here else 2 for here in fitted], np.int8)
        if self.known:
            sources[[number for number, call in enumerate(calls) if self.measured(call) is not None]] = 0
        return self.of(calls), sources

    def of(self, items: Sequence[Call | Work]) -> Seconds:
        """Seconds of calls, all of them, or of the work of calls of which nothing was measured: [items, kinds]."""
        works = [item if isinstance(item, Work) else item.work for item in items]
        seconds = np.stack([roofline.seconds(works) for roofline in self.rooflines], axis=1)
        if self.known:
            for number, item in enumerate(items):
                if isinstance(item, Call) and (measured := self.measured(item)) is not None:
                    seconds[number] = measured.seconds
        return seconds

    def measured(self, call: Call) -> Measurement | None:
        """What was measured of a call; of one that is written over an operand perhaps with a result of its own."""
        return self.known.get(call.key) or self.known.get(call.apart)

    def on_devices(self, seconds: Seconds, numbers: NDArray[np.integer]) -> Seconds:
        """[…, devices]: what each device takes for the call with its number. seconds: of calls, as of `of`."""
        if not len(seconds):
            return np.zeros(numbers.shape)
        on_each: Seconds = np.where(numbers == NOTHING, 0.0, seconds[numbers, self.kind_of_device])
        return on_each


def handed_bytes(program: Program) -> float:
    """The largest share of a step's batch that a driver hands one device, in bytes."""
    handed = np.zeros(program.mesh.devices)
    for item in program.graph.inputs:
        if item.role == "batch":
            regions = program.places[item.name].regions
            handed += (regions[..., 1] - regions[..., 0]).prod(axis=-1) * program.graph.values[item.name].item_bytes
    return max(float(handed.max()), 1.0)


def most_instructions(program: Program) -> int:
    """How many instructions a step has for the worker that has the most of them."""
    return max(len(program.order_of(rank)) for rank in range(program.mesh.devices))


def driver_seconds(program: Program, profile: Profile | None) -> float:
    """What a step takes besides its instructions, where that was measured; else 0."""
    if profile is None or profile.handing is None:
        return 0.0
    return profile.handing.seconds(handed_bytes(program)) + profile.besides * most_instructions(program)


def price(
    program: Program,
    machine: Machine,
    *,
    store: Store | None = None,
    profile: Profile | None = None,
    threads: int = 0,
) -> Priced:
    """Price a program's steps; store, profile, threads: as of `Pricing`.

    Cost: linear in steps · devices, and a little for each different call and transfer.
    """
    pricing = Pricing(machine, store=store, profile=profile, threads=threads)
    calls = local_calls(program, over=bool(pricing.known))
    seconds, sources = pricing.calls(calls.calls)
    before = pricing.on_devices(seconds, calls.numbers)
    after = np.zeros(calls.numbers.shape)
    for position, members in calls.groups.items():
        before[position] = sum(pricing.on_devices(seconds, row) for row in members)
    work = TransferWork(program, calls.scattered, pricing.copies)
    for position, step in enumerate(program.steps):
        if isinstance(step, StartStep) and isinstance(step.transfer, TransferStep):
            before[position] = work.of(step.transfer)[0]
        elif isinstance(step, TransferStep):
            before[position], after[position] = work.of(step)
    worst = np.where(calls.numbers == NOTHING, -1, sources[calls.numbers] if len(sources) else -1).max(axis=1)
    counts = Counter(worst.tolist())
    return Priced(Prices(before, after), {name: counts[number] for number, name in enumerate(SOURCES)})


def _setting_here(store: Store | None, machine: Machine, threads: int) -> Setting | None:
    """What was measured on this host counts for its processes and its GPUs, without a profile too."""
    if store is None or not (machine.here or machine.on_gpus):
        return None
    from girih.cost.setting import setting_of, threads_of

    device = "cuda" if machine.on_gpus else "cpu"
    return setting_of(threads or threads_of(machine.devices), machine.devices, device)


# ------------------------------------------------------------------------------------------- transfers


@dataclass(frozen=True)
class Copies:
    """copy, combine: seconds for so many bytes. each: seconds for each message or piece, however small.
    slower: by what factor a device copies and combines slower than that. Both of every device, [devices], or of all.
    packs: must what is sent lie in one run? carry: what a message takes, where the workers' own cores carry it;
    sending: which share of that the sender has, before the receiver has the rest."""

    copy: SizeTable
    combine: SizeTable
    each: NDArray[np.float64] | float
    slower: NDArray[np.float64] | float
    packs: bool
    carry: SizeTable | None = None
    sending: float = 0.5

    @staticmethod
    def of(machine: Machine, profile: Profile | None) -> Copies:
        device = machine.device
        if profile is not None:
            threads = profile.one_process  # where the receiver alone copies
            carry = profile.link(RING) if profile.carried else None
            each = profile.device.launch_seconds
            return Copies(profile.copy, profile.combine, each, 1.0, not threads, carry, 0.0 if threads else 0.5)
        size = 1 << 20
        rate = device.memory_bytes_per_second
        copy = SizeTable.of([(1, 2 / rate), (size, 2 * size / rate)])  # read and written
        combine = SizeTable.of([(1, 3 / rate), (size, 3 * size / rate)])
        if not machine.groups:
            return Copies(copy, combine, device.launch_seconds, 1.0, True)
        slower = rate / machine.figures("memory_bytes_per_second")
        return Copies(copy, combine, machine.figures("launch_seconds"), slower, True)


class TransferWork:
    """What devices do themselves in transfers; equal transfers are priced once."""

    def __init__(self, program: Program, scattered: frozenset[str], copies: Copies) -> None:
        self.program = program
        self.scattered = scattered
        self.copies = copies
        self.known: dict[object, tuple[Seconds, Seconds]] = {}

    def of(self, step: TransferStep) -> tuple[Seconds, Seconds]:
        """(before, after) of each device: [devices]."""
        return self.priced(step, step.source in self.scattered)

    def priced(self, step: TransferStep, scattered: bool) -> tuple[Seconds, Seconds]:
        """The same of a source that lies in one run of memory, or does not."""
        item = self.program.graph.values[step.value].item_bytes
        key = (
            step.before.regions.tobytes(), step.before.partial, step.after.regions.tobytes(), step.after.partial, item,
            scattered,
        )  # fmt: skip
        if key not in self.known:
            if self.program.mesh.devices > MOST_DEVICES:
                self.known[key] = self.by_volumes(step, item)
            else:
                self.known[key] = self.by_messages(step, item, scattered)
        return self.known[key]

    def by_messages(self, step: TransferStep, item: int, scattered: bool) -> tuple[Seconds, Seconds]:
        """What `girih.run.worker.transfers` does on each device, message by message."""
        messages = message_arrays(self.program.mesh, step.before, step.after)
        packs, carry = self.copies.packs, self.copies.carry
        sizes = messages.extents.prod(axis=1) * float(item)
        away = messages.source != messages.target
        reduced = self.program.terms_of(step) > 1
        combines = (messages.term > 0) & reduced
        if reduced:
            copies = ~combines
        else:
            copies = ~away | (~_runs(messages, step.after.regions[messages.target]) if packs else carry is None)
        parted = away & (scattered | ~_runs(messages, step.before.regions[messages.source])) & packs
        packing = _different(messages, np.flatnonzero(parted))
        sending = _OnDevices(messages.source, sizes, self.program.mesh.devices)
        getting = _OnDevices(messages.target, sizes, self.program.mesh.devices)
        before = sending.seconds(self.copies.copy, packing) * self.copies.slower
        after = getting.seconds(self.copies.copy, copies) + getting.seconds(self.copies.combine, combines)
        after *= self.copies.slower
        if carry is not None:
            before += self.copies.sending * sending.seconds(carry, away)
            after += (1 - self.copies.sending) * getting.seconds(carry, away)
        sent = sending.count(away)
        return before + sent * self.copies.each, after + (sent + getting.count()) * self.copies.each

    def by_volumes(self, step: TransferStep, item: int) -> tuple[Seconds, Seconds]:
        """The same for many devices at once, as if everything had to be packed and placed."""
        source, target = step.before.regions, step.after.regions
        low = np.maximum(source[..., 0], target[..., 0])
        high = np.minimum(source[..., 1], target[..., 1])
        home = np.maximum(high - low, 0).prod(axis=1) * float(item)
        wanted = (target[..., 1] - target[..., 0]).prod(axis=1) * float(item)
        received = level_volumes(self.program.mesh, step.before, step.after).sum(axis=1) * float(item)
        terms = self.program.terms_of(step)
        busy = (received > 0) * self.copies.each
        before = self.copies.copy.of_sizes(received) * self.copies.slower + busy  # as much is sent as is received
        copied = wanted if terms > 1 else received + home
        after = self.copies.copy.of_sizes(copied) * self.copies.slower + busy
        after += self.copies.combine.of_sizes(np.maximum(received + home - copied, 0.0)) * self.copies.slower
        return before, after


class _OnDevices:
    """What messages take on the devices that handle them. device, sizes in bytes: of each message."""

    def __init__(self, device: NDArray[np.int64], sizes: NDArray[np.float64], devices: int) -> None:
        self.device = device
        self.sizes = sizes
        self.devices = devices

    def seconds(self, table: SizeTable, which: NDArray[np.int64] | NDArray[np.bool_]) -> Seconds:
        """[devices]: of some of the messages."""
        sums = np.bincount(self.device[which], table.of_sizes(self.sizes[which]), self.devices)
        return sums.astype(np.float64)  # of no messages they are integers

    def count(self, which: NDArray[np.bool_] | slice = slice(None)) -> NDArray[np.int64]:
        """[devices]: how many of them."""
        return np.bincount(self.device[which], minlength=self.devices)


def _runs(messages: MessageArrays, regions: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Does a message lie in one run of a contiguous buffer of its region? regions: [messages, dimensions, 2]"""
    extents = messages.extents
    good = np.ones(len(extents), np.bool_)
    run, stride = np.ones(len(extents), np.int64), np.ones(len(extents), np.int64)
    for dimension in range(extents.shape[1] - 1, -1, -1):
        good &= (extents[:, dimension] == 1) | (run == stride)
        run *= extents[:, dimension]
        stride *= np.maximum(regions[:, dimension, 1] - regions[:, dimension, 0], 1)
    return good


def _different(messages: MessageArrays, which: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first message of each sender with each box, among some messages: what is packed once."""
    if not len(which):
        return which
    from girih.layout import kernels

    rows = np.column_stack([messages.source[which], messages.box[which].reshape(len(which), -1)])
    _, firsts = kernels.distinct_rows(rows)
    first: NDArray[np.int64] = which[firsts]
    return first
