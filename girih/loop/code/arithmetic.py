"""Arithmetic that Numba does not have as Python has it, as code that it inlines.

Whole numbers of Python have no end, those of compiled code have 64 bits. Where a result may not fit, `checked` computes
it and raises OverflowError with the user's line. It looks at the types when Numba knows them: what is no signed whole
number (floats, arrays, unsigned numbers, whose arithmetic is modulo 2⁶⁴ in NumPy too) is computed as it would have
been. Powers of floats are the C library's, as in Python: Numba multiplies, which rounds in other places.

`summed` adds in any order, so that the compiler may use SIMD: NumPy has no fixed order either in `@` and `sum`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.core import ir as numba_ir
from numba.core import types as numba_types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, FunctionPass, register_pass
from numba.core.errors import TypingError
from numba.core.imputils import impl_ret_borrowed
from numba.core.ir_utils import mk_unique_var
from numba.core.typed_passes import NopythonTypeInference
from numba.core.typing import signature
from numba.core.untyped_passes import InlineClosureLikes
from numba.extending import intrinsic, overload

from girih.layout.jit import numba

types: Any = numba_types
FAST = {"reassoc", "contract", "arcp", "nsz"}
"""What `fastmath=True` allows; infinities and NaNs keep their meaning."""
ANY_ORDER = ("reassoc", "contract", "nsz")
OPERATIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "+": (operator.add, operator.iadd), "-": (operator.sub, operator.isub), "*": (operator.mul, operator.imul),
    "**": (operator.pow, operator.ipow), "<<": (operator.lshift, operator.ilshift),
    ">>": (operator.rshift, operator.irshift), "/": (operator.truediv, operator.itruediv),
    "//": (operator.floordiv, operator.ifloordiv), "%": (operator.mod, operator.imod),
    "==": (operator.eq,) * 2, "!=": (operator.ne,) * 2, "<": (operator.lt,) * 2, "<=": (operator.le,) * 2,
    ">": (operator.gt,) * 2, ">=": (operator.ge,) * 2,
}  # fmt: skip
"""Those that are checked, by their sign: the function, and the one that changes its first operand."""
COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">="))
"""Of these only those of an unsigned number and one with a sign, of which Numba makes floats."""
SIGNS = {function: sign for sign, both in OPERATIONS.items() for function in both}
ROUNDED = "whole numbers above 2**53 are divided, which would be rounded first; write float(…)"
BESIDE = "a whole number above 2**53 is chosen beside floats, and would be rounded; write float(…)"
BEYOND = "the whole number would not fit 64 bits; begin with a float (`1.0 * …`) where it may be so large"
WHOLE = (int, round, math.floor, math.ceil, math.trunc)
"""Functions that make a whole number of a float, and are the whole number of one."""
DTYPES = tuple(getattr(np, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))
GUARDED: dict[int, tuple[Callable[..., Any], ...]] = {
    1: (*WHOLE, abs, operator.neg, *DTYPES), 2: (round, divmod, math.gcd),
}  # fmt: skip
"""Functions of so many arguments that are checked too; `sum` and `pow` are made of checked operations."""
EXACT = 1 << 53
"""Whole numbers up to here are floats too."""
INT64 = ir.IntType(64)
LEAST = -(1 << 63)


def power_address() -> None:
    """The C library's `pow`, under a name by which LLVM does not know it and cannot replace it by products."""
    llvm.add_symbol("girih_pow", llvm.address_of_symbol("pow"))


