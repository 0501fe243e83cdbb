"""Arithmetic on rows becomes loops over their elements, several statements in one loop, without temporary arrays.

`d = v - W[i] @ H[j]` and `W[i], H[j] = W[i] + d * H[j], H[j] + d * W[i]` become a loop that sums and a loop that reads
both rows once and writes both. That is valid because each statement computes element k from elements k alone, and rows
of an array are either the same or share nothing; the order of statements, and of reads before writes in one
assignment, is kept for every k. What is not of this kind is left as it is, for Numba.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from girih.loop.capture.body import ArrayRole, Body, vector_of
from girih.loop.capture.values import (
    WEAK_FLOAT,
    WEAK_INT,
    Function,
    Index,
    Interval,
    Scalar,
    Value,
    Vector,
    View,
)

OWN = "_girih_"
"""What names of the lowering begin with."""
K = f"{OWN}k"
UNROLLED = 64
"""LLVM unrolls loops of fewer rounds whole, if it knows how many, and then finds no SIMD in them: at rank 16 a third of
the speed. Told no more than that they are at most so many, it keeps the loop and chooses its width for them: a quarter
faster at rank 50 than if it knew nothing. From here on it is faster if it knows, by a quarter at rank 100."""
NARROW = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)


class NotRowwiseError(Exception):
    """An expression that is not computed element by element."""


class OutlivesError(Exception):
    """A local vector is read outside the loop that computes it: it needs memory."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass
class Rows:
    """Assignments to rows that are done in one loop.

    before: statements that it needs; reads: they read more than variables, so no earlier assignment may come after
    them. computed: local vectors whose element k is a variable of the loop.
    """

    length: int
    before: list[ast.stmt] = field(default_factory=list)
    inside: list[ast.stmt] = field(default_factory=list)
    reads: bool = False
    computed: set[str] = field(default_factory=set)


