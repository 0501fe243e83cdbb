"""`girih.infer` and `girih.read_onnx` with other shapes than they were made for, and weights that are changed later."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from test_calls import PerRow, rows, same
from torch import nn

import girih
from girih.inference.onnx.errors import OnnxError
from girih.plans.plan import PlanError


def test_infer_refuses_plans_again_or_asks_the_model() -> None:
    model = PerRow().eval()
    with girih.infer(model, (rows(6), 2.0)) as answer:
        for batch in ((rows(3), 2.0), (rows(6), 3.0), (rows(6), 2.0, torch.ones(4)), (rows(6).double(), 2.0)):
            with pytest.raises(PlanError, match=r"plan again|another|batch has"):
                answer(*batch)
        same(answer, model, rows(6), 2.0)  # type: ignore[arg-type]
    for otherwise in ("again", "model"):
        with girih.infer(model, rows(6), otherwise=otherwise) as answer:
            for count in (6, 3, 5, 6, 3):
                same(answer, model, rows(count))  # type: ignore[arg-type]
            assert len(answer._plans) == (3 if otherwise == "again" else 1)
    with pytest.raises(PlanError, match="no way 'maybe' to answer other batches: there are refuse, again, model"):
        girih.infer(model, rows(6), otherwise="maybe")
    with pytest.raises(PlanError, match=r"no optimize=: it keeps a limit of memory\. girih\.optimize\(model, x\)"):
        girih.infer(model, rows(6), optimize=True)


@pytest.mark.parametrize("memory", [None, "2KB"])
def test_infer_takes_up_weights_that_are_changed_later(memory: str | None) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()
    with girih.infer(model, rows(6), memory=memory) as answer:
        same(answer, model, rows(6))  # type: ignore[arg-type]
        model.load_state_dict(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).state_dict())
        same(answer, model, rows(6))  # type: ignore[arg-type]
        with torch.no_grad():
            model[0].weight.data.mul_(2.0)
        same(answer, model, rows(6))  # type: ignore[arg-type]


def test_infer_takes_a_batch_by_name() -> None:
    model = PerRow().eval()
    with girih.infer(model, {"x": rows(6), "scale": torch.tensor(2.0)}) as answer:
        batch = {"x": rows(6), "scale": torch.tensor(3.0)}
        for found in (answer(**batch), answer(batch)):
            torch.testing.assert_close(found, model(**batch))
        with pytest.raises(PlanError, match=r"all by name, answer\(\*\*batch\)"):
            answer(rows(6), scale=torch.tensor(3.0))


def test_infer_refuses_an_index_that_no_row_has() -> None:
    with girih.infer(nn.Embedding(5, 4).eval(), torch.tensor([0, 4])) as answer:
        for wrong in (5, -1):
            with pytest.raises(IndexError, match=f"has the number {wrong}: expected from 0 to 4"):
                answer(torch.tensor([0, wrong]))


def test_an_onnx_model_is_read_again_for_other_shapes_or_refuses_them(tmp_path: Path) -> None:
    model, file = PerRow().eval(), tmp_path / "model.onnx"
    shapes = ({0: torch.export.Dim("batch")},)
    with warnings.catch_warnings(action="ignore"):  # PyTorch's exporter tells of its own deprecations
        torch.onnx.export(model, (rows(6),), file, dynamo=True, verbose=False, dynamic_shapes=shapes)
    read = girih.read_onnx(file, (rows(6),))
    for count in (6, 3, 5, 3, 6):
        same(read, model, rows(count))
    assert all(other.layer_weight is read.layer_weight for other in read._others.values())
    with girih.infer(girih.read_onnx(file, (rows(6),)), (rows(6),)) as answer:
        same(answer, model, rows(6))  # type: ignore[arg-type]
    fast = girih.optimize(file, rows(6), threads=1, seconds=0.1, backends=("eager",), otherwise="again")
    for count in (6, 3):
        same(fast, model, rows(count))
    for wrong, says in (
        (rows(3)[:, :5], r"input 'x' is \['batch', 8\]"),
        (rows(3).double(), "input 'x' is torch.float32"),
    ):
        with pytest.raises(OnnxError, match=says):
            read(wrong)
    with pytest.raises(OnnxError, match=r"it was read for x float32\[6, 8\], and is called with x float32\[3, 8\]"):
        girih.read_onnx(file, (rows(6),), otherwise="refuse")(rows(3))
    with torch.no_grad():
        read.layer_weight.add_(1)
    with pytest.raises(OnnxError, match="its weight 'layer_weight' was changed since"):
        read(rows(3))
    with pytest.raises(OnnxError, match="no way 'maybe' to answer other shapes"):
        girih.read_onnx(file, (rows(6),), otherwise="maybe")
