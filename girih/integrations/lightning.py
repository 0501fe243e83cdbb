"""Lightning's Trainer whose steps are girih's.

    trainer = lightning.Trainer(max_epochs=3, callbacks=[girih.integrations.lightning.Planned(memory="8GB")])
    trainer.fit(module, loader)

Loaders, logs, schedulers, evaluations and checkpoints are Lightning's own. Its loop calls `backward`, clips gradients
and calls the optimizer behind each `training_step`; all that is in the plan, so that `backward` does nothing meanwhile,
and neither do the others, since parameters have no gradients then.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import Callback

from girih.api import fit as fitted
from girih.capture.torch.training import loss_of
from girih.plans.plan import PlanError
from girih.run.training.fit import Fit

AUTOCAST = {"32-true": None, "64-true": None, "bf16-mixed": torch.bfloat16}
"""By Lightning's precision, what the forward pass is computed in."""


class Planned(Callback):
    """A callback of Lightning's, with which a module trains by `girih.fit`.

    options: of `girih.fit`, such as `memory`, `machine`, `sizes`. What `training_step` gives to `self.log` is told to
    Lightning behind each step: a tensor with its value of that step, all else as it was when the step was planned.

    Raises:
        PlanError: the Trainer asks for what plans do in other ways.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._fit: Fit | None = None
        self._step: _Step | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        _check(trainer, pl_module)
        clip = trainer.gradient_clip_val
        way = "clip_grad_value" if trainer.gradient_clip_algorithm == "value" else "clip_grad_norm"
        options = {way: clip or None, "autocast": AUTOCAST[trainer.precision], **self._options}
        optimizer, self._step = trainer.optimizers[0], _Step()
        step = self._step

        def training_step(batch: Any, batch_idx: int = 0, *_: Any) -> Any:
            whole = {"batch": batch}
            with torch.autocast("cpu", enabled=False):  # Lightning's is around it; the plan has its own
                if self._fit is None:
                    self._fit = fitted(pl_module, step=step, optimizer=optimizer, batch=whole, **options)
                made = self._fit(whole)
            for name, (value, arguments, named) in step.logged.items():
                pl_module.log(name, made["logged"].get(name, value), *arguments, **named)
            return torch.tensor(made["loss"])

        pl_module.training_step, pl_module.backward = training_step, lambda *_, **__: None

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._close(pl_module)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._close(pl_module)

    def _close(self, module: Any) -> None:
        """The module has its new weights, and its own steps again."""
        for name in ("training_step", "backward"):
            vars(module).pop(name, None)
        fit, self._fit = self._fit, None
        if fit is not None:
            fit.close()


def _check(trainer: Any, module: Any) -> None:
    accumulated, precision = trainer.accumulate_grad_batches, trainer.precision
    if trainer.world_size > 1:
        raise PlanError(
            f"Lightning has started {trainer.world_size} processes: start one (devices=1), and give "
            "Planned(machine='local:2'), which starts the workers"
        )
    if accumulated > 1:
        raise PlanError(
            f"accumulate_grad_batches is {accumulated}: give batches that are as many times as large, and "
            "Planned(micro_batches=…) or a limit of memory, which cut them"
        )
    if precision not in AUTOCAST:
        raise PlanError(f"precision is {precision!r}: expected one of {', '.join(AUTOCAST)}")
    if not module.automatic_optimization or len(trainer.optimizers) != 1:
        raise PlanError(
            f"the module has {len(trainer.optimizers)} optimizers, and automatic_optimization is "
            f"{module.automatic_optimization}: expected one optimizer, which Lightning calls; write other loops with "
            "girih.fit"
        )


class _Step:
    """The step that is planned: the module's. A class of girih's, so that what changes in it is not looked at.

    logged: what it gave to `self.log`: (value, other arguments, those by name), the value None for a tensor.
    """

    def __init__(self) -> None:
        self.logged: dict[str, tuple[Any, tuple[Any, ...], Mapping[str, Any]]] = {}

    def __call__(self, model: Any, batch: Any) -> Any:
        told: dict[str, Any] = {}
        logged: dict[str, tuple[Any, tuple[Any, ...], Mapping[str, Any]]] = {}

        def log(name: str, value: Any, *arguments: Any, **named: Any) -> None:
            tensor = isinstance(value, torch.Tensor)
            if tensor:
                told[name] = value.detach()
            logged[name] = None if tensor else value, arguments, named

        own = type(model).training_step
        indices = [_BatchIndex() for _ in list(inspect.signature(own).parameters)[2:3]]
        model.log = log
        try:
            made = own(model, batch["batch"], *indices)
        finally:
            del model.log
        self.logged = logged
        return {"loss": loss_of(made), "logged": told}


class _BatchIndex:
    """What `training_step` gets as `batch_idx`: a plan has numbers as constants, so none may come of it."""

    def _refused(self, *_: Any) -> Any:
        raise PlanError(
            "training_step uses batch_idx, which is another number at each step, and a plan has numbers as constants: "
            "move what needs it into a hook, such as on_train_batch_end"
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __index__ = __int__ = __float__ = _refused
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __floordiv__ = __truediv__ = _refused
    __hash__ = __str__ = __format__ = _refused
