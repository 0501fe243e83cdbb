"""Programs by name (a model of `girih models`, or `file.py:function` of the user's own), and batches for them."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from girih.capture.errors import CaptureError
from girih.cli.arguments import did_you_mean
from girih.plans.inputs import flatten_batch

if TYPE_CHECKING:
    from girih.plans.plan import Plan


class ProgramError(ValueError):
    """A name that means no program; the message says what names there are."""


@dataclass(frozen=True)
class NamedProgram:
    """A step and an example batch; `name` finds it again (`wresnet-50-2@32` has batches of 32)."""

    name: str
    step: Any
    batch: Any


def is_file(name: str) -> bool:
    """Does the name mean a program of the user's own, in a file?"""
    return name.endswith(".py") or name.rpartition(":")[0].endswith(".py")


def program(name: str, batch: int | None = None, optimizer: str | None = None, device: str = "meta") -> NamedProgram:
    """The program that a name means. batch, optimizer: of a model by name; None: the model's, and momentum.

    Raises:
        ProgramError: for unknown models, files that are not there, functions that fail or return something else, and
            for a batch or an optimizer beside a file, whose function makes its own.
    """
    path, colon, function = name.rpartition(":")
    if colon and path.endswith(".py"):
        for option, value in (("--batch", batch), ("--optimizer", optimizer)):
            if value is not None:
                raise ProgramError(f"{option} {value} is for models by name: {name} makes its own, change it there")
        return _from_file(name, Path(path), function)
    if name.endswith(".py"):
        raise ProgramError(f"{name}: say which function makes the step and the batch, as {name}:training")
    if colon:
        raise ProgramError(f"no program {name!r}: expected the name of a model, or file.py:function")
    return _from_catalogue(name, batch, optimizer or "momentum", device)


def _from_catalogue(name: str, batch: int | None, optimizer: str, device: str) -> NamedProgram:
    from girih.capture import TrainingStep
    from girih.models import example

    base, at, size = name.partition("@")
    if at and not (size.isdecimal() and len(size) < 30):
        raise ProgramError(f"no batch {size!r} in {name!r}: expected a whole number, as in {base}@32")
    try:
        example_model = example(base, batch=batch if batch is not None or not at else int(size), device=device)
    except (ValueError, RuntimeError, OverflowError, TypeError) as error:
        # PyTorch says the same of sizes that are too large in several ways and lines.
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ProgramError(said if isinstance(error, ValueError) else f"{name} cannot be built: {said}") from error
    step = TrainingStep(
        example_model.module, step=example_model.step, optimizer=_optimizer(optimizer, example_model.module)
    )
    return NamedProgram(f"{base}@{example_model.batch}", step, example_model.inputs)


def _optimizer(name: str, module: Any) -> Any:
    import torch

    kinds = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
        "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
        "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-2),
        "adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
        "adamax": lambda p: torch.optim.Adamax(p, lr=2e-3),
        "radam": lambda p: torch.optim.RAdam(p, lr=1e-3),
        "nadam": lambda p: torch.optim.NAdam(p, lr=2e-3),
        "asgd": lambda p: torch.optim.ASGD(p, lr=0.01),
        "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
        "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
    }
    return kinds[name](module.parameters())


def _from_file(name: str, path: Path, function: str) -> NamedProgram:
    from girih.capture import Inference, TrainingStep

    if not path.is_file():
        raise ProgramError(f"there is no file {path}")
    module = _module(path)
    builder = getattr(module, function, None)
    if not callable(builder):
        own = [key for key, item in vars(module).items() if getattr(item, "__module__", None) == module.__name__]
        raise ProgramError(f"{path} has no function {function!r}{did_you_mean(function, own)}")
    with _own_errors(path, f"{path}:{function}"):
        result = builder()
    parts = result if isinstance(result, tuple) else (result,)
    if len(parts) != 2 or not isinstance(parts[0], TrainingStep | Inference):
        kinds = " and ".join(type(item).__name__ for item in parts)
        raise ProgramError(f"{name} must return a girih.TrainingStep (or Inference) and a batch, got {kinds or '()'}")
    return NamedProgram(name, *parts)


