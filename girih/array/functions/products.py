"""Products and what is made of them: everything comes down to batched matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from girih.array.core.array import Array
from girih.array.core.builder import apply, as_array, axis_of, broadcast_shapes, cast
from girih.array.core.universal import written
from girih.array.functions.elementwise.ufuncs import conjugate
from girih.array.functions.reductions import reduce as r
from girih.array.functions.shapes.manipulation import broadcast_to, diagonal, reshape, transpose


def matmul(x1: Any, x2: Any, /, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    """Raises ValueError, as NumPy, where the sizes do not fit or an operand has no dimensions."""
    first, second = (as_array(x, dtype) for x in (x1, x2))
    return written(_product(first, second), out, casting)


def _product(first: Array, second: Array) -> Array:
    if first.ndim == 0 or second.ndim == 0:
        raise ValueError("matmul: Input operand does not have enough dimensions (has 0, gufunc core requires 1)")
    axis = -1 if second.ndim == 1 else -2
    if first.shape[-1] != second.shape[axis]:
        raise ValueError(
            f"matmul: Input operand 1 has a mismatch in its core dimension 0, shapes {first.shape} and {second.shape} "
            f"(size {second.shape[axis]} is different from {first.shape[-1]})"
        )
    if first.ndim <= 2 and second.ndim <= 2:
        return _flat(first, second)
    left = reshape(first, (1, -1)) if first.ndim == 1 else first
    right = reshape(second, (-1, 1)) if second.ndim == 1 else second
    result = _batched(left, right)
    shape = result.shape[:-2] + left.shape[-2:-1] * (first.ndim > 1) + right.shape[-1:] * (second.ndim > 1)
    return reshape(result, shape)


def _flat(left: Array, right: Array) -> Array:
    """The product of vectors and matrices; truth values are multiplied as whole numbers.

    Vectors have kernels of their own, which read each element of the matrix once.
    """
    kind = np.result_type(left.dtype, right.dtype)
    if kind.kind == "b":
        return _flat(cast(left, np.int64), cast(right, np.int64)) != 0
    left, right = cast(left, kind), cast(right, kind)
    if left.ndim == 2 and right.ndim == 2:
        return apply("aten.mm", (left.shape[0], right.shape[1]), kind, self=left, mat2=right)
    if left.ndim == 2:
        return apply("aten.mv", left.shape[:1], kind, self=left, vec=right)
    if right.ndim == 2:
        return apply("aten.mv", right.shape[1:], kind, self=transpose(right), vec=left)
    return apply("aten.dot", (), kind, self=left, tensor=right)


def _batched(left: Array, right: Array) -> Array:
    """[…, i, k] · […, k, j]; batches broadcast. Products of truth values are made in whole numbers."""
    kind = np.result_type(left.dtype, right.dtype)
    if kind.kind == "b":
        return _batched(cast(left, np.int64), cast(right, np.int64)) != 0
    left, right = cast(left, kind), cast(right, kind)
    (i, k), j = left.shape[-2:], right.shape[-1]
    if right.ndim == 2:
        return reshape(_flat(reshape(left, (math.prod(left.shape[:-1]), k)), right), (*left.shape[:-1], j))
    batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
    count = math.prod(batch)
    left = reshape(broadcast_to(left, (*batch, i, k)), (count, i, k))
    right = reshape(broadcast_to(right, (*batch, k, j)), (count, k, j))
    return reshape(apply("aten.bmm", (count, i, j), kind, self=left, mat2=right), (*batch, i, j))


def dot(a: Any, b: Any, out: Any = None) -> Any:
    a, b = as_array(a), as_array(b)
    if a.ndim == 0 or b.ndim == 0:
        return written(a * b, out)
    axis = -1 if b.ndim == 1 else -2
    if a.shape[-1] != b.shape[axis]:
        raise ValueError(
            f"shapes {a.shape} and {b.shape} not aligned: {a.shape[-1]} (dim {a.ndim - 1}) != {b.shape[axis]} "
            f"(dim {b.ndim + axis})"
        )
    return written(tensordot(a, b, ((-1,), (axis,))), out)


def vdot(a: Any, b: Any) -> Array:
    return as_array(dot(conjugate(a).reshape(-1), as_array(b).reshape(-1)))


def inner(a: Any, b: Any) -> Array:
    a, b = as_array(a), as_array(b)
    return a * b if a.ndim == 0 or b.ndim == 0 else tensordot(a, b, ((-1,), (-1,)))


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    first, second = as_array(x1), as_array(x2)
    if first.shape[axis] != second.shape[axis]:
        raise ValueError(f"vecdot: sizes {first.shape[axis]} and {second.shape[axis]} along axis {axis} differ")
    kind = np.result_type(first.dtype, second.dtype)
    if kind.kind == "b":
        return r.any(first * second, axis)
    return r.sum((conjugate(first) if first.dtype.kind == "c" else first) * second, axis, kind)


def outer(a: Any, b: Any, out: Any = None) -> Any:
    return written(as_array(a).reshape((-1, 1)) * as_array(b).reshape((1, -1)), out)


def kron(a: Any, b: Any) -> Array:
    a, b = as_array(a), as_array(b)
    rank = max(a.ndim, b.ndim)
    first = reshape(a, (1,) * (rank - a.ndim) + a.shape)
    second = reshape(b, (1,) * (rank - b.ndim) + b.shape)
    wide = reshape(first, [size for extent in first.shape for size in (extent, 1)])
    fine = reshape(second, [size for extent in second.shape for size in (1, extent)])
    return reshape(wide * fine, [m * n for m, n in zip(first.shape, second.shape, strict=True)])


def tensordot(a: Any, b: Any, axes: Any = 2) -> Array:
    """Raises ValueError, as NumPy, where the axes' sizes differ."""
    a, b = as_array(a), as_array(b)
    if isinstance(axes, int):
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        pairs = [list(item) if isinstance(item, Sequence) else [item] for item in axes]
        left = [axis_of(axis, a.ndim) for axis in pairs[0]]
        right = [axis_of(axis, b.ndim) for axis in pairs[1]]
    if len(left) != len(right) or any(a.shape[m] != b.shape[n] for m, n in zip(left, right, strict=True)):
        raise ValueError("shape-mismatch for sum")
    rows = [dim for dim in range(a.ndim) if dim not in left]
    columns = [dim for dim in range(b.ndim) if dim not in right]
    size = math.prod(a.shape[dim] for dim in left)
    first = reshape(transpose(a, rows + left), (math.prod(a.shape[dim] for dim in rows), size) if rows else (size,))
    second = reshape(
        transpose(b, right + columns), (size, math.prod(b.shape[d] for d in columns)) if columns else (size,)
    )
    return reshape(_flat(first, second), [a.shape[d] for d in rows] + [b.shape[d] for d in columns])


