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

from girih.loop.capture.body import ArrayRole, Body, BufferRole

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
        self.shared = {name for name, role in body.roles.items() if isinstance(role, ArrayRole | BufferRole)}
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
        """Variables whose values come from arrays of the loop, or are set only where such values say so."""
        found: set[str] = set()
        while True:
            before = len(found)
            self._taint(self.tree.body, found, False)
            if len(found) == before:
                return found

    def _taint(self, statements: list[ast.stmt], found: set[str], controlled: bool) -> None:
        """controlled: whether these statements run depends on values of arrays."""
        for node in statements:
            inner = controlled
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For):
                origin = node.iter if isinstance(node, ast.For) else node.value
                if controlled or (origin is not None and self.depends(origin, found)):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    found |= {name for target in targets for name in _stored(target)}
                    inner = True
            elif isinstance(node, ast.If | ast.While):
                inner |= self.depends(node.test, found)
            if isinstance(node, ast.For | ast.While) and self.leaves(node, found):
                # How often its body runs whole is not known: what it sets may be of any round.
                found |= {name for item in node.body for name in _set_in(item)}
                if isinstance(node, ast.For):
                    found |= _stored(node.target) & _loaded_outside(self.tree, node)
            if isinstance(node, ast.If | ast.For | ast.While):
                self._taint(node.body, found, inner)
                self._taint(node.orelse, found, inner)

    def leaves(self, loop: ast.For | ast.While, tainted: set[str]) -> bool:
        """Does a loop break off, or a round of it, where values of arrays say so?"""
        branches = (item for item in ast.walk(loop) if isinstance(item, ast.If) and self.depends(item.test, tainted))
        return any(isinstance(item, ast.Break | ast.Continue) for branch in branches for item in ast.walk(branch))

    def depends(self, node: ast.AST, tainted: set[str]) -> bool:
        """Does a value come from an array's elements? Shapes and lengths do not."""
        if _is_size(node):
            return False
        if isinstance(node, ast.Name):
            return node.id in self.shared or node.id in tainted
        return any(self.depends(child, tainted) for child in ast.iter_child_nodes(node))

    def reads(self, node: ast.AST) -> list[ast.Subscript]:
        """Reads of rows that can be listed, in a statement's own expressions; others are left out, and kept in mind."""
        found = []
        expressions = _expressions(node)
        rows = [
            item
            for item in expressions
            if isinstance(item, ast.Subscript) and isinstance(item.value, ast.Name) and item.value.id in self.arrays
        ]
        sizes = [part for item in expressions if _is_size(item) for part in ast.walk(item)]
        known = {id(item.value) for item in rows} | set(map(id, sizes))
        for item in rows:
            if isinstance(item.ctx, ast.Load):
                if self.depends(_row(item), self.tainted):
                    self.leave_out(item)
                else:
                    found.append(item)
        for name in expressions:
            if isinstance(name, ast.Name) and name.id in self.arrays and id(name) not in known:
                self.leave_out(name)
        return found

    def leave_out(self, node: ast.AST) -> None:
        text = ast.unparse(node)
        if text not in self.left:
            self.left.append(text)

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
        rounds = node.test if isinstance(node, ast.While) else node.iter
        if self.depends(rounds, self.tainted):
            for item in ast.walk(node):
                if isinstance(item, ast.stmt):
                    for read in self.reads(item):
                        self.leave_out(read)
            return []
        if isinstance(node, ast.While):
            return [ast.While(node.test, inner, [])]
        return [ast.For(node.target, node.iter, inner, [])]


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


def _set_in(node: ast.AST) -> set[str]:
    """The variables that a statement sets, and those within it."""
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)}


def _loaded_outside(tree: ast.AST, loop: ast.AST) -> set[str]:
    """The variables that are read outside of a loop."""
    within = set(map(id, ast.walk(loop)))
    return {
        item.id
        for item in ast.walk(tree)
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load) and id(item) not in within
    }


def _is_size(node: ast.AST) -> bool:
    """Is it a length or shape, which does not come from elements?"""
    if isinstance(node, ast.Attribute):
        return node.attr in ("shape", "ndim", "size")
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"


def _loaded(node: ast.AST) -> set[str]:
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