@lru_cache(maxsize=4096)
def checked(sign: str, words: str, fast: bool = False, in_place: bool = False) -> Any:
    """An operation of two operands that raises what Python would, or OverflowError where Python's result needs more
    than 64 bits. words: the user's place and text. fast: powers of floats may be products."""
    power_address()

    @intrinsic
    def operation(typing_context, x, y):  # type: ignore[no-untyped-def]
        x, y = types.unliteral(x), types.unliteral(y)
        function = OPERATIONS[sign][in_place and not isinstance(x, types.Number | types.Boolean)]
        whole = all(isinstance(item, types.Integer | types.Boolean) for item in (x, y))
        if sign in COMPARISONS:
            whole = whole and types.uint64 in (x, y) and any(map(_is_signed, (x, y)))
        # Numba has no sign where both are unsigned, and a float where one has 64 bits and the other a sign.
        whole &= types.uint64 not in (x, y) or any(isinstance(item, types.Boolean) or item.signed for item in (x, y))
        plain = typing_context.resolve_function_type(function, (types.int64,) * 2 if whole else (x, y), {})
        if plain is None:
            return None
        numbers = all(isinstance(item, types.Integer | types.Boolean | types.Float) for item in (x, y))

        def code(context, builder, sig, operands):  # type: ignore[no-untyped-def]
            fail = partial(_raise_where, context, builder, words)

            def as_plain() -> Any:
                given = [context.cast(builder, *item) for item in zip(operands, sig.args, plain.args, strict=True)]
                return context.get_function(function, plain)(builder, given)

            # Powers of floats: the C library's, to the last bit; LLVM would write some as products.
            if sign == "**" and not whole and numbers and plain.return_type == types.float64 and not fast:
                double = ir.DoubleType()
                power = cgutils.get_or_insert_function(
                    builder.module, ir.FunctionType(double, [double, double]), "girih_pow"
                )
                given = [context.cast(builder, *item, types.float64) for item in zip(operands, sig.args, strict=True)]
                return builder.call(power, given)
            if not whole:
                return as_plain()
            if sign in COMPARISONS:
                return _compared(context, builder, sign, *zip(sig.args, operands, strict=True))
            # Whole numbers: in 64 bits with a sign, of which each operation tests what Python would do otherwise.
            a, b = (context.cast(builder, *item, types.int64) for item in zip(operands, sig.args, strict=True))
            zero = ir.Constant(INT64, 0)
            for item, kind in zip((a, b), sig.args, strict=True):
                if kind == types.uint64:
                    fail(builder.icmp_signed("<", item, zero), OverflowError, BEYOND)
            if sign in ("/", "//", "%"):
                fail(builder.icmp_unsigned("==", b, zero), ZeroDivisionError, "division of whole numbers by zero")
            if sign in ("//", "%"):
                if sign == "//":
                    least = builder.icmp_signed("==", a, ir.Constant(INT64, LEAST))
                    fail(builder.and_(least, builder.icmp_signed("==", b, ir.Constant(INT64, -1))), OverflowError,
                         BEYOND)  # fmt: skip
                return as_plain()
            if sign == "/":  # float64 holds both operands exactly
                for item in (a, b):
                    size = builder.select(builder.icmp_signed("<", item, zero), builder.neg(item), item)
                    fail(builder.icmp_unsigned(">", size, ir.Constant(INT64, EXACT)), OverflowError, ROUNDED)
                return as_plain()
            if sign in ("<<", ">>"):
                fail(builder.icmp_signed("<", b, zero), ValueError, "a shift by a number below 0")
                most = ir.Constant(INT64, 63)
                far = builder.icmp_signed(">", b, most)
                count = builder.select(far, most, b)
                if sign == ">>":
                    return context.cast(builder, builder.ashr(a, count), types.int64, plain.return_type)
                moved = builder.shl(a, count)
                # Bits are lost if shifting back gives another number, or all are shifted out.
                lost = builder.icmp_signed("!=", builder.ashr(moved, count), a)
                gone = builder.and_(far, builder.icmp_signed("!=", a, zero))
                fail(builder.or_(lost, gone), OverflowError, BEYOND)
                return context.cast(builder, moved, types.int64, plain.return_type)
            if sign == "**":
                fail(builder.icmp_signed("<", b, zero), ValueError,
                     "a power below 0 of whole numbers: write `2.0 ** …`")  # fmt: skip
                power = signature(types.Tuple((types.int64, types.boolean)), types.int64, types.int64)
                both = context.compile_internal(builder, _power, power, (a, b))
                result, lost = cgutils.unpack_tuple(builder, both)
                fail(lost, OverflowError, BEYOND)
                return context.cast(builder, result, types.int64, plain.return_type)
            method = {"+": builder.sadd_with_overflow, "-": builder.ssub_with_overflow, "*": builder.smul_with_overflow}
            both = method[sign](a, b)
            fail(builder.extract_value(both, 1), OverflowError, BEYOND)
            return context.cast(builder, builder.extract_value(both, 0), types.int64, plain.return_type)

        return signature(plain.return_type, x, y), code

    return operation


