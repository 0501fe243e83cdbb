"""The compiled code of a loop body: one function that runs a block of entries, or a box of indices, from first to last.

The user's own statements are compiled, by Numba, with the user's file and lines; arithmetic on rows is lowered first
(`girih.loop.code.vectors`). Added are: the loop over the entries with its key and value, checks of the subscripts
that the analysis could not prove to lie inside their array, notes of which elements of a buffer were written, and a
stream of random numbers for each iteration; and operations of whole numbers are checked where their result may not fit
(`girih.loop.code.arithmetic`). Where all floating-point data are float32, Python's numbers are too, as in NumPy.
Arithmetic is done as it is written, but for `@` and sums of rows, which have no order in NumPy either; with `fast` any
may be rearranged. The same code runs in every schedule, so results do not depend on it.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from girih.layout.jit import numba
from girih.loop.capture.arithmetic import LEAST, fits, is_beyond, literal, of_intervals
from girih.loop.capture.body import AccumulatorRole, ArrayRole, Body, BufferRole, Inherited, key_and_value
from girih.loop.capture.errors import LoopError, refusal, short
from girih.loop.capture.source import Source, identity, names_in
from girih.loop.capture.values import (
    WEAK_FLOAT,
    WEAK_INT,
    Function,
    Index,
    Interval,
    Scalar,
    Stream,
    Tuple,
    Value,
    Vector,
    is_outside,
    views_of,
)
from girih.loop.code.arithmetic import (
    EXACT,
    FAST,
    Checked,
    Exact,
    checked,
    fitting,
    replaced,
    storable,
    summed,
    summed_product,
)
from girih.loop.code.streams import begin_random, begin_stream, next_random, stream_of
from girih.loop.code.vectors import (
    NARROW,
    OWN,
    OutlivesError,
    VectorLowering,
    as_single,
    assign,
    index_name,
    scratch_name,
)

SIGNS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Pow: "**", ast.LShift: "<<", ast.RShift: ">>", ast.Div: "/",
    ast.FloorDiv: "//", ast.Mod: "%",
}  # fmt: skip
"""Operations whose result may not fit, or may not be."""
COMPARISONS: dict[type, str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
STREAM = ("generator", "counter", "state")
"""The arguments that a NumPy Generator becomes: a stream (`girih.loop.run.streams`)."""
WITHIN = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Of functions that compiled code alone calls: the ways in from Python and C take as long to compile as they do."""
WEAK_OPERATIONS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)


@dataclass(frozen=True)
class Recipe:
    """All that the code is compiled from; it can be sent to other processes.

    text: the lowered function. outside: the user's functions and modules that it names. helpers: functions that check:
    (name, one of HELPERS, what that is made from). dtypes: of vectors in memory of their own. bounds: Numba checks
    every subscript. beyond: what is said where it finds one outside. fast: arithmetic may be rearranged.
    """

    text: str
    name: str
    outside: tuple[tuple[str, Any], ...]
    helpers: tuple[tuple[str, str, tuple[Any, ...]], ...]
    dtypes: tuple[str, ...]
    bounds: bool
    beyond: str
    fast: bool


@dataclass(frozen=True)
class Kernel:
    """Compiled code of a body, and the order of its arguments.

    run(*range, *keys, *values, *arguments): range is (first, last) of the entries, or first and last index of each
    dimension of a box. arguments: (kind, name) with kind `array`, `buffer`, `flags`, `touched`, `accumulator`,
    `inherited`, those of STREAM, or `random`. single: Python's floats are given as float32.
    """

    run: Callable[..., Any]
    arguments: tuple[tuple[str, str], ...]
    recipe: Recipe
    single: bool
    boxes: bool

    @property
    def text(self) -> str:
        return self.recipe.text


def kernel(body: Body, boxes: bool, fast: bool = False) -> Kernel:
    """The compiled code of a body. boxes: the space is all indices of a box, and has no list of entries. fast: its
    arithmetic may be rearranged.

    Numba compiles it when it is first run; what it cannot compile, `explained` says.
    """
    builder = _KernelWriter(body, boxes, fast)
    tree = builder.tree()
    _set_lines(tree, body.source.tree.lineno)
    recipe = builder.recipe(ast.unparse(tree))
    outside = tuple((name, identity(value)) for name, value in recipe.outside)
    slot = _of_text((body.source.function.__code__, replace(recipe, outside=outside)))
    if "run" not in slot:
        code = compile(ast.Module([tree], []), body.source.function.__code__.co_filename, "exec")
        slot["run"], slot["keep"] = built(recipe, code), (body, recipe)
    return Kernel(slot["run"], builder.arguments(), recipe, builder.single, builder.boxes)


@lru_cache(maxsize=256)
def _of_text(key: tuple[Any, ...]) -> dict[str, Any]:
    """What was compiled for this text and these functions, so that equal bodies are compiled once."""
    return {}


