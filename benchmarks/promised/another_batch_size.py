"""An optimised model, `infer` and an ONNX model answer another batch size, later weights, and a program or an autocast
that was changed later, as the model does or refuse them."""

import sys
import tempfile
import warnings

import torch
from torch import nn

import girih
from girih.inference import trial

warnings.simplefilter("ignore")
trial.FAR, trial.SECONDS, trial.choice = float("inf"), 0.0, lambda took: len(took) - 1  # each back end wins once


class PerRow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.tau = nn.Linear(8, 4), 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x) / self.tau).sum(0) / x.shape[0]


def asked(what: str, answer, model, refusals: tuple[type[Exception], ...]) -> None:
    for count in (64, 48, 16):
        x = torch.randn(count, 8)
        try:
            result = answer(x)
        except refusals as error:
            if (count == 64 and what.endswith(("infer", "weights"))) or "\n" in str(error):
                sys.exit(f"{what}, batch {count}: {error}")
            continue
        except Exception as error:
            sys.exit(f"{what}, batch {count}: a raw {type(error).__name__}")
        if result.dtype != model(x).dtype or not torch.allclose(
            result, model(x), atol=1e-4 if result.dtype == torch.float32 else 2e-2
        ):
            sys.exit(f"{what}, batch {count}: a wrong answer without a word")


def changed_later(what: str, answer, model, refusals: tuple[type[Exception], ...]) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        asked(f"{what}, autocast", answer, model, refusals)
    for name, change in (
        ("other weights", lambda: model.load_state_dict(PerRow().state_dict())),
        ("another number", lambda: setattr(model, "tau", 0.5)),
        ("a hook", lambda: model.layer.register_forward_hook(lambda module, inputs, output: 2 * output)),
        ("another part", lambda: setattr(model, "layer", nn.Linear(8, 4))),
    ):
        change()
        asked(f"{what}, {name}", answer, model, refusals)


torch.manual_seed(0)
x = torch.randn(64, 8)
for backend in ("eager", "onednn", "onnxruntime", "openvino"):
    model = PerRow().eval()
    fast = girih.optimize(model, x, threads=1, seconds=0.1, backends=(backend,))
    asked(f"optimize, won by {backend}", fast, model, ())
    changed_later(f"optimize, won by {backend}", fast, model, ())
model = PerRow().eval()
with girih.infer(model, x) as answer:
    asked("infer", answer, model, (girih.PlanError,))
    model.load_state_dict(PerRow().state_dict())
    asked("infer, other weights", answer, model, (girih.PlanError,))
for otherwise in ("refuse", "again", "model"):
    model = PerRow().eval()
    with girih.infer(model, x, otherwise=otherwise) as answer:
        changed_later(f"infer, {otherwise}", answer, model, (girih.PlanError,) * (otherwise == "refuse"))
with tempfile.TemporaryDirectory() as folder:
    shapes = ({0: torch.export.Dim("batch")},)
    torch.onnx.export(model, (x,), f"{folder}/m.onnx", dynamo=True, verbose=False, dynamic_shapes=shapes)
    asked("read_onnx", girih.read_onnx(f"{folder}/m.onnx", (x,)), model, (girih.CaptureError,))
