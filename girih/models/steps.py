"""Loss functions `(model, batch) -> scalar loss`, one for each kind of batch.

A step only calls its model, and only once, so that the model may be a `torch.func.functional_call` in disguise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F

from girih.models.batches import Batch

Step = Callable[[Callable[..., torch.Tensor], Batch], torch.Tensor]

# Szegedy et al. 2015 train Inception with the auxiliary loss at 0.3 or 0.4; the released models use 0.4.
AUXILIARY_WEIGHT = 0.4
PENALTY_WEIGHT = 10.0  # of the critic's slope: Gulrajani et al. 2017, algorithm 1


def classify(model: Callable[..., torch.Tensor], batch: Batch) -> torch.Tensor:
    """Mean cross-entropy of `images` (or feature vectors) against `labels`; a pair of logits adds the second."""
    logits = model(batch["images"])
    if isinstance(logits, tuple):
        main, auxiliary = (F.cross_entropy(part, batch["labels"]) for part in logits)
        return main + AUXILIARY_WEIGHT * auxiliary
    return F.cross_entropy(logits, batch["labels"])


def predict_each_step(model: Callable[..., Any], batch: Batch) -> torch.Tensor:
    """The mean over time of each step's cross-entropy: `targets [batch, steps]`, logits one for each step."""
    return _mean_over_steps(model(batch["vectors"]), batch["targets"])


def _mean_over_steps(logits: Iterable[torch.Tensor], targets: torch.Tensor) -> torch.Tensor:
    losses = [F.cross_entropy(part, target) for part, target in zip(logits, targets.unbind(1), strict=True)]
    return torch.stack(losses).mean()


def transcribe(model: Callable[..., torch.Tensor], batch: Batch) -> torch.Tensor:
    """Mean CTC loss of `frames [batch, steps, features]` against `letters [batch, length]`; class 0 is the blank."""
    scores = model(batch["frames"]).log_softmax(-1)  # [steps, batch, letters + 1]
    count, letters = batch["letters"].shape
    return F.ctc_loss(scores, batch["letters"] + 1, (len(scores),) * count, (letters,) * count)


def classify_text(model: Callable[..., torch.Tensor], batch: Batch) -> torch.Tensor:
    """Mean cross-entropy of `tokens [batch, steps]` against `labels [batch]`."""
    return F.cross_entropy(model(batch["tokens"]), batch["labels"])


def predict_each_word(model: Callable[..., Any], batch: Batch) -> torch.Tensor:
    """As `predict_each_step`, of `tokens [batch, steps]`."""
    return _mean_over_steps(model(batch["tokens"]), batch["targets"])


def translate(model: Callable[..., Any], batch: Batch) -> torch.Tensor:
    """As `predict_each_word`, given the sentence `source [batch, steps]` too."""
    return _mean_over_steps(model(batch["source"], batch["tokens"]), batch["targets"])


def translate_sentences(model: Callable[..., torch.Tensor], batch: Batch) -> torch.Tensor:
    """As `predict_next_token`, given the sentence `source [batch, sequence]` too."""
    logits = model(batch["source"], batch["tokens"])
    return F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())


def predict_next_token(model: Callable[..., torch.Tensor], batch: Batch) -> torch.Tensor:
    """Mean cross-entropy over all positions of `targets [batch, sequence]`."""
    logits = model(batch["tokens"])
    return F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())


def fill_masked_tokens(model: Callable[..., torch.Tensor], batch: Batch) -> torch.Tensor:
    """Mean cross-entropy over those positions of `targets` that are not -100."""
    logits = model(batch["tokens"], batch["segments"])
    return F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())


def predict_click(model: Callable[..., torch.Tensor], batch: Batch) -> torch.Tensor:
    """Mean binary cross-entropy of `clicks [batch]`, each 0.0 or 1.0."""
    logits = model(batch["dense"], batch["indices"])
    return F.binary_cross_entropy_with_logits(logits, batch["clicks"])


def predict_response(model: Callable[..., torch.Tensor], batch: Batch) -> torch.Tensor:
    """Mean squared error against `responses [batch]`, each between 0 and 1."""
    return F.mse_loss(model(batch["cell"], batch["drugs"]), batch["responses"])


def criticise(model: Callable[..., tuple[torch.Tensor, ...]], batch: Batch) -> torch.Tensor:
    """The critic's loss: mean score of made images less that of real ones, and the penalty on slopes that are not 1."""
    real, drawn, slopes = model(batch["images"], batch["noise"], batch["mixing"])
    return drawn.mean() - real.mean() + PENALTY_WEIGHT * (slopes - 1).square().mean()


def please_critic(model: Callable[..., torch.Tensor], batch: Batch) -> torch.Tensor:
    """The generator's loss: less the mean score of what it makes of `noise [batch, numbers]`."""
    return -model(batch["noise"]).mean()