def built(recipe: Recipe, code: Any = None) -> Any:
    """The function, ready for Numba to compile. code: of the text, with the user's file and lines."""
    space: dict[str, Any] = {
        f"{OWN}float32": np.float32, f"{OWN}float64": np.float64, f"{OWN}int64": np.int64, f"{OWN}empty": np.empty,
        f"{OWN}inside": inside, f"{OWN}perhaps": perhaps, f"{OWN}begin": begin_random, f"{OWN}next": next_random,
        f"{OWN}begin_stream": begin_stream,
        f"{OWN}summed": summed, f"{OWN}summed_product": summed_product, f"{OWN}uint64": np.uint64,
        "__builtins__": __builtins__,
    }  # fmt: skip
    for dtype in {*recipe.dtypes, *NARROW}:
        space[f"{OWN}{dtype}"] = getattr(np, dtype)
    for name, value in recipe.outside:
        space[name] = (
            compiled_function(value, identity(value), recipe.fast) if isinstance(value, FunctionType) else value
        )
    space |= {name: HELPERS[kind](*told) for name, kind, told in recipe.helpers}
    exec(compile(recipe.text, "<loop>", "exec") if code is None else code, space)
    # Without a second way in, for C, which nobody takes: it is a twentieth of what is compiled.
    options = {**_options(recipe.fast), "no_cfunc_wrapper": True}
    compiled = numba.njit(space[recipe.name], boundscheck=recipe.bounds, pipeline_class=Exact, **options)

    def run(*arguments: Any) -> None:
        try:
            compiled(*arguments)
        except IndexError as error:
            if str(error) != "index is out of bounds":  # our own checks say which subscript it was
                raise
            raise IndexError(recipe.beyond) from None

    return run


