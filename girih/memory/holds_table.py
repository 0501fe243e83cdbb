"""All ways to keep a memory limit by name: the facade, the command line and the documentation read them here.

A baseline's name stands for the place of a class, which is imported when the baseline is first asked for. A text such
as `chain:stages=32` is a baseline with options, which are the fields of its class.
"""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING

from girih.memory.options import named, read

if TYPE_CHECKING:
    from girih.memory.holds import Baseline

HOLDS: dict[str, str] = {
    "auto": "Whatever of swap and recompute is fastest, operators in pieces too",
    "swap": "Tensors are moved to the large memory behind the device and back in time, in the best order that is found",
    "recompute": "Tensors are dropped and computed again, by minimum cuts and by the optimum for chains",
    "none": "The plan is refused",
}
"""girih's own ways to keep a limit, and what they do."""

BASELINES: dict[str, str] = {
    "odswap": "girih.published.memory.swapping.OnDemand",
    "lms": "girih.published.memory.activations.LargeModelSupport",
    "vdnn": "girih.published.memory.activations.Vdnn",
    "vdnn-conv": "girih.published.memory.activations.VdnnConvolutions",
    "layers": "girih.published.memory.swapping.LayerByLayer",
    "tensorflowmem": "girih.published.memory.swapping.Partitioned",
    "sqrt": "girih.published.memory.checkpointing.SquareRoot",
    "chain": "girih.published.memory.checkpointing.OptimalChain",
}


def baseline_class(name: str) -> type[Baseline]:
    """The class of the baseline of this name.

    Raises:
        ValueError: there is none.
    """
    if name not in BASELINES:
        raise ValueError(f"no baseline {name!r}: expected one of {', '.join(BASELINES)}")
    module, _, cls = BASELINES[name].rpartition(".")
    baseline: type[Baseline] = getattr(import_module(module), cls)
    return baseline


def baseline_of(text: str | Baseline) -> Baseline:
    """The baseline that a text names, with its options, or as it is.

    Raises:
        ValueError: there is no such baseline or option, or the option cannot be so.
    """
    if not isinstance(text, str):
        return text
    name, pairs = named(text)
    cls = baseline_class(name)
    return cls(**read(pairs, name, {item.name: ("a number or a word", _number_or_word) for item in fields(cls)}))


def _number_or_word(text: str) -> int | str:
    """Which of both it may be, the class says."""
    return int(text) if text.isdecimal() and len(text) <= 9 else text[:40]
