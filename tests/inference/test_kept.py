"""An optimised model as a file: it is called as before, and what is not its own is refused in one line."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_flatten, treespec_dumps

import girih
from girih.inference import kept, trial
from girih.inference.kept import KIND, KeptError, KeptFile
from girih.inference.optimized import Optimized, OptimizeError
from girih.store.sealed import seal, unseal

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(5, 8), nn.Linear(8, 4)

    def forward(self, words: torch.Tensor, scale: torch.Tensor) -> dict[str, object]:
        y = self.out(self.words(words)) * scale
        return {"y": y, "count": 3, "pair": (y.relu(), None)}


EXAMPLE = {"words": torch.tensor([[0, 4], [1, 2]]), "scale": torch.rand(4)}


@pytest.fixture(scope="module")
def fast() -> Optimized:
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "FAR", float("inf"))
        patch.setattr(trial, "SECONDS", 0.0)
        patch.setattr(trial, "WAKING", 0.0)
        patch.setattr(trial, "choice", lambda took: len(took) - 1)  # as if the library had won
        options = {"threads": 1, "seconds": 0.1, "backends": ("onnxruntime",)}
        return girih.optimize(Words().eval(), EXAMPLE, **options)


@pytest.fixture(scope="module")
def file(fast: Optimized, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept") / "fast.girih"
    fast.save(path)
    return path


def test_what_is_loaded_is_called_as_the_model_was(fast: Optimized, file: Path) -> None:
    model = girih.load_optimized(file)
    assert (model.backend, model.threads) == ("onnxruntime", 1)
    for words in (EXAMPLE["words"], torch.tensor([[3, 3], [0, 1]])):
        expected, result = fast(words=words, scale=EXAMPLE["scale"]), model(scale=EXAMPLE["scale"], words=words)
        assert [*result] == ["y", "count", "pair"]
        assert (result["count"], result["pair"][1]) == (3, None)
        torch.testing.assert_close(result["y"], expected["y"])
        torch.testing.assert_close(result["pair"][0], expected["pair"][0])


def test_the_model_as_it_was_is_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "choice", lambda took: 1)  # the second: the model itself is the first
    monkeypatch.setattr(trial, "FAR", float("inf"))
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.randn(2, 4)
    fast = girih.optimize(model, x, threads=1, seconds=0.1, backends=("onnxruntime",))
    assert (fast.explain().chosen.program, fast.explain().chosen.backend) == ("as it was", "onnxruntime")
    fast.save(tmp_path / "x.girih")
    torch.testing.assert_close(girih.load_optimized(tmp_path / "x.girih")(x), model(x).detach())


def test_another_call_is_refused(file: Path) -> None:
    model, words, scale = girih.load_optimized(file), EXAMPLE["words"], EXAMPLE["scale"]
    for batch, named, says in (
        ((), {"words": words[:1], "scale": scale}, r"argument words is int64\[1, 2\], and .* for int64\[2, 2\]"),
        ((), {"words": words, "scale": scale.double()}, r"argument scale is float64\[4\]"),
        ((), {"words": words, "scale": 2.0}, r"argument scale is 2\.0"),
        ((words, scale), {}, "is for arguments scale, words by name, and was called with 2 by position"),
    ):
        with pytest.raises(KeptError, match=says):
            model(*batch, **named)
    with pytest.raises(IndexError, match="has the number 5: expected from 0 to 4"):
        model(words=words + 1, scale=scale)


def test_a_file_that_is_not_what_it_says_is_refused(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, _, program = file.read_bytes().partition(b"\n")
    line += b"\n"

    def content(**changes: object) -> bytes:
        fields = {name: getattr(told, name) for name in told.__struct_fields__} | changes
        return seal(KIND, 1, KeptFile(**fields))

    told = unseal(KIND, 1, line, KeptFile)
    _, imports = tree_flatten(defaultdict(list, {"y": 0}))  # to read it PyTorch imports a module that it names
    foreign = b"\x80\x04cos\nsystem\n."
    node = next(number for number, text in enumerate(told.graph) if "aten.embedding" in text or "girih." in text)
    other = tuple(text.replace("girih.", "os.") if number == node else text for number, text in enumerate(told.graph))
    for data, says in (
        (b"", "is empty"),
        (foreign, "is no optimised model of girih"),
        (line[:40] + b"0" + line[41:] + program, "is damaged"),
        (line + program[:-9] + b"123456789", "checksum of its program does not fit"),
        (content(program=kept._digest(foreign)) + foreign, "is refused: "),
        (content(backend="moon") + program, "is to be run by 'moon': there are onnxruntime, openvino"),
        (content(order=(0, 7)) + program, "is damaged: its program takes other inputs"),
        (content(results="{") + program, "is damaged: "),
        (
            content(results=treespec_dumps(imports)) + program,
            "is refused: its results are in a .*defaultdict, expected",
        ),
        (content(graph=other) + program, "is refused: node|is damaged"),
    ):
        (tmp_path / "x.girih").write_bytes(data)
        with pytest.raises(KeptError, match=says) as caught:
            girih.load_optimized(tmp_path / "x.girih")
        assert "\n" not in str(caught.value)
    with pytest.raises(KeptError, match="cannot be read: No such file"):
        girih.load_optimized(tmp_path / "none.girih")
    monkeypatch.setattr(kept, "installed", lambda names: ())
    with pytest.raises(KeptError, match="run by onnxruntime, which is not installed: pip install onnxruntime"):
        girih.load_optimized(file)


def test_what_no_library_runs_is_not_written(tmp_path: Path) -> None:
    fast = girih.optimize(nn.ReLU().eval(), torch.ones(2), threads=1, seconds=0.1, backends=("eager",))
    with pytest.raises(
        OptimizeError, match=r"eager has won, whose program x\.girih cannot hold: fast\.save\('x\.pt2'\)"
    ):
        fast.save(tmp_path / "x.girih")
    assert not (tmp_path / "x.girih").exists()