class _KernelWriter:
    """The lowered tree of one body."""

    def __init__(self, body: Body, boxes: bool, fast: bool) -> None:
        self.body = body
        self.boxes = boxes
        self.fast = fast
        self.single = _is_single(body)
        self.rows = VectorLowering(body, self.single, self.plain)
        self.helpers: list[tuple[str, str, tuple[Any, ...]]] = []
        # A prefetch computes what the body may not.
        self.prefetches = any(isinstance(role, BufferRole) and role.notes for role in body.roles.values())
        self.others = () if self.prefetches else tuple(self.other_subscripts())
        self.bounds = (
            any(size < 0 for size, _ in body.notes.checks.values()) or self.unknown_subscripts() or bool(self.others)
        )
        self.stored = {
            node.id
            for node in ast.walk(body.source.tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }

    def unknown_subscripts(self) -> bool:
        """Are there subscripts of which it is not known that they are numbers?"""
        types = self.body.notes.types
        return any(not isinstance(types.get(node), Scalar | Index | Interval) for node in self.body.notes.checks)

    def other_subscripts(self) -> Iterator[ast.Subscript]:
        """Subscripts of arrays that are not the loop's (inherited, of the entries, or made in the body).

        Their sizes are not known here. Numba checks them: what lies behind an array's end would else be read, or
        written, as if it were its own.
        """
        types = self.body.notes.types
        for node in ast.walk(self.body.source.tree):
            if not isinstance(node, ast.Subscript) or isinstance(node.slice, ast.Slice):
                continue
            base, part = types.get(id(node.value)), types.get(id(node.slice))
            name = node.value.id if isinstance(node.value, ast.Name) else ""
            followed = base is not None and not is_outside(base) and (views := views_of(base))
            if followed and all(view.open is not None for view in views):
                continue
            if isinstance(self.body.roles.get(name), ArrayRole | BufferRole) or isinstance(base, Tuple):
                continue
            if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
                continue
            length = base.length if isinstance(base, Vector) else None
            if length is None or not isinstance(part, Interval) or part.low < -length or part.high > length:
                yield node

    # -------------------------------------------------------------------------------------------- the frame

    def tree(self) -> ast.FunctionDef:
        while True:
            self.helpers.clear()
            self.rows.temporaries = 0
            self.rows.aliases.clear()
            try:
                statements = self.statements(self.body.source.tree.body)
            except OutlivesError as error:
                self.rows.scratch[error.name] = self.rows.locals[error.name]
                continue
            break
        source = self.body.source
        inner = [*self.entry(), *statements]
        inner = _without_unused(inner, self.rows.aliases)
        if self.boxes:
            for dim in reversed(range(self.body.space.dims)):
                inner = [_counting(index_name(dim), f"{OWN}first{dim}", f"{OWN}last{dim}", inner)]
        else:
            inner = [_counting(f"{OWN}p", f"{OWN}first", f"{OWN}last", inner)]
        before: list[ast.stmt] = [
            assign(
                scratch_name(name), _call(f"{OWN}empty", ast.Constant(length), ast.Name(f"{OWN}{dtype}", ast.Load()))
            )
            for name, (length, dtype) in self.rows.scratch.items()
        ]
        after: list[ast.stmt] = []
        for name in self.body.accumulated:
            cell = ast.Subscript(ast.Name(f"{OWN}cell_{name}", ast.Load()), ast.Constant(0), ast.Load())
            before.append(assign(name, cell))
            stored = ast.Subscript(ast.Name(f"{OWN}cell_{name}", ast.Load()), ast.Constant(0), ast.Store())
            after.append(ast.Assign([stored], ast.Name(name, ast.Load())))
        arguments = [ast.arg(name) for name in self.parameters()]
        tree = ast.FunctionDef(
            source.tree.name, ast.arguments([], arguments, None, [], [], None, []), [*before, *inner, *after], [], None
        )
        tree.type_params = []  # type: ignore[attr-defined]
        tree.lineno, tree.col_offset = source.tree.lineno, 0
        return tree

    def parameters(self) -> list[str]:
        dims = range(self.body.space.dims)
        names = [f"{OWN}{end}{dim}" for dim in dims for end in ("first", "last")] if self.boxes else []
        names = names or [f"{OWN}first", f"{OWN}last", *(f"{OWN}keys{dim}" for dim in dims)]
        for number, item in enumerate(self.body.space.values):
            names.append(f"{OWN}values{number}")
            if _is_ragged(item):
                names.append(f"{OWN}offsets{number}")
        if self.body.draws and not self.boxes:
            names.append(f"{OWN}numbers")
        return [*names, *(argument_name(kind, name) for kind, name in self.arguments_named())]

    def arguments_named(self) -> list[tuple[str, str]]:
        found = []
        for kind, name in self.arguments():
            given = kind == "inherited" and name in self.stored
            found.append(("given", name) if given else (kind, name))
        return found

    def arguments(self) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        key, value = key_and_value(self.body.source, self.body.space)
        for name, role in self.body.roles.items():
            if name in (key, value):
                continue
            if isinstance(role, ArrayRole):
                found.append(("array", name))
            elif isinstance(role, BufferRole):
                found += [("buffer", name), ("flags", name), ("touched", name)]
            elif isinstance(role, AccumulatorRole):
                if name in self.body.accumulated:
                    found.append(("accumulator", name))
            elif isinstance(role, Inherited) and is_argument(role.value) and name not in self.body.generators:
                found.append(("inherited", name))
        found += [(kind, name) for name in self.body.generators for kind in STREAM]
        if self.body.random:
            found.append(("random", ""))
        return tuple(found)

    def entry(self) -> list[ast.stmt]:
        """The key and the value of an entry, and what each iteration begins with."""
        space = self.body.space
        key, value = key_and_value(self.body.source, space)
        made: list[ast.stmt] = []
        at = ast.Name(f"{OWN}p", ast.Load())
        indices: list[ast.expr] = [ast.Name(index_name(dim), ast.Load()) for dim in range(space.dims)]
        if not self.boxes:
            for dim in range(space.dims):
                made.append(assign(index_name(dim), _call(f"{OWN}int64", _item(f"{OWN}keys{dim}", at))))
        made.append(assign(key, indices[0] if len(indices) == 1 else ast.Tuple(indices, ast.Load())))
        if value is not None:
            where: ast.expr = at
            if self.boxes:
                where = indices[0] if len(indices) == 1 else ast.Tuple(indices, ast.Load())
            columns: list[ast.expr] = []
            for number, item in enumerate(space.values):
                name = f"{OWN}values{number}"
                if _is_ragged(item):
                    after = ast.BinOp(at, ast.Add(), ast.Constant(1))
                    cut = ast.Slice(_item(f"{OWN}offsets{number}", at), _item(f"{OWN}offsets{number}", after))
                    columns.append(_item(name, cut))
                else:
                    columns.append(_item(name, where))
            made.append(assign(value, ast.Tuple(columns, ast.Load()) if space.tuple_value else columns[0]))
        for kind, name in self.arguments_named():
            if kind == "given":
                made.append(assign(name, ast.Name(argument_name(kind, name), ast.Load())))
        if self.body.random:
            made.append(ast.Expr(_call(f"{OWN}begin", ast.Name(f"{OWN}random", ast.Load()), self.number(indices))))
        for name in self.body.generators:
            memory = [ast.Name(argument_name(kind, name), ast.Load()) for kind in STREAM[1:]]
            made.append(ast.Expr(_call(f"{OWN}begin_stream", *memory, self.number(indices))))
        return made

    def number(self, indices: list[ast.expr]) -> ast.expr:
        """The iteration's number in the whole space, which no schedule changes."""
        if not self.boxes:
            return _item(f"{OWN}numbers", ast.Name(f"{OWN}p", ast.Load()))
        total: ast.expr = indices[0]
        for dim in range(1, len(indices)):
            size = ast.Constant(self.body.space.shape[dim])
            total = ast.BinOp(ast.BinOp(total, ast.Mult(), size), ast.Add(), indices[dim])
        return total

    # --------------------------------------------------------------------------------------------- the body

    def statements(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return self.rows.fused(statements, self.statement)

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        before: list[ast.stmt] = []
        made: list[ast.stmt]
        if isinstance(node, ast.Assign):
            code = self.plain(node.value, before)
            for target in node.targets:
                code = self.stored_in(target, node.value, code)
            made = [ast.Assign([self.plain(target, before) for target in node.targets], code)]
        elif isinstance(node, ast.AnnAssign):
            made = (
                []
                if node.value is None
                else [
                    ast.Assign(
                        [self.plain(node.target, before)],
                        self.stored_in(node.target, node.value, self.plain(node.value, before)),
                    )
                ]
            )
        elif isinstance(node, ast.AugAssign):
            made = self.augmented(node, before)
        elif isinstance(node, ast.If):
            made = [ast.If(self.plain(node.test, before), self.some(node.body), self.statements(node.orelse))]
        elif isinstance(node, ast.For):
            made = [
                ast.For(
                    self.plain(node.target, before), self.plain(node.iter, before), self.some(node.body),
                    self.statements(node.orelse),
                )
            ]  # fmt: skip
        elif isinstance(node, ast.While):
            made = [ast.While(self.kept(node.test), self.some(node.body), self.statements(node.orelse))]
        elif isinstance(node, ast.Return):
            made = [ast.Continue()]
        elif isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Constant):  # a docstring
                return []
            made = [ast.Expr(self.plain(node.value, before))]
        elif isinstance(node, ast.Assert):
            made = [ast.Assert(self.kept(node.test), node.msg)]
        else:
            made = [node]
        for item in (*before, *made):
            ast.copy_location(item, node)
        return [*before, *made]

    def some(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return self.statements(statements) or [ast.Pass()]

    def augmented(self, node: ast.AugAssign, before: list[ast.stmt]) -> list[ast.stmt]:
        target, value = node.target, self.plain(node.value, before)
        if self.single and self.type_of(target) == "float32" and self.type_of(node.value) in (WEAK_INT, "float"):
            value = as_single(value)
        name = target.value.id if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) else ""
        if not isinstance(self.body.roles.get(name), BufferRole):
            return self.changed(node, value, before)
        assert isinstance(target, ast.Subscript)
        parts = [self.plain(item, before) for item in _parts(target.slice)]
        if isinstance(parts[0], ast.Slice):
            marks = self.marked_all(name)
        else:
            notes = getattr(self.body.roles[name], "notes", False)
            at = self.rows.temporary()
            size = ast.Constant(self.shape_of(name)[0])
            before.append(assign(at, _call(f"{OWN}{'perhaps' if notes else 'inside'}", parts[0], size)))
            parts[0] = ast.Name(at, ast.Load())
            marks = self.marked(name, at, f"{at} >= 0 and " if notes else "")
        if getattr(self.body.roles[name], "notes", False):
            return marks
        whole = parts[0] if len(parts) == 1 else ast.Tuple(parts, ast.Load())
        place = ast.Subscript(ast.Name(name, ast.Load()), whole, ast.Store())
        if len(parts) < len(self.shape_of(name)) or any(isinstance(part, ast.Slice) for part in parts):
            return [ast.AugAssign(place, node.op, value), *marks]
        for number, part in enumerate(parts[1:], 1):  # both read and written
            name_of = self.rows.temporary()
            before.append(assign(name_of, part))
            parts[number] = ast.Name(name_of, ast.Load())
        whole = parts[0] if len(parts) == 1 else ast.Tuple(parts, ast.Load())
        old, place = (ast.Subscript(ast.Name(name, ast.Load()), whole, how) for how in (ast.Load(), ast.Store()))
        made = self.operation(node, node.op, target, node.value, old, value) or ast.BinOp(old, node.op, value)
        sum_of = ast.copy_location(ast.BinOp(target, node.op, node.value), node)
        return [ast.Assign([place], self.fits(target, sum_of, made, self.type_of(target) or "")), *marks]

    def marked(self, name: str, at: str, also: str = "") -> list[ast.stmt]:
        """Note that row `at` of a buffer was written: touched lists such rows, its last item counts them.

        No function does this: Numba would count references to its arrays in each call, at ten times the cost.
        """
        flags, touched, count = f"{OWN}flags_{name}", f"{OWN}touched_{name}", self.shape_of(name)[0]
        return ast.parse(
            f"if {also}{flags}[{at}] == 0:\n"
            f"    {flags}[{at}] = 1\n"
            f"    {touched}[{touched}[{count}]] = {at}\n"
            f"    {touched}[{count}] += 1\n"
        ).body

    def marked_all(self, name: str) -> list[ast.stmt]:
        at = self.rows.temporary()
        rows = _call("range", ast.Constant(self.shape_of(name)[0]))
        return [ast.For(ast.Name(at, ast.Store()), rows, self.marked(name, at), [])]

    def shape_of(self, name: str) -> tuple[int, ...]:
        role = self.body.roles[name]
        assert isinstance(role, ArrayRole | BufferRole)
        return role.shape

    def type_of(self, node: ast.expr) -> str | None:
        return self.rows.dtype(node)

    def kept(self, node: ast.expr) -> ast.expr:
        """An expression that is computed more than once, or not always: nothing is taken out of it."""
        made: ast.expr = self.lowered(node, None)
        return made

    def plain(self, node: ast.expr, before: list[ast.stmt]) -> ast.expr:
        made: ast.expr = self.lowered(node, before)
        return made

    def lowered(self, node: Any, before: list[ast.stmt] | None) -> Any:
        """A copy of an expression with checks, random numbers, float32 and sums of rows."""
        number = literal(node) if isinstance(node, ast.expr) else None
        if number is not None:
            if is_beyond(node):  # it meets a float, which the analysis has seen to
                return as_single(ast.Constant(float(number))) if self.single else ast.Constant(float(number))
            return ast.copy_location(ast.Constant(number), node)
        if before is not None and isinstance(node, ast.BinOp | ast.Call):
            reduced = self.rows.reduction(node)
            if reduced is not None:
                before.extend(reduced[0])
                return self.checked(node, reduced[1])
        if isinstance(node, ast.IfExp | ast.BoolOp | ast.ListComp | ast.GeneratorExp | ast.Compare):
            inner = None  # not always computed, or more than once
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                inner = before
        else:
            inner = before
        fields: dict[str, Any] = {}
        for name, item in ast.iter_fields(node):
            if isinstance(item, list):
                fields[name] = [self.lowered(part, inner) if isinstance(part, ast.AST) else part for part in item]
            elif isinstance(item, ast.expr | ast.comprehension | ast.keyword):
                fields[name] = self.lowered(item, inner)
            else:
                fields[name] = item
        made: Any = type(node)(**fields)
        if isinstance(node, ast.Call) and self.is_random(node.func):
            made = _call(f"{OWN}next", ast.Name(f"{OWN}random", ast.Load()))
            if self.single:
                made = as_single(made)
        elif isinstance(node, ast.Call) and self.is_drawn(node):
            ends = [*node.args, *(item for item in node.keywords if item.arg in ("low", "high"))]
            if made.func.attr == "integers" and len(node.args) == len(ends) == 1:
                made.args = [ast.Constant(0), *made.args]  # Numba wants both ends
            if self.single and self.type_of(node) == WEAK_FLOAT:
                made = as_single(made)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, WEAK_OPERATIONS) and self.single:
            left, right = self.type_of(node.left), self.type_of(node.right)
            if right == "float32" and left == WEAK_INT:
                made.left = as_single(made.left)
            if left == "float32" and right == WEAK_INT and not isinstance(node.op, ast.Pow):
                made.right = as_single(made.right)
        elif isinstance(node, ast.Constant) and isinstance(node.value, float) and self.single:
            made = as_single(made)
        if isinstance(node, ast.BinOp):
            made = self.operation(node, node.op, node.left, node.right, made.left, made.right) or made
        elif isinstance(node, ast.Compare):
            made = self.comparison(node, made) or made
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and self.is_whole(node.operand):
            zero = ast.Constant(0)
            made = self.operation(node, ast.Sub(), zero, node.operand, zero, made.operand) or made
        elif isinstance(node, ast.Call) and isinstance(known := self.known(node.func), Function):
            number = literal(node.args[0]) if known.target is np.uint64 and len(node.args) == 1 else None
            if number is not None:
                made.args = [ast.Constant(number)]
            elif known.target is pow and len(node.args) == 2 and not node.keywords:
                made = self.operation(node, ast.Pow(), *node.args, *made.args) or made
            elif (not node.keywords or known.target is sum) and not self.is_harmless(known.target, node.args):
                made.func = self.called(node, known.target) or made.func
                if known.target in (min, max) and self.type_of(node) == "uint64":  # beside numbers written out
                    made.args = [
                        item if literal(told) is None else _call(f"{OWN}uint64", item)
                        for told, item in zip(node.args, made.args, strict=True)
                    ]
        if isinstance(made, ast.expr):
            ast.copy_location(made, node)
            return self.checked(node, made)
        return made

    def known(self, node: ast.expr) -> Value | None:
        return self.body.notes.types.get(id(node))

    def is_whole(self, node: ast.expr) -> bool:
        return (self.type_of(node) or "").startswith(("int", "uint", "bool"))

    def operation(
        self, node: ast.expr | ast.stmt, op: ast.operator, left: ast.expr, right: ast.expr, *code: ast.expr,
        in_place: bool = False,
    ) -> ast.expr | None:  # fmt: skip
        """The checked form of an operation on two numbers; None: it needs none. code: of both operands.

        Of whole numbers the result might not fit 64 bits, or be 0 or a fraction where Python has none or another.
        """
        sign = SIGNS.get(type(op))
        if sign is None or self.prefetches or any(self.is_array(item) for item in (left, right)):
            return None
        dtypes = [self.type_of(item) for item in (left, right)]
        if any(dtype and not dtype.startswith(("int", "uint", "bool")) for dtype in dtypes):
            if sign != "**" or self.single or self.fast:
                return None
        elif "uint64" in dtypes:
            if dtypes.count(WEAK_INT) == 1:  # which takes the other's dtype, as in NumPy
                weak = dtypes.index(WEAK_INT)
                code = tuple(_call(f"{OWN}uint64", item) if at == weak else item for at, item in enumerate(code))
                return ast.BinOp(code[0], op, code[1])
        else:
            first, second = self.range_of(left), self.range_of(right)
            signed = not any((dtype or "").startswith("uint") for dtype in dtypes)
            if signed and first and second and self.is_proved(op, first, second):
                return None  # what is unsigned would have an unsigned difference
        return _call(self.helper("operation", sign, self.place(node), self.fast, in_place), *code)

    def comparison(self, node: ast.Compare, made: ast.Compare) -> ast.expr | None:
        """The exact form of a comparison of an unsigned number of 64 bits; None: it needs none.

        Raises:
            LoopError: there are several in one, and what is called between them cannot be computed twice.
        """
        sign = COMPARISONS.get(type(node.ops[0]))
        if sign is None or self.prefetches or any(map(self.is_array, (node.left, *node.comparators))):
            return None
        dtypes = {self.type_of(item) for item in (node.left, *node.comparators)}
        if dtypes <= {"uint64", "bool"} or not dtypes & {"uint64", None}:
            return None
        if len(node.ops) > 1:
            if "uint64" not in dtypes:
                return None
            said = "several whole numbers of 64 bits with and without a sign are compared at once"
            raise refusal(self.body.source.file, node, said, "compare two at a time, joined by `and`")
        return _call(self.helper("operation", sign, self.place(node), self.fast), made.left, made.comparators[0])

    def called(self, node: ast.Call, function: Any) -> ast.expr | None:
        """The checked form of a function that makes whole numbers; None: it needs none."""
        told = function, len(node.args), self.place(node)
        if self.prefetches or any(isinstance(item, ast.Starred) for item in node.args) or replaced(*told) is None:
            return None
        return ast.Name(self.helper("call", *told), ast.Load())

    def is_harmless(self, function: Any, arguments: list[ast.expr]) -> bool:
        """Has the function a result that fits, whatever the numbers of these ranges are?"""
        spans = [span for item in arguments if self.is_whole(item) and (span := self.range_of(item))]
        if len(spans) < len(arguments):
            return False
        if function is divmod:
            return self.is_proved(ast.FloorDiv(), *spans)
        if function in (abs, math.gcd):
            return all(span.low > LEAST for span in spans)
        if function in (min, max):
            return all(fits(span.low, span.high) for span in spans)
        held = _range_of(np.dtype(function).name) if isinstance(function, type) else None
        return function is int or (held is not None and held.low <= spans[0].low and spans[0].high <= held.high)

    def is_array(self, node: ast.expr) -> bool:
        known = self.known(node)
        return isinstance(known, Vector) or bool(known is not None and views_of(known))

    def is_proved(self, op: ast.operator, left: Interval, right: Interval) -> bool:
        """Has an operation on whole numbers a result that fits, whatever they are?"""
        if isinstance(op, ast.Div):
            exact = all(item.low >= -EXACT and item.high <= EXACT for item in (left, right))
            return exact and (right.low > 0 or right.high <= 0)
        if isinstance(op, ast.LShift | ast.RShift):
            low, high = right.low, right.high
            if low < 0 or high > 63:
                return False
            if isinstance(op, ast.RShift):
                return True
            return fits(min(left.low, left.low << (high - 1)), max(left.high, (left.high << (high - 1)) + 1))
        if isinstance(op, ast.FloorDiv | ast.Mod):
            return right.low > 0 or (right.high <= 0 and left.low > LEAST)
        result = of_intervals(op, left, right)
        return isinstance(result, Interval) and fits(result.low, result.high)

    def range_of(self, node: ast.expr) -> Interval | None:
        """Where a whole number lies, if that is known."""
        known, number = self.known(node), literal(node)
        if number is not None:
            return Interval(number, number + 1)
        if isinstance(known, Interval):
            return known
        if isinstance(known, Index):
            space = self.body.space
            return Interval(space.start(known.dim) + known.offset, space.shape[known.dim] + known.offset)
        if isinstance(known, Scalar) and known.dtype == "bool":
            return Interval(0, 2)
        if isinstance(node, ast.BinOp):
            left, right = self.range_of(node.left), self.range_of(node.right)
            found = of_intervals(node.op, left, right) if left and right else None
            return found if isinstance(found, Interval) else None
        value = key_and_value(self.body.source, self.body.space)[1]
        entry = isinstance(node, ast.Name) and node.id == value and node.id not in self.stored
        if isinstance(known, Scalar) and (entry or isinstance(node, ast.Subscript)):
            return _range_of(WEAK_INT if self.is_sum(node) else known.dtype)
        return None

    def is_sum(self, node: ast.expr) -> bool:
        """Is it an element of a sum over iterations, which are kept in 64 bits and checked in the end?"""
        known = self.known(node.value) if isinstance(node, ast.Subscript) else None
        return known is not None and any(view.array in self.body.reductions for view in views_of(known))

    def stored_in(self, target: ast.expr, value: ast.expr, code: ast.expr) -> ast.expr:
        """What is stored in an array of whole numbers has to fit its dtype."""
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and isinstance(code, ast.Tuple):
            if len(target.elts) == len(value.elts):
                code.elts = list(map(self.stored_in, target.elts, value.elts, code.elts))
        elif isinstance(target, ast.Subscript) and not self.is_array(target):
            return self.fits(target, value, code, self.type_of(target) or "")
        return code

    def fits(
        self, node: ast.expr, value: ast.expr, code: ast.expr, dtype: str, array: ast.expr | None = None
    ) -> ast.expr:
        """The value as it is, if a dtype of whole numbers has it; else it is an error. node: for what is said. array:
        where it is stored, if it is not node's."""
        span = _range_of(dtype)
        known = self.range_of(value)
        if not dtype and isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and not self.prefetches:
            return _call(self.helper("store", self.place(node)), array or ast.Name(node.value.id, ast.Load()), code)
        if span is None or self.prefetches or (known and known.low >= span.low and known.high <= span.high):
            return code
        if (
            self.is_array(value)
            or self.is_sum(node)
            or (self.is_whole(value) and dtype == "int64" and self.type_of(value) != "uint64")
        ):
            return code
        words = f"{self.place(node)}: the number does not fit {dtype}"
        return _call(self.helper("fits", span.low, span.high - 1, words), code)

    def changed(self, node: ast.AugAssign, value: ast.expr, before: list[ast.stmt]) -> list[ast.stmt]:
        """`x += y`, where the sum may not fit: what x is, is computed once."""
        target = node.target
        made: ast.expr | None = None
        if isinstance(target, ast.Name):
            old: ast.expr = ast.Name(target.id, ast.Load())
            made = self.operation(node, node.op, target, node.value, old, value, in_place=True)
            if made is not None:
                return [assign(target.id, made)]
        elif isinstance(target, ast.Subscript) and not any(
            isinstance(part, ast.Slice) for part in _parts(target.slice)
        ):
            parts = [(self.rows.temporary(), part) for part in _parts(target.slice)]
            base = self.rows.temporary()
            places: list[ast.expr] = [ast.Name(name, ast.Load()) for name, _ in parts]
            where = places[0] if len(places) == 1 else ast.Tuple(places, ast.Load())
            old = ast.Subscript(ast.Name(base, ast.Load()), where, ast.Load())
            whole = ast.copy_location(ast.BinOp(target, node.op, node.value), node)
            plain = ast.BinOp(old, node.op, value)
            made = self.operation(node, node.op, target, node.value, old, value, in_place=True) or plain
            made = self.fits(target, whole, made, self.type_of(target) or "", ast.Name(base, ast.Load()))
            if made is not plain:
                before.append(assign(base, self.plain(target.value, before)))
                before.extend(assign(name, self.plain(part, before)) for name, part in parts)
                return [ast.Assign([ast.Subscript(ast.Name(base, ast.Load()), where, ast.Store())], made)]
        return [ast.AugAssign(self.lowered(target, before), node.op, value)]

    def is_drawn(self, node: ast.Call) -> bool:
        return isinstance(node.func, ast.Attribute) and isinstance(self.known(node.func.value), Stream)

    def is_random(self, node: ast.expr) -> bool:
        known = self.body.notes.types.get(id(node))
        return isinstance(known, Function) and bool(getattr(known.target, "of_random", False))

    def checked(self, node: ast.expr, code: ast.expr) -> ast.expr:
        """A subscript that may lie outside; if it is no number, Numba checks it."""
        check = self.body.notes.checks.get(id(node))
        known: Value | None = self.body.notes.types.get(id(node))
        if check is None or check[0] < 0 or not isinstance(known, Scalar | Index | Interval):
            return code
        size, wraps = check
        place = f"{self.body.source.file}:{node.lineno}"
        said = f"{place}: subscript `{short(node)}` lies outside an array dimension of {size}"
        if not wraps:
            said += "; below 0 it would count from the end: start the loop later, or test the index first"
        return _call(self.helper("check", -size if wraps else 0, size, said), code)

    def helper(self, kind: str, *told: Any) -> str:
        """The name of a function that checks."""
        name = f"{OWN}{kind}{len(self.helpers)}"
        self.helpers.append((name, kind, told))
        return name

    def place(self, node: ast.expr | ast.stmt) -> str:
        """The user's line and text, for what is said."""
        return f"{self.body.source.file}:{node.lineno}: `{short(node)}`"

    # ----------------------------------------------------------------------------------------- what it calls

    def recipe(self, text: str) -> Recipe:
        outside = tuple(
            (name, role.value)
            for name, role in self.body.roles.items()
            if isinstance(role, Inherited) and not is_argument(role.value) and name in text
        )
        dtypes = tuple(dict.fromkeys(dtype for _, dtype in self.rows.scratch.values()))
        source = self.body.source
        places = ", ".join(f"`{short(node)}` in line {node.lineno}" for node in self.others)
        beyond = f"{source.file}:{source.tree.lineno}: a subscript lies outside its array in {source.tree.name}"
        beyond += f" or in a function that it calls{f'; it may be {places}' if places else ''}"
        return Recipe(text, source.tree.name, outside, tuple(self.helpers), dtypes, self.bounds, beyond, self.fast)


