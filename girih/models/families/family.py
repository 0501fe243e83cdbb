"""What the catalogue knows of one kind of model: how its names are read, how it is built, what it is trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from girih.models.batches import BatchDescription

Options = Mapping[str, Any]

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


def no_numbers() -> Options:
    return {}


@dataclass(frozen=True)
class ModelFamily:
    """Names of one kind of model.

    `pattern` is for people: capitals are numbers, brackets what may be left out. `configure` takes the name's
    numbers and returns options of `build`; options left open are those of its signature. `build` and `step` are names,
    in `girih.models` and `girih.models.steps`, so that families can be listed without loading torch.
    """

    name: str
    pattern: str
    examples: tuple[str, ...]
    description: str
    source: str
    build: str = field(repr=False)
    describe_batch: Callable[[Options, int], BatchDescription] = field(repr=False)
    presets: tuple[Preset, ...] = field(repr=False)
    configure: Callable[..., Options] = field(default=no_numbers, repr=False)
    step: str = field(default="classify", repr=False)
    default_batch: Callable[[Options], int] = field(default=constant(FLEXFLOW_BATCH), repr=False)

    @property
    def builder(self) -> Callable[..., Any]:
        """The function that makes the module. Loads torch."""
        builder: Callable[..., Any] = getattr(import_module("girih.models.architectures"), self.build)
        return builder

    @property
    def loss(self) -> Callable[..., Any]:
        """`(model, batch) -> scalar loss`. Loads torch."""
        loss: Callable[..., Any] = getattr(import_module("girih.models.steps"), self.step)
        return loss


def tiny(family: str, **options: Any) -> Preset:
    """The family's smallest sensible model, for tests: ten steps in a second or a few on one CPU."""
    return Preset(f"{family}-tiny", options, TINY_BATCH)