@dataclass
class VectorLowering:
    """One body on its way. single: floating-point numbers are float32. plain: lowers any other expression;
    statements that must come before it go to the list."""

    body: Body
    single: bool
    plain: Callable[[ast.expr, list[ast.stmt]], ast.expr]
    scratch: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Vectors that outlive their loop: name → (length, dtype)."""
    temporaries: int = 0

    def __post_init__(self) -> None:
        self.locals = _local_vectors(self.body)
        self.stores = Counter(
            node.id
            for node in ast.walk(self.body.source.tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
        self.aliases: dict[str, View] = {}

    def known(self, node: ast.expr) -> Value | None:
        return self.body.notes.types.get(id(node))

    def vector(self, node: ast.expr) -> tuple[int, str] | None:
        value = self.known(node)
        return None if value is None else vector_of(value, self.body.roles)

    def dtype(self, node: ast.expr) -> str | None:
        value = self.known(node)
        if isinstance(value, Index | Interval):
            return WEAK_INT
        if isinstance(value, Scalar):
            return value.dtype
        vector = self.vector(node)
        return vector[1] if vector else None

    def temporary(self) -> str:
        self.temporaries += 1
        return f"{OWN}t{self.temporaries}"

    def over(self, length: int, inside: list[ast.stmt]) -> ast.For:
        """`for k in range(length)`; of short rows' length the most is told, see UNROLLED."""
        size: ast.expr = ast.Constant(length)
        if length < UNROLLED:
            for name, role in self.body.roles.items():
                if isinstance(role, ArrayRole) and role.shape[-1] == length:
                    shape = ast.Attribute(ast.Name(name, ast.Load()), "shape", ast.Load())
                    told = ast.Subscript(shape, ast.Constant(len(role.shape) - 1), ast.Load())
                    size = ast.IfExp(ast.Compare(told, [ast.Lt()], [ast.Constant(length)]), told, ast.Constant(length))
                    break
        numbers = ast.Call(ast.Name("range", ast.Load()), [size], [])
        return ast.For(ast.Name(K, ast.Store()), numbers, inside, [])

    # ------------------------------------------------------------------------------------------- statements

    def alias(self, statement: ast.stmt) -> bool:
        """`row = W[i]`: a view, which need not be made where its elements are read as W[i, k]."""
        if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
            return False
        target, value = statement.targets[0], self.known(statement.value)
        if not (isinstance(target, ast.Name) and isinstance(value, View) and value.open):
            return False
        if self.stores[target.id] == 1 and isinstance(statement.value, ast.Subscript | ast.Name):
            checks = self.body.notes.checks
            if not any(id(node) in checks for node in ast.walk(statement.value)):
                self.aliases[target.id] = value
        return True

    def assignments(self, statement: ast.stmt) -> list[tuple[ast.expr, ast.expr, ast.operator | None]] | None:
        """The (target, value, operation in place) of a statement that assigns to rows; else None."""
        if isinstance(statement, ast.AugAssign):
            if not isinstance(statement.op, ARITHMETIC):
                return None
            return [(statement.target, statement.value, statement.op)] if self.is_row(statement.target) else None
        if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
            return None
        target, value = statement.targets[0], statement.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs = list(zip(target.elts, value.elts, strict=True))
        if not all(self.is_row(item) for item, _ in pairs):
            return None
        return [(item, part, None) for item, part in pairs]

    def is_row(self, target: ast.expr) -> bool:
        if isinstance(target, ast.Name):
            return target.id in self.locals or (target.id in self.aliases and self.vector(target) is not None)
        return isinstance(target, ast.Subscript) and self.vector(target) is not None

    def rows(self, statement: ast.stmt, computed: Iterable[str] = ()) -> Rows | None:
        """A statement as a loop over the elements of rows, or None. computed: by the loop that it may join."""
        pairs = self.assignments(statement)
        if pairs is None:
            return None
        lengths = {self.length(target) for target, _, _ in pairs}
        if len(lengths) != 1 or None in lengths:
            return None
        (length,) = lengths
        assert length is not None
        made = Rows(length, computed=set(computed))
        stores: list[ast.stmt] = []
        try:
            for target, value, op in pairs:
                code = self.element(value, length, made)
                if op is not None:
                    mine = self.element(target, length, made)
                    code = ast.BinOp(mine, op, self.weakly(code, value, self.dtype(target)))
                place = self.target(target, made)
                bare = isinstance(self.known(value), View) and isinstance(value, ast.Name | ast.Subscript)
                if len(pairs) > 1 and not bare:  # read before anything is written; NumPy too reads views when it writes
                    name = self.temporary()
                    made.inside.append(assign(name, code))
                    code = ast.Name(name, ast.Load())
                stores.append(ast.Assign([place], code))
                if isinstance(target, ast.Name) and target.id in self.locals:
                    made.computed.add(target.id)
                    if target.id in self.scratch:
                        kept = at_k(scratch_name(target.id))
                        kept.ctx = ast.Store()
                        stores.append(ast.Assign([kept], ast.Name(element_name(target.id), ast.Load())))
        except NotRowwiseError:
            return None
        made.inside.extend(stores)
        return made

    def length(self, target: ast.expr) -> int | None:
        if isinstance(target, ast.Name) and target.id in self.locals:
            return self.locals[target.id][0]
        vector = self.vector(target)
        return vector[0] if vector else None

    def target(self, target: ast.expr, made: Rows) -> ast.expr:
        if isinstance(target, ast.Name) and target.id in self.locals:
            return ast.Name(element_name(target.id), ast.Store())
        place = self.place(target, made)
        place.ctx = ast.Store()
        return place

    def fused(self, statements: Sequence[ast.stmt], recur: Callable[[ast.stmt], list[ast.stmt]]) -> list[ast.stmt]:
        """A sequence of statements, with neighbours that assign to rows of one length in one loop."""
        done: list[ast.stmt] = []
        open_rows: Rows | None = None

        def close() -> None:
            nonlocal open_rows
            if open_rows is not None:
                done.extend(open_rows.before)
                done.append(self.over(open_rows.length, open_rows.inside))
            open_rows = None

        for statement in statements:
            if self.alias(statement):
                if not _is_plain_view(statement.value):  # type: ignore[attr-defined]
                    close()  # it may read what the open loop writes
                done.extend(recur(statement))
                continue
            made = self.rows(statement, open_rows.computed if open_rows else ())
            if made is None:
                close()
                done.extend(recur(statement))
                continue
            if open_rows is not None and (open_rows.length != made.length or made.reads):
                close()
                made = self.rows(statement)
                assert made is not None
            located(made.before + made.inside, statement)
            if open_rows is None:
                open_rows = made
            else:
                open_rows.before.extend(made.before)
                open_rows.inside.extend(made.inside)
                open_rows.computed |= made.computed
        close()
        return done

    # ------------------------------------------------------------------------------------------ expressions

    def element(self, node: ast.expr, length: int, made: Rows) -> ast.expr:
        """The code of element k of an expression; of a scalar, the scalar, computed before the loop if it is large.

        Raises:
            NotRowwiseError: it is neither.
        """
        vector = self.vector(node)
        if vector is None:
            if isinstance(self.known(node), Scalar | Interval | Index):
                return self.scalar(node, made)
            raise NotRowwiseError
        if vector[0] != length:
            raise NotRowwiseError
        if isinstance(node, ast.Name | ast.Subscript):
            if isinstance(node, ast.Name) and node.id in self.locals:
                if node.id in made.computed:
                    return ast.Name(element_name(node.id), ast.Load())
                if node.id not in self.scratch:
                    raise OutlivesError(node.id)
                return at_k(scratch_name(node.id))
            return self.place(node, made)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC):
            left, right = self.element(node.left, length, made), self.element(node.right, length, made)
            made_of = ast.BinOp(
                self.weakly(left, node.left, self.dtype(node.right)),
                node.op,
                self.weakly(right, node.right, self.dtype(node.left)),
            )
            narrow = vector[1] in NARROW  # as NumPy's rows, whose numbers are modulo their width
            return ast.Call(ast.Name(f"{OWN}{vector[1]}", ast.Load()), [made_of], []) if narrow else made_of
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            return ast.UnaryOp(node.op, self.element(node.operand, length, made))
        if isinstance(node, ast.Call) and not node.keywords:
            callee = self.known(node.func)
            if isinstance(callee, Function) and (isinstance(callee.target, np.ufunc) or callee.target is abs):
                return ast.Call(
                    self.plain(node.func, made.before), [self.element(item, length, made) for item in node.args], []
                )
        raise NotRowwiseError

    def scalar(self, node: ast.expr, made: Rows) -> ast.expr:
        """A number that is the same for all elements: names and constants stay, the rest is computed before."""
        if isinstance(node, ast.Constant | ast.Name):
            return self.plain(node, made.before)
        name = self.temporary()
        made.reads |= any(isinstance(item, ast.Subscript | ast.Call) or _is_product(item) for item in ast.walk(node))
        made.before.append(assign(name, self.plain(node, made.before)))
        return ast.Name(name, ast.Load())

    def weakly(self, code: ast.expr, node: ast.expr, other: str | None) -> ast.expr:
        """Python's own numbers take float32 where they meet it."""
        if self.single and other == "float32" and self.dtype(node) in (WEAK_INT, WEAK_FLOAT):
            return as_single(code)
        return code

    def place(self, node: ast.expr, made: Rows) -> ast.Subscript:
        """Element k of a part of an array."""
        value = self.known(node)
        checks = self.body.notes.checks
        unchecked = not any(id(item) in checks for item in ast.walk(node))
        view: View | None = None
        if isinstance(node, ast.Name):
            view = self.aliases.get(node.id)
        elif isinstance(value, View) and unchecked:
            view = value
        if view is not None and all(part.single or at in (view.open or ()) for at, part in enumerate(view.subscripts)):
            parts = [
                ast.Name(K, ast.Load()) if at in (view.open or ()) else _position(part.dim, part.low or 0)
                for at, part in enumerate(view.subscripts)
            ]
            return _subscript(view.array, parts)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            role = self.body.roles.get(node.value.id)
            texts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if isinstance(role, ArrayRole) and all(self.is_position(text) for text in texts):
                parts = [
                    ast.Name(K, ast.Load()) if isinstance(text, ast.Slice) else self.scalar(text, made)
                    for text in texts
                ]
                parts += [ast.Name(K, ast.Load())] * (len(role.shape) - len(parts))
                return _subscript(node.value.id, parts)
        made.reads = True
        name = self.temporary()
        made.before.append(assign(name, self.plain(node, made.before)))
        return at_k(name)

    def is_position(self, text: ast.expr) -> bool:
        return isinstance(text, ast.Slice) or isinstance(self.known(text), Scalar | Index | Interval)

    def reduction(self, node: ast.expr) -> tuple[list[ast.stmt], ast.expr] | None:
        """`a @ b`, `np.dot(a, b)`, `np.sum(a)`, `a.sum()` of rows: the loop that sums, and its result."""
        factors: Sequence[ast.expr] = ()
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            factors = (node.left, node.right)
        elif isinstance(node, ast.Call) and not node.keywords:
            callee = self.known(node.func)
            name = getattr(callee.target, "__name__", "") if isinstance(callee, Function) else ""
            module = (getattr(callee.target, "__module__", "") or "") if isinstance(callee, Function) else ""
            if module.startswith("numpy") and name in ("dot", "inner", "vdot", "sum"):
                factors = node.args
            elif isinstance(node.func, ast.Attribute) and callee is None and node.func.attr in ("sum", "dot"):
                factors = (node.func.value, *node.args)
        vectors = [self.vector(item) for item in factors]
        dtype = self.dtype(node)
        if not factors or dtype is None or "float" not in dtype or any(item is None for item in vectors):
            return None
        lengths = {item[0] for item in vectors if item}
        if len(lengths) != 1 or len(factors) > 2:
            return None
        (length,) = lengths
        made = Rows(length)
        try:
            codes = [self.element(item, length, made) for item in factors]
        except NotRowwiseError:
            return None
        total = self.temporary()
        zero: ast.expr = ast.Constant(0.0)
        if dtype == "float32":
            zero = as_single(zero)
        function = ast.Name(f"{OWN}{'summed' if len(codes) == 1 else 'summed_product'}", ast.Load())
        adding = assign(total, ast.Call(function, [ast.Name(total, ast.Load()), *codes], []))
        return [*made.before, assign(total, zero), self.over(length, [adding])], ast.Name(total, ast.Load())