def argument_name(kind: str, name: str) -> str:
    if kind in ("array", "inherited", "buffer", "generator"):
        return name
    if kind == "random":
        return f"{OWN}random"
    return f"{OWN}{'cell' if kind == 'accumulator' else kind}_{name}"


def is_argument(value: Any) -> bool:
    """Is an inherited value given to the code with each call (or compiled into it)?"""
    return not (callable(value) or isinstance(value, ModuleType | str | type(None)))


def explained(source: Source, error: Exception, given: Mapping[str, Any]) -> LoopError:
    """What Numba cannot compile, by the user's line, and which of the names given from outside it has no type for."""
    words = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = next(
        (int(part.split("(")[-1].rstrip(")")) for part in reversed(words) if part.startswith("During") and "(" in part
         and part.split("(")[-1].rstrip(")").isdigit()),
        None,
    )  # fmt: skip
    if line is None:
        line = getattr(getattr(error, "loc", None), "line", source.tree.lineno)
    text = ""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.stmt) and node is not source.tree and node.lineno == line:
            text = f"`{short(node)}`: "
            break
    if "Cannot modify readonly array" in str(error):
        return LoopError(
            f"{source.file}:{line}: {text}inherited arrays are only read in a loop, under whatever name; make it "
            f"gl.array(…) and a parameter, or write to an array that the body makes"
        )
    unknown = [f"{name} is a {type(item).__name__}" for name, item in given.items() if not _has_type(item)]
    why = f"{' and '.join(unknown)}, which it does not know" if unknown else reason(error)
    return LoopError(
        f"{source.file}:{line}: {text}Numba cannot compile it ({why}); "
        f"write it with numbers, NumPy arrays and functions that Numba knows"
    )


