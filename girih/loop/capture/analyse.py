"""The references of a loop body to arrays, found by running the body on what is known of its values.

Orion, thesis §5.2.2 and §5.3.2: subscripts of one loop index plus or minus a constant, and ranges; everything else may
be anywhere. Where Orion looks at the text of each subscript, here values are followed: through variables, tuples,
views (`row = W[i]`), branches, loops and the user's own functions. A branch joins what is known on both sides; a loop
is run until nothing new is learnt. The cost is linear in the body, times the depth of its loops, times the calls.

What is refused rather than guessed: variables that may be unset (they would keep the value of another iteration),
views that are lost sight of, and writes to what is not shared by name.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from girih.loop.capture.arithmetic import (
    chosen_type,
    constant,
    is_beyond,
    literal,
    of_intervals,
    result_type,
    ufunc_result,
)
from girih.loop.capture.body import (
    AccumulatorRole,
    ArrayRole,
    Body,
    BufferRole,
    Inherited,
    KnownSpace,
    Notes,
    Role,
    key_and_value,
    vector_of,
)
from girih.loop.capture.errors import LoopError, refusal, short
from girih.loop.capture.inherited import ANY_DIMS, beyond, inherited
from girih.loop.capture.source import Source, read_source
from girih.loop.capture.values import (
    ANYWHERE,
    UNKNOWN,
    WEAK_FLOAT,
    WEAK_INT,
    Cut,
    Foreign,
    Function,
    Index,
    Interval,
    Object,
    Outside,
    Reference,
    Scalar,
    Stream,
    Subscript,
    Tuple,
    Unknown,
    Value,
    Vector,
    View,
    Views,
    entry,
    holds_outside,
    holds_view,
    is_outside,
    is_whole,
    join,
    joined,
    reshaped,
    views_of,
)

MOST_ROUNDS = 8
"""Passes over a loop in the body until what is known no longer changes; after them it counts as unknown."""
MOST_CALLS = 12
"""How deep functions may call each other."""
READING_METHODS = frozenset({
    "all", "any", "argmax", "argmin", "astype", "copy", "cumsum", "dot", "item", "max", "mean", "min", "nonzero",
    "prod", "std", "sum", "var",
})  # fmt: skip
VIEW_METHODS = frozenset(["reshape", "ravel", "transpose", "view", "swapaxes"])
CONTAINER_METHODS = READING_METHODS | {
    "count", "difference", "index", "intersection", "isdisjoint", "issubset", "issuperset", "keys",
    "symmetric_difference", "tolist", "union",
}  # fmt: skip
"""Methods of inherited lists, sets, dictionaries and arrays whose results share nothing with them."""
WRITING_METHODS = frozenset({"fill", "sort"})
WRITING_FUNCTIONS = frozenset(["copyto", "put", "place", "fill_diagonal", "putmask"])
VIEW_FUNCTIONS = frozenset({
    "array_split", "asanyarray", "asarray", "asarray_chkfinite", "ascontiguousarray", "asfortranarray", "as_strided",
    "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_to", "diag", "diagonal", "dsplit",
    "expand_dims", "flip", "fliplr", "flipud", "frombuffer", "hsplit", "imag", "matrix_transpose", "moveaxis",
    "nan_to_num", "nditer", "permute_dims", "ravel", "real", "require", "reshape", "rollaxis", "rot90",
    "sliding_window_view", "split", "squeeze", "swapaxes", "transpose", "trim_zeros", "unstack", "vsplit",
})  # fmt: skip
"""NumPy's functions whose results may share memory with their arguments."""
DRAWING = {
    **dict.fromkeys(("random", "standard_normal", "standard_exponential", "standard_cauchy"), (0, WEAK_FLOAT)),
    **dict.fromkeys(("standard_gamma", "exponential", "chisquare", "pareto", "weibull", "power", "rayleigh",
                     "standard_t"), (1, WEAK_FLOAT)),
    **dict.fromkeys(("normal", "uniform", "gamma", "beta", "f", "laplace", "logistic", "lognormal", "wald",
                     "noncentral_chisquare"), (2, WEAK_FLOAT)),
    **dict.fromkeys(("triangular", "noncentral_f"), (3, WEAK_FLOAT)),
    **dict.fromkeys(("geometric", "zipf", "poisson", "logseries"), (1, "int64")),
    **dict.fromkeys(("integers", "binomial", "negative_binomial"), (2, "int64")),
}  # fmt: skip
"""Methods of NumPy's Generators that Numba has: how many parameters come before the size, and what they draw."""
BUILTINS = {abs, min, max, int, float, bool, round, sum, divmod, pow, len, range, complex, print}
"""Python's functions that keep nothing of their arguments."""


def analyse(source: Source, space: KnownSpace, roles: Mapping[str, Role]) -> Body:
    """The references of a body, where its names are what roles says.

    Raises:
        LoopError: something in the body cannot be followed, or would not mean the same in parallel.
    """
    run = _Run(source, space, roles)
    return run.body()


@dataclass
class _Scope:
    """Variables of one function call. None: the variable may be unset. returns: what it may return."""

    file: str
    variables: dict[str, Value | None]
    function: Any
    returns: list[Value] = field(default_factory=list)
    top: bool = False
    loops: int = 0
    exits: list[dict[str, Value | None]] = field(default_factory=list)
    """The variables at each `break` and `continue` of the loop that is run."""