def einsum(*operands: Any, optimize: Any = True, out: Any = None, dtype: Any = None) -> Any:
    """Einstein's notation; pairs are contracted in the order that NumPy finds cheapest.

    operands: the subscripts and the arrays; or each array with the list of its subscripts as numbers, and the result's.

    Raises:
        ValueError: NumPy's.
    """
    subscripts, items = _subscripts(operands)
    arrays = [as_array(x, dtype) for x in items]
    order = einsum_path(subscripts, *arrays, optimize=optimize)[0][1:]
    parts, goal = _letters(subscripts, arrays)
    terms = [_diagonals(x, letters) for x, letters in zip(arrays, parts, strict=True)]
    for chosen in order:
        picked = [terms.pop(number) for number in sorted(chosen, reverse=True)]
        result = picked[0]
        for number, other in enumerate(picked[1:], 1):
            left = {letter for _, letters in (*terms, *picked[number + 1 :]) for letter in letters}
            result = _contracted(result, other, left | set(goal))
        terms.append(result)
    x, letters = _summed(terms[0], set(goal))
    return written(transpose(x, [letters.index(letter) for letter in goal]), out)


def einsum_path(*operands: Any, optimize: Any = "greedy", einsum_call: Any = False) -> Any:
    """NumPy's, of the shapes of the operands."""
    subscripts, items = _subscripts(operands)
    arrays = map(as_array, items)
    stand_ins = [np.broadcast_to(np.empty((), x.dtype), x.shape) for x in arrays]
    return np.einsum_path(subscripts, *stand_ins, optimize=optimize, einsum_call=einsum_call)