def _has_type(value: Any) -> bool:
    try:
        numba.typeof(value)
    except (ValueError, TypeError, NotImplementedError):
        return False
    return True


def reason(error: Exception) -> str:
    """Why Numba cannot compile something, in a line."""
    words = [line.strip() for line in str(error).splitlines() if line.strip()]
    known = ("Failed in nopython", "During", "File", "^", "<source missing", "Enable", "This error")
    return next((text for text in words if not text.startswith(known)), words[0] if words else "")


@lru_cache(maxsize=1024)
def compiled_function(function: FunctionType, known: Hashable, fast: bool) -> Any:
    """A user's function compiled, with the functions that it calls; its subscripts and operations are all checked.

    known: its identity, in which is what it reads from outside: Numba takes that for constant.
    """
    space = dict(function.__globals__)
    for name in names_in(function.__code__):
        other = space.get(name)
        if isinstance(other, FunctionType) and other is not function:
            space[name] = compiled_function(other, identity(other), fast)
    copy = FunctionType(function.__code__, space, function.__name__, function.__defaults__, function.__closure__)
    return numba.njit(copy, boundscheck=True, pipeline_class=Checked, **_options(fast), **WITHIN)


def _options(fast: bool) -> dict[str, Any]:
    return {"nogil": True, "error_model": "numpy", "fastmath": FAST if fast else False}


