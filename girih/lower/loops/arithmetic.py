"""Arithmetic that Numba does not have as Python has it, as code that it inlines.

Whole numbers of Python have no end, those of compiled code have 64 bits. Where a result may not fit, `checked` computes
it and raises OverflowError with the user's line. It looks at the types when Numba knows them: what is no signed whole
number (floats, arrays, unsigned numbers, whose arithmetic is modulo 2⁶⁴ in NumPy too) is computed as it would have
been. Powers of floats are the C library's, as in Python: Numba multiplies, which rounds in other places.

`summed` adds in any order, so that the compiler may use SIMD: NumPy has no fixed order either in `@` and `sum`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba.core.types
from llvmlite import ir
from numba.core import cgutils
from numba.core import ir as numba_ir
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.imputils import impl_ret_borrowed
from numba.core.ir_utils import mk_unique_var
from numba.core.typing import signature
from numba.core.untyped_passes import InlineClosureLikes
from numba.extending import intrinsic

import girih.layout.jit  # noqa: F401 Numba as all modules have it

types: Any = numba.core.types
FAST = {"reassoc", "contract", "arcp", "nsz"}
"""What `fastmath=True` allows; infinities and NaNs keep their meaning."""
ANY_ORDER = ("reassoc", "contract", "nsz")
OPERATIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "+": (operator.add, operator.iadd), "-": (operator.sub, operator.isub), "*": (operator.mul, operator.imul),
    "**": (operator.pow, operator.ipow), "<<": (operator.lshift, operator.ilshift),
    ">>": (operator.rshift, operator.irshift), "/": (operator.truediv, operator.itruediv),
    "//": (operator.floordiv, operator.ifloordiv), "%": (operator.mod, operator.imod),
}  # fmt: skip
"""Those that are checked, by their sign: the function, and the one that changes its first operand."""
SIGNS = {function: sign for sign, both in OPERATIONS.items() for function in both}
ROUNDED = "whole numbers above 2**53 are divided, which would be rounded first; write float(…)"
BEYOND = "the whole number would not fit 64 bits; begin with a float (`1.0 * …`) where it may be so large"
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
        # Numba has no sign where both are unsigned, and a float where one has 64 bits and the other a sign.
        whole &= types.uint64 not in (x, y) or any(isinstance(item, types.Boolean) or item.signed for item in (x, y))
        plain = typing_context.resolve_function_type(function, (types.int64,) * 2 if whole else (x, y), {})
        if plain is None:
            return None
        numbers = all(isinstance(item, types.Integer | types.Boolean | types.Float) for item in (x, y))

        def code(context, builder, sig, operands):  # type: ignore[no-untyped-def]
            def fail(where: Any, kind: type[Exception], why: str) -> None:
                with builder.if_then(where, likely=False):
                    context.call_conv.return_user_exc(builder, kind, (f"{words}: {why}",))

            def as_plain() -> Any:
                given = [context.cast(builder, *item) for item in zip(operands, sig.args, plain.args, strict=True)]
                return context.get_function(function, plain)(builder, given)

            if sign == "**" and not whole and numbers and plain.return_type == types.float64 and not fast:
                double = ir.DoubleType()
                power = cgutils.get_or_insert_function(
                    builder.module, ir.FunctionType(double, [double, double]), "girih_pow"
                )
                given = [context.cast(builder, *item, types.float64) for item in zip(operands, sig.args, strict=True)]
                return builder.call(power, given)
            if not whole:
                return as_plain()
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
            if sign == "/":
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


@intrinsic
def _times(typing_context, x, y):  # type: ignore[no-untyped-def]
    """(the product of whole numbers, whether it did not fit)."""
    result = types.Tuple((types.int64, types.boolean))

    def code(context, builder, sig, operands):  # type: ignore[no-untyped-def]
        both = builder.smul_with_overflow(*operands)
        return context.make_tuple(builder, sig.return_type, [builder.extract_value(both, at) for at in (0, 1)])

    return result(types.int64, types.int64), code


def _power(x, n):  # type: ignore[no-untyped-def]
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
            (given,) = operands
            if isinstance(x, types.Float):
                double = ir.DoubleType()
                wide = context.cast(builder, given, x, types.float64)
                # What lies less than one beyond is cut off; of 64 bits there is no float between.
                low = builder.fcmp_ordered(">=" if least == LEAST else ">", wide, double(least - (least > LEAST)))
                good = builder.and_(low, builder.fcmp_ordered("<", wide, double(most + 1)))
            elif isinstance(x, types.Integer):
                whole = ir.IntType(128)
                wide = builder.sext(given, whole) if x.signed else builder.zext(given, whole)
                low = builder.icmp_signed(">=", wide, whole(least))
                good = builder.and_(low, builder.icmp_signed("<=", wide, whole(most)))
            else:
                return impl_ret_borrowed(context, builder, x, given)
            with builder.if_then(builder.not_(good), likely=False):
                context.call_conv.return_user_exc(builder, OverflowError, (words,))
            return given

        return signature(x, x), code

    return value


@intrinsic
def summed(typing_context, total, x):  # type: ignore[no-untyped-def]
    """The sum of floats, one of many that may be added in any order."""
    return _in_any_order(typing_context, total, x)


@intrinsic
def summed_product(typing_context, total, x, y):  # type: ignore[no-untyped-def]
    """The same of total and a product."""
    return _in_any_order(typing_context, total, x, y)


def _in_any_order(typing_context: Any, *given: Any) -> Any:
    result = typing_context.unify_types(*map(types.unliteral, given))

    def code(context, builder, sig, operands):  # type: ignore[no-untyped-def]
        total, *factors = (context.cast(builder, *item, result) for item in zip(operands, sig.args, strict=True))
        product = factors[0] if len(factors) == 1 else builder.fmul(*factors, flags=ANY_ORDER)
        return builder.fadd(total, product, flags=ANY_ORDER)

    return signature(result, *given), code


@register_pass(mutates_CFG=False, analysis_only=False)
class Checks(FunctionPass):
    """The operations of a user's function become checked ones: of what it is given nothing is known beforehand."""

    _name = "girih_checked_operations"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        fast = bool(state.flags.fastmath)
        for block in state.func_ir.blocks.values():
            for item in list(block.find_insts(numba_ir.Assign)):
                given = item.value
                if not isinstance(given, numba_ir.Expr) or given.op not in ("binop", "inplace_binop"):
                    continue
                sign = SIGNS.get(given.fn)
                if sign is None:
                    continue
                words = f"{Path(given.loc.filename).name}:{given.loc.line}: `{sign}` in {state.func_id.func_name}"
                function = checked(sign, words, fast, given.op == "inplace_binop")
                name = numba_ir.Var(block.scope, mk_unique_var("$checked"), given.loc)
                before = numba_ir.Assign(numba_ir.Global(name.name, function, given.loc), name, given.loc)
                block.body.insert(block.body.index(item), before)
                item.value = numba_ir.Expr.call(name, (given.lhs, given.rhs), (), given.loc)
                state.func_ir._definitions[name.name].append(before.value)
                state.func_ir._definitions[item.target.name] = [
                    item.value if other is given else other for other in state.func_ir._definitions[item.target.name]
                ]
        state.typingctx.refresh()  # so that it knows the functions that were just made
        state.targetctx.refresh()
        return True


class Checked(CompilerBase):
    """Numba's compiler with those checks."""

    def define_pipelines(self) -> list[Any]:
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.add_pass_after(Checks, InlineClosureLikes)  # so that those within comprehensions are too
        pipeline.finalize()
        return [pipeline]
