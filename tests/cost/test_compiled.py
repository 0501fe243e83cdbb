"""Libraries in C: compiled once, believed only where nobody else may have written them."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from girih.cost.compiled import CompilerError, compiled, extension


@pytest.fixture
def source(tmp_path: Path) -> Path:
    text = tmp_path / "one.c"
    text.write_text("int one(void) { return 1; }\n")
    return text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "libraries").mkdir()
    return tmp_path / "libraries"


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch, source: Path, folder: Path) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(CompilerError, match="no-such-compiler cannot be run"):
        compiled(source, folder)
    monkeypatch.setenv("CC", "false")
    with pytest.raises(CompilerError, match="false fails"):
        compiled(source, folder)
    assert not list(folder.iterdir())


def test_a_library_that_is_empty_damaged_or_not_the_users_own_is_compiled_again(
    monkeypatch: pytest.MonkeyPatch, source: Path, folder: Path
) -> None:
    first = compiled(source, folder)
    content = first.read_bytes()
    monkeypatch.setenv("CC", "no-such-compiler")
    assert compiled(source, folder) == first
    monkeypatch.delenv("CC")
    for damaged in (b"", content[: len(content) // 2], content[:-1] + b"x", content):
        first.write_bytes(damaged)
        first.chmod(0o666 if damaged == content else 0o600)
        again = compiled(source, folder)
        assert again.read_bytes() == content
        assert again.stat().st_mode & 0o777 == 0o600
        assert list(folder.iterdir()) == [again]
    assert ctypes.CDLL(str(first)).one() == 1


def test_another_text_or_version_is_another_library(source: Path, folder: Path) -> None:
    first = compiled(source, folder)
    assert compiled(source, folder, version="2") != first
    source.write_text("int one(void) { return 2; }\n")
    assert compiled(source, folder) != first


def test_what_is_no_module_of_pythons_is_none(monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert extension(source, "array", str(tmp_path), "") is None