def by_value(function: FunctionType) -> FunctionType:
    """A copy that is pickled as it is now, with what it reads from outside; a function of a module would go by name,
    and find there what the module had when another process imported it."""
    space: dict[str, Any] = {}
    copy = FunctionType(function.__code__, space, function.__name__, function.__defaults__, function.__closure__)
    for name in names_in(function.__code__):
        if name in function.__globals__:
            other = function.__globals__[name]
            space[name] = copy if other is function else by_value(other) if isinstance(other, FunctionType) else other
    return copy


def arguments_of(
    kinds: Sequence[tuple[str, str]], single: bool, *, buffers: Mapping[str, Any], others: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray] = {}, cells: Mapping[str, np.ndarray] = {}, keys: Mapping[str, np.ndarray] = {},
    seed: int | np.uint64 = 0,
) -> list[Any]:  # fmt: skip
    """What a worker gives to compiled code after the range, keys and values: of `Kernel.arguments`, in their order.

    buffers: the worker's own; cells: of its accumulators; keys: of the streams of Generators; others: inherited values.
    """
    streams = {name: stream_of(key) for name, key in keys.items()}
    found: list[Any] = []
    for kind, name in kinds:
        if kind == "array":
            found.append(arrays[name])
        elif kind in ("buffer", "flags", "touched"):
            found.append(getattr(buffers[name], "values" if kind == "buffer" else kind))
        elif kind == "accumulator":
            found.append(cells[name])
        elif kind == "random":
            found.append(np.array([seed, 0], np.uint64))
        elif kind in STREAM:
            found.append(getattr(streams[name], kind))
        else:
            found.append(_inherited(others[name], single))
    return found