def _raise_where(context: Any, builder: Any, words: str, condition: Any, kind: type[Exception], why: str) -> None:
    """Write code that raises this exception, with the user's place and text, where the condition holds."""
    with builder.if_then(condition, likely=False):
        context.call_conv.return_user_exc(builder, kind, (f"{words}: {why}",))


@intrinsic
def _times(typing_context, x, y):  # type: ignore[no-untyped-def]
    """(the product of whole numbers, whether it did not fit)."""
    result = types.Tuple((types.int64, types.boolean))

    def code(context, builder, sig, operands):  # type: ignore[no-untyped-def]
        both = builder.smul_with_overflow(*operands)
        return context.make_tuple(builder, sig.return_type, [builder.extract_value(both, at) for at in (0, 1)])

    return result(types.int64, types.int64), code


def _power(x, n):  # type: ignore[no-untyped-def]
    """(x to the power of n, which is at least 0, by repeated squares; whether a product did not fit)."""
    result, lost = 1, False
    while n > 0:
        if n & 1:
            result, beyond = _times(result, x)
            lost |= beyond
        n >>= 1
        if n > 0:
            x, beyond = _times(x, x)
            lost |= beyond
    return result, lost


@lru_cache(maxsize=4096)
def fitting(least: int, most: int, words: str) -> Any:
    """A number as it is; raises OverflowError if an integer dtype of this range cannot hold it, or it is NaN."""

    @intrinsic
    def value(typing_context, x):  # type: ignore[no-untyped-def]
        x = types.unliteral(x)

        def code(context, builder, sig, operands):  # type: ignore[no-untyped-def]
            _check_range(context, builder, x, operands[0], (least, most), words)
            return impl_ret_borrowed(context, builder, x, operands[0])

        return signature(x, x), code

    return value


@lru_cache(maxsize=4096)
def storable(words: str) -> Any:
    """The second argument, a number, as it is; raises OverflowError if the elements of the first, an array of whole
    numbers, cannot hold it. What is no number, or goes to no such array, is as it is too."""

    @intrinsic
    def value(typing_context, array, x):  # type: ignore[no-untyped-def]
        x = types.unliteral(x)
        dtype = getattr(array, "dtype", None) if isinstance(array, types.Buffer) else None

        def code(context, builder, sig, operands):  # type: ignore[no-untyped-def]
            if isinstance(dtype, types.Integer) and dtype != x:
                said = f"{words}: the number does not fit {dtype}"
                _check_range(context, builder, x, operands[1], (dtype.minval, dtype.maxval), said)
            return impl_ret_borrowed(context, builder, x, operands[1])

        return signature(x, array, x), code

    return value


def _check_range(context: Any, builder: Any, kind: Any, given: Any, span: tuple[int, int], words: str) -> None:
    """Raise OverflowError if a number does not lie within a span, both ends included; other kinds pass."""
    least, most = span
    if isinstance(kind, types.Float):
        double = ir.DoubleType()
        wide = context.cast(builder, given, kind, types.float64)
        # What lies less than one beyond is cut off; of 64 bits there is no float between.
        low = builder.fcmp_ordered(">=" if least == LEAST else ">", wide, double(least - (least > LEAST)))
        good = builder.and_(low, builder.fcmp_ordered("<", wide, double(most + 1)))
    elif isinstance(kind, types.Integer):
        whole = ir.IntType(128)
        wide = builder.sext(given, whole) if kind.signed else builder.zext(given, whole)
        low = builder.icmp_signed(">=", wide, whole(least))
        good = builder.and_(low, builder.icmp_signed("<=", wide, whole(most)))
    else:
        return
    with builder.if_then(builder.not_(good), likely=False):
        context.call_conv.return_user_exc(builder, OverflowError, (words,))