def _local_vectors(body: Body) -> dict[str, tuple[int, str]]:
    """Local variables that are vectors wherever they are used, and are never passed on whole."""
    known = body.notes.types
    found: dict[str, set[tuple[int, str] | None]] = {}
    for parent in ast.walk(body.source.tree):
        for node in ast.iter_child_nodes(parent):
            if not isinstance(node, ast.Name) or node.id in body.roles:
                continue
            value = known.get(id(node))
            if not isinstance(value, Vector) and node.id not in found:
                found.setdefault(node.id, set()).add(None)
                continue
            good = isinstance(value, Vector) and value.length is not None and _is_arithmetic(parent, node, body)
            assert not good or isinstance(value, Vector)
            item = (value.length, value.dtype) if good and isinstance(value, Vector) else None
            found.setdefault(node.id, set()).add(item)  # type: ignore[arg-type]
    return {name: next(iter(items)) for name, items in found.items() if len(items) == 1 and None not in items}  # type: ignore[misc]


def _is_arithmetic(parent: ast.AST, node: ast.Name, body: Body) -> bool:
    """Is a use of a name one in which its elements alone count?"""
    if isinstance(parent, ast.BinOp | ast.UnaryOp):
        return True
    if isinstance(parent, ast.Assign):
        return len(parent.targets) == 1 and parent.targets[0] is node and not isinstance(parent.value, ast.Name)
    if isinstance(parent, ast.AugAssign):
        return True
    if isinstance(parent, ast.Call):
        callee = body.notes.types.get(id(parent.func))
        target = callee.target if isinstance(callee, Function) else None
        return isinstance(target, np.ufunc) or getattr(target, "__name__", "") in ("dot", "inner", "vdot", "sum")
    return False