def _inherited(value: Any, single: bool) -> Any:
    """An inherited value as the code is given it: floats as float32 in a loop of float32, arrays to be read only."""
    if isinstance(value, np.ndarray):
        return read_only(value)
    return np.float32(value) if isinstance(value, float) and single else value


def read_only(array: np.ndarray) -> np.ndarray:
    """The same memory. Numba refuses code that writes to it, also by another name, which the analysis does not see."""
    view = array.view()
    view.flags.writeable = False
    return view


def _check(low: int, high: int, words: str) -> Any:
    def check(x):  # type: ignore[no-untyped-def]
        if x < low or x >= high:
            raise IndexError(words)
        return x

    return numba.njit(check, nogil=True, **WITHIN)


HELPERS: dict[str, Callable[..., Any]] = {
    "check": _check, "operation": checked, "fits": fitting, "call": replaced, "store": storable,
}  # fmt: skip
"""What makes the functions that check: subscripts, operations of whole numbers, numbers that become whole ones of a
dtype, calls, and numbers that are stored in arrays whose dtype the analysis does not know."""


@numba.njit(nogil=True, **WITHIN)
def inside(at, size):  # type: ignore[no-untyped-def]
    """A row of a buffer, from its end if it is below 0."""
    if at < -size or at >= size:
        raise IndexError("a subscript of a buffer lies outside it")
    return at + size if at < 0 else at