def replaced(function: Any, count: int, words: str) -> Any | None:
    """The checked form of a function of Python or NumPy that is called with so many arguments; None: it needs none.

    words: the user's place and text.
    """
    if function is sum:
        return _sum(words)
    if function is pow and count == 2:
        return checked("**", words)
    if function in (min, max) and count > 1:
        return _extreme(function, count, words)
    return _guarded(function, count, words) if any(function is item for item in GUARDED.get(count, ())) else None


@lru_cache(maxsize=4096)
def _guarded(function: Any, count: int, words: str) -> Any:
    """A function of one or two numbers that raises OverflowError where its result would not fit, and ZeroDivisionError
    where Python does. Of other arguments, floats and arrays, it is what Numba has."""

    def typed(typing_context: Any, *given: Any) -> Any:
        items = tuple(map(types.unliteral, given))
        whole = all(isinstance(item, types.Integer | types.Boolean) for item in items)
        first = items[0]
        if function in WHOLE and isinstance(first, types.Integer):
            if count == 2:
                return signature(types.int64, *items), _rounding(words)
            return signature(first, first), lambda context, builder, sig, operands: operands[0]
        callee = typing_context.resolve_value_type(function)
        plain = typing_context.resolve_function_type(callee, items, {})
        if plain is None:
            return None

        def code(context, builder, sig, operands):  # type: ignore[no-untyped-def]
            fail = partial(_raise_where, context, builder, words)

            def is_number(at: int, number: int) -> Any:
                wide = context.cast(builder, operands[at], items[at], types.int64)
                return builder.icmp_signed("==", wide, ir.Constant(INT64, number))

            if function in WHOLE and count == 1:
                said = f"{words}: the number does not fit int64"
                _check_range(context, builder, first, operands[0], (LEAST, -LEAST - 1), said)
            elif function in DTYPES and not (function is np.uint64 and whole):
                info = np.iinfo(function)
                said = f"{words}: the number does not fit {info.dtype}"
                _check_range(context, builder, first, operands[0], (int(info.min), int(info.max)), said)
            elif function is divmod and whole:
                fail(is_number(1, 0), ZeroDivisionError, "division of whole numbers by zero")
                fail(builder.and_(is_number(0, LEAST), is_number(1, -1)), OverflowError, BEYOND)
            elif whole and function in (abs, operator.neg, math.gcd):
                for at, item in enumerate(items):
                    if item == types.int64:
                        fail(is_number(at, LEAST), OverflowError, BEYOND)
            cast = [context.cast(builder, *item) for item in zip(operands, items, plain.args, strict=True)]
            called = context.get_function(callee, plain)
            context.add_linking_libs(getattr(called, "libs", ()))
            return called(builder, cast)

        return signature(plain.return_type, *items), code

    def one(typing_context, x):  # type: ignore[no-untyped-def]
        return typed(typing_context, x)

    def two(typing_context, x, y):  # type: ignore[no-untyped-def]
        return typed(typing_context, x, y)

    operation = one if count == 1 else two
    operation.__name__ = function.__name__  # which Numba names where it cannot compile it
    return intrinsic(operation)


def _rounding(words: str) -> Any:
    """The code of `round(x, digits)` of whole numbers; a half goes to the even side, as in Python."""
    plus, minus = checked("+", words), checked("-", words)

    def rounded(x, digits):  # type: ignore[no-untyped-def]
        if digits >= 0:
            return x
        if digits < -18:
            return 0 if digits < -19 or -5 * 10**18 <= x <= 5 * 10**18 else plus(x, x)  # of which neither fits
        unit = 10**-digits
        rest = x % unit
        low = x // unit
        up = rest > unit - rest or (rest == unit - rest and low % 2 == 1)
        return plus(x, unit - rest) if up else minus(x, rest)

    def code(context, builder, sig, operands):  # type: ignore[no-untyped-def]
        numbers = [context.cast(builder, *item, types.int64) for item in zip(operands, sig.args, strict=True)]
        return context.compile_internal(builder, rounded, types.int64(types.int64, types.int64), numbers)

    return code


