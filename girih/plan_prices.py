"""What each step of a program takes on each device by itself: measured where it was, by a roofline elsewhere.

Every different call is priced once: from the store of costs, else by the roofline that was fitted to measurements of
this machine (or of another, scaled to this one's peaks), else by the plain roofline of the machine's data sheet. Of
transfers the devices' own work is priced, packing, placing and combining, at the measured rates of copies.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from girih.layout import level_volumes
from girih.lower import Message, Program, StartStep, TransferStep
from girih.lower.strides import contiguous_strides, is_contiguous
from girih.machine import Machine
from girih.machine.costs import Setting, Store
from girih.machine.profile import RING, Profile, load_profile
from girih.machine.roofline import Roofline
from girih.machine.sizes import SizeTable
from girih.run.local_calls import NOTHING, LocalCalls, local_calls
from girih.simulate.prices import Prices, Seconds

MEASURED, CALIBRATED, PRESET = "measured", "calibrated", "preset"
SOURCES = (MEASURED, CALIBRATED, PRESET)  # from the best to the worst
MOST_DEVICES = 64
"""On more devices the messages of transfers are not written down one by one: everything counts as packed and placed."""


@dataclass(frozen=True)
class Priced:
    """Prices, and for how many compute steps they come from which source: of each step the worst of its devices'."""

    prices: Prices
    sources: dict[str, int]


def price(
    program: Program,
    machine: Machine,
    *,
    store: Store | None = None,
    profile: Profile | None = None,
    threads: int = 0,
) -> Priced:
    """Price a program's steps.

    store: measured costs; those count that were measured in the profile's setting. profile: default the store's newest
    of this machine, with so many `threads` of each worker if that is given. A profile of another machine lends its
    efficiencies. Cost: linear in steps · devices, and a little for each different call and transfer.
    """
    if profile is None and store is not None:
        where: dict[str, str | int] = {"threads": threads} if threads else {}
        profile = load_profile(store, machine.name, where=where)
    here = profile is not None and profile.machine == machine.name
    setting = profile.setting if profile is not None and here else _setting_here(store, machine, threads)
    calls = local_calls(program)
    seconds, sources = _calls(calls, machine, store, setting, profile)
    before = np.zeros(calls.numbers.shape)
    after = np.zeros(calls.numbers.shape)
    if len(seconds):
        before = np.where(calls.numbers == NOTHING, 0.0, seconds[calls.numbers])
    work = TransferWork(program, calls.scattered, Copies.of(machine, profile if here else None))
    for position, step in enumerate(program.steps):
        if isinstance(step, StartStep):
            before[position] = work.of(step.transfer)[0]
        elif isinstance(step, TransferStep):
            before[position], after[position] = work.of(step)
    worst = np.where(calls.numbers == NOTHING, -1, sources[calls.numbers] if len(sources) else -1).max(axis=1)
    counts = Counter(worst.tolist())
    return Priced(Prices(before, after), {name: counts[number] for number, name in enumerate(SOURCES)})


def _setting_here(store: Store | None, machine: Machine, threads: int) -> Setting | None:
    """What was measured on this host counts for its processes, without a profile too."""
    if store is None or not machine.name.startswith("local:"):
        return None
    from girih.run.calibrate import setting_of, threads_of

    return setting_of(threads or threads_of(machine.devices), machine.devices)


def _calls(
    calls: LocalCalls, machine: Machine, store: Store | None, setting: Setting | None, profile: Profile | None
) -> tuple[Seconds, NDArray[np.int8]]:
    """(seconds, number of the source) of each call."""
    roofline = Roofline(machine.device)
    if profile is not None:
        same = profile.machine == machine.name
        roofline = profile.roofline if same else profile.roofline.on(machine.device)
    seconds = roofline.seconds([call.work for call in calls.calls])
    sources = np.asarray([1 if roofline.calibrated(call.work) else 2 for call in calls.calls], np.int8)
    if store is not None and setting is not None:
        known = store.measured(setting, calls.calls)
        for number, call in enumerate(calls.calls):
            if (found := known.get(call.key)) is not None:
                seconds[number], sources[number] = found.seconds, 0
    return seconds, sources


