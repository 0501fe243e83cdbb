"""A step whose loss a `torch.amp.GradScaler` scales, and which it leaves out where a gradient is not finite.

The scale enters the graph as a number at each step, as a learning rate does. Gradients are divided by it, and asked
whether all are finite; where one is not, the update's results are what was there before. That leaves the graph beside
the loss, and the user's own scaler hears of it behind the step (`follow`): so scale and growth are always its own, by
its own rules, and what the user sets there holds from the next step on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch

from girih.capture.errors import CaptureError
from girih.capture.torch.record import Recorder

Tensor = Any

SCALE = "scaler/scale"
"""The path of the scale among a step's inputs."""
ORDER = "scaler.scale(loss).backward(), scaler.step(optimizer), scaler.update()"


@dataclass
class Scaling:
    """What a step has called of its scaler so far. enter: makes the scale an input of the step. found: is a gradient
    not finite? stage: the last call, of `scale`, `unscale_`, `step` and `update`."""

    enter: Callable[[], Tensor]
    scaler: Any = None
    scale: Tensor = None
    found: Tensor | None = None
    stage: str = ""

    def kept(self, old: Tensor, new: Tensor) -> Tensor:
        """The result of an update: the old value in a step that is left out."""
        return new if self.found is None else torch.where(self.found, old, new)

    def check_update(self, own: bool) -> None:
        """
        Raises:
            CaptureError: the optimizer updates by scaled gradients, or by its own code, which has counted the step.
        """
        if self.scaler is not None and self.stage != "step":
            raise CaptureError(f"the step scales its loss and calls optimizer.step() by itself: call {ORDER}")
        if self.scaler is not None and own:
            raise CaptureError(
                "the step has a GradScaler, which leaves steps out, and an optimizer whose own code runs and counts "
                "them: use an optimizer of torch.optim that girih has a rule for, or no scaler (bfloat16 needs none)"
            )

    def check_end(self) -> None:
        """
        Raises:
            CaptureError: a call is missing, which the next step would miss.
        """
        if self.scaler is not None and self.stage != "update":
            raise CaptureError(f"the step ends behind scaler.{self.stage}(…): call {ORDER} in it")


@contextmanager
def scaled_steps(optimizer: Any, scaling: Scaling, recorder: Recorder) -> Iterator[None]:
    """While open, scalers that are on work on stand-ins."""
    kind = torch.amp.GradScaler

    def own(scaler: Any) -> Scaling:
        if scaling.scaler is None:
            scaling.scaler, scaling.scale = scaler, scaling.enter()
        if scaling.scaler is not scaler:
            raise CaptureError("the step has two scalers: one scales the gradients of one optimizer")
        return scaling

    def scale(scaler: Any, outputs: Any) -> Any:
        if not isinstance(outputs, torch.Tensor):
            raise CaptureError("the step scales several losses at once: add them, and scale the sum")
        if own(scaler).stage not in ("", "scale"):
            raise CaptureError(f"the step calls scaler.scale(…) behind scaler.{scaling.stage}(…): call {ORDER}")
        scaling.stage = "scale"
        return outputs * scaling.scale

    def unscale(scaler: Any, given: Any) -> None:
        check(given)
        if own(scaler).stage != "scale":
            raise CaptureError(f"the step unscales gradients twice, or none that were scaled: call {ORDER}")
        scaling.stage = "unscale_"
        with torch.no_grad():
            inverse = scaling.scale.double().reciprocal().float()
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            greatest = [gradient.abs().amax().double() for gradient in gradients if gradient.numel()]
            if not greatest:
                raise CaptureError("the step unscales gradients before backward, or no parameter has one")
            scaling.found = torch.isfinite(torch.stack(greatest).amax()).logical_not()
            for gradient in gradients:
                exact = gradient.dtype in (torch.float32, torch.float64)
                gradient.copy_(gradient * inverse if exact else gradient.float() * inverse)

    def step(scaler: Any, given: Any, *arguments: Any, **options: Any) -> Any:
        check(given)
        if own(scaler).stage == "scale":
            unscale(scaler, given)
        if scaling.stage != "unscale_":
            raise CaptureError(f"the step calls scaler.step(…) twice, or before scaler.scale(…): call {ORDER}")
        scaling.stage = "step"
        return given.step(*arguments, **options)

    def update(scaler: Any, new_scale: Any = None) -> None:
        if new_scale is not None:
            raise CaptureError("the step gives scaler.update() a scale, which it would do once for all: do it outside")
        if own(scaler).stage != "step":
            raise CaptureError(f"the step calls scaler.update() behind scaler.{scaling.stage}(…): call {ORDER}")
        scaling.stage = "update"

    def get_scale(scaler: Any) -> Any:
        raise CaptureError("the step reads scaler.get_scale(), which a plan would have as a constant: read it outside")

    def check(given: Any) -> None:
        if given is not optimizer:
            raise CaptureError(f"the step gives its scaler a {type(given).__name__} that is not the planned optimizer")

    def when_on(name: str, new: Callable[..., Any]) -> Callable[..., Any]:
        old = getattr(kind, name)

        def noted(scaler: Any, *arguments: Any, **options: Any) -> Any:
            if not scaler.is_enabled():
                return old(scaler, *arguments, **options)
            before, recorder.phase = recorder.phase, recorder.phase if name == "scale" else "update"
            try:
                return new(scaler, *arguments, **options)
            finally:
                recorder.phase = before

        return noted

    with ExitStack() as stack:
        for name, new in (
            ("scale", scale), ("unscale_", unscale), ("step", step), ("update", update), ("get_scale", get_scale),
        ):  # fmt: skip
            stack.enter_context(patch.object(kind, name, when_on(name, new)))
        yield


def follow(scaler: Any, found: bool) -> None:
    """Have a scaler do what it does in a step in which a gradient is not finite, or all are: by its own calls, on a
    parameter that nobody has."""
    parameter = torch.nn.Parameter(torch.zeros(()))
    parameter.grad = torch.full((), float("inf") if found else 0.0)
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    scaler.scale(torch.zeros(()))
    scaler.step(optimizer)
    scaler.update()