class _Run:
    """One run over a body; calls of the user's functions are scopes within it."""

    def __init__(self, source: Source, space: KnownSpace, roles: Mapping[str, Role]) -> None:
        self.source = source
        self.space = space
        self.roles = roles
        self.references: dict[Reference, None] = {}
        self.buffered: dict[str, None] = {}
        self.accumulated: dict[str, None] = {}
        self.random = False
        self.generators: dict[str, None] = {}
        self.notes = Notes()
        self.calls: list[Any] = []

    def body(self) -> Body:
        key, value = key_and_value(self.source, self.space)
        indices = tuple(Index(dim) for dim in range(self.space.dims))
        variables: dict[str, Value | None] = {key: indices[0] if len(indices) == 1 else Tuple(indices)}
        if value is not None:
            variables[value] = Tuple(self.space.values) if self.space.tuple_value else self.space.values[0]
        scope = _Scope(self.source.file, variables, self.source.function, top=True)
        self.run(self.source.tree.body, scope)
        return Body(
            self.source, self.space, self.roles, tuple(self.references), tuple(self.buffered), tuple(self.accumulated),
            self.random, tuple(self.generators), self.notes,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------ statements

    def run(self, statements: Sequence[ast.stmt], scope: _Scope) -> bool:
        """Whether the end of the statements can be reached."""
        return all(self.statement(statement, scope) for statement in statements)

    def statement(self, node: ast.stmt, scope: _Scope) -> bool:
        if isinstance(node, ast.Assign):
            first = node.targets[0]
            role = self.role_of(first.id, scope) if isinstance(first, ast.Name) else None
            if isinstance(role, AccumulatorRole) and isinstance(first, ast.Name) and len(node.targets) == 1:
                self.accumulate(first, node.value, role, scope)
                return True
            value = self.value(node.value, scope)
            for target in node.targets:
                self.assign(target, value, scope, node.value)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.assign(node.target, self.value(node.value, scope), scope, node.value)
        elif isinstance(node, ast.AugAssign):
            self.augmented(node, scope)
        elif isinstance(node, ast.Expr):
            self.value(node.value, scope)
        elif isinstance(node, ast.If):
            return self.branch(node, scope)
        elif isinstance(node, ast.For | ast.While):
            self.loop(node, scope)
        elif isinstance(node, ast.Return):
            return self.returned(node, scope)
        elif isinstance(node, ast.Assert):
            self.value(node.test, scope)
        elif isinstance(node, ast.Raise):
            return False
        elif isinstance(node, ast.Break | ast.Continue):
            scope.exits.append(dict(scope.variables))
            return False
        elif not isinstance(node, ast.Pass):
            raise self.refused(scope, node, "this statement is not understood", "use assignments, if, for and while")
        return True

    def returned(self, node: ast.Return, scope: _Scope) -> bool:
        if scope.top:
            if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
                raise self.refused(scope, node, "a loop body returns nothing", "write to an array or an accumulator")
            if scope.loops:
                raise self.refused(
                    scope,
                    node,
                    "an iteration cannot end inside a loop of its body",
                    "leave the loop with `break` first",
                )
        else:
            scope.returns.append(UNKNOWN if node.value is None else self.value(node.value, scope))
        return False

    def branch(self, node: ast.If, scope: _Scope) -> bool:
        self.value(node.test, scope)
        before = dict(scope.variables)
        first = self.run(node.body, scope)
        then = scope.variables
        scope.variables = dict(before)
        second = self.run(node.orelse, scope)
        if first and second:
            scope.variables = _either(then, scope.variables)
        elif first or not second:
            scope.variables = then
        return first or second

    def loop(self, node: ast.For | ast.While, scope: _Scope) -> None:
        items = self.items(node.iter, scope) if isinstance(node, ast.For) else UNKNOWN
        before, outer = dict(scope.variables), scope.exits
        scope.loops += 1
        for count in range(MOST_ROUNDS + 1):
            entering = dict(scope.variables)
            scope.exits = []
            if isinstance(node, ast.For):
                self.assign(node.target, items, scope, node.iter)
            else:
                self.value(node.test, scope)
            reached = self.run(node.body, scope)
            after = entering
            for ending in (*([scope.variables] if reached else []), *scope.exits):
                after = _either(after, ending)
            if after == entering:
                break
            if count >= MOST_ROUNDS // 2:  # counters and the like: they would grow for ever
                after = {name: _given_up(entering.get(name), value) for name, value in after.items()}
            scope.variables = after
        else:
            raise self.refused(scope, node, "its variables change in too many ways", "write it simpler")
        scope.loops -= 1
        scope.exits = outer
        scope.variables = _either(before, after)
        if isinstance(node, ast.While):
            self.value(node.test, scope)
        self.run(node.orelse, scope)

    def items(self, node: ast.expr, scope: _Scope) -> Value:
        """What each round of `for … in node` assigns."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            callee = self.value(node.func, scope)
            target = callee.target if isinstance(callee, Function) else None
            if target is range:
                return self.note(node, self.range_of([self.value(item, scope) for item in node.args]))
            if target is enumerate and node.args:
                return Tuple((Scalar(WEAK_INT), self.items(node.args[0], scope)))
            if target is zip:
                return Tuple(tuple(self.items(item, scope) for item in node.args))
        return self.element(node, self.value(node, scope), scope)

    def range_of(self, arguments: Sequence[Value]) -> Value:
        """The numbers of `range(…)`: an interval where its ends are known and it counts up."""
        step = arguments[2] if len(arguments) == 3 else Interval(1, 2)
        start, stop = (Interval(0, 1), arguments[0]) if len(arguments) == 1 else (arguments[0], arguments[1])
        if not (isinstance(step, Interval) and step.low > 0):
            return Scalar(WEAK_INT)
        if isinstance(start, Interval) and isinstance(stop, Interval):
            return Interval(start.low, max(stop.high - 1, start.low + 1))
        if isinstance(start, Index) and isinstance(stop, Index) and start.dim == stop.dim:
            return Index(start.dim, start.offset) if stop.offset == start.offset + 1 else Scalar(WEAK_INT)
        return Scalar(WEAK_INT)

    def element(self, node: ast.expr, value: Value, scope: _Scope) -> Value:
        """An item of what is iterated over."""
        self.check_foreign(node, value, scope)
        if isinstance(value, View):
            return self.subscripted(node, value, [ANYWHERE], scope, writes=False)
        if isinstance(value, Views):
            raise self.refused(scope, node, "it may be one of several arrays", "write one loop for each")
        if isinstance(value, Tuple):
            return joined(value.items) if value.items else UNKNOWN
        if isinstance(value, Outside):
            return self.contained(value)
        return Scalar(value.dtype) if isinstance(value, Vector) else UNKNOWN

    def contained(self, value: Outside) -> Value:
        """An item of an inherited container, or an array's part along its first dimension."""
        return value.element if value.dims in (None, 1) else replace(value, dims=value.dims - 1)

    def assign(self, target: ast.expr, value: Value, scope: _Scope, origin: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.assign_name(target, value, scope)
        elif isinstance(target, ast.Tuple | ast.List):
            items: Sequence[Value] = [UNKNOWN] * len(target.elts)
            if isinstance(value, Tuple):
                if len(value.items) != len(target.elts):
                    raise self.refused(
                        scope, target, f"{len(target.elts)} names for {len(value.items)} values", "give each its name"
                    )
                items = value.items
            elif isinstance(value, View | Views | Outside):
                items = [self.element(origin, value, scope)] * len(target.elts)
            elif isinstance(value, Index):
                raise self.refused(
                    scope, target, "the key of a loop over one dimension is a number", "name it without a tuple"
                )
            for item, part in zip(target.elts, items, strict=True):
                self.assign(item, part, scope, origin)
        elif isinstance(target, ast.Subscript):
            self.store(target, scope)
        else:
            raise self.refused(scope, target, "attributes are not written in a loop", "write to an array")

    def assign_name(self, target: ast.Name, value: Value, scope: _Scope) -> None:
        role = self.role_of(target.id, scope)
        if isinstance(role, AccumulatorRole):
            raise self.refused(scope, target, f"{target.id} is an accumulator", _how(target.id, role.operation))
        if isinstance(role, ArrayRole | BufferRole):
            raise self.refused(
                scope, target, f"{target.id} would no longer be the shared array", f"write `{target.id}[…] = …`"
            )
        scope.variables[target.id] = value
        self.note(target, value)

    def accumulate(self, target: ast.Name, origin: ast.expr, role: AccumulatorRole, scope: _Scope) -> None:
        """`err = max(err, x)` for an accumulator whose operation is max, or `err = err + x`."""
        words = f"{target.id} is an accumulator by {role.operation}"
        mine = [item for item in ast.walk(origin) if isinstance(item, ast.Name) and item.id == target.id]
        by_call = (
            isinstance(origin, ast.Call)
            and isinstance(origin.func, ast.Name)
            and origin.func.id == role.operation
            and len(origin.args) == 2
        )
        by_sum = (
            isinstance(origin, ast.BinOp)
            and isinstance(origin.op, ast.Add if role.operation == "sum" else ast.Mult)
            and role.operation in ("sum", "product")
        )
        if not scope.top or len(mine) != 1 or not (by_call or by_sum):
            raise self.refused(scope, target, words, _how(target.id, role.operation))
        parts = origin.args if isinstance(origin, ast.Call) else [origin.left, origin.right]  # type: ignore[attr-defined]
        if not any(part is mine[0] for part in parts):
            raise self.refused(scope, target, words, _how(target.id, role.operation))
        for part in parts:
            if part is not mine[0]:
                self.check_whole(target, self.value(part, scope), role, scope)
        if isinstance(origin, ast.Call):
            self.value(origin.func, scope)
        self.accumulated[target.id] = None

    def check_whole(self, target: ast.Name, value: Value, role: AccumulatorRole, scope: _Scope) -> None:
        """An accumulator of whole numbers would cut off what is added."""
        dtype = self.dtype(value)
        if "int" in role.dtype and (dtype is None or not ("int" in dtype or dtype == "bool")):
            raise self.refused(
                scope, target, f"{target.id} began with a whole number, and it is not known that all others are whole",
                f"begin with `{target.id} = gl.accumulator(0.0)`, or write int(…)",
            )  # fmt: skip

    def augmented(self, node: ast.AugAssign, scope: _Scope) -> None:
        target = node.target
        adds = isinstance(node.op, ast.Add | ast.Sub)
        if isinstance(target, ast.Name):
            role = self.role_of(target.id, scope)
            value = self.value(node.value, scope)
            if isinstance(role, AccumulatorRole):
                wanted = {"sum": (ast.Add, ast.Sub), "product": (ast.Mult,)}.get(role.operation, ())
                if not scope.top or not isinstance(node.op, wanted):
                    words = f"{target.id} is an accumulator by {role.operation}"
                    raise self.refused(scope, target, words, _how(target.id, role.operation))
                self.check_whole(target, value, role, scope)
                self.accumulated[target.id] = None
                return
            if isinstance(role, ArrayRole | BufferRole):
                raise self.refused(scope, target, "it changes the whole array", f"write `{target.id}[…] += …`")
            unset = target.id not in scope.variables and target.id not in self.source.parameters
            if scope.top and unset:
                raise self.refused(
                    scope, node, f"{target.id} is inherited, and would be another in each worker",
                    f"make it `{target.id} = gl.accumulator(0.0)`, or set it before",
                )  # fmt: skip
            before = self.name(ast.copy_location(ast.Name(target.id, ast.Load()), target), scope)
            self.check_own(before, node, scope)
            if views_of(before):
                for view in views_of(before):
                    self.refer(view, node, writes=False, update=adds)
                    self.refer(view, node, writes=True, update=adds)
                return
            scope.variables[target.id] = self.note(target, self.arithmetic(node.op, before, value))
        elif isinstance(target, ast.Subscript):
            value = self.value(node.value, scope)
            self.store(target, scope, update=adds, reads=True)
        else:
            raise self.refused(scope, target, "attributes are not written in a loop", "write to an array")

    def store(self, target: ast.Subscript, scope: _Scope, update: bool = False, reads: bool = False) -> None:
        name = self.root(target)
        role = self.role_of(name, scope) if name else None
        if isinstance(role, BufferRole):
            if not scope.top or not isinstance(target.value, ast.Name):
                raise self.refused(scope, target, "a buffer is written by its name", f"write `{name}[…] += …`")
            if not update:
                raise self.refused(scope, target, "buffered writes are added up", f"write `{name}[…] += …`")
            parts = self.buffer_parts(target, role, scope)
            self.buffered[str(name)] = None
            if len(parts) == len(role.shape) and not any(isinstance(item, Cut) for item in parts):
                self.note(target, Scalar(role.dtype))
            return
        if isinstance(role, AccumulatorRole):
            raise self.refused(scope, target, "an accumulator has no elements", _how(str(name), role.operation))
        base = self.base(target.value, scope)
        self.check_own(base, target, scope)
        if views_of(base):
            parts = self.subscripts(target.slice, scope)
            for view in views_of(base):
                if reads:
                    self.subscripted(target, view, parts, scope, writes=False, update=update)
                self.note(target, self.subscripted(target, view, parts, scope, writes=True, update=update))
            return
        self.subscripts(target.slice, scope)
        if isinstance(role, Inherited) and name not in scope.variables:
            raise self.refused(
                scope,
                target,
                f"{name} is inherited, and inherited variables are only read",
                f"make it gl.array({name})",
            )
        self.note(target, UNKNOWN)

    def check_own(self, value: Value, node: ast.AST, scope: _Scope) -> None:
        """What is changed in its place is the iteration's own."""
        if is_outside(value):
            raise self.refused(
                scope, node, "it would change what is inherited, which is only read, under whatever name",
                "change a copy, or make an array of it with gl.array(…)",
            )  # fmt: skip

    def buffer_parts(self, node: ast.Subscript, role: BufferRole, scope: _Scope) -> list[Value]:
        """The parts of a buffer's subscript, each noted if it may lie outside."""
        parts = self.subscripts(node.slice, scope)
        if len(parts) > len(role.shape):
            raise self.refused(
                scope, node, f"{len(parts)} subscripts for {len(role.shape)} dimensions", "leave some of them away"
            )
        texts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice] * len(parts)
        for text, part, size in zip(texts, parts, role.shape, strict=False):
            if not (isinstance(part, Cut) or role.notes):
                self.check(text, part, size, within=False)
        return parts

    def root(self, node: ast.expr) -> str | None:
        """The name that is subscripted, behind all subscripts."""
        while isinstance(node, ast.Subscript):
            node = node.value
        return node.id if isinstance(node, ast.Name) else None

    # ----------------------------------------------------------------------------------------- expressions

    def value(self, node: ast.expr, scope: _Scope, large: bool = False) -> Value:
        """large: the number may need more than 64 bits, since a float comes of it, or an unsigned number."""
        number = literal(node)
        if number is None:
            return self.note(node, self.evaluated(node, scope))
        if is_beyond(node) and not large:
            raise self.refused(
                scope, node, "the whole number does not fit 64 bits",
                "write a float, such as `1e20`, or `np.uint64(…)` up to 2**64",
            )  # fmt: skip
        return self.note(node, Interval(number, number + 1))

    def note(self, node: ast.expr, value: Value) -> Value:
        """Remember what is known of a node: what holds each time that it is computed."""
        known = self.notes.types.get(id(node))
        self.notes.types[id(node)] = value if known is None else join(known, value)
        return value

    def evaluated(self, node: ast.expr, scope: _Scope) -> Value:
        if isinstance(node, ast.Constant):
            return constant(node.value)
        if isinstance(node, ast.Name):
            value = self.name(node, scope)
            for view in views_of(value):
                self.refer(view, node, writes=False)
            return value
        if isinstance(node, ast.Tuple | ast.List):
            items = tuple(self.value(item, scope) for item in node.elts)
            if isinstance(node, ast.List) and any(holds_view(item) or holds_outside(item) for item in items):
                raise self.refused(
                    scope, node, "a part of an array would be lost sight of", "give it a name of its own"
                )
            return Tuple(items) if isinstance(node, ast.Tuple) else UNKNOWN
        if isinstance(node, ast.Subscript):
            return self.subscript(node, scope)
        if isinstance(node, ast.Attribute):
            return self.attribute(node, scope)
        if isinstance(node, ast.BinOp):
            return self.binary(node, scope)
        if isinstance(node, ast.UnaryOp):
            return self.unary(node, scope)
        if isinstance(node, ast.BoolOp):
            values = [self.value(item, scope) for item in node.values]
            if any(map(holds_view, values)):
                raise self.refused(scope, node, "an array is neither true nor false", "compare its elements")
            return joined(values) if any(map(holds_outside, values)) else UNKNOWN
        if isinstance(node, ast.Compare):
            operands = [self.value(item, scope) for item in (node.left, *node.comparators)]
            lengths = {length for item in operands if (length := self.vector(item)) is not None}
            return Vector(lengths.pop()[0], "bool") if len(lengths) == 1 else Scalar("bool")
        if isinstance(node, ast.IfExp):
            self.value(node.test, scope)
            return join(self.value(node.body, scope), self.value(node.orelse, scope))
        if isinstance(node, ast.Call):
            return self.call(node, scope)
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self.comprehension(node, scope)
        raise self.refused(scope, node, "this expression is not understood", "write it with a for loop")

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp, scope: _Scope) -> Value:
        before = dict(scope.variables)
        scope.loops += 1
        for part in node.generators:
            self.assign(part.target, self.items(part.iter, scope), scope, part.iter)
            for test in part.ifs:
                self.value(test, scope)
        value = self.value(node.elt, scope)
        scope.loops -= 1
        scope.variables = before
        if holds_view(value) or holds_outside(value):
            raise self.refused(scope, node, "parts of arrays would be lost sight of", "write it with a for loop")
        return UNKNOWN

    def name(self, node: ast.Name, scope: _Scope) -> Value:
        """What a name is; a whole array is a view, and it is not read yet."""
        name = node.id
        if name in scope.variables:
            value = scope.variables[name]
            if value is None:
                raise self.refused(
                    scope, node, f"{name} may not have been set in this iteration", f"set {name} before, on every path"
                )
            return value
        role = self.role_of(name, scope)
        if isinstance(role, ArrayRole):
            return View(name, (ANYWHERE,) * len(role.shape), tuple(range(len(role.shape))))
        if isinstance(role, AccumulatorRole):
            raise self.refused(
                scope, node, f"{name} is an accumulator, which has no value before the loop has ended",
                _how(name, role.operation),
            )  # fmt: skip
        if isinstance(role, BufferRole):
            raise self.refused(scope, node, "a buffer is not passed on or read whole", f"use `{name}[…]`")
        if isinstance(role, Inherited):
            if scope.top and isinstance(role.value, np.random.Generator):
                self.generators[name] = None
                return Stream(name)
            number = beyond(role.value)
            if number is not None:
                what = f"{name} is, or has, {number}, which does not fit 64 bits"
                raise self.refused(scope, node, what, "give a float, or np.uint64(…)")
            return inherited(role.value)
        raise self.refused(scope, node, f"{name} has not been set in this iteration", "set it before, on every path")

    def role_of(self, name: str, scope: _Scope) -> Role | None:
        if scope.top:
            return None if name in scope.variables else self.roles.get(name)
        if name in scope.variables:
            return None
        space = getattr(scope.function, "__globals__", {})
        if name not in space:
            builtin = getattr(builtins, name, None)
            return None if builtin is None else Inherited(builtin)
        if getattr(space[name], "of_loops", False):
            raise LoopError(
                f"{scope.file}: {getattr(scope.function, '__name__', '?')} uses {name}, an array of the loop that it "
                f"is not given; make {name} a parameter"
            )
        return Inherited(space[name])

    def base(self, node: ast.expr, scope: _Scope) -> Value:
        """What is subscripted: subscripting an array reads no more of it than the subscript says."""
        if isinstance(node, ast.Name):
            return self.note(node, self.name(node, scope))
        if isinstance(node, ast.Subscript):
            value = self.base(node.value, scope)
            if isinstance(value, View):
                parts = self.subscripts(node.slice, scope)
                return self.note(node, self.subscripted(node, value, parts, scope, writes=False, quiet=True))
        return self.value(node, scope)

    def subscript(self, node: ast.Subscript, scope: _Scope) -> Value:
        name = self.root(node)
        role = self.role_of(name, scope) if name else None
        if isinstance(role, BufferRole):
            parts = self.buffer_parts(node, role, scope)
            self.buffered[str(name)] = None
            whole = len(parts) == len(role.shape) and not any(isinstance(item, Cut) for item in parts)
            return Scalar(role.dtype) if whole and isinstance(node.value, ast.Name) else UNKNOWN
        base = self.base(node.value, scope)
        self.check_foreign(node, base, scope)
        if isinstance(base, Tuple):
            index = self.value(node.slice, scope)
            if (
                isinstance(index, Interval)
                and index.constant is not None
                and -len(base.items) <= index.low < len(base.items)
            ):
                return base.items[index.low]
            if any(map(holds_view, base.items)):
                raise self.refused(scope, node, "it may be one of several arrays", "subscript it with a constant")
            return joined(base.items) if any(map(holds_outside, base.items)) else UNKNOWN
        parts = self.subscripts(node.slice, scope)
        if isinstance(base, Outside):
            return self.part_of_inherited(base, parts)
        if isinstance(base, View):
            return self.subscripted(node, base, parts, scope, writes=False)
        if isinstance(base, Views):
            value = joined([self.subscripted(node, view, parts, scope, writes=False) for view in views_of(base)])
            return Views(frozenset(views_of(value)), outside=True) if base.outside and views_of(value) else value
        if isinstance(base, Vector) and len(parts) == 1 and not isinstance(parts[0], Cut | Vector | Unknown):
            return Scalar(base.dtype)
        if isinstance(base, Index):
            raise self.refused(
                scope, node, "the key of a loop over one dimension is a number", "use it without a subscript"
            )
        return UNKNOWN

    def part_of_inherited(self, base: Outside, parts: Sequence[Value]) -> Value:
        """What a subscript gives: a member of a container (or a slice of it), a number or a part of an array."""
        positions = [part for part in parts if not isinstance(part, Cut)]
        if base.dims is None:
            return base.element if positions else base
        if len(positions) < base.dims:
            return replace(base, dims=base.dims - len(positions))
        return base.element if all(isinstance(part, Scalar | Index | Interval) for part in positions) else UNKNOWN

    def subscripts(self, node: ast.expr, scope: _Scope) -> list[Value]:
        """The parts of a subscript; a slice is a Cut."""
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        found: list[Value] = []
        if not isinstance(node, ast.Tuple | ast.Slice):
            value = self.value(node, scope)
            if isinstance(value, Tuple):  # a[key]
                return [UNKNOWN if holds_outside(item) else item for item in value.items]
        for part in parts:
            if isinstance(part, ast.Constant) and not isinstance(part.value, int):
                raise self.refused(scope, part, "this subscript is not followed", "use integers and slices")
            if isinstance(part, ast.Slice):
                start = None if part.lower is None else self.value(part.lower, scope)
                stop = None if part.upper is None else self.value(part.upper, scope)
                if part.step is not None:
                    self.value(part.step, scope)
                found.append(Cut(start, stop, part.step is not None))
            else:
                value = self.value(part, scope)
                found.append(UNKNOWN if holds_view(value) or holds_outside(value) else value)
        return found

    def subscripted(
        self, node: ast.expr, view: View, parts: Sequence[Value | Subscript], scope: _Scope, *, writes: bool,
        update: bool = False, quiet: bool = False,
    ) -> Value:  # fmt: skip
        """A part of a view, and the reference to it. quiet: it is subscripted further, and not read yet."""
        role = self.roles.get(view.array)
        assert isinstance(role, ArrayRole)
        subscripts, opened = list(view.subscripts), view.open
        if opened is None:
            found = view
        else:
            if any(isinstance(part, Object) for part in parts):
                raise self.refused(scope, node, "this subscript is not understood", "use integers and slices")
            if len(parts) > len(opened):
                raise self.refused(
                    scope, node, f"{len(parts)} subscripts for {len(opened)} dimensions", "leave some of them away"
                )
            left: list[int] = []
            fancy, cut = False, view.cut
            slices = node.slice if isinstance(node, ast.Subscript) else None
            texts = slices.elts if isinstance(slices, ast.Tuple) else [slices] * len(parts)
            for part, text, at in zip(parts, texts, opened, strict=False):
                within = not subscripts[at].anywhere
                if fancy:  # what is an array of indices may stand for several dimensions
                    subscripts[at] = subscripts[at] if within else ANYWHERE
                    continue
                place, stays, gathers = entry(part, role.shape[at])
                fancy |= gathers
                if isinstance(part, Index) and not scope.top and not self.inside(part, role.shape[at]):
                    place = ANYWHERE  # functions count from the end below 0
                cut |= stays and not (place.low is not None or is_whole(part, role.shape[at]))
                if not within:  # within a slice, positions count from its start
                    subscripts[at] = place
                cut |= stays and within
                if stays:
                    left.append(at)
                elif text is not None and not gathers:
                    self.check(text, part, role.shape[at], within or view.cut)
            left.extend(opened[len(parts) :])
            found = View(view.array, tuple(subscripts), None if fancy else tuple(left), cut)
            if not quiet:
                self.refer(found, node, writes=writes, update=update)
            if fancy:
                return UNKNOWN  # a copy
            return found if left else Scalar(role.dtype)
        if not quiet:
            self.refer(found, node, writes=writes, update=update)
        return found

    def inside(self, part: Index, size: int) -> bool:
        """Does the subscript lie in a dimension of this size, whatever the iteration?"""
        return part.offset + self.space.start(part.dim) >= 0 and part.offset + self.space.shape[part.dim] <= size

    def check(self, node: ast.expr, part: Value | Subscript, size: int, within: bool) -> None:
        """Note a subscript that may lie outside; within: the dimension is a part of the array's, of unknown size."""
        if isinstance(part, Index) and not within:
            if not self.inside(part, size):
                self.notes.checks[id(node)] = (size, False)
        elif isinstance(part, Interval) and not within:
            if not (-size <= part.low and part.high <= size):
                self.notes.checks[id(node)] = (size, part.low < 0)
        else:
            self.notes.checks[id(node)] = (-1 if within else size, True)

    def refer(self, view: View, node: ast.AST, *, writes: bool, update: bool = False) -> None:
        line = getattr(node, "lineno", 0)
        self.references[Reference(view.array, view.subscripts, writes, line, short(node), update)] = None

    def attribute(self, node: ast.Attribute, scope: _Scope) -> Value:
        base = self.base(node.value, scope)
        self.check_foreign(node, base, scope)
        if isinstance(base, Stream):
            raise self.refused(scope, node, f"{base.name} is only drawn from in a loop", "call one of its methods")
        if isinstance(base, Object):
            if not hasattr(base.target, node.attr):
                raise self.refused(scope, node, f"there is no {node.attr}", "look for its name")
            return inherited(getattr(base.target, node.attr))
        if isinstance(base, Outside):
            return UNKNOWN if node.attr in ("shape", "ndim", "size", "dtype") else Outside(base.element, ANY_DIMS)
        for view in views_of(base):
            role = self.roles[view.array]
            assert isinstance(role, ArrayRole)
            if node.attr == "shape":
                sizes = [self.length_of(view, at, role) for at in view.open or ()]
                return Tuple(tuple(Scalar(WEAK_INT) if size is None else Interval(size, size + 1) for size in sizes))
            if node.attr in ("ndim", "size", "dtype"):
                return UNKNOWN
            if node.attr == "T":
                self.refer(view, node, writes=False)
                continue
            raise self.refused(scope, node, f"an array's {node.attr} is not understood", "use its elements")
        return reshaped(base) if views_of(base) else UNKNOWN

    def length_of(self, view: View, at: int, role: ArrayRole) -> int | None:
        part = view.subscripts[at]
        if view.cut or (part.dim is not None and not part.anywhere):  # a slice ends with the array
            return None
        return role.shape[at] if part.low is None or part.high is None else part.high - part.low

    def vector(self, value: Value) -> tuple[int, str] | None:
        return vector_of(value, self.roles)

    def binary(self, node: ast.BinOp, scope: _Scope) -> Value:
        found: dict[int, Value] = {}
        for item in sorted((node.left, node.right), key=is_beyond):  # what a float meets becomes one
            large = is_beyond(item) and any("float" in (self.dtype(other) or "") for other in found.values())
            found[id(item)] = self.value(item, scope, large)
        left, right = found[id(node.left)], found[id(node.right)]
        shared = [item for item in (left, right) if isinstance(item, Outside) and holds_outside(item.element)]
        if shared:  # of lists: the new one has the same members
            return joined(shared)
        if isinstance(node.op, ast.MatMult):
            a, b = self.vector(left), self.vector(right)
            return Scalar(result_type(a[1], b[1])) if a and b and a[0] == b[0] else UNKNOWN
        return self.arithmetic(node.op, left, right)

    def arithmetic(self, op: ast.operator, left: Value, right: Value) -> Value:
        for first, second, sign in ((left, right, 1), (right, left, -1)):
            if isinstance(first, Index) and isinstance(second, Interval) and second.constant is not None:
                if isinstance(op, ast.Add):
                    return Index(first.dim, first.offset + second.low)
                if isinstance(op, ast.Sub) and sign == 1:
                    return Index(first.dim, first.offset - second.low)
        if isinstance(left, Interval | Index) and isinstance(right, Interval | Index):
            return of_intervals(op, self.interval(left), self.interval(right))
        vectors = [item for item in (self.vector(left), self.vector(right)) if item]
        dtypes = [dtype for item in (left, right) if (dtype := self.dtype(item)) is not None]
        if len(dtypes) < 2:
            return UNKNOWN
        dtype = result_type(*dtypes)
        if isinstance(op, ast.Div) and "float" not in dtype:
            dtype = WEAK_FLOAT if dtype == WEAK_INT else "float64"
        if not vectors:
            return Scalar(dtype)
        return Vector(vectors[0][0], dtype) if len({item[0] for item in vectors}) == 1 else UNKNOWN

    def interval(self, value: Interval | Index) -> Interval:
        """Where an index of the loop lies."""
        if isinstance(value, Interval):
            return value
        return Interval(self.space.start(value.dim) + value.offset, self.space.shape[value.dim] + value.offset)

    def dtype(self, value: Value) -> str | None:
        if isinstance(value, Interval | Index):
            return WEAK_INT
        if isinstance(value, Scalar):
            return value.dtype
        vector = self.vector(value)
        return vector[1] if vector else None

    def unary(self, node: ast.UnaryOp, scope: _Scope) -> Value:
        value = self.value(node.operand, scope)
        if isinstance(node.op, ast.USub) and isinstance(value, Interval):
            return Interval(-value.high + 1, -value.low + 1)
        if isinstance(node.op, ast.Not):
            return Scalar("bool")
        if isinstance(node.op, ast.UAdd) and isinstance(value, Index | Interval):
            return value
        vector = self.vector(value)
        if vector:
            return Vector(*vector)
        if isinstance(value, Index) or (isinstance(value, Scalar) and value.dtype == "bool"):
            return Scalar(WEAK_INT)
        return value if isinstance(value, Scalar) else UNKNOWN

    # ----------------------------------------------------------------------------------------------- calls

    def call(self, node: ast.Call, scope: _Scope) -> Value:
        if isinstance(node.func, ast.Attribute):
            base = self.base(node.func.value, scope)
            self.check_foreign(node, base, scope)
            if isinstance(base, Stream):
                return self.drawn(node, node.func.attr, scope)
            if not isinstance(base, Object):
                return self.method(node, node.func, base, scope)
        callee = self.value(node.func, scope)
        self.check_foreign(node, callee, scope)
        target = callee.target if isinstance(callee, Function) else None
        if target is None:
            raise self.refused(scope, node, "it is not known what is called", "call a function by its name")
        target = getattr(target, "py_func", target)
        if target is len:
            return self.length(node, scope)
        if isinstance(target, FunctionType) and getattr(target, "__module__", "").partition(".")[0] != "numpy":
            if getattr(target, "of_random", False):
                if not scope.top:
                    raise self.refused(
                        scope, node, "a function that a loop calls has no random numbers of the iteration",
                        "draw in the body, and give the function the number as an argument; or give it a Generator of "
                        "np.random.default_rng(…), which is a parameter of the loop",
                    )  # fmt: skip
                self.random = True
                return Scalar(WEAK_FLOAT)
            return self.user_function(node, target, scope)
        large = target in (float, np.float64, np.uint64) if _hashable(target) else False
        values = [self.value(item, scope, large) for item in node.args]
        for item in node.keywords:
            self.value(item.value, scope)
        return self.known_function(node, target, values, scope)

    def holder(self, target: Any) -> Value:
        """The object that a function is a method of."""
        owner = getattr(target, "__self__", None)
        shared = owner is not None and not isinstance(owner, ModuleType | type | np.ufunc)
        return Foreign(type(owner)) if shared else UNKNOWN

    def check_foreign(self, node: ast.AST, value: Value, scope: _Scope) -> None:
        """Nothing is done with an object that it may change."""
        if not isinstance(value, Foreign):
            return
        if issubclass(value.what, np.random.Generator):
            what, instead = (
                "random numbers of a Generator that the loop is not given",
                "make it a parameter of the loop, by its name, and an argument of functions that draw from it",
            )
        elif "Random" in value.what.__name__ or issubclass(value.what, np.random.BitGenerator):
            what, instead = (
                "random numbers would depend on the schedule",
                "draw from np.random.default_rng(…), or use gl.random(): both draw numbers of this iteration's own",
            )
        else:
            what = f"a {value.what.__name__} may change when it is used, and workers would share it or have copies"
            instead = "make the numbers and arrays that it holds, or gives, parameters of the loop"
        raise self.refused(scope, node, what, instead)

    def drawn(self, node: ast.Call, name: str, scope: _Scope) -> Value:
        """Random numbers of the iteration's own, by a method of a Generator."""
        if name not in DRAWING:
            raise self.refused(
                scope, node, f"a Generator's .{name}() is not to be had in a loop",
                "draw before the loop, into an array; in it there are .random(), .integers(…), .normal(…) and others",
            )  # fmt: skip
        values = [self.value(item, scope) for item in (*node.args, *(item.value for item in node.keywords))]
        if any(map(holds_view, values)):
            raise self.refused(scope, node, "drawing by, or into, an array is not followed", "draw number by number")
        parameters, dtype = DRAWING[name]
        more = {item.arg for item in node.keywords} & {"size", "dtype", "out", "method", "endpoint"}
        return UNKNOWN if more or len(node.args) > parameters else Scalar(dtype)

    def length(self, node: ast.Call, scope: _Scope) -> Value:
        value = self.base(node.args[0], scope) if node.args else UNKNOWN
        if isinstance(value, View) and value.open:
            role = self.roles[value.array]
            assert isinstance(role, ArrayRole)
            size = self.length_of(value, value.open[0], role)
            return Scalar(WEAK_INT) if size is None else Interval(size, size + 1)
        if isinstance(value, Tuple):
            return Interval(len(value.items), len(value.items) + 1)
        if isinstance(value, Vector) and value.length is not None:
            return Interval(value.length, value.length + 1)
        return Scalar(WEAK_INT)

    def known_function(self, node: ast.Call, target: Any, values: Sequence[Value], scope: _Scope) -> Value:
        """A function of Python or NumPy, which is known not to write to what it is given."""
        name = getattr(target, "__name__", "")
        module = (getattr(target, "__module__", None) or "").partition(".")[0]
        for value in (self.holder(target), *values):
            self.check_foreign(node, value, scope)
            if isinstance(value, Stream):
                raise self.refused(scope, node, "it is not known what it draws", f"call methods of {value.name}")
        if any(item.arg == "out" for item in node.keywords) or _writes_by_position(target, len(node.args)):
            raise self.refused(scope, node, "`out=` is not followed", "assign the result: `a[…] = …`")
        if name in WRITING_FUNCTIONS:
            raise self.refused(scope, node, "it writes to its argument", "assign: `a[…] = …`")
        known = target in BUILTINS if _hashable(target) else False
        known |= module in ("numpy", "math") or isinstance(target, np.ufunc)
        known |= isinstance(target, type) and issubclass(target, np.generic)
        if not known and any(map(holds_view, values)):
            raise self.refused(scope, node, "it is not known what it does to the array", "write it in Python")
        outside = [item for item in values if isinstance(item, Outside)]
        if not known and outside and module != "builtins":
            raise self.refused(scope, node, "it is not known what it does to what is inherited", "write it in Python")
        if name in VIEW_FUNCTIONS and values and views_of(values[0]):
            return reshaped(values[0])
        if name in VIEW_FUNCTIONS and outside:
            return Outside(outside[0].element, ANY_DIMS)
        shared = [item for item in outside if holds_outside(item.element)]
        if shared and module == "builtins":  # list(…), reversed(…): the same members
            return joined(shared)
        lengths = {item for value in values if (item := self.vector(value))}
        if isinstance(target, np.ufunc):
            dtypes = [dtype for item in values if (dtype := self.dtype(item)) is not None]
            if len(dtypes) == len(values) and dtypes:
                dtype = ufunc_result(target, dtypes)
                if dtype is not None and len({length for length, _ in lengths}) <= 1:
                    return Vector(next(iter(lengths))[0], dtype) if lengths else Scalar(dtype)
            return UNKNOWN
        if name in ("dot", "inner", "vdot", "sum") and module == "numpy" and lengths and not node.keywords:
            if len({length for length, _ in lengths}) == 1 and all(self.vector(value) for value in values):
                return Scalar(result_type(*(dtype for _, dtype in lengths)))
            return UNKNOWN
        if target in (abs, min, max) and not lengths:
            dtypes = [dtype for item in values if (dtype := self.dtype(item)) is not None]
            if len(dtypes) < len(values) or not dtypes:
                return UNKNOWN
            signed = [literal(item) is None or literal(item) < 0 for item in node.args]  # type: ignore[operator]
            return Scalar(chosen_type(dtypes, signed))
        if target is int or (name in ("int64", "int32", "intp") and module == "numpy"):
            if len(values) == 1 and isinstance(values[0], Index | Interval):
                return values[0]
            return Scalar(WEAK_INT if target is int else name)
        if target is float or (isinstance(target, type) and issubclass(target, np.generic)):
            return Scalar(WEAK_FLOAT if target is float else np.dtype(target).name)
        if module == "math":
            whole = name in ("floor", "ceil", "trunc", "gcd")
            return Scalar(WEAK_INT if whole else "bool" if name.startswith("is") else WEAK_FLOAT)
        return UNKNOWN

    def method(self, node: ast.Call, function: ast.Attribute, base: Value, scope: _Scope) -> Value:
        values = [self.value(item, scope) for item in (*node.args, *(item.value for item in node.keywords))]
        if isinstance(base, Outside):
            return self.method_of_inherited(node, function.attr, base, scope)
        for view in views_of(base):
            self.refer(view, node, writes=False)
            if function.attr in WRITING_METHODS:
                self.check_own(base, node, scope)
                self.refer(view, node, writes=True)
            elif function.attr not in READING_METHODS | VIEW_METHODS:
                raise self.refused(
                    scope, node, f"it is not known what .{function.attr}() does to the array", "use NumPy's functions"
                )
            elif any(map(holds_view, values[1:])):
                raise self.refused(scope, node, "what it may write to is not followed", "assign the result: `a[…] = …`")
        if views_of(base) and function.attr in VIEW_METHODS:
            return reshaped(base)
        vector = self.vector(base)
        if function.attr == "sum" and vector and not values:
            return Scalar(vector[1])
        if function.attr == "dot" and vector and len(values) == 1:
            other = self.vector(values[0])
            return Scalar(result_type(vector[1], other[1])) if other and other[0] == vector[0] else UNKNOWN
        if function.attr == "copy" and vector:
            return Vector(*vector)
        if function.attr not in READING_METHODS and any(map(holds_view, values)):
            raise self.refused(scope, node, "a part of an array would be lost sight of", "give it a name of its own")
        return UNKNOWN

    def method_of_inherited(self, node: ast.Call, name: str, base: Outside, scope: _Scope) -> Value:
        if name in VIEW_METHODS:
            return Outside(base.element, ANY_DIMS)
        if base.dims is None and name in ("get", "values", "items", "copy"):
            member = base.element
            return {"get": member, "items": Outside(Tuple((UNKNOWN, member)))}.get(name, Outside(member))
        if name not in CONTAINER_METHODS:
            self.check_own(base, node, scope)
        return UNKNOWN

    def user_function(self, node: ast.Call, target: FunctionType, scope: _Scope) -> Value:
        """Follow a call: what the function reads and writes through its parameters counts for this line too.

        Raises:
            LoopError: it cannot be followed; of a function of another module, the line that calls it is named too.
        """
        try:
            return self.followed(node, target, scope)
        except LoopError as error:
            if target.__module__ == scope.function.__module__:
                raise
            what = f"{target.__module__}.{target.__qualname__} cannot be followed ({error})"
            raise self.refused(scope, node, what, "write what it does in the body, or with NumPy") from error

    def followed(self, node: ast.Call, target: FunctionType, scope: _Scope) -> Value:
        if target in self.calls or len(self.calls) >= MOST_CALLS:
            raise self.refused(scope, node, "functions that call themselves are not followed", "write it with a loop")
        source = read_source(target)
        given: dict[str, Value | None] = {}
        if len(node.args) > len(source.parameters):
            raise self.refused(
                scope, node, f"{len(node.args)} arguments for {len(source.parameters)}", "leave some away"
            )
        for name, item in zip(source.parameters, node.args, strict=False):
            given[name] = self.base(item, scope)
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.refused(scope, node, "`**` is not followed", "name each argument")
            given[keyword.arg] = self.base(keyword.value, scope)
        for name in source.parameters:
            if name not in given:
                if name not in source.defaults:
                    raise self.refused(scope, node, f"the argument {name} is missing", "give it")
                given[name] = inherited(source.defaults[name])
        for name in source.free:
            if name in source.nearby or getattr(source.outside(name), "of_loops", False):
                raise self.refused(
                    scope,
                    node,
                    f"{target.__name__} uses {name}, which the loop shares",
                    f"make {name} a parameter of it",
                )
        self.calls.append(target)
        inner = _Scope(source.file, given, target, loops=scope.loops + 1)
        checks = dict(self.notes.checks)
        if self.run(source.tree.body, inner):
            inner.returns.append(UNKNOWN)
        self.notes.checks = checks  # functions check all of their subscripts
        self.calls.pop()
        return joined(inner.returns)

    def refused(self, scope: _Scope, node: ast.AST, what: str, instead: str) -> LoopError:
        return refusal(scope.file, node, what, instead)


