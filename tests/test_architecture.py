"""The house holds together: every import in girih/ goes downwards, and nobody prints, or reads the environment, below
the command line."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "girih"

# From the top to the bottom, as in DESIGN.md: a room imports from lower lines only; those in one line not each other.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset(
        {
            "arguments",
            "captured",
            "checkpoints",
            "cli",
            "commands",
            "predicting",
            "programs",
            "running",
            "spelling",
            "terminal",
            "__main__",
            "array",
        }
    ),
    frozenset(
        {
            "plans",
            "plan_check",
            "plan_file",
            "plan_schema",
            "plan_trial",
            "plan_run",
            "plan_compare",
            "plan_composed",
            "plan_costs",
            "plan_fastest",
            "plan_inputs",
            "plan_memory",
            "plan_optimum",
            "plan_pieces",
            "plan_predict",
            "plan_prices",
            "plan_scratch",
        }
    ),
    frozenset({"report", "run"}),
    frozenset({"simulate", "memory", "lower"}),
    frozenset({"partition", "rewrite"}),
    frozenset({"capture"}),
    frozenset({"machine"}),
    frozenset({"layout"}),
    frozenset({"ops"}),
    frozenset({"graph"}),
)
FACES = LAYERS[0] - {"array"}  # the command line, in several files of which one imports another
PLAN = LAYERS[1]  # one noun in several files
# What one room may import in spite of its place, and why.
EXCEPTIONS = {
    ("simulate", "lower"): "the Program that is simulated is the Program that is run: its types live in lower",
    ("memory", "lower"): "memory orders and places the steps of a Program",
}
TYPES_ONLY = {
    ("report", "plans"): "tables are made of a Plan; the type alone, never at run time",
}
TOO_LONG: dict[str, str] = {}  # files over 400 lines, with the reason


@dataclass(frozen=True)
class Import:
    file: Path
    line: int
    target: str
    types_only: bool

    @property
    def room(self) -> str:
        return room_of(self.file)

    @property
    def goal(self) -> str:
        return self.target.split(".")[1] if "." in self.target else "girih"

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT.parent)}:{self.line}: {self.room} imports {self.target}"


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def room_of(file: Path) -> str:
    first = file.relative_to(ROOT).parts[0]
    return "girih" if first == "__init__.py" else first.removesuffix(".py")


def imports_of(file: Path) -> Iterator[Import]:
    """Every import of girih, lazy ones and those for type checking too; relative and textual ones are refused."""
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    typing: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            typing.update(inner for statement in node.body for inner in ast.walk(statement))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [item.name for item in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative imports hide where they go"
            names = [node.module or ""]
            if node.module == "girih":  # `from girih import commands` names a room, or what girih itself gives
                names = [f"girih.{item.name}" if (ROOT / item.name).exists() or (ROOT / f"{item.name}.py").exists()
                         else "girih" for item in node.names]  # fmt: skip
        else:
            continue
        for name in names:
            if name == "girih" or name.startswith("girih."):
                yield Import(file, node.lineno, name, node in typing)


def layer_of(room: str) -> int | None:
    return next((number for number, rooms in enumerate(LAYERS) if room in rooms), None)


def is_allowed(item: Import) -> bool:
    room, goal = item.room, item.goal
    if room == goal or room == "girih":  # girih/__init__.py gives names of every room, when they are first used
        return True
    if room == "models":
        return False
    if goal == "models":
        return room in FACES
    if goal == "girih":  # the version
        return room in FACES | PLAN
    if {room, goal} <= FACES or ({room, goal} <= PLAN):
        return True
    if (room, goal) in EXCEPTIONS or (item.types_only and (room, goal) in TYPES_ONLY):
        return True
    above, below = layer_of(room), layer_of(goal)
    assert above is not None, f"{item}: {room} has no place in the house: add it to LAYERS and DESIGN.md"
    assert below is not None, f"{item}: {goal} has no place in the house: add it to LAYERS and DESIGN.md"
    return above < below


def test_every_import_goes_downwards() -> None:
    wrong = [str(item) for file in files() for item in imports_of(file) if not is_allowed(item)]
    assert not wrong, "\n".join(wrong)


def test_every_room_has_a_place() -> None:
    rooms = {room_of(file) for file in files()} - {"girih", "models"}
    assert not [room for room in rooms if layer_of(room) is None]


def test_no_exception_is_idle() -> None:
    """An exception that nobody needs is taken away, for rooms that exist."""
    used = {(item.room, item.goal) for file in files() for item in imports_of(file)}
    existing = {room_of(file) for file in files()}
    idle = [pair for pair in (*EXCEPTIONS, *TYPES_ONLY) if pair not in used and pair[0] in existing]
    assert not idle


def test_the_reader_of_imports_sees_all_kinds(tmp_path: Path) -> None:
    text = """
from typing import TYPE_CHECKING
import girih.graph, os
from girih.ops import description_of
if TYPE_CHECKING:
    from girih.plan import Plan
def f():
    from girih import commands, __version__
    import torch
"""
    file = tmp_path / "any.py"
    file.write_text(text)
    found = [(item.target, item.types_only) for item in imports_of(file)]
    assert sorted(found) == [
        ("girih", False), ("girih.commands", False), ("girih.graph", False), ("girih.ops", False), ("girih.plan", True),
    ]  # fmt: skip


def test_rooms_without_torch_load_without_torch() -> None:
    """Graph, layouts, machines, searches and lowering are plain Python, NumPy and Numba."""
    code = "import sys, girih.lower, girih.machine, girih.partition.searches; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_importing_girih_is_quick_and_loads_nothing() -> None:
    code = (
        "import sys, time; start = time.perf_counter(); import girih; took = time.perf_counter() - start;"
        "print(took, *[name for name in ('torch', 'numpy', 'numba', 'scipy', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    took, *loaded = done.stdout.split()
    assert loaded == []
    assert float(took) < 0.5
    assert done.stderr == ""


def test_what_girih_gives_exists() -> None:
    import girih

    for name in girih.__all__:
        assert getattr(girih, name) is not None
    assert sorted(girih.__all__) == dir(girih)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = girih.nothing


def test_files_are_small() -> None:
    long = {str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines()) for file in files()}
    over = {name: lines for name, lines in long.items() if lines > 400 and name not in TOO_LONG}
    assert not over, f"a file past 400 lines is asking to be two: {over}"
    assert not [name for name in TOO_LONG if long.get(name, 0) <= 400]


def calls(file: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.lineno, node.func.id


def test_only_the_command_line_prints() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in files()
        if room_of(file) not in FACES
        for line, name in calls(file)
        if name in ("print", "input", "breakpoint")
    ]
    assert not wrong, wrong


def test_only_the_command_line_and_workers_read_the_environment() -> None:
    """Workers find each other by torchrun's variables."""
    wrong = []
    for file in files():
        if room_of(file) in FACES or room_of(file) == "run":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            attribute = isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "putenv")
            name = isinstance(node, ast.ImportFrom) and any(item.name in ("environ", "getenv") for item in node.names)
            if attribute or name:
                wrong.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert not wrong, wrong
