"""Loops of transformers and accelerate whose steps are girih's, beside the same loops without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import girih

transformers = pytest.importorskip("transformers")
accelerate = pytest.importorskip("accelerate")

ROWS, LENGTH, WORDS = 10, 8, 32


def model_of() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def data_of() -> list[dict[str, torch.Tensor]]:
    tokens = torch.randint(WORDS, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
    labels = tokens.masked_fill(torch.arange(ROWS)[:, None] % 4 > torch.arange(LENGTH), -100)  # some are not counted
    return [{"input_ids": row, "labels": wanted} for row, wanted in zip(tokens, labels, strict=True)]


class OwnLoss:
    """What a user's Trainer may do: a loss of its own, and attributes that change with each step."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **options: Any) -> Any:
        found = super().compute_loss(model, inputs, return_outputs=return_outputs, **options)  # type: ignore[misc]
        return found if return_outputs else 2 * found


@pytest.mark.parametrize(("own", "memory"), [(False, None), (True, "60KB")])
def test_a_trainer_trains_logs_and_evaluates_as_without(own: bool, memory: str | None, tmp_path: Path) -> None:
    """With a last batch that is short, labels that are not counted, clipping, a schedule and evaluations in between."""
    from girih.integrations.transformers import Trainer

    ends = []
    for kind in (transformers.Trainer, Trainer):
        arguments = transformers.TrainingArguments(
            str(tmp_path), num_train_epochs=2, per_device_train_batch_size=4, learning_rate=0.01, max_grad_norm=0.5,
            logging_steps=1, eval_strategy="epoch", save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
            optim="sgd", lr_scheduler_type="linear", seed=3, dataloader_pin_memory=False,
        )  # fmt: skip
        options = {"fit": {"memory": memory, "compare": ()}} if kind is Trainer else {}
        made = type("Own", (OwnLoss, kind), {}) if own else kind
        trainer = made(model_of(), arguments, train_dataset=data_of(), eval_dataset=data_of()[:4], **options)
        trainer.train()
        ends.append((trainer.state.log_history, trainer.model.state_dict()))
    keys = "loss", "learning_rate", "eval_loss", "step"
    logs = [[{key: item[key] for key in keys if key in item} for item in history] for history, _ in ends]
    assert len(logs[0]) == len(logs[1]) > 6
    for plain, ours in zip(*logs, strict=True):
        assert ours == pytest.approx(plain, rel=1e-4, abs=1e-6)
    torch.testing.assert_close(ends[1][1], ends[0][1])


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_a_loop_of_accelerate_trains_as_without(precision: str) -> None:
    from girih.integrations.accelerate import fit

    ends = []
    for ours in (False, True):
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        accelerator = accelerate.Accelerator(cpu=True, mixed_precision=precision)
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        loader = torch.utils.data.DataLoader(data_of(), batch_size=4)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
        forward = vars(model).get("forward")  # accelerate's, with its autocast
        losses = []
        if ours:
            with fit(accelerator, model, optimizer=optimizer, batch=next(iter(loader)), compare=()) as train:
                for batch in loader:
                    losses.append(train(**batch))
                    schedule.step()
                state = accelerator.get_state_dict(model)
        else:
            for batch in loader:
                optimizer.zero_grad()
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimizer.step()
                schedule.step()
                losses.append(loss.item())
            state = accelerator.get_state_dict(model)
        assert vars(model).get("forward") is forward
        batch = data_of()[0]
        with torch.no_grad():
            evaluated = model(**{key: item[None] for key, item in batch.items()}).loss
        ends.append((losses, state, schedule.get_last_lr(), float(evaluated)))
    tolerance = 1e-5 if precision == "no" else 0.03
    torch.testing.assert_close(ends[1], ends[0], rtol=tolerance, atol=tolerance)


def test_what_plans_do_in_other_ways_is_refused(tmp_path: Path) -> None:
    from girih.integrations.accelerate import fit
    from girih.integrations.transformers import Trainer

    arguments = transformers.TrainingArguments(str(tmp_path), gradient_accumulation_steps=2, report_to=[], use_cpu=True)
    with pytest.raises(girih.PlanError, match="gradient_accumulation_steps is 2"):
        Trainer(model_of(), arguments)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=3)
    with pytest.raises(girih.PlanError, match="gradient_accumulation_steps is 3"):
        fit(accelerator, model_of())
