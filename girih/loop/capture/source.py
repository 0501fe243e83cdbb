"""A loop body as text: the function's AST with its true line numbers, and the names that it takes from outside."""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import inspect
import textwrap
import zlib
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from types import CodeType, FunctionType, ModuleType, NoneType
from typing import Any

import numpy as np

from girih.loop.capture.errors import LoopError, refusal

FORBIDDEN = {
    ast.Try: "exceptions are not caught in parallel loops",
    ast.With: "`with` has no meaning in a compiled loop",
    ast.AsyncFunctionDef: "functions are not defined in a loop body",
    ast.FunctionDef: "functions are not defined in a loop body",
    ast.ClassDef: "classes are not defined in a loop body",
    ast.Lambda: "functions are not defined in a loop body",
    ast.Global: "a loop body shares nothing but arrays, buffers and accumulators",
    ast.Nonlocal: "a loop body shares nothing but arrays, buffers and accumulators",
    ast.Delete: "nothing is deleted in a loop body",
    ast.Yield: "a loop body yields nothing",
    ast.YieldFrom: "a loop body yields nothing",
    ast.Await: "a loop body awaits nothing",
    ast.Import: "nothing is imported in a loop body",
    ast.ImportFrom: "nothing is imported in a loop body",
    ast.Starred: "it is not known how many there are",
}


@dataclass(frozen=True)
class Source:
    """tree: the function. outside: free names and what they are now. file: as users see it."""

    tree: ast.FunctionDef
    file: str
    parameters: tuple[str, ...]
    defaults: dict[str, Any]
    free: tuple[str, ...]
    function: Callable[..., Any]
    nearby: Mapping[str, Any] = field(default_factory=dict)

    def outside(self, name: str) -> Any:
        """What a free name is now.

        Raises:
            LoopError: there is nothing of that name.
        """
        code = self.function.__code__
        if name in self.nearby:
            return self.nearby[name]
        if name in code.co_freevars and self.function.__closure__ is not None:
            try:
                return self.function.__closure__[code.co_freevars.index(name)].cell_contents
            except ValueError:
                pass
        elif name in self.function.__globals__:
            return self.function.__globals__[name]
        elif hasattr(builtins, name):
            return getattr(builtins, name)
        raise LoopError(f"{self.file}:{self.tree.lineno}: {self.tree.name} uses {name}, which is not defined")


def read_source(function: Callable[..., Any], nearby: Mapping[str, Any] | None = None) -> Source:
    """The text of a Python function.

    nearby: local variables where it is defined; `err += x` makes err a local variable of the function, and hides from
    Python the accumulator that is meant.

    Raises:
        LoopError: the text is not to be had, or it has statements that loop bodies cannot have.
    """
    name = getattr(function, "__name__", str(function))
    try:
        lines, first = inspect.getsourcelines(function)
        module = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError) as error:
        raise LoopError(
            f"the text of {name} cannot be read ({error}): define it with `def` in a file or a notebook's cell"
        ) from error
    ast.increment_lineno(module, first - 1)
    tree = module.body[0] if module.body else None
    file = Path(inspect.getsourcefile(function) or "?").name
    if not isinstance(tree, ast.FunctionDef):
        raise LoopError(f"{file}:{first}: {name} is no plain function: define it with `def`")
    tree.decorator_list = []  # what they are given is no part of the body
    arguments = tree.args
    code = function.__code__
    given = [item.arg for item in (*arguments.args, *arguments.kwonlyargs)]
    if tree.name != code.co_name or given != list(code.co_varnames[: len(given)]):
        raise LoopError(f"{file}:{first}: the file has changed since {name} was defined: import it anew")
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
        raise refusal(file, tree.lineno, f"{name} takes any number of arguments", "name each of them")
    for node in ast.walk(tree):
        if node is not tree and type(node) in FORBIDDEN:
            raise refusal(file, node, FORBIDDEN[type(node)], "write it with assignments, if, for and while")
    parameters = tuple(item.arg for item in (*arguments.args, *arguments.kwonlyargs))
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    loaded = dict.fromkeys(
        node.id
        for statement in tree.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load | ast.Store)
    )
    around = {**function.__globals__, **(nearby or {})}
    hidden = {item: around[item] for item in stored - set(parameters) if item in around and _shared(around[item])}
    free = [item for item in loaded if item not in parameters and (item not in stored or item in hidden)]
    defaults = {
        key: value.default
        for key, value in inspect.signature(function).parameters.items()
        if value.default is not inspect.Parameter.empty
    }
    source = Source(tree, file, parameters, defaults, tuple(free), function, hidden)
    tree.body = [_Plainer(source).visit(statement) for statement in tree.body]
    return source


class _Plainer(ast.NodeTransformer):
    """Writes `a < b < c` as `a < b and b < c`, and `max((a, b))` as `max(a, b)`: whole numbers with and without a sign
    are compared exactly two by two, and a tuple of both would be one of floats."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        inner = (part for item in node.comparators[:-1] for part in ast.walk(item))
        if len(node.ops) == 1 or any(isinstance(part, ast.Call | ast.NamedExpr) for part in inner):
            return node  # what is called may do something, or draw a number, each time
        between = [node.left, *node.comparators]
        pairs: list[ast.expr] = [
            ast.copy_location(ast.Compare(left if at == 0 else copy.deepcopy(left), [op], [right]), node)
            for at, (left, op, right) in enumerate(zip(between, node.ops, between[1:], strict=False))
        ]
        return ast.copy_location(ast.BoolOp(ast.And(), pairs), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name(name), [ast.Tuple(items) | ast.List(items)], []) if (
                len(items) > 1 and name in self.source.free and self.source.outside(name) in (min, max)
            ):
                return ast.copy_location(ast.Call(node.func, items, []), node)
        return node


def identity(value: Any, names: Collection[str] = (), above: tuple[FunctionType, ...] = ()) -> Hashable:
    """What tells a value that is taken for a constant from another.

    Of a function it is also what it reads from outside (numbers, arrays, and so on through the functions that it
    calls), of a module those numbers in it that have one of the names: compiled code holds them as they were. above:
    functions whose identity this is a part of.
    """
    if isinstance(value, bool | int | float | complex | str | np.generic | NoneType):
        return type(value), str(value)
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), zlib.crc32(np.ascontiguousarray(value).tobytes())
    if isinstance(value, ModuleType):
        numbers = ((name, getattr(value, name, None)) for name in sorted(names))
        return id(value), tuple((name, item) for name, item in numbers if isinstance(item, int | float))
    if isinstance(value, FunctionType) and value not in above:
        used = names_in(value.__code__)
        outside = (
            (name, identity(item, used, (*above, value)))
            for name, item in sorted(_outside(value, used), key=itemgetter(0))
        )
        return id(value), tuple(outside)
    return id(value)


def _outside(function: FunctionType, names: Collection[str]) -> Iterator[tuple[str, Any]]:
    """What a function's global names of these, and its free variables, are now."""
    for name in names:
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # it is empty yet
            yield name, cell.cell_contents


def names_in(code: CodeType) -> set[str]:
    """The global names and attributes that code has, and code within it."""
    inner = (names_in(item) for item in code.co_consts if isinstance(item, CodeType))
    return set(code.co_names).union(*inner)


def _shared(item: Any) -> bool:
    """Is it an accumulator (or array) of a loop, so that a name that is assigned means it and no local variable?"""
    return bool(getattr(item, "of_loops", False))
