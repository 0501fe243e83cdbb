"""What is captured: a training step, or inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from girih.capture.batches import check_leaf
from girih.capture.errors import CaptureError
from girih.capture.torch.initial import is_real
from girih.capture.torch.optimizers import OptimizerRule, check_own_step, rule_of
from girih.graph import of_batch


@dataclass(frozen=True)
class TrainingStep:
    """One step of training, as it would be written for one device.

    model: real, on the meta device, or fake; nothing is run on it and it is left as it was.
    loss: the batch is `(inputs, target)` or `(*inputs, target)`, and the loss `loss(model(*inputs), target)`.
    step: `step(model, batch)` gives the scalar loss; the batch is any nesting of tensors. Instead of `loss`. It may
        give other tensors too, as `(loss, *others)`, or as a mapping or object with a `loss`.
    Without `loss` and `step` the model gives its own loss, as those of `transformers` do: the batch is a mapping for
        `model(**batch)`, or inputs for `model(*batch)`, and the loss what `step` may give.
    optimizer: any one over (some of) the model's parameters: of `girih.capture.torch.optimizers.OPTIMIZERS`, or one
        whose own code is traced (`girih.capture.torch.own_update`), which runs under `girih.fit`. Without one the graph
        gives the gradients.
    clip_grad_norm: the greatest 2-norm of all gradients together, as torch.nn.utils.clip_grad_norm_ has it.
    clip_grad_value: the greatest absolute value of each of their numbers, as torch.nn.utils.clip_grad_value_ has it.
    autocast: run forward under torch.autocast with this dtype.
    micro_batches: compute the step in so many equal parts of the batch, along dimension 0 of its tensors; its numbers
        are those of the undivided batch (`girih.capture.micro_batches`).
    exact: the step's bits are those of PyTorch's own step on the processors of this process, with the same number of
        threads: PyTorch's kernels are called as they are, and the optimizer's own code is traced, so that it runs under
        `girih.fit`. A plan for one device, whose operators are not computed in pieces; else operators are rewritten,
        which divides better and changes last digits.

    Raises:
        CaptureError: both loss and step; an optimizer that is not supported, or over parameters that are not the
            model's.
    """

    model: Any
    loss: Callable[[Any, Any], Any] | None = None
    optimizer: Any = None
    step: Callable[[Any, Any], Any] | None = None
    clip_grad_norm: float | None = None
    autocast: Any = None
    micro_batches: int = 1
    clip_grad_value: float | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        _check_model(self.model)
        if self.micro_batches < 1:
            raise CaptureError(f"micro_batches must be at least 1, got {self.micro_batches}")
        if self.loss is not None and self.step is not None:
            raise CaptureError("give one of loss=f(output, target) and step=f(model, batch); got both")
        for name in ("clip_grad_norm", "clip_grad_value"):
            if (greatest := getattr(self, name)) is not None and not greatest > 0:
                raise CaptureError(f"{name} must be positive, got {greatest}")
        _check_autocast(self.autocast)
        if self.exact and self.micro_batches > 1:
            raise CaptureError(
                f"exact=True and micro_batches={self.micro_batches}: sums over parts of a batch have other last digits "
                "than PyTorch's over all of it; leave one of them out"
            )
        if self.optimizer is not None:
            rule_of(self.optimizer)
            check_own_step(self.optimizer)
            self._check_parameters()
            self._check_kernels()

    @property
    def rule(self) -> OptimizerRule | None:
        """What the optimizer's update is, where girih has a rule for it and the step need not be exact."""
        return None if self.exact else rule_of(self.optimizer)

    def _check_kernels(self) -> None:
        for name in ("fused", "foreach"):
            if self.exact and any(group.get(name) for group in self.optimizer.param_groups):
                raise CaptureError(
                    f"exact=True and an optimizer with {name}=True, whose kernels update many parameters at once: "
                    f"leave {name}= out, here and in the loop that it is compared with"
                )

    def _check_parameters(self) -> None:
        names = parameter_names(self.model)
        for number, group in enumerate(self.optimizer.param_groups):
            for place, parameter in enumerate(group["params"]):
                if id(parameter) not in names:
                    raise CaptureError(
                        f"parameter {place} of the optimizer's group {number}, shape "
                        f"{tuple(parameter.shape)}, is not one of the model's: make the optimizer from "
                        f"model.parameters() of the very model that is given"
                    )

    def groups(self) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
        """The optimizer's groups: (hyperparameters, names of the parameters that need gradients)."""
        if self.optimizer is None:
            return []
        names = parameter_names(self.model)
        return [
            (
                {key: plain_number(value) for key, value in group.items() if key != "params"},
                tuple(names[id(p)] for p in group["params"] if p.requires_grad),
            )
            for group in self.optimizer.param_groups
        ]

    def forward(self, model: Any, batch: Any) -> Any:
        """The loss of a batch; of a step that gives other tensors too, all that it gives."""
        if self.step is not None:
            return self.step(model, batch)
        if self.loss is None:
            return own_loss(_called(model, batch))
        if isinstance(batch, Mapping) or not isinstance(batch, Sequence) or len(batch) < 2:
            size = f" of {len(batch)}" if isinstance(batch, Sequence) else ""
            kind = "Tensor" if isinstance(batch, torch.Tensor) else type(batch).__name__
            raise CaptureError(
                f"with loss=, a batch is (inputs, target) or (*inputs, target), got {kind}{size}; for any other "
                "nesting write step=f(model, batch)"
            )
        assert self.loss is not None
        return self.loss(model(*batch[:-1]), batch[-1])


