"""Loops of `accelerate` whose steps are girih's.

    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    with girih.integrations.accelerate.fit(accelerator, model, optimizer=optimizer, batch=next(iter(loader))) as train:
        for batch in loader:
            loss = train(**batch)  # for model(**batch), accelerator.backward(loss), optimizer.step(), zero_grad()
            scheduler.step()

Loaders, schedulers, trackers, logging and checkpoints are accelerate's own: `accelerator.get_state_dict(model)` has the
weights as they are now.
"""

from __future__ import annotations

from typing import Any

from girih.api import fit as fitted
from girih.plans.plan import PlanError
from girih.run.training.fit import Fit

PRECISIONS = ("no", "bf16")


def fit(
    accelerator: Any, model: Any, loss: Any = None, optimizer: Any = None, batch: Any = None, **options: Any
) -> Fit:
    """`girih.fit` for what `accelerator.prepare` gave, in the accelerator's precision; arguments as it takes them.

    Raises:
        PlanError: the accelerator does what plans do in other ways.
    """
    if accelerator.num_processes > 1:
        raise PlanError(
            f"accelerate has started {accelerator.num_processes} processes: start one, and give machine='local:2', "
            "which starts the workers"
        )
    if accelerator.gradient_accumulation_steps > 1:
        raise PlanError(
            f"gradient_accumulation_steps is {accelerator.gradient_accumulation_steps}: give batches that are as many "
            "times as large, and micro_batches= or a limit of memory, which cut them"
        )
    if accelerator.mixed_precision not in PRECISIONS:
        raise PlanError(f"mixed_precision is {accelerator.mixed_precision!r}: expected one of {', '.join(PRECISIONS)}")
    own = accelerator.unwrap_model(model)  # with its autocast, in which it is captured
    return fitted(
        own,
        loss,
        getattr(optimizer, "optimizer", optimizer),
        batch,
        **options,
    )