def _how(name: str, operation: str) -> str:
    if operation in ("min", "max"):
        return f"write `{name} = {operation}({name}, …)` in the body, and read {name}.value after the loop"
    return f"write `{name} {'+' if operation == 'sum' else '*'}= …` in the body, and read {name}.value after the loop"


def _writes_by_position(target: Any, count: int) -> bool:
    """Is one of so many arguments the `out` of a function of NumPy?"""
    try:
        return "out" in inspect.signature(target).bind(*range(count)).arguments
    except (TypeError, ValueError):  # it has no signature, or one that these do not fit
        return False


def _hashable(target: Any) -> bool:
    try:
        hash(target)
    except TypeError:
        return False
    return True


def _either(first: Mapping[str, Value | None], second: Mapping[str, Value | None]) -> dict[str, Value | None]:
    """The variables after one of two ways through the code."""
    found: dict[str, Value | None] = {}
    for name in (*first, *(item for item in second if item not in first)):
        a, b = first.get(name), second.get(name)
        found[name] = None if a is None or b is None else join(a, b)
    return found


def _given_up(before: Value | None, after: Value | None) -> Value | None:
    """A variable that still changes in a loop: any number, or unknown."""
    if before == after or after is None or views_of(after) or holds_outside(after):
        return after
    return Scalar(WEAK_INT) if isinstance(after, Interval | Index) else UNKNOWN
