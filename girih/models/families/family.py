"""What the catalogue knows of one kind of model: how its names are read, how it is built, what it is trained on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from girih.models.batches import BatchDescription, images

Options = Mapping[str, Any]

_CAPITALS = re.compile("[A-Z]+")
TINY_BATCH = 8
TOFU = "Wang, Huang, Li, EuroSys 2019 (Tofu), section 7"
FLEXFLOW = "Jia 2020 (thesis; FlexFlow), section 3.7"
SWAPADVISOR = "Huang 2019 (thesis; SwapAdvisor), chapter 5"
SWAPADVISOR_BATCH = 64  # the largest of its figure 5.1 for images
TENSORFLOWMEM = "Wei 2019 (thesis; TensorFlowMem), chapter 6"
FLEXFLOW_BATCH = 64  # samples for one GPU: "a per-GPU batch size of 64 for all DNN benchmarks, except for AlexNet"


@dataclass(frozen=True)
class Preset:
    """A whole name and the options it stands for; `batch` overrules the family's."""

    name: str
    options: Options
    batch: int | None = None


def constant(batch: int) -> Callable[[Options], int]:
    return lambda options: batch


def _image_batch(options: Options, batch: int) -> BatchDescription:
    return images(batch, 3, options["image"], options["classes"])


@dataclass(frozen=True)
class ModelFamily:
    """Names of one kind of model.

    In `pattern`, capitals are numbers, by the names of the options that they are, and brackets hold what may be left
    out; `configure` is there where the numbers say more than that. Options left open are those of the signature of
    `build`. `build` (the family's name, unless it says another) and `step` are names, in `girih.models` and
    `girih.models.steps`, so that families can be listed without loading torch.
    """

    name: str
    pattern: str
    description: str
    presets: tuple[Preset, ...] = field(repr=False)
    source: str = ""
    examples: tuple[str, ...] = ()
    build: str = field(default="", repr=False)
    describe_batch: Callable[[Options, int], BatchDescription] = field(default=_image_batch, repr=False)
    configure: Callable[..., Options] | None = field(default=None, repr=False)
    step: str = field(default="classify", repr=False)
    default_batch: Callable[[Options], int] = field(default=constant(FLEXFLOW_BATCH), repr=False)

    def __post_init__(self) -> None:
        if not self.examples:
            object.__setattr__(self, "examples", (self.name,))

    @property
    def builder(self) -> Callable[..., Any]:
        """The function that makes the module. Loads torch."""
        name = self.build or self.name.replace("-", "_")
        builder: Callable[..., Any] = getattr(import_module("girih.models.architectures"), name)
        return builder

    def options(self, numbers: Sequence[int]) -> Options | None:
        """What a name's numbers stand for; None where the pattern takes fewer, or needs more."""
        keys = [key.lower() for key in _CAPITALS.findall(self.pattern)]
        fewest = len(_CAPITALS.findall(self.pattern.partition("[")[0]))
        if len(numbers) < fewest or (len(numbers) > len(keys) and "…" not in self.pattern):
            return None
        return dict(zip(keys, numbers, strict=False)) if self.configure is None else self.configure(*numbers)

    @property
    def loss(self) -> Callable[..., Any]:
        """`(model, batch) -> scalar loss`. Loads torch."""
        loss: Callable[..., Any] = getattr(import_module("girih.models.steps"), self.step)
        return loss


def heads_of(width: int, head_width: int) -> int:
    if width % head_width:
        raise ValueError(f"the width must be a multiple of {head_width}, the width of a head; got {width}")
    return width // head_width


def sized_by_heads(layers: int, width: int) -> Options:
    """A transformer's layers and width, with heads of 64."""
    return {"layers": layers, "width": width, "heads": heads_of(width, 64)}


def tiny(family: str, **options: Any) -> Preset:
    """The family's smallest sensible model, for tests: ten steps in a second or a few on one CPU."""
    return Preset(f"{family}-tiny", options, TINY_BATCH)