def _module(path: Path) -> ModuleType:
    """The file as a module of a name that shadows no other; modules beside it can be imported."""
    name = f"_girih_program_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    with _own_errors(path, str(path)):
        specification.loader.exec_module(module)
    return module


@contextmanager
def _own_errors(path: Path, what: str) -> Iterator[None]:
    """An error of the user's code, as one line that says where in that file."""
    try:
        yield
    except (ProgramError, CaptureError):
        raise
    except SyntaxError as error:
        where = path if _same(error.filename, path) else error.filename
        raise ProgramError(f"{where}:{error.lineno}: {error.msg}: `{(error.text or '').strip()}`") from error
    except Exception as error:
        inside = [frame for frame in traceback.extract_tb(error.__traceback__) if _same(frame.filename, path)]
        place = f"{path}:{inside[-1].lineno}: `{inside[-1].line}`" if inside else what
        raise ProgramError(f"{place} raises {type(error).__name__}: {error}") from error


def _same(filename: str | None, path: Path) -> bool:
    return filename is not None and Path(filename).resolve() == path.resolve()


def in_micro_batches(named: NamedProgram, count: int | None) -> NamedProgram:
    """The program with its batch cut into so many micro-batches; None: as it is.

    Raises:
        ProgramError: it is no training step.
    """
    from girih.capture import TrainingStep

    if count is None:
        return named
    if not isinstance(named.step, TrainingStep):
        raise ProgramError(f"{named.name} does not train: micro-batches are of a girih.TrainingStep")
    return replace(named, step=replace(named.step, micro_batches=count))


def exactly(named: NamedProgram) -> NamedProgram:
    """The program with the bits of PyTorch's own step.

    Raises:
        ProgramError: it is no training step.
    """
    from girih.capture import TrainingStep

    if not isinstance(named.step, TrainingStep):
        raise ProgramError(f"{named.name} does not train: --exact is of a girih.TrainingStep")
    return replace(named, step=replace(named.step, exact=True))


def in_precision(named: NamedProgram, precision: str) -> NamedProgram:
    """The program computed in another precision: "bf16" or "fp16", its forward pass under torch.autocast, parameters
    and state as they are; "fp32": as it is.

    Raises:
        ProgramError: it has an autocast of its own.
    """
    import torch

    if precision == "fp32":
        return named
    if named.step.autocast is not None:
        raise ProgramError(f"{named.name} computes in {named.step.autocast} as it is: leave --precision out")
    dtype = torch.bfloat16 if precision == "bf16" else torch.float16
    return replace(named, step=replace(named.step, autocast=dtype))


def batch_of(named: NamedProgram) -> dict[str, Any]:
    """The batch's tensors by path."""
    return flatten_batch(named.batch)


def random_batch(plan: Plan, seed: int) -> dict[str, Any]:
    """A batch by path with the shapes of the plan: the model's own kind of data where it has a name."""
    import torch

    base, _, size = plan.origin.model.partition("@")
    if _is_of_size(plan):
        from girih.models import random_batch as of_model

        return flatten_batch(of_model(base, batch=int(size), seed=seed))
    generator = torch.Generator().manual_seed(seed)
    batch = {}
    for item in plan.graph.inputs:
        if item.role != "batch":
            continue
        value = plan.graph.values[item.name]
        dtype = getattr(torch, value.dtype)
        if dtype.is_floating_point:
            batch[item.path] = torch.randn(value.shape, generator=generator).to(dtype)
        else:
            high = plan.origin.ranges.get(item.path, 2)
            batch[item.path] = torch.randint(0, high, value.shape, generator=generator).to(dtype)
    return batch


def _is_of_size(plan: Plan) -> bool:
    """Has the plan a model's name, with its batch? A file may say any, and the data of another size than is planned
    could fill the memory."""
    base, _, size = plan.origin.model.partition("@")
    if not base or ".py:" in base or not size.isdecimal():
        return False
    extents = {
        extent for item in plan.graph.inputs if item.role == "batch" for extent in plan.graph.values[item.name].shape
    }
    numbers = re.findall(r"\d+", plan.origin.model)
    return all(len(number) <= 6 for number in numbers) and int(size) in extents
