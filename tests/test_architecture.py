"""The house holds together: every import in girih/ goes downwards, no files import each other in a circle, and nobody
prints, or reads the environment, below the command line."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "girih"

# From the top to the bottom: a room imports from lower lines only; those in one line do not import each other.
ORDER: tuple[frozenset[str], ...] = (
    frozenset({"__main__"}),
    frozenset({"cli"}),
    frozenset({"array", "loop", "gnn", "inference", "workshop", "published", "integrations"}),
    frozenset({"api"}),
    frozenset({"report", "run", "search"}),
    frozenset({"plans"}),
    frozenset({"simulate"}),
    frozenset({"cost"}),
    frozenset({"program"}),
    frozenset({"partition"}),
    frozenset({"rewrite"}),
    frozenset({"capture"}),
    frozenset({"kernels"}),
    frozenset({"machine"}),
    frozenset({"layout"}),
    frozenset({"ops"}),
    frozenset({"graph", "store", "host", "lazily"}),
)
FACES = frozenset({"cli", "array", "loop", "gnn", "inference", "__main__"})
WINGS = FACES | {"workshop", "published", "models", "integrations"}
# Within girih/array, from the bottom to the top; all else there lies above. `session` stands on `core` alone.
ARRAY_ROOMS = ("core", "functions", "random", "linalg", "io")
# What girih/array imports inside functions: what is optional, and what would make its own import slow.
LATE = {
    ("girih.array.functions.sparse", "scipy"),
    ("girih.array.session.explain", "girih.plans.predict"),
    ("girih.array.session.explain", "girih.report.page"),
}


@dataclass(frozen=True)
class Import:
    """One import in one file, by the full names of modules."""

    file: Path
    line: int
    target: str

    @property
    def room(self) -> str:
        return room_of(self.file)

    @property
    def goal(self) -> str:
        return self.target.split(".")[1] if "." in self.target else "girih"

    @property
    def module(self) -> str:
        return module_of(self.file)

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT.parent)}:{self.line}: {self.room} imports {self.target}"


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(file: Path) -> str:
    first = file.relative_to(ROOT).parts[0]
    return "girih" if first == "__init__.py" else first.removesuffix(".py")


def is_module(name: str) -> bool:
    place = ROOT.parent.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").exists()


@cache
def imports_of(file: Path) -> tuple[Import, ...]:
    """Every import of girih, those inside functions and for type checking too; relative ones are refused."""
    return tuple(_imports_of(file))


def _imports_of(file: Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file))):
        if isinstance(node, ast.Import):
            names = [item.name for item in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative imports hide where they go"
            whole = [f"{node.module}.{item.name}" for item in node.names]
            names = [name if is_module(name) else str(node.module) for name in whole]
        else:
            continue
        for name in names:
            if name == "girih" or name.startswith("girih."):
                yield Import(file, node.lineno, name)


def floor_of(room: str) -> int:
    floor = next((number for number, rooms in enumerate(ORDER) if room in rooms), None)
    assert floor is not None, f"{room} has no place in the house: add it to ORDER and docs/architecture.md"
    return floor


def is_allowed(item: Import) -> bool:
    room, goal = item.room, item.goal
    if room in (goal, "girih"):  # girih/__init__.py gives names of every room, when they are first used
        return True
    if room == "models":
        return False
    if goal == "models":
        return room in FACES
    if goal == "girih":  # the version
        return floor_of(room) <= floor_of("plans")
    return floor_of(room) < floor_of(goal)


def test_every_import_goes_downwards() -> None:
    items = [item for file in files() for item in imports_of(file)]
    wrong = [item for item in items if not is_allowed(item)]
    assert not [str(item) for item in wrong]


def test_the_planner_knows_no_wing() -> None:
    """What belongs to one face is reached by tables of names: no room of the planner imports a wing, not even late."""
    wrong = [
        str(item)
        for file in files()
        if room_of(file) not in WINGS | {"girih"}
        for item in imports_of(file)
        if item.goal in WINGS
    ]
    assert not wrong


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected sets of more than one module (Tarjan 1972)."""
    numbers: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        numbers[module] = low[module] = len(numbers)
        stack.append(module)
        for other in sorted(edges.get(module, ())):
            if other not in numbers:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], numbers[other])
        if low[module] == numbers[module]:
            members = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(members) > 1:
                found.append(sorted(members))

    for module in sorted(edges):
        if module not in numbers:
            visit(module)
    return found


def test_no_files_import_each_other_in_a_circle() -> None:
    edges: dict[str, set[str]] = defaultdict(set)
    for file in files():
        if room_of(file) != "girih":
            edges[module_of(file)] |= {item.target for item in imports_of(file)} - {module_of(file), "girih"}
    assert not circles(edges)