# ------------------------------------------------------------------------------------------- transfers


@dataclass(frozen=True)
class Copies:
    """copy, combine: seconds for so many bytes. each: seconds for each message or piece, however small.
    packs: must what is sent lie in one run? carry: what a message takes, where the workers' own cores carry it;
    sending: which share of that the sender has, before the receiver has the rest."""

    copy: SizeTable
    combine: SizeTable
    each: float
    packs: bool
    carry: SizeTable | None = None
    sending: float = 0.5

    @staticmethod
    def of(machine: Machine, profile: Profile | None) -> Copies:
        device = machine.device
        if profile is not None:
            threads = profile.backend == "threads"  # where the receiver alone copies
            carry = profile.link(RING) if profile.carried else None
            each = profile.device.launch_seconds
            return Copies(profile.copy, profile.combine, each, not threads, carry, 0.0 if threads else 0.5)
        size = 1 << 20
        rate = device.memory_bytes_per_second
        copy = SizeTable.of([(1, 2 / rate), (size, 2 * size / rate)])  # read and written
        combine = SizeTable.of([(1, 3 / rate), (size, 3 * size / rate)])
        return Copies(copy, combine, device.launch_seconds, True)


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
                pairs = [self.by_messages(step, item, rank, scattered) for rank in range(self.program.mesh.devices)]
                both = np.asarray(pairs)
                self.known[key] = both[:, 0], both[:, 1]
        return self.known[key]

    def by_messages(self, step: TransferStep, item: int, rank: int, scattered: bool) -> tuple[float, float]:
        """What `girih.run.transfers` does on one device, message by message."""
        messages = self.program.messages_of(step, rank)
        reduces = self.program.terms_of(step) > 1
        held = _strides(step.before.regions[rank])
        goal = _strides(step.after.regions[rank])
        packs, carry = self.copies.packs, self.copies.carry
        packed: set[object] = set()
        packing, copied, combined, sent, received = [], [], [], [], []
        count = 0
        for message in messages:
            size = message.elements * item
            if message.target != rank:
                count += 1
                sent.append(size)
                if packs and (scattered or not _run(message, held)) and message.box not in packed:
                    packed.add(message.box)
                    packing.append(size)
                continue
            if message.source != rank:
                received.append(size)
            if reduces and message.term > 0:
                combined.append(size)
            elif reduces or message.source == rank or (not _run(message, goal) if packs else carry is None):
                copied.append(size)
        before = float(self.copies.copy.of_sizes(np.asarray(packing, float)).sum())
        after = float(self.copies.copy.of_sizes(np.asarray(copied, float)).sum())
        after += float(self.copies.combine.of_sizes(np.asarray(combined, float)).sum())
        if carry is not None:
            before += self.copies.sending * float(carry.of_sizes(np.asarray(sent, float)).sum())
            after += (1 - self.copies.sending) * float(carry.of_sizes(np.asarray(received, float)).sum())
        return before + count * self.copies.each, after + len(messages) * self.copies.each

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
        before = self.copies.copy.of_sizes(received) + busy  # as much is sent as is received
        copied = wanted if terms > 1 else received + home
        after = self.copies.copy.of_sizes(copied) + busy
        after += self.copies.combine.of_sizes(np.maximum(received + home - copied, 0.0))
        return before, after


def _strides(region: NDArray[np.int64]) -> tuple[int, ...]:
    return contiguous_strides(tuple(int(stop - start) for start, stop in region))


def _run(message: Message, strides: tuple[int, ...]) -> bool:
    """Does the message's box lie in one run of a contiguous buffer?"""
    return is_contiguous(tuple(stop - start for start, stop in message.box), strides)
