"""A machine by what a user writes: `local:4`, `2x4`, `p100-cluster:8`, `machines/mine.yaml`."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Protocol

from girih.host import cores_here, memory_here
from girih.machine.file import read_machine
from girih.machine.machine import Device, Level, Machine, Tier, factors, two_axes
from girih.machine.presets import A100, DEVICES, GB, GBIT, Preset, all_presets
from girih.machine.units import MachineError

_SIZES = re.compile(r"\d{1,9}(x\d{1,9})*")
MOST_DEVICES = 4096  # as `benchmarks/many_devices.py` plans for
MOST_PROCESSES = 1024  # of one host
CONTEXT_BYTES = 1 << 30
"""Of a GPU, that CUDA and its libraries take beside all tensors."""
MOST_AXES = 12  # a size of 2 each, and MOST_DEVICES


class Measurements(Protocol):
    """Numbers that were measured of a machine (`girih.cost.profile.Profile`)."""

    def applied(self, where: Machine) -> Machine:
        """The machine with the measured numbers in place of the named ones."""
        ...


def machine(name: str | Machine, profile: Measurements | None = None) -> Machine:
    """A machine by name.

    `local:4`: processes of this host, in a mesh of two axes or, as `local:4:4`, of those behind the colon. `cuda:2`:
    GPUs of this host, by the data sheet of the card. `2x4`: hosts × GPUs with slower links between hosts (`2x4x8` for
    more levels; each number is one mesh axis). A file ending in .yaml or .yml. A preset; after a colon other sizes of
    its levels, from the outermost, separated by slashes, each of one mesh axis or several: `summit:16` has 16 nodes,
    `k80-cluster:4/2/1` four nodes with a GPU at each of two switches, `p2.8xlarge:2x2x2` its 8 GPUs as three axes
    (finer: tensors can be cut along three dimensions; slower to search), `p2.8xlarge:4` four of them. Levels that are
    not named stay; only networks grow.

    profile: measured numbers (`girih.run.calibrate.calibrate`) in place of the named ones.

    Raises:
        MachineError: saying which forms are understood, or what does not fit.
    """
    if not isinstance(name, str | Machine):
        raise MachineError(f"a machine is named by a string such as 'local:4', got {name!r}")
    described = name if isinstance(name, Machine) else _named(name)
    return described if profile is None else profile.applied(described)


def _named(name: str) -> Machine:
    if name.endswith((".yaml", ".yml")):
        return _bounded(read_machine(Path(name)))
    known = all_presets()
    base, colon, sizes = name.partition(":")
    if base in known:
        return _bounded(_with_sizes(known[base], name, sizes)) if colon else known[base].machine
    if match := re.fullmatch(r"local:0*(\d+)(?::(\d{1,4}(?:x\d{1,4})*))?", name):
        here = _local(name, int(match[1]) if len(match[1]) < 10 else MOST_PROCESSES + 1)
        return here if match[2] is None else _on_axes(here, tuple(map(int, match[2].split("x"))))
    if match := re.fullmatch(r"cuda:0*(\d{1,9})", name):
        return _gpus(name, int(match[1]))
    if _SIZES.fullmatch(name):
        return _hosts(name, [int(size) for size in name.split("x")])
    raise MachineError(
        f"no machine {name[:60]!r}: expected local:N (processes of this host), cuda:N (its GPUs), HOSTSxDEVICES such "
        f"as 2x4, a .yaml file, or one of {', '.join(known)}"
    )


def threads_here(workers: int) -> int:
    """Threads of kernels of each of so many workers of this host, where nothing else is said: as many as PyTorch has in
    this thread (`torch.set_num_threads`), or, where it is not loaded, as there are processors, shared among them."""
    torch = sys.modules.get("torch")
    own = cores_here() if torch is None else int(torch.get_num_threads())
    return max(1, own // workers)


def cores_for_copies(workers: int, threads: int) -> bool:
    """Has each worker of this host a core for its copies to files, besides those on which its threads compute?"""
    return workers * (threads + 1) <= cores_here()


def _local(name: str, count: int) -> Machine:
    if count < 1:
        raise MachineError(f"{name!r}: a machine has at least one device")
    if count > MOST_PROCESSES:
        raise MachineError(
            f"{_short(name)!r}: one host is asked for at most {MOST_PROCESSES} processes; "
            "describe several hosts as HOSTSxDEVICES, such as 128x8"
        )
    memory = memory_here() // count
    share = count / cores_here() if cores_for_copies(count, threads_here(count)) else 1.0
    return Machine(
        name,
        Device("CPU process", 30e9, memory, 8e9, 8e-6),
        (Level("loopback", two_axes(count), 1.5e9, 300e-6),),
        "processes of this host; defaults, not calibrated",
        host=Tier("files", memory, 3e9, 3e9, computing_share=share),
    )


def _on_axes(here: Machine, sizes: tuple[int, ...]) -> Machine:
    if prod(sizes) != here.devices or (min(sizes) < 2 and len(sizes) > 1):
        raise MachineError(f"{here.name!r}: axes of {' × '.join(map(str, sizes))} are not {here.devices} processes")
    level = replace(here.levels[0], axes=tuple(size for size in sizes if size > 1))
    return replace(here, levels=(level,))


def _gpus(name: str, count: int) -> Machine:
    """GPUs of this host. What no data sheet says, and every figure of a card that is not known, is an assumption until
    it is calibrated."""
    import torch

    if not torch.cuda.is_available():
        raise MachineError(
            f"{name!r}: PyTorch sees no GPU here: plan for processors of this host, as local:1, or by the data sheet "
            "of a machine elsewhere, as dgx-h100 (girih machines)"
        )
    there = torch.cuda.device_count()
    if not 1 <= count <= there:
        raise MachineError(f"{name!r}: this host has {there} GPU{'s' * (there > 1)}: name cuda:1 to cuda:{there}")
    card = torch.cuda.get_device_properties(0)
    known = [item for key, item in DEVICES.items() if re.search(rf"\b{key}\b", card.name)]
    figures = known[0] if known else A100
    source = f"NVIDIA's data sheet of the {figures.name}" + ("" if known else f", as that of {card.name} is not known")
    device = replace(figures, name=card.name, memory_bytes=card.total_memory - CONTEXT_BYTES)
    return Machine(
        name,
        device,
        (Level("NVLink", two_axes(count), 300e9, 10e-6),),
        f"GPUs of this host: {source}; links and copies to the host's memory are assumptions, not calibrated",
        host=Tier("pinned host memory", memory_here() * 8 // 10 // count, 25 * GB, 25 * GB),
    )


def _hosts(name: str, sizes: list[int]) -> Machine:
    if min(sizes) < 1:
        raise MachineError(f"{name!r}: a machine has at least one device")
    _check_sizes(name, sizes)
    inner = Level("NVLink", (sizes[-1],) if len(sizes) > 1 else two_axes(sizes[-1]), 300e9, 10e-6)
    outer = tuple(Level(f"network {depth}", (size,), 400 * GBIT, 20e-6) for depth, size in enumerate(sizes[:-1]))
    return Machine(name, A100, (*outer, inner), "A100 80 GB data sheet (TF32); NVLink 3, 400 Gbit/s per device")


def _check_sizes(name: str, sizes: list[int] | tuple[int, ...]) -> None:
    if prod(sizes) > MOST_DEVICES or len(sizes) > MOST_AXES:
        raise MachineError(
            f"{_short(name)!r}: plans are made for at most {MOST_DEVICES} devices on at most {MOST_AXES} mesh axes"
        )


def _bounded(item: Machine) -> Machine:
    _check_sizes(item.name, [size for level in item.levels for size in level.axes])
    return item


def _short(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:37]}..."


def _with_sizes(preset: Preset, name: str, text: str) -> Machine:
    """The preset with other sizes of its outer levels."""
    item = preset.machine
    parts = text.split("/")
    if not item.levels:
        raise MachineError(f"{name!r}: {item.name} is one device, without levels: there are no sizes to give")
    if len(parts) > len(item.levels) or not all(_SIZES.fullmatch(part) for part in parts):
        levels = ", ".join(f"{level.name} {_text(level.axes)}" for level in item.levels)
        raise MachineError(
            f"{name!r}: {text!r} are no sizes of {item.name}'s levels ({levels}): "
            f"expected such as {item.name}:{'/'.join(_text(level.axes) for level in item.levels)}"
        )
    changed: list[Level] = []
    for number, (level, part) in enumerate(zip(item.levels, parts, strict=False)):
        sizes = tuple(int(size) for size in part.split("x"))
        asked = replace(level, axes=sizes)
        grows = preset.growing and number == 0
        if asked.parts < 1 or (asked.parts > level.parts and not grows):
            raise MachineError(
                f"{name!r}: {part!r} are no mesh axes of the {level.parts} parts on {level.name}: expected sizes with "
                f"a product from 1 to {level.parts}, such as {_text(factors(level.parts))}"
            )
        changed.append(replace(asked, axes=tuple(size for size in sizes if size > 1)))
    return replace(item, name=name, levels=(*changed, *item.levels[len(changed) :]))


def _text(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes)) or "1"
