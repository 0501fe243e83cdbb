"""PyTorch's exported programs in: objects, and files, which are read where their writer is trusted."""

from __future__ import annotations

import logging
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any

import forked_programs
import pytest
import torch
from torch import nn

import girih
from girih.capture import CaptureError

QUICK: dict[str, Any] = {"threads": 1, "seconds": 1, "backends": ("eager", "onednn")}
CUSTOM = """
import sys
import torch

@torch.library.custom_op("stranger::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_fake
def _(x):
    return torch.empty_like(x)

class Twice(torch.nn.Module):
    def forward(self, x):
        return twice(x)

torch.export.save(torch.export.export(Twice(), (torch.randn(2, 3),)), sys.argv[1])
"""


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"scores": self.body(image)}


@pytest.fixture(scope="module")
def model() -> Classifier:
    torch.manual_seed(0)
    return Classifier().eval()


@pytest.fixture(scope="module")
def file(model: Classifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "model.pt2"
    torch.export.save(torch.export.export(model, (torch.randn(6, 8),)), path)
    return path


def test_what_girih_writes_it_reads(model: Classifier, tmp_path: Path) -> None:
    x = torch.randn(6, 8)
    girih.optimize(model, x, **QUICK).save(tmp_path / "fast.pt2")
    again = girih.optimize(tmp_path / "fast.pt2", trust=True, **QUICK)
    results = again(x)
    results = results["scores"] if isinstance(results, dict) else results[0]  # as it was, or rewritten
    torch.testing.assert_close(results, model(x)["scores"])
    again.save(tmp_path / "again.pt2")


@pytest.mark.parametrize("by_name", [False, True])
def test_a_program_in_memory_needs_no_trust(model: Classifier, by_name: bool) -> None:
    x = torch.randn(6, 8)
    sizes = {"image": {0: torch.export.Dim("batch")}}
    program = torch.export.export(model, () if by_name else (x,), {"image": x} if by_name else {}, dynamic_shapes=sizes)
    read = girih.read_exported(program)
    assert read.names == ("image",)
    assert read.open["image"][1] == 8
    assert isinstance(read.open["image"][0], str)
    fast = girih.optimize(program, **QUICK)
    call = (lambda y: fast(image=y)) if by_name else fast
    torch.testing.assert_close(call(x)["scores"], model(x)["scores"])
    with girih.infer(read, {"image": x} if by_name else x) as answer:
        torch.testing.assert_close(answer({"image": x} if by_name else x)["scores"], model(x)["scores"])


def test_a_file_is_read_only_with_trust(file: Path, model: Classifier) -> None:
    for read in (girih.read_exported, lambda path: girih.optimize(path, **QUICK)):
        with pytest.raises(CaptureError, match=r"model\.pt2: reading a \.pt2 may run .* trust=True \(--trust\)$"):
            read(file)
    x = torch.randn(6, 8)
    torch.testing.assert_close(girih.read_exported(file, trust=True)(x)["scores"], model(x)["scores"])


class Payload:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_nothing_of_a_strangers_file_runs(file: Path, tmp_path: Path) -> None:
    """PyTorch itself runs this pickle."""
    touched, evil = tmp_path / "touched", tmp_path / "evil.pt2"
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(evil, "w") as new:
        for item in old.infolist():
            content = old.read(item)
            new.writestr(item.filename, pickle.dumps(Payload(touched)) if "sample_inputs" in item.filename else content)
    with pytest.raises(CaptureError, match="trust"):
        girih.read_exported(evil)
    assert not touched.exists()


def test_files_that_are_no_programs(file: Path, tmp_path: Path, logged: list[logging.LogRecord]) -> None:
    whole = file.read_bytes()
    (tmp_path / "text.pt2").write_text("no zip")
    (tmp_path / "short.pt2").write_bytes(whole[: len(whole) // 2])
    with zipfile.ZipFile(tmp_path / "other.pt2", "w") as other:
        other.writestr("a.txt", "nothing")
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(tmp_path / "garbled.pt2", "w") as garbled:
        for item in old.infolist():
            content = old.read(item)
            garbled.writestr(item.filename, content[:-9] if item.filename.endswith("model.json") else content)
    for name in ("text", "short", "other", "garbled", "none"):
        with pytest.raises(CaptureError, match=rf"damaged|there is no file .*{name}\.pt2") as error:
            girih.optimize(tmp_path / f"{name}.pt2", trust=True, **QUICK)
        assert "\n" not in str(error.value)
    assert not [entry for entry in logged if entry.levelno >= logging.WARNING]


def test_an_operator_of_a_stranger_is_named(tmp_path: Path) -> None:
    path = tmp_path / "custom.pt2"
    forked_programs.run([sys.executable, "-c", CUSTOM, str(path)], timeout=120).check_returncode()
    with pytest.raises(CaptureError, match=r"operator stranger\.twice\.default, which is not registered here") as error:
        girih.read_exported(path, trust=True)
    assert "\n" not in str(error.value)


def test_inputs_by_position_and_by_name_are_refused() -> None:
    class Both(nn.Module):
        def forward(self, x: torch.Tensor, *, y: torch.Tensor) -> torch.Tensor:
            return x + y

    program = torch.export.export(Both(), (torch.randn(3),), {"y": torch.randn(3)})
    with pytest.raises(CaptureError, match="1 inputs by position and y by name"):
        girih.optimize(program, **QUICK)
