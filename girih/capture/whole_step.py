"""A step as loops have it: forward, backward, clipping, the optimizer's step and `zero_grad`, in one function.

It is recorded on stand-ins of the parameters: `backward` leaves its gradients with them, what the function does with
these is recorded, and `optimizer.step()` becomes the update of the graph, which writes into the stand-ins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

from girih.capture.errors import CaptureError
from girih.capture.torch.initial import is_real
from girih.capture.torch.record import ForeignTensorError, Recorder

Tensor = Any


@dataclass
class WholeStep:
    """What a step has called so far. begun: there was a backward pass. fresh: gradients were cleared before it.
    calls: of the optimizer's step, of which one is under way or done. written: names of the updated parameters."""

    begun: bool = False
    fresh: bool = False
    calls: int = 0
    updated: bool = False
    written: list[str] = field(default_factory=list)

    def check_gradients(self, parameters: Mapping[str, Tensor]) -> None:
        """
        Raises:
            CaptureError: the next step would begin with gradients of this one.
        """
        left = next((name for name, tensor in parameters.items() if tensor.grad is not None), None)
        if left is not None and not self.fresh:
            raise CaptureError(
                f"the step leaves the gradient of {left!r}, to which the next one would add: call "
                "optimizer.zero_grad() in it, before backward or at its end (for a sum over several batches there is "
                "micro_batches=)"
            )


@contextmanager
def whole_steps(
    optimizer: Optimizer,
    stand_ins: Mapping[int, Tensor],
    recorder: Recorder,
    whole: WholeStep,
    update: Callable[[], None],
) -> Iterator[None]:
    """While open, `backward` and the optimizer work on stand-ins, by the `id` of each parameter. update: is called
    for `optimizer.step()`."""
    backward, clears = torch.Tensor.backward, (Optimizer.zero_grad, torch.nn.Module.zero_grad)

    def noted_backward(tensor: Tensor, *arguments: Any, **options: Any) -> None:
        before, recorder.phase, whole.begun = recorder.phase, "backward", True
        try:
            backward(tensor, *arguments, **options)
        finally:
            recorder.phase = before

    def clearing(clear: Callable[..., None]) -> Callable[..., None]:
        def noted(item: Any, *arguments: Any, **options: Any) -> None:
            whole.fresh |= not whole.begun
            clear(item, *arguments, **options)

        return noted

    def noted_step(*arguments: Any, **options: Any) -> None:
        if arguments or options:
            raise CaptureError(
                "the step gives optimizer.step() a closure: compute the loss and call backward before it"
            )
        if whole.calls:
            raise CaptureError("the step calls optimizer.step() twice: a plan updates once, so make it two steps")
        if not whole.begun:
            raise CaptureError("the step calls optimizer.step() before backward")
        before, recorder.phase = recorder.phase, "update"
        whole.calls = 1
        own, noted_groups = vars(optimizer).pop("step"), optimizer.param_groups  # its own code may be traced
        vars(optimizer).update(was)
        optimizer.param_groups = groups
        try:
            update()
        finally:
            vars(optimizer)["step"], recorder.phase, optimizer.param_groups = own, before, noted_groups
        whole.updated = True

    def other(given: Optimizer, *_: Any) -> None:
        if given is not optimizer:
            raise CaptureError(
                f"the step calls an optimizer, {type(given).__name__}, that is not the one that is planned: make a "
                "step, and a girih.fit, for each"
            )

    def scheduled(*_: Any, **__: Any) -> None:
        raise CaptureError("the step calls its scheduler, which it would do once for all steps: call it after the step")

    was = {key: item for key, item in vars(optimizer).items() if key == "step"}  # a scheduler counts calls so
    groups, held = optimizer.param_groups, [group["params"] for group in optimizer.param_groups]
    with ExitStack() as stack:
        for kind, name, new in (
            (torch.Tensor, "backward", noted_backward),
            (Optimizer, "zero_grad", clearing(clears[0])),
            (torch.nn.Module, "zero_grad", clearing(clears[1])),
            (LRScheduler, "step", scheduled),
            (ReduceLROnPlateau, "step", scheduled),
        ):
            stack.enter_context(patch.object(kind, name, new))
        stack.callback(register_optimizer_step_pre_hook(other).remove)
        for group in groups:
            group["params"] = [stand_ins[id(parameter)] for parameter in group["params"]]
        optimizer.param_groups = [_Group(group) for group in groups]
        stack.enter_context(_out_of_reach([parameter for group in held for parameter in group], recorder))
        vars(optimizer)["step"] = noted_step
        try:
            yield
        finally:
            del vars(optimizer)["step"]
            vars(optimizer).update(was)
            optimizer.param_groups = groups
            for group, parameters in zip(groups, held, strict=True):
                group["params"] = parameters


@contextmanager
def _out_of_reach(parameters: list[Tensor], recorder: Recorder) -> Iterator[None]:
    """While open, the user's own parameters, which a step may have in a list, have gradients that it cannot use: it
    would find none there, and clip nothing."""
    parameters = [parameter for parameter in parameters if is_real(parameter)]
    before = [parameter.grad for parameter in parameters]
    with _disable_current_modes(), FakeTensorMode():
        for parameter in parameters:
            parameter.grad = torch.empty(parameter.shape, dtype=parameter.dtype, device=parameter.device)
    try:
        yield
    except ForeignTensorError as error:
        if any(parameter.grad is error.tensor for parameter in parameters):
            raise CaptureError(
                "the step reads gradients of parameters that it has in a list of its own, where a plan has none: take "
                "them from model.parameters() in the step, or from the optimizer's groups"
            ) from error
        raise
    finally:
        own = dict(zip(map(id, parameters), before, strict=True))
        recorder.gradients = [(item, own.get(id(item), gradient)) for item, gradient in recorder.gradients]
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient


class _Group(dict[str, Any]):
    """A group of an optimizer, whose numbers a step may not read: they would be constants of its plan."""

    def __getitem__(self, key: str) -> Any:
        if key not in ("params", "foreach", "fused", "differentiable", "capturable"):
            raise CaptureError(
                f"the step reads {key!r} of the optimizer's groups, which a plan would have as a constant: read it "
                "outside, and give it in the batch as a tensor"
            )
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401 - which refuses

    def items(self) -> Any:
        return [(key, self[key]) for key in self]