@numba.njit(nogil=True, **WITHIN)
def perhaps(at, size):  # type: ignore[no-untyped-def]
    """The same of a read that may not come about, whose subscript may be any; -1: there is no such row."""
    if at < -size or at >= size:
        return -1
    return at + size if at < 0 else at


def _set_lines(node: ast.AST, line: int) -> None:
    """Every node has the line of the user's statement that it comes from."""
    line = getattr(node, "lineno", None) or line
    if isinstance(node, ast.stmt | ast.expr | ast.arg | ast.keyword):
        node.lineno = node.end_lineno = line
        node.col_offset = node.end_col_offset = 0
    for child in ast.iter_child_nodes(node):
        _set_lines(child, line)


def _is_single(body: Body) -> bool:
    """Are all floating-point data float32?"""
    dtypes = [role.dtype for role in body.roles.values() if isinstance(role, ArrayRole | BufferRole)]
    dtypes += [item.dtype for item in body.space.values]
    dtypes += [
        str(role.value.dtype)
        for role in body.roles.values()
        if isinstance(role, Inherited) and isinstance(role.value, np.ndarray | np.generic)
    ]
    floats = {dtype for dtype in dtypes if "float" in dtype}
    return floats == {"float32"}


def _is_ragged(item: Value) -> bool:
    return getattr(item, "length", 0) is None


def _parts(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _range_of(dtype: str) -> Interval | None:
    """The whole numbers of a dtype; None: it has others."""
    if dtype == WEAK_INT:
        dtype = "int64"
    if not dtype.startswith(("int", "uint")):
        return None
    info = np.iinfo(dtype)
    return Interval(int(info.min), int(info.max) + 1)


def _item(name: str, at: ast.expr) -> ast.expr:
    return ast.Subscript(ast.Name(name, ast.Load()), at, ast.Load())


def _counting(name: str, first: str, last: str, inside: list[ast.stmt]) -> ast.For:
    numbers = _call("range", ast.Name(first, ast.Load()), ast.Name(last, ast.Load()))
    return ast.For(ast.Name(name, ast.Store()), numbers, inside, [])


def _without_unused(statements: list[ast.stmt], aliases: Mapping[str, Any]) -> list[ast.stmt]:
    """Without views that nothing uses any more: making one costs a count of references."""
    used = {
        node.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }

    class Drop(ast.NodeTransformer):
        def visit_Assign(self, node: ast.Assign) -> Any:
            target = node.targets[0]
            return None if isinstance(target, ast.Name) and target.id in aliases and target.id not in used else node

    return [made for statement in statements if (made := Drop().visit(statement)) is not None]