def _is_plain_view(node: ast.expr) -> bool:
    """Is it a name, or subscripts of one by numbers that are computed from variables alone?"""
    while isinstance(node, ast.Subscript):
        if any(isinstance(item, ast.Subscript | ast.Call | ast.MatMult | ast.IfExp) for item in ast.walk(node.slice)):
            return False
        node = node.value
    return isinstance(node, ast.Name)


def _position(dim: int | None, low: int) -> ast.expr:
    if dim is None:
        return ast.Constant(low)
    index = ast.Name(index_name(dim), ast.Load())
    return ast.BinOp(index, ast.Add(), ast.Constant(low)) if low else index


def _subscript(name: str, parts: Sequence[ast.expr]) -> ast.Subscript:
    slice_ = parts[0] if len(parts) == 1 else ast.Tuple(list(parts), ast.Load())
    return ast.Subscript(ast.Name(name, ast.Load()), slice_, ast.Load())


def _is_product(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)


def at_k(name: str) -> ast.Subscript:
    """Element k of a vector by name."""
    return ast.Subscript(ast.Name(name, ast.Load()), ast.Name(K, ast.Load()), ast.Load())


def index_name(dim: int) -> str:
    return f"{OWN}i{dim}"


def element_name(name: str) -> str:
    return f"{OWN}element_{name}"


def scratch_name(name: str) -> str:
    return f"{OWN}vector_{name}"


def assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def as_single(code: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(f"{OWN}float32", ast.Load()), [code], [])


def located(statements: Iterable[ast.stmt], origin: ast.stmt) -> None:
    for statement in statements:
        ast.copy_location(statement, origin)