def test_the_rooms_of_the_array_face_import_downwards() -> None:
    """Functions of arrays know nothing of clusters: `core.evaluation` is what they ask for values."""
    wrong = []
    for item in (item for file in (ROOT / "array").rglob("*.py") for item in imports_of(file)):
        if not item.target.startswith("girih.array"):
            continue
        room, goal = (name.split(".")[2] if name.count(".") > 1 else "" for name in (item.module, item.target))
        if room == "session":
            allowed = goal in ("core", "session")
        elif room in ARRAY_ROOMS:
            allowed = goal in ARRAY_ROOMS[: ARRAY_ROOMS.index(room) + 1]
        else:
            allowed = True  # methods, fft, … and the namespace, which the test of circles holds
        if not allowed:
            wrong.append(str(item))
    assert not wrong


def test_imports_of_the_array_face_stand_at_the_head() -> None:
    late = set()
    for file in (ROOT / "array").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        kinds = (ast.Import, ast.ImportFrom)
        first = next((node.lineno for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))), 1 << 30)
        for node in ast.walk(tree):
            if isinstance(node, kinds) and (node.col_offset or node.lineno > first):
                module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
                late.add((module_of(file), str(module)))
    assert late == LATE


def test_the_finder_of_circles_finds_them() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_the_reader_of_imports_sees_all_kinds(tmp_path: Path) -> None:
    text = """
from typing import TYPE_CHECKING
import girih.graph, os
from girih.ops import description_of
if TYPE_CHECKING:
    from girih.plans import Plan
def f():
    from girih import cli, __version__
    import torch
"""
    file = tmp_path / "any.py"
    file.write_text(text)
    found = sorted(item.target for item in imports_of(file))
    assert found == ["girih", "girih.cli", "girih.graph", "girih.ops", "girih.plans"]


def test_folders_are_small() -> None:
    """A folder of more than about a dozen files wants rooms within."""
    counts = {folder: len(list(folder.glob("*.py"))) for folder in ROOT.rglob("*") if folder.is_dir()}
    large = {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > 16}
    assert not large


def test_rooms_without_torch_load_without_torch() -> None:
    """Graph, layouts, machines, searches and lowering are plain Python, NumPy and Numba."""
    code = "import sys, girih.program, girih.machine, girih.partition.searches; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_importing_girih_loads_nothing() -> None:
    """How long it takes, `python -m benchmarks.first_use` measures."""
    code = (
        "import sys, girih;"
        "print(*[name for name in ('torch', 'numpy', 'numba', 'scipy', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
    assert done.stderr == ""


def test_what_girih_gives_exists() -> None:
    import girih

    for name in girih.__all__:
        assert getattr(girih, name) is not None
    assert sorted(girih.__all__) == dir(girih)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = girih.nothing


def nodes_where(file: Path, *words: str) -> Iterator[ast.AST]:
    """The nodes of a file in which one of these words stands; of others nothing, for they need not be parsed."""
    text = file.read_text(encoding="utf-8")
    return ast.walk(ast.parse(text)) if any(word in text for word in words) else iter(())


PRINTING = ("print", "input", "breakpoint")


def calls(file: Path) -> Iterator[tuple[int, str]]:
    for node in nodes_where(file, *(f"{name}(" for name in PRINTING)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.lineno, node.func.id


def test_only_the_command_line_prints() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in files()
        if room_of(file) not in FACES
        for line, name in calls(file)
        if name in PRINTING
    ]
    assert not wrong, wrong


READERS = {ROOT / "cost" / name for name in ("cache.py", "compiled.py", "measure_scratch.py")} | {
    ROOT / "capture" / "holders.py"
}


def test_only_the_command_line_and_workers_read_the_environment() -> None:
    """Workers find each other by torchrun's variables; what libraries were told by theirs belongs to a measurement;
    two say where the user's cache is, and which C compiler is theirs; and capture asks what the user's step reads."""
    wrong = []
    for file in files():
        if room_of(file) in FACES or room_of(file) == "run" or file in READERS:
            continue
        for node in nodes_where(file, "environ", "getenv", "putenv"):
            attribute = isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "putenv")
            name = isinstance(node, ast.ImportFrom) and any(item.name in ("environ", "getenv") for item in node.names)
            if attribute or name:
                wrong.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert not wrong, wrong


def test_tables_of_operators_are_in_their_descriptions() -> None:
    """What holds of some operators is a fact of their descriptions, or follows from them; kernels, rewritings and the
    networks that papers speak of are found by names."""
    at_home = ("ops/", "capture/", "kernels/", "rewrite/", "published/divisions/", "inference/")
    wrong = []
    for file in files():
        path = file.relative_to(ROOT).as_posix()
        if path.startswith(at_home):
            continue
        for node in nodes_where(file, "aten."):
            if isinstance(node, ast.Set | ast.Tuple | ast.List | ast.Dict):
                items = node.keys if isinstance(node, ast.Dict) else node.elts
                names = [item.value for item in items if isinstance(item, ast.Constant)]
                tables = [name for name in names if isinstance(name, str) and name.startswith("aten.")]
                if len(tables) > 1 or isinstance(node, ast.Set | ast.Dict):  # a call names one
                    wrong += [f"{path}:{node.lineno}: {name}" for name in tables]
    assert not wrong, wrong