@lru_cache(maxsize=4096)
def _extreme(function: Any, count: int, words: str) -> Any:
    """`min` or `max` of so many numbers: one of them, to the last digit, where Numba makes floats of an unsigned number
    and one with a sign. Raises OverflowError where a type of 64 bits cannot hold the one that is chosen."""
    sign = ">" if function is max else "<"

    @intrinsic
    def chosen(typing_context, x, y):  # type: ignore[no-untyped-def]
        pair = tuple(map(types.unliteral, (x, y)))
        plain = typing_context.resolve_function_type(typing_context.resolve_value_type(function), pair, {})
        if plain is None:
            return None
        result = plain.return_type
        if result == types.float64 and not any(isinstance(item, types.Float) for item in pair):
            result = types.int64
        numbers = all(isinstance(item, types.Integer | types.Boolean | types.Float) for item in pair)

        def code(context, builder, sig, operands):  # type: ignore[no-untyped-def]
            if not numbers:
                return context.compile_internal(builder, lambda x, y: function(x, y), sig, operands)
            first, second = zip(pair, operands, strict=True)
            later = _compared(context, builder, sign, second, first)  # of equal ones Python has the first
            for (kind, item), taken in ((first, builder.not_(later)), (second, later)):
                lost = _lost(context, builder, kind, item, result)
                _raise_where(context, builder, words, builder.and_(taken, lost), OverflowError,
                             BEYOND if result == types.int64 else BESIDE)  # fmt: skip
            cast = [context.cast(builder, item, kind, result) for kind, item in (first, second)]
            return builder.select(later, cast[1], cast[0])

        return signature(result, *pair), code

    names = [f"x{at}" for at in range(count)]
    text = names[0]
    for name in names[1:]:
        text = f"chosen({text}, {name})"
    return numba.njit(eval(f"lambda {', '.join(names)}: {text}", {"chosen": chosen}))


def _is_signed(kind: Any) -> bool:
    return isinstance(kind, types.Boolean) or bool(kind.signed)


def _lost(context: Any, builder: Any, kind: Any, given: Any, result: Any) -> Any:
    """Would a number change if it became one of the result's type?"""
    if kind == result or not isinstance(kind, types.Integer):
        return ir.Constant(ir.IntType(1), 0)
    if result == types.int64:
        wide = context.cast(builder, given, kind, types.int64)
        below = builder.icmp_signed("<", wide, ir.Constant(INT64, 0))
        return below if kind == types.uint64 else ir.Constant(ir.IntType(1), 0)
    return builder.not_(
        _compared(
            context, builder, "==", (kind, given), (types.float64, context.cast(builder, given, kind, types.float64))
        )
    )


def _compared(context: Any, builder: Any, sign: str, first: tuple[Any, Any], second: tuple[Any, Any]) -> Any:
    """How two numbers compare, exactly, as in Python. Each is (type, value)."""
    kinds = (first[0], second[0])
    if all(isinstance(kind, types.Integer | types.Boolean) for kind in kinds):
        wide = ir.IntType(128)
        a, b = (
            builder.sext(value, wide) if _is_signed(kind) and isinstance(kind, types.Integer)
            else builder.zext(value, wide)
            for kind, value in (first, second)
        )  # fmt: skip
        return builder.icmp_signed(sign, a, b)
    if not any(isinstance(kind, types.Integer | types.Boolean) for kind in kinds):
        a, b = (context.cast(builder, value, kind, types.float64) for kind, value in (first, second))
        return builder.fcmp_ordered(sign, a, b)
    if isinstance(kinds[0], types.Float):
        turned = {"<": ">", ">": "<"}.get(sign, sign)
        return _compared(context, builder, turned, second, first)
    kind, value = first
    signed = _is_signed(kind)
    whole = types.int64 if signed else types.uint64
    number = context.cast(builder, second[1], second[0], types.float64)
    near = context.cast(builder, value, kind, types.float64)
    # Rounding keeps the order, so that only where both are the same float the digits tell.
    same = builder.fcmp_ordered("==", near, number)
    beyond = builder.fcmp_ordered(">=", number, ir.Constant(ir.DoubleType(), float(2**63 if signed else 2**64)))
    small = builder.select(beyond, ir.Constant(ir.DoubleType(), 0.0), number)
    back = context.cast(builder, small, types.float64, whole)
    exact = context.cast(builder, value, kind, whole)
    compare = builder.icmp_signed if signed else builder.icmp_unsigned
    told = builder.select(beyond, ir.Constant(ir.IntType(1), int(sign == "<")), compare(sign, exact, back))
    return builder.select(same, told, builder.fcmp_ordered(sign, near, number))