def _subscripts(operands: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """In letters, whichever way they were given."""
    if isinstance(operands[0], str):
        return operands[0], operands[1:]
    lists = [*operands[1::2], *(operands[-1:] if len(operands) % 2 else ())]
    letters = ["".join("..." if item is Ellipsis else chr(ord("a") + item) for item in axes) for axes in lists]
    count = len(operands) // 2
    goal = f"->{letters[-1]}" if len(operands) % 2 else ""
    return ",".join(letters[:count]) + goal, operands[: 2 * count : 2]


def _letters(subscripts: str, arrays: list[Array]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, the ellipsis written out."""
    text = subscripts.replace(" ", "")
    inputs_written, arrow, goal = text.partition("->")
    parts = inputs_written.split(",")
    free = [chr(code) for code in range(ord("A"), ord("Z") + 1) if chr(code) not in text]
    widest = 0
    for number, (part, x) in enumerate(zip(parts, arrays, strict=True)):
        if "..." in part:
            count = x.ndim - len(part.replace("...", ""))
            widest = max(widest, count)
            parts[number] = part.replace("...", "".join(free[26 - 26 + 10 - count : 10]))
    dots = "".join(free[10 - widest : 10])
    if not arrow:
        joined = "".join(parts)
        once = sorted(letter for letter in set(joined) if joined.count(letter) == 1 and letter not in dots)
        return parts, dots + "".join(once)
    return parts, goal.replace("...", dots)


def _diagonals(x: Array, letters: str) -> tuple[Array, str]:
    """A letter twice in one operand is its diagonal."""
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            x = diagonal(x, 0, first, second)
            letters = "".join(item for dim, item in enumerate(letters) if dim not in (first, second)) + letter
    return x, letters


def _summed(term: tuple[Array, str], kept: set[str]) -> tuple[Array, str]:
    x, letters = term
    gone = tuple(dim for dim, letter in enumerate(letters) if letter not in kept)
    if not gone:
        return term
    return r.sum(x, gone, x.dtype), "".join(letter for letter in letters if letter in kept)


def _contracted(first: tuple[Array, str], second: tuple[Array, str], kept: set[str]) -> tuple[Array, str]:
    """Σ over what both have and nobody else needs, as one batched product."""
    (a, m), (b, n) = _summed(first, kept | set(second[1])), _summed(second, kept | set(first[1]))
    both = [letter for letter in m if letter in n]
    batch = [letter for letter in both if letter in kept]
    inside = [letter for letter in both if letter not in kept]
    rows, columns = [item for item in m if item not in n], [item for item in n if item not in m]
    size = {letter: a.shape[m.index(letter)] for letter in m}
    for letter in n:  # a dimension of one broadcasts
        size[letter] = max(size.get(letter, 1), b.shape[n.index(letter)])

    def arranged(x: Array, letters: str, order: list[str], shape: tuple[int, ...]) -> Array:
        moved = transpose(x, [letters.index(letter) for letter in order])
        return reshape(broadcast_to(moved, [size[letter] for letter in order]), shape)

    count = [math.prod(size[letter] for letter in group) for group in (batch, rows, inside, columns)]
    left = arranged(a, m, batch + rows + inside, (count[0], count[1], count[2]))
    right = arranged(b, n, batch + inside + columns, (count[0], count[2], count[3]))
    if not batch:
        left, right = reshape(left, left.shape[1:]), reshape(right, right.shape[1:])
    order = batch + rows + columns
    return reshape(_batched(left, right), [size[letter] for letter in order]), "".join(order)
