"""The function that lists which rows of an array an iteration will read, cut out of the loop's body (thesis §5.3.4).

Kept are the statements that the subscripts of reads depend on, with the control flow around them; each read becomes a
note of its row, and nothing is computed with it. A subscript that depends on values of arrays of the loop is not
listed, since to compute it would be the very reads that are to be spared; of a branch on such a value both sides are
listed. It is dead-code elimination with other roots: the cost is the body's size times the depth of its assignments.

What comes out is again a loop body, whose notes are writes to a buffer: it is analysed and compiled like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from girih.capture.loops.body import Array, Body, Buffer

ROWS = "rows_of_"
"""What the buffers that take the notes are called, before the name of the array."""


def prefetching(body: Body, arrays: Collection[str]) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
    """(text of a function, the arrays whose rows it notes, reads that it leaves out), or None if there is nothing.

    The function takes the key, the value, the parameters of the body that it needs, and a buffer `rows_of_A` for each
    array A.
    """
    slicer = _Slicer(body, frozenset(arrays))
    return slicer.function()


class _Slicer:
    def __init__(self, body: Body, arrays: frozenset[str]) -> None:
        self.body = body
        self.arrays = arrays
        self.tree = body.source.tree
        self.shared = {name for name, role in body.roles.items() if isinstance(role, Array | Buffer)}
        self.tainted = self._tainted()
        self.noted: dict[str, None] = {}
        self.left: list[str] = []
        self.needed = self._needed()

    def function(self) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
        statements = self.kept(self.tree.body)
        if not self.noted:
            return None
        used = {node.id for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Name)}
        count = 2 if self.body.space.values else 1
        head = self.body.source.parameters[:count]
        rest = [name for name in self.body.source.parameters[count:] if name in used and name not in self.shared]
        buffers = [f"{ROWS}{name}" for name in self.noted]
        arguments = [ast.arg(name) for name in (*head, *rest, *buffers)]
        made = ast.FunctionDef(
            f"{self.tree.name}_rows", ast.arguments([], arguments, None, [], [], None, []), statements, [], None
        )
        made.type_params = []  # type: ignore[attr-defined]
        return ast.unparse(ast.fix_missing_locations(made)), tuple(self.noted), tuple(self.left)

    def _tainted(self) -> set[str]:
        """Variables whose values come from arrays of the loop."""
        found: set[str] = set()
        while True:
            before = len(found)
            for node in ast.walk(self.tree):
                targets: list[ast.expr] = []
                origin: ast.expr | None = None
                if isinstance(node, ast.Assign):
                    targets, origin = node.targets, node.value
                elif isinstance(node, ast.AugAssign | ast.AnnAssign):
                    targets, origin = [node.target], node.value
                elif isinstance(node, ast.For):
                    targets, origin = [node.target], node.iter
                if origin is not None and self.depends(origin, found):
                    found |= {name for target in targets for name in _stored(target)}
            if len(found) == before:
                return found

    def depends(self, node: ast.AST, tainted: set[str]) -> bool:
        """Does a value come from an array's elements? Shapes and lengths do not."""
        if isinstance(node, ast.Attribute) and node.attr in ("shape", "ndim", "size"):
            return False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
            return False
        if isinstance(node, ast.Name):
            return node.id in self.shared or node.id in tainted
        return any(self.depends(child, tainted) for child in ast.iter_child_nodes(node))

    def reads(self, node: ast.AST) -> list[ast.Subscript]:
        """Reads of rows that can be listed, in a statement's own expressions."""
        found = []
        for item in _expressions(node):
            wanted = (
                isinstance(item, ast.Subscript) and isinstance(item.value, ast.Name) and item.value.id in self.arrays
            )
            if wanted and isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Load):
                if self.depends(_row(item), self.tainted):
                    text = ast.unparse(item)
                    if text not in self.left:
                        self.left.append(text)
                else:
                    found.append(item)
        return found

    def _needed(self) -> set[str]:
        """Variables that the subscripts of the listed reads depend on, or the control flow around them."""
        found: set[str] = set()
        while True:
            before = len(found)
            self._collect(self.tree.body, found)
            if len(found) == before:
                return found

    def _collect(self, statements: list[ast.stmt], found: set[str]) -> bool:
        """Whether something of the statements is kept."""
        kept = False
        for node in statements:
            mine = False
            for item in self.reads(node):
                found |= _loaded(_row(item))
                mine = True
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and self.sets(node, found):
                found |= _loaded(node)
                mine = True
            inner = [part for name in ("body", "orelse") for part in (getattr(node, name, None) or [])]
            if inner and self._collect(inner, found):
                mine = True
            if mine and isinstance(node, ast.If | ast.While):
                found |= _loaded(node.test)
            if mine and isinstance(node, ast.For):
                found |= _loaded(node.iter)
            if isinstance(node, ast.Break | ast.Continue | ast.Return):
                mine = True
            kept |= mine
        return kept

    def sets(self, node: ast.stmt, needed: set[str]) -> bool:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
        names = {name for target in targets for name in _stored(target)}
        return bool(names & needed) and not names & self.tainted

    def kept(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for node in statements:
            for item in self.reads(node):
                assert isinstance(item.value, ast.Name)
                self.noted[item.value.id] = None
                place = ast.Subscript(ast.Name(f"{ROWS}{item.value.id}", ast.Load()), _row(item), ast.Store())
                made.append(ast.AugAssign(place, ast.Add(), ast.Constant(1)))
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
                if self.sets(node, self.needed):
                    made.append(node)
            elif isinstance(node, ast.If):
                made += self.branch(node)
            elif isinstance(node, ast.For | ast.While):
                made += self.loop(node)
            elif isinstance(node, ast.Break | ast.Continue | ast.Return):
                made.append(node)
        return made

    def branch(self, node: ast.If) -> list[ast.stmt]:
        first, second = self.kept(node.body), self.kept(node.orelse)
        if self.depends(node.test, self.tainted):  # either side may be taken
            ends = ast.Break | ast.Continue | ast.Return
            return [item for item in (*first, *second) if not isinstance(item, ends)]
        return [ast.If(node.test, first or [ast.Pass()], second)] if first or second else []

    def loop(self, node: ast.For | ast.While) -> list[ast.stmt]:
        inner = self.kept(node.body)
        if not inner:
            return []
        if isinstance(node, ast.While):
            return [] if self.depends(node.test, self.tainted) else [ast.While(node.test, inner, [])]
        return [] if self.depends(node.iter, self.tainted) else [ast.For(node.target, node.iter, inner, [])]


def _row(node: ast.Subscript) -> ast.expr:
    """The first part of a subscript."""
    return node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice


def _expressions(node: ast.AST) -> list[ast.AST]:
    """A statement's expressions, without those of statements within it."""
    found: list[ast.AST] = []
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            found.append(child)
            found += _expressions(child)
    return found


def _stored(node: ast.expr) -> set[str]:
    if isinstance(node, ast.Subscript):
        return _stored(node.value)
    if isinstance(node, ast.Tuple | ast.List):
        return {name for item in node.elts for name in _stored(item)}
    return {node.id} if isinstance(node, ast.Name) else set()


def _loaded(node: ast.AST) -> set[str]:
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
