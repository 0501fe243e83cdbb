"""Lightning's Trainer whose steps are girih's, beside the same Trainer without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import girih

lightning = pytest.importorskip("lightning.pytorch", reason="lightning is in the extra benchmarks")

ROWS = 20


def module_of(**changes: Any) -> Any:
    class Module(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            loss = nn.functional.cross_entropy(self.layers(x), y)
            self.log("loss", loss, on_step=True, on_epoch=True)
            self.log_dict({"largest": self.layers(x).max(), "rows": float(len(x))}, batch_size=len(x))
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            x, y = batch
            self.log("evaluated", nn.functional.cross_entropy(self.layers(x), y))

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), 0.5, momentum=0.9)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    torch.manual_seed(0)
    return type("Module", (Module,), changes)()


def loader_of() -> Any:
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randn(ROWS, 6, generator=draw), torch.randint(3, (ROWS,), generator=draw)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)  # 8, 8 and 4 rows


class Told(lightning.Callback):  # type: ignore[name-defined, misc]
    """What a user's callback sees behind each step."""

    def __init__(self) -> None:
        self.seen: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self.seen.append({key: float(value) for key, value in trainer.callback_metrics.items()})


def trained(module: Any, path: Path, *callbacks: Any, **options: Any) -> tuple[Any, list[dict[str, float]]]:
    told = Told()
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=path, callbacks=[*callbacks, told], **options,
    )  # fmt: skip
    trainer.fit(module, loader_of(), loader_of())
    return trainer, told.seen


@pytest.mark.filterwarnings("ignore")  # Lightning's, of loaders with few workers and the like
@pytest.mark.parametrize("options", [{}, {"gradient_clip_val": 0.1}, {"precision": "bf16-mixed"}])
def test_a_trainer_trains_logs_and_evaluates_as_without(options: dict[str, Any], tmp_path: Path) -> None:
    """With a last batch that is short, a schedule, evaluations in between, and a checkpoint."""
    from girih.integrations.lightning import Planned

    ends = []
    for callbacks in ((), (Planned(compare=()),)):
        module = module_of()
        trainer, seen = trained(module, tmp_path, *callbacks, **options)
        kept = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=False)["state_dict"]
        assert trainer.global_step == 6
        assert "training_step" not in vars(module)
        ends.append((seen, module.state_dict(), dict(kept)))
    tolerance = 0.03 if "precision" in options else 1e-5
    torch.testing.assert_close(ends[1], ends[0], rtol=tolerance, atol=tolerance)


@pytest.mark.filterwarnings("ignore")
def test_what_plans_do_in_other_ways_is_refused(tmp_path: Path) -> None:
    from girih.integrations.lightning import Planned

    for options, word in (({"accumulate_grad_batches": 2}, "accumulate_grad_batches is 2"),
                          ({"precision": "bf16-true"}, "precision is 'bf16-true'")):  # fmt: skip
        with pytest.raises(girih.PlanError, match=word):
            trained(module_of(), tmp_path, Planned(), **options)

    def odd(self: Any, batch: Any, batch_idx: int) -> Any:
        return self.layers(batch[0]).mean() * (batch_idx % 2)

    with pytest.raises((girih.PlanError, girih.CaptureError), match="training_step uses batch_idx"):
        trained(module_of(training_step=odd), tmp_path, Planned())
