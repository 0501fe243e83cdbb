"""All ways to keep a memory limit by name: the facade, the command line and the documentation read them here.

A baseline's name stands for the place of a class, which is imported when the baseline is first asked for. A text such
as `chain:stages=32` is a baseline with options, which are the fields of its class.
"""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from girih.memory.baselines.baseline import Baseline

HOLDS: dict[str, str] = {
    "auto": "Whatever of swap and recompute is fastest, operators in pieces too",
    "swap": "Tensors are moved to the large memory behind the device and back in time, in the best order that is found",
    "recompute": "Tensors are dropped and computed again, by minimum cuts and by the optimum for chains",
    "none": "The plan is refused",
}
"""girih's own ways to keep a limit, and what they do."""

BASELINES: dict[str, str] = {
    "odswap": "girih.memory.baselines.swapping.OnDemand",
    "lms": "girih.memory.baselines.activations.LargeModelSupport",
    "vdnn": "girih.memory.baselines.activations.Vdnn",
    "vdnn-conv": "girih.memory.baselines.activations.VdnnConvolutions",
    "layers": "girih.memory.baselines.swapping.LayerByLayer",
    "tensorflowmem": "girih.memory.baselines.swapping.Partitioned",
    "sqrt": "girih.memory.baselines.checkpointing.SquareRoot",
    "chain": "girih.memory.baselines.checkpointing.OptimalChain",
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
    name, colon, options = text.partition(":")
    cls = baseline_class(name)
    known = [item.name for item in fields(cls)]
    changes: dict[str, Any] = {}
    for part in options.split(",") if colon else ():
        option, _, value = part.partition("=")
        if option not in known:
            expected = f"expected one of {', '.join(known)}" if known else "it has none"
            raise ValueError(f"{name} has no option {option!r}: {expected}")
        changes[option] = int(value) if value.isdecimal() and len(value) <= 9 else value[:40]
    return cls(**changes)