@lru_cache(maxsize=4096)
def _sum(words: str) -> Any:
    """`sum` by checked additions, one after another."""
    add = checked("+", words)

    def total(items, start=0):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    @overload(total)
    def typed(items, start=0):  # type: ignore[no-untyped-def]
        if isinstance(items, types.BaseTuple):  # whose items differ in type
            text = "start"
            for at in range(len(items)):
                text = f"add({text}, items[{at}])"
            return eval(f"lambda items, start=0: {text}", {"add": add})

        def one_by_one(items, start=0):  # type: ignore[no-untyped-def]
            result = start
            for item in items:
                result = add(result, item)
            return result

        return one_by_one

    return total


@intrinsic
def summed(typing_context, total, x):  # type: ignore[no-untyped-def]
    """total + x, where floats may be added up in any order."""
    return _in_any_order(typing_context, total, x)


@intrinsic
def summed_product(typing_context, total, x, y):  # type: ignore[no-untyped-def]
    """total + x · y, where floats may be added up in any order."""
    return _in_any_order(typing_context, total, x, y)


def _in_any_order(typing_context: Any, *given: Any) -> Any:
    result = typing_context.unify_types(*map(types.unliteral, given))

    def code(context, builder, sig, operands):  # type: ignore[no-untyped-def]
        total, *factors = (context.cast(builder, *item, result) for item in zip(operands, sig.args, strict=True))
        product = factors[0] if len(factors) == 1 else builder.fmul(*factors, flags=ANY_ORDER)
        return builder.fadd(total, product, flags=ANY_ORDER)

    return signature(result, *given), code


@register_pass(mutates_CFG=False, analysis_only=True)
class Unmixed(AnalysisPass):
    """Refuses a variable that is an unsigned number of 64 bits at one place and one with a sign at another: Numba would
    make it a float, which has 53 bits."""

    _name = "girih_unmixed_variables"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            for item in block.find_insts(numba_ir.Assign):
                if state.typemap[item.target.name] == types.float64:
                    kinds = set(self.kinds(state, item.target.name))
                    whole = all(isinstance(kind, types.Integer) for kind in kinds)
                    if whole and types.uint64 in kinds and any(map(_is_signed, kinds)):
                        name = item.target.unversioned_name
                        what = "the result of `… if … else …`" if name.startswith("$") else name
                        raise TypingError(
                            f"{what} is an unsigned number of 64 bits at one place and has a sign at another: write "
                            "np.int64(…) or np.uint64(…) around one of them",
                            item.loc,
                        )
        return False

    def kinds(self, state: Any, name: str) -> Iterator[Any]:
        """The types of all that is assigned to a variable."""
        for given in state.func_ir._definitions[name]:
            if isinstance(given, numba_ir.Expr) and given.op == "phi":
                for value in given.incoming_values:
                    if isinstance(value, numba_ir.Var):
                        yield state.typemap[value.name]
            elif isinstance(given, numba_ir.Var):
                yield state.typemap[given.name]
            elif isinstance(given, numba_ir.Const | numba_ir.Global | numba_ir.FreeVar):
                yield types.unliteral(state.typingctx.resolve_value_type(given.value))
            elif given in state.calltypes and state.calltypes[given] is not None:
                yield types.unliteral(state.calltypes[given].return_type)
            else:
                yield state.typemap[name]