def plain_number(value: Any) -> Any:
    """A hyperparameter; one that is held in a tensor, or several of them, as Python numbers."""
    if isinstance(value, tuple):
        return tuple(map(plain_number, value))
    return value.item() if isinstance(value, torch.Tensor) and is_real(value) else value


@dataclass(frozen=True)
class Inference:
    """The model's outputs for a batch, without gradients; put the model in `eval()` mode yourself.

    call: `call(model, batch)`; by default `model(*batch)` for a tuple or list, `model(**batch)` for a
    mapping, `model(batch)` for a tensor. memory: the limit for each device, such as `"192MB"`, for `girih.plan`
    without one: so several models share a device, each within its part.
    """

    model: Any
    call: Callable[[Any, Any], Any] | None = None
    autocast: Any = None
    memory: int | str | None = None

    def __post_init__(self) -> None:
        _check_model(self.model)
        _check_autocast(self.autocast)

    def forward(self, model: Any, batch: Any) -> Any:
        return _called(model, batch) if self.call is None else self.call(model, batch)


def _called(model: Any, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


LOSS = "the loss"
"""Stands for the loss among the results of a step."""


def loss_of(results: Any) -> Any:
    """The loss among what a step gives: that itself, `results["loss"]`, `results.loss`, or the first of several."""
    if isinstance(results, torch.Tensor):
        return results
    if isinstance(results, Mapping):
        return results.get("loss")
    if hasattr(results, "loss"):
        return results.loss
    return results[0] if isinstance(results, (tuple, list)) and results else results


def own_loss(output: Any) -> Any:
    """
    Raises:
        CaptureError: the model's output has no loss.
    """
    loss = loss_of(output)
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        got = f"{tuple(loss.shape)} {loss.dtype}" if isinstance(loss, torch.Tensor) else type(output).__name__
        raise CaptureError(
            f"the model gives no loss of its own, but {got}: give loss=f(output, target) or step=f(model, batch), or "
            "batches with what the model makes its loss of, such as labels"
        )
    return loss


def parameter_names(model: Any) -> dict[int, str]:
    """Name by `id` of each parameter; a shared one has its first name."""
    return {id(parameter): name for name, parameter in model.named_parameters()}


def ambient_autocast() -> Any:
    """The type of the autocast in which the caller stands, of processors or of GPUs, or None."""
    kinds = (kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind))
    return next((torch.get_autocast_dtype(kind) for kind in kinds), None)


def check_step(step: Any) -> None:
    """Raises CaptureError for anything but a TrainingStep or an Inference."""
    if not isinstance(step, TrainingStep | Inference):
        raise CaptureError(
            f"expected a TrainingStep or an Inference, got {type(step).__name__}: "
            "girih.TrainingStep(model, loss=…, optimizer=…) says what is to be trained, and how"
        )


def check_batch(leaves: Sequence[tuple[str, Any]]) -> None:
    """Raises CaptureError for what would silently become a part of the program, or lie otherwise than it says.

    leaves: (path, item) of everything in a batch.
    """
    paths = [path for path, _ in leaves]
    if twice := sorted({path for path in paths if paths.count(path) > 1}):
        raise CaptureError(f"the batch has several items at {twice}: give them keys that differ, without slashes")
    for path, leaf in leaves:
        if type(leaf).__module__.partition(".")[0] == "numpy" and hasattr(leaf, "__array__"):
            what = f"has a NumPy array at {path!r}" if path else "is a NumPy array"
            raise CaptureError(f"the batch {what}: make it a tensor, with torch.from_numpy")
        if isinstance(leaf, torch.Tensor) and leaf.layout != torch.strided:
            raise CaptureError(f"{of_batch(path)} is {leaf.layout}: give it with to_dense()")
        check_leaf(path, leaf)
    kinds = sorted({type(leaf).__name__ for _, leaf in leaves})
    if kinds and not any(isinstance(leaf, torch.Tensor) for _, leaf in leaves):
        described = ", ".join(kinds)
        raise CaptureError(
            f"the batch has no tensors, only {described}: "
            "other values become constants of the program. Give the tensors that the step reads, in a tuple or dict"
        )


def _check_model(model: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise CaptureError(f"model must be a torch.nn.Module, got {kind}")
    if isinstance(model, torch.jit.ScriptModule):
        raise CaptureError("the model is a TorchScript module, whose code PyTorch hides: give the Python module itself")
    for path, tensor in (*model.named_parameters(), *model.named_buffers()):
        if torch.nn.parameter.is_lazy(tensor):
            raise CaptureError(
                f"{path!r} of the model has no shape yet (a Lazy module): run the model once on a batch before"
            )


def _check_autocast(dtype: Any) -> None:
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise CaptureError(f"autocast must be a dtype such as torch.bfloat16, got {dtype!r}")
