"""Captures of models by name, kept: the same plans, and nothing that is wrong with the files stops anybody."""

from __future__ import annotations

import base64
import gzip
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from girih.cli import captured
from girih.cli.main import main
from girih.cli.programs import in_micro_batches, program
from girih.cost import cache
from girih.plans.inputs import program_of

INPUT = "p.0.bias"


class Bomb:
    """What runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "girih" / "captured"


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["plan", "mlp-tiny", "--no-compare", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["mlp-tiny", "gpt-tiny", "lenet-tiny", "dlrm-tiny"])
def test_what_is_kept_is_what_was_captured(name: str, folder: Path) -> None:
    made = in_micro_batches(program(name, None, "adam"), None)
    fresh = program_of(made.step, made.batch, made.name)
    path = captured.file_of(name, None, "adam", None, "fp32")
    captured.save(path, fresh)
    assert path.parent == folder
    assert captured.load(path) == fresh


def test_a_model_is_captured_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = planned(capsys)
    (kept,) = folder.iterdir()
    written = kept.stat().st_mtime_ns
    assert planned(capsys) == first
    assert kept.stat().st_mtime_ns == written
    assert planned(capsys, "--fresh") == first
    (kept,) = folder.iterdir()
    assert kept.stat().st_mtime_ns > written
    planned(capsys, "--batch", "16")
    planned(capsys, "--optimizer", "adam")
    assert planned(capsys, "--precision", "bf16") != first
    assert len(list(folder.iterdir())) == 4
    assert len({value.dtype for path in folder.iterdir() for value in captured.load(path).graph.values.values()}) > 2


def test_what_a_search_makes_of_the_graph_is_not_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`megatron` divides a rewritten graph."""
    assert main(["plan", "gpt-tiny", "--no-compare", "--search", "megatron"]) == 0
    made = program("gpt-tiny")
    (kept,) = folder.iterdir()
    assert captured.load(kept) == program_of(made.step, made.batch, made.name)


def test_a_file_passes_the_gate_of_plan_files(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing that its writer chose is run, and it is captured again."""
    first = planned(capsys)
    (kept,) = folder.iterdir()
    good = json.loads(gzip.decompress(kept.read_bytes()))
    target = tmp_path / "ran"
    bomb = f"f|{base64.b85encode(pickle.dumps(Bomb(target))).decode()}"
    for call in (
        f'girih.map(tensors=[%{INPUT}], function={json.dumps(bomb)}, kind="float32")',
        f'girih.map(tensors=[%{INPUT}], function="os:system", kind="float32")',
        f'aten.from_file(filename="{target}", shared=True, size=4)',
    ):
        graph = [*good["graph"][:-1], f"  %hostile: float32[4] = {call}  # forward", good["graph"][-1]]
        kept.write_bytes(gzip.compress(json.dumps({**good, "graph": graph}).encode()))
        assert captured.load(kept) is None
        assert planned(capsys) == first
    assert not target.exists()


@pytest.mark.parametrize("whose", ["others may write to the file", "others may write to the folder", "somebody else's"])
def test_what_others_may_have_written_is_not_used(
    whose: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = planned(capsys)
    (kept,) = folder.iterdir()
    assert [part.stat().st_mode & 0o777 for part in (folder.parent, folder, kept)] == [0o700, 0o700, 0o600]
    if whose == "others may write to the file":
        kept.chmod(0o622)
        assert captured.load(kept) is None
        return
    if whose == "somebody else's":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    else:
        folder.parent.chmod(0o777)
    cache._warn.cache_clear()
    message = "girih goes on without its cache: .* (may be written to by others .mode 0777|belongs to user)"
    with pytest.warns(UserWarning, match=message) as told:
        assert planned(capsys) == first
    assert len(told) == 1
    assert captured.load(kept) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"junk", gzip.compress(b"{}"), gzip.compress(b"[" * 100_000), gzip.compress(b'{"graph": ["graph", "x"]}')],
    ids=["empty", "junk", "no keys", "nested", "no graph"],
)
def test_a_file_that_cannot_be_read_is_captured_again(
    content: bytes, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = planned(capsys)
    (kept,) = folder.iterdir()
    kept.write_bytes(content)
    assert captured.load(kept) is None
    assert planned(capsys) == first
    assert captured.load(kept) is not None


def test_a_cache_that_cannot_be_written_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(
        UserWarning, match="girih goes on without its cache: .*file/girih cannot be made: Not a directory"
    ):
        assert "mlp-tiny@8 on local:2" in planned(capsys)


def test_old_files_go(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned(capsys)
    (kept,) = folder.iterdir()
    for number in range(captured.MOST_FILES + 5):
        other = folder / f"{number}.json.gz"
        other.write_bytes(b"")
        os.utime(other, (number, number))
    planned(capsys, "--batch", "16")
    assert len(list(folder.iterdir())) == captured.MOST_FILES
    assert kept.exists()


def test_a_capture_is_kept_for_the_files_that_it_depends_on() -> None:
    stamps = " ".join(captured._versions())
    assert all(f"{room}/" in stamps for room in captured.DEPENDS_ON)
