"""From a command-line name, such as `wresnet-152-10`, to a module, a batch and a training step.

    >>> shown = example("rnn-8-8k", device="meta")
    >>> shown.step(shown.module, shown.inputs).shape
    torch.Size([])

A name is a family's and then numbers (`8k` is 8 × 1024), or a preset (`gpt2-xl`, `llama-8b`, `FAMILY-tiny`).
"""

from __future__ import annotations

import difflib
import inspect
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._guards import detect_fake_mode

from girih.models.batches import Batch, drawn_batch, empty_batch
from girih.models.families import FAMILIES
from girih.models.families.family import ModelFamily, Options
from girih.models.steps import Step

MOST_SIZE = 1 << 20  # of a number in a model's name,
MOST_LAYERS = 4096  # of its layers, its steps and both multiplied: each is modules, or operators of the graph
MOST_BATCH = 10**9


@dataclass(frozen=True)
class Example:
    """A model with something to train it on: `step(module, inputs)` is the scalar loss.

    `inputs` is a dictionary from names to tensors or tuples of tensors; `batch` is their first size.
    """

    name: str
    module: nn.Module
    inputs: Batch
    step: Step
    batch: int
    description: str


def example(
    name: str,
    batch: int | None = None,
    device: str | torch.device = "meta",
    seed: int = 0,
    **overrides: Any,
) -> Example:
    """Builds the named model with a batch of the given size (or the family's own) for it.

    On "meta", or inside `FakeTensorMode`, nothing takes memory. Elsewhere weights and batch are drawn on the
    CPU from `seed`, the same on every device; PyTorch's own random state is left as it was.

    `overrides` are options of the model's constructor: `example("gpt2", sequence=256, vocabulary=50304)`.
    Raises ValueError for a name or an option that is not known.
    """
    family, options, batch = _recipe(name, batch, overrides)
    device = torch.device(device)
    description = family.describe_batch(options, batch)
    if device.type == "meta" or detect_fake_mode() is not None:
        try:
            with device:
                module = family.builder(**options)
            inputs = empty_batch(description, device)
        except RuntimeError as error:  # "Storage size calculation overflowed"
            if "overflow" not in str(error):
                raise
            raise ValueError(f"{name[:60]} is too large: a tensor of it has more than 2^63 bytes") from error
    else:
        with torch.device("cpu"), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            module = family.builder(**options).to(device)
        inputs = drawn_batch(description, seed, device)
    return Example(name, module, inputs, family.loss, batch, family.description)


def random_batch(
    name: str,
    batch: int | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
    **overrides: Any,
) -> Batch:
    """Another batch for the named model, with the right ranges: step *i* of a run may take `seed=i`."""
    family, options, batch = _recipe(name, batch, overrides)
    return drawn_batch(family.describe_batch(options, batch), seed, torch.device(device))


def _recipe(name: str, batch: int | None, overrides: Options) -> tuple[ModelFamily, Options, int]:
    """What a name stands for, before anything is built: family, options of its constructor, size of the batch."""
    family, named_options, named_batch = _read_name(name)
    parameters = inspect.signature(family.builder).parameters
    unknown = sorted(set(overrides) - set(parameters))
    if unknown:
        raise ValueError(f"{name} has no option {', '.join(unknown)}; its options are {', '.join(parameters)}")
    defaults = {key: p.default for key, p in parameters.items() if p.default is not inspect.Parameter.empty}
    options = {**defaults, **named_options, **overrides}
    if batch is None:
        batch = family.default_batch(options) if named_batch is None else named_batch
    if batch < 1:
        raise ValueError(f"a batch has at least one sample; got batch={batch} for {name}")
    if batch > MOST_BATCH:
        raise ValueError(f"a batch has at most {MOST_BATCH} samples; got more for {name}")
    _check_size(name, options)
    return family, options, batch


def _check_size(name: str, options: Options) -> None:
    """Raises ValueError for a model that could not be built in sensible time."""
    sizes = options.get("sizes", ())
    sizes = sizes if isinstance(sizes, tuple) else ()
    numbers = {key: value for key, value in options.items() if isinstance(value, int)}
    layers = numbers.get("layers", 1) * numbers.get("steps", 1)
    depth = max(layers, numbers.get("depth", 1), len(sizes))
    if depth > MOST_LAYERS:
        raise ValueError(
            f"{name[:60]} is too large: its layers times its steps are {depth}, at most {MOST_LAYERS} are built"
        )
    if (largest := max((*numbers.values(), *sizes), default=0)) > MOST_SIZE:
        raise ValueError(f"{name[:60]} is too large: it has a size of {largest}, at most {MOST_SIZE} is built")


def _read_name(name: str) -> tuple[ModelFamily, Options, int | None]:
    """The family, its options and, for a preset that has its own, the batch size."""
    for family in FAMILIES:
        for preset in family.presets:
            if preset.name == name.lower():
                return family, preset.options, preset.batch
    beginning = [family for family in FAMILIES if f"{name.lower()}-".startswith(f"{family.name}-")]
    best = max(beginning, key=lambda family: len(family.name), default=None)
    rest = name.lower().removeprefix(best.name).split("-")[1:] if best is not None else []
    numbers = [_read_number(text) for text in rest]
    if best is None or (None in numbers and _near(name)):
        raise ValueError(_unknown(name))
    options = best.options([number for number in numbers if number is not None]) if None not in numbers else None
    if options is None:
        raise ValueError(f"no model {name!r}: names of this family are {best.pattern}, such as {best.examples[0]}")
    return best, options, None


def _read_number(text: str) -> int | None:
    """`8192` or `8k`; None for anything else."""
    match = re.fullmatch(r"([1-9][0-9]{0,30})(k?)", text)
    return None if match is None else int(match[1]) * (1024 if match[2] else 1)


def _near(name: str) -> str:
    """`: did you mean a or b?`, or nothing."""
    known = [example for family in FAMILIES for example in family.examples]
    known += [preset.name for family in FAMILIES for preset in family.presets]
    near = difflib.get_close_matches(name.lower(), list(dict.fromkeys(known)), n=3, cutoff=0.6)
    return f": did you mean {' or '.join(near)}?" if near else ""


def _unknown(name: str) -> str:
    near = _near(name)
    if near:
        return f"no model {name!r}{near}"
    presets = [preset.name for family in FAMILIES for preset in family.presets if not preset.name.endswith("-tiny")]
    patterns = [family.pattern for family in FAMILIES]
    return f"no model {name!r}; names are {', '.join(patterns + presets)}, and FAMILY-tiny"
