"""README and docs/ speak of the code as it is: their programs run, their commands succeed, their links lead somewhere.

Every ```python block is a program: it runs exactly as printed, in a process of its own; what `python NAME.py` marks is
kept under that name, so that later programs of the page can import it. `python fragment` is only compiled.
Every line of an ```sh block that begins with `girih` is run, in one temporary directory for each page; a comment
`# exit code 2` says that it must be refused. A ```text block that follows them shows lines of what they print, but for
losses, whose last digits are the processor's; `…` stands for what is left out.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import forked_programs
import pytest
from counts import LONG

from girih.cli.main import main
from girih.cost.cache import usable_cache
from girih.inference import costs, trial

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMED_PROGRAM = re.compile(r"python (\w+\.py)")
LOSS = re.compile(r"step +\d+ +loss ")
EXIT_CODE = re.compile(r"#\s*exit code (\d)")


def blocks(page: Path) -> Iterator[tuple[int, str, str]]:
    """(line number, info string, contents) of each fenced block."""
    info, start, lines = None, 0, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            if info is None:
                info, start, lines = line[3:].strip(), number, []
            else:
                yield start, info, "\n".join(lines)
                info = None
        elif info is not None:
            lines.append(line)
    assert info is None, f"{page.name}:{start}: this block is never closed"


def name_of(page: Path) -> str:
    return page.stem


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_say_what_they_are(page: Path) -> None:
    known = {"python", "python fragment", "sh", "text"}
    for line, info, _ in blocks(page):
        assert info in known or NAMED_PROGRAM.fullmatch(info), f"{page.name}:{line}: {info!r} is none of {known}"


def programs() -> Iterator[tuple[Path, int, str, str]]:
    """(page, line number, file name or "", text) of every program."""
    for page in PAGES:
        for line, info, text in blocks(page):
            named = NAMED_PROGRAM.fullmatch(info)
            if info == "python" or named:
                yield page, line, named[1] if named else "", text


@pytest.mark.parametrize(
    ("page", "line", "text"),
    [pytest.param(page, line, text, id=f"{page.stem}:{line}") for page, line, _, text in programs()],
)
def test_a_program_runs_as_printed(page: Path, line: int, text: str, tmp_path: Path) -> None:
    earlier = [(name, other) for where, number, name, other in programs() if where == page and number < line]
    for name, other in earlier:
        if name:
            (tmp_path / name).write_text(other, encoding="utf-8")
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    surroundings = {**os.environ, "PYTHONPATH": paths, "XDG_CACHE_HOME": own_cache(tmp_path / "cache")}
    done = forked_programs.run(
        [sys.executable, str(tmp_path / "program.py")], surroundings, timeout=300, folder=tmp_path, new=True
    )
    assert done.returncode == 0, f"{page.name}:{line}: {done.stderr}"
    printed = set(map(str.rstrip, done.stdout.splitlines()))
    missing = [shown for shown in shown_behind(page, line, text) if shown not in printed]
    assert not missing, f"{page.name}:{line}: {missing}; it prints\n{done.stdout}"


def own_cache(home: Path) -> str:
    """A cache without measurements. Libraries in C are those of the whole run: a compiler takes a second for them."""
    (home / "girih").mkdir(parents=True, mode=0o700)
    for room in ("arena", "array"):
        shared = usable_cache(room)
        assert shared is not None
        (home / "girih" / room).symlink_to(shared)
    return str(home)


def shown_behind(page: Path, line: int, text: str) -> list[str]:
    """The lines of the ```text block right behind a program; none if there is none, or something is left out."""
    end = line + len(text.splitlines())
    for start, info, content in blocks(page):
        if start > line:
            return content.splitlines() if info == "text" and start - end < 6 and "…" not in content else []
    return []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_fragments_are_python(page: Path) -> None:
    for line, info, text in blocks(page):
        if info == "python fragment":
            compile("\n" * line + text, str(page), "exec")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_succeed(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(tmp_path / "cache"))
    for module in (costs, trial):  # `optimize` runs kernels and models a few times: nothing here depends on how often
        monkeypatch.setattr(module, "SECONDS", 0.0)
    monkeypatch.setattr(trial, "WAKING", 0.0)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    seen: set[str] = set()
    end = 0
    for start, info, text in blocks(page):
        shown = [line for line in text.splitlines() if line.strip() and "…" not in line and not LOSS.match(line)]
        if info == "text" and seen and start - end < 6:  # right behind it
            drifted = [line for line in shown if " ".join(line.split()) not in seen]
            assert not drifted, f"{page.name}:{start}: the commands above print otherwise: {drifted}"
        seen, end = (seen if info == "sh" else set()), start + len(text.splitlines())
        for offset, line in enumerate(text.splitlines(), 1):
            if info == "sh" and line.startswith("girih "):
                expected = EXIT_CODE.search(line)
                if not LONG and line.startswith("girih calibrate"):
                    line = re.sub(r"--seconds \d+", "--seconds 0.1", line)  # what is measured is shown nowhere
                try:
                    code = main(shlex.split(line, comments=True)[1:])
                except SystemExit as refused:  # argparse's way
                    code = refused.code
                printed = capsys.readouterr()
                seen |= {" ".join(line.split()) for line in (printed.out + printed.err).splitlines()}
                assert code == (int(expected[1]) if expected else 0), (
                    f"{page.name}:{start + offset}: {line}\n{printed.out}{printed.err}"
                )


def anchors(page: Path) -> set[str]:
    """What a heading is linked by, as GitHub makes it."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), f"{page.name}: there is no {target}"
        if anchor:
            assert anchor in anchors(found), f"{page.name}: {found.name} has no heading for #{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_and_tests_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for path in re.findall(r"`((?:girih|tests|examples)/[\w/]+\.py)", text):
        assert (ROOT / path).is_file(), f"{page.name} names {path}"
    for path, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), f"{page.name} names {path}::{test}"
    for module in re.findall(r"benchmarks\.([a-z_]+)", text):
        assert (ROOT / "benchmarks" / f"{module}.py").is_file(), f"{page.name} names benchmarks.{module}"