@register_pass(mutates_CFG=False, analysis_only=False)
class Checks(FunctionPass):
    """The operations of a user's function become checked ones: of what it is given nothing is known beforehand."""

    _name = "girih_checked_operations"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            for item in list(block.find_insts(numba_ir.Assign)):
                found = self.checked(state, item.value)
                if found is not None:
                    function, arguments, keywords = found
                    given, name = item.value, self.named(state, block, item, function)
                    item.value = numba_ir.Expr.call(name, arguments, keywords, given.loc)
                    definitions = state.func_ir._definitions
                    definitions[item.target.name] = [
                        item.value if other is given else other for other in definitions[item.target.name]
                    ]
            for kind in (numba_ir.SetItem, numba_ir.StaticSetItem):
                for item in list(block.find_insts(kind)):
                    name = self.named(state, block, item, storable(self.words(state, item, "[…] = …")))
                    value = numba_ir.Var(block.scope, mk_unique_var("$stored"), item.loc)
                    call = numba_ir.Expr.call(name, (item.target, item.value), (), item.loc)
                    block.body.insert(block.body.index(item), numba_ir.Assign(call, value, item.loc))
                    state.func_ir._definitions[value.name].append(call)
                    item.value = value
        state.typingctx.refresh()  # so that it knows the functions that were just made
        state.targetctx.refresh()
        return True

    def checked(self, state: Any, given: Any) -> tuple[Any, Any, Any] | None:
        """The checked function for an expression, and its arguments; None: it needs none."""
        if not isinstance(given, numba_ir.Expr):
            return None
        if given.op in ("binop", "inplace_binop") and (sign := SIGNS.get(given.fn)):
            fast = bool(state.flags.fastmath)
            function = checked(sign, self.words(state, given, sign), fast, given.op == "inplace_binop")
            return function, (given.lhs, given.rhs), ()
        if given.op == "unary" and given.fn is operator.neg:
            return replaced(operator.neg, 1, self.words(state, given, "-")), (given.value,), ()
        if given.op == "call" and given.vararg is None:
            target = self.constant(state, given.func)
            if target is None or (given.kws and target is not sum):
                return None
            function = replaced(target, len(given.args), self.words(state, given, getattr(target, "__name__", "")))
            return None if function is None else (function, given.args, given.kws)
        return None

    def constant(self, state: Any, name: Any) -> Any:
        """What a name stands for if it is known, as functions are; else None."""
        try:
            found = state.func_ir.get_definition(name)
        except KeyError:  # it is set more than once
            return None
        if isinstance(found, numba_ir.Global | numba_ir.FreeVar | numba_ir.Const):
            return found.value
        if isinstance(found, numba_ir.Expr) and found.op == "getattr":
            base = self.constant(state, found.value)
            return getattr(base, found.attr, None) if isinstance(base, ModuleType) else None
        return None

    def named(self, state: Any, block: Any, item: Any, function: Any) -> Any:
        """A variable that holds a function, set before a statement."""
        name = numba_ir.Var(block.scope, mk_unique_var("$checked"), item.loc)
        before = numba_ir.Assign(numba_ir.Global(name.name, function, item.loc), name, item.loc)
        block.body.insert(block.body.index(item), before)
        state.func_ir._definitions[name.name].append(before.value)
        return name

    def words(self, state: Any, item: Any, what: str) -> str:
        return f"{Path(item.loc.filename).name}:{item.loc.line}: `{what}` in {state.func_id.func_name}"


class Exact(CompilerBase):
    """Numba's compiler, which refuses variables that would lose digits."""

    def define_pipelines(self) -> list[Any]:
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.add_pass_after(Unmixed, NopythonTypeInference)
        pipeline.finalize()
        return [pipeline]


class Checked(CompilerBase):
    """Numba's compiler with those checks."""

    def define_pipelines(self) -> list[Any]:
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.add_pass_after(Checks, InlineClosureLikes)  # so that those within comprehensions are too
        pipeline.add_pass_after(Unmixed, NopythonTypeInference)
        pipeline.finalize()
        return [pipeline]
