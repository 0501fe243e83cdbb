"""`transformers.Trainer` whose steps are girih's.

    trainer = girih.integrations.transformers.Trainer(model, args, train_dataset=data, fit={"memory": "8GB"})
    trainer.train()

Callbacks, evaluation, checkpoints, schedulers and logs are the Trainer's own. Its loop clips gradients and calls the
optimizer behind each `training_step`, which does nothing, since parameters have no gradients then: both are in the
plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import transformers

from girih.api import fit as fitted
from girih.plans.plan import PlanError
from girih.run.training.fit import Fit

Tensor = Any


class Trainer(transformers.Trainer):
    """A Trainer that trains by `girih.fit`; arguments as `transformers.Trainer` takes them.

    fit: options of `girih.fit`, such as `memory`, `machine`, `micro_batches`, `sizes`. What a `compute_loss` of your
    own reads beside the model and the inputs is a constant of the plan. Logs have no `grad_norm`.

    Raises:
        PlanError: the arguments ask for what plans do in other ways.
    """

    def __init__(self, *arguments: Any, fit: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._options = dict(fit or {})
        self._fit: Fit | None = None
        if self.args.gradient_accumulation_steps > 1:
            raise PlanError(
                f"gradient_accumulation_steps is {self.args.gradient_accumulation_steps}: give batches that are as "
                "many times as large, and fit={'micro_batches': …} or a limit of memory, which cut them"
            )
        if self.args.world_size > 1 or self.args.n_gpu > 1:
            raise PlanError(
                "the Trainer was started on several devices: start it once, with fit={'machine': 'local:2'}"
            )
        if self.args.fp16:
            raise PlanError("fp16=True scales losses by a scaler of accelerate's: use bf16=True, or float32")

    def train(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().train(*arguments, **options)
        finally:
            fit, self._fit = self._fit, None
            if fit is not None:
                fit.close()

    def training_step(
        self, model: Any, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        model.train()
        batch = {"inputs": dict(inputs)}
        if num_items_in_batch is not None:
            batch["items"] = torch.as_tensor(num_items_in_batch)
        if self._fit is None:
            options = {"clip_grad_norm": self.args.max_grad_norm or None, **self._options}
            optimizer = getattr(self.optimizer, "optimizer", self.optimizer)  # accelerate's wraps the user's
            self._fit = fitted(
                self.accelerator.unwrap_model(model), optimizer=optimizer, batch=batch, step=_Loss(self), **options
            )
        return torch.tensor(self._fit(batch))

    def log(self, logs: dict[str, float], *arguments: Any, **options: Any) -> None:
        logs.pop("grad_norm", None)  # of gradients that nobody has
        super().log(logs, *arguments, **options)


class _Loss:
    """The step that is planned: the trainer's loss. A class of girih's, so that what changes in the trainer with each
    step is not looked at."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def __call__(self, model: Any, batch: Any) -> Any:
        with self.trainer.compute_loss_context_manager():
            return self.trainer.compute_loss(model, {**batch["inputs"]}, num_items_in_batch=batch.get("items"))
