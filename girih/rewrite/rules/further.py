"""More shipped rules, by what they are for: joins and what is done to them, convolutions of parts, pools, training.

Each is proved (`tests/rewrite/rules/test_further.py`). Where a rule splits an input, a graph may split it anywhere:
what is cut into two is the two joined.
"""

from __future__ import annotations

from functools import cache

from girih.rewrite.rules.rule import Rule, parse_all

ALIKE = "stride=s, padding=p, dilation=d"


def _sides(term: str) -> str:
    """Both sides of what a term joins in dimension 1."""
    return f"split({term}, dim=1)[0], split({term}, dim=1)[1]"


def _of_both(operator: str) -> str:
    """An element-wise operator of two tensors on both sides of them."""
    left, right = (f"{operator}(split(x, dim=1)[{side}], split(y, dim=1)[{side}])" for side in (0, 1))
    return f"({left}, {right}) == ({_sides(f'{operator}(x, y)')})"


def _gate(function: str) -> str:
    """Two gates of a recurrent cell, each of its input and its state, as one."""
    first = f"{function}(add(mm(x, a), mm(y, c)))"
    second = f"{function}(add(mm(x, b), mm(y, e)))"
    both = f"{function}(add(mm(x, cat(a, b, dim=1)), mm(y, cat(c, e, dim=1))))"
    return f"""
one_gate_of_{function}: x[m, k], y[m, l], a[k, n], b[k, p], c[l, n], e[l, p]: ({first}, {second}) == ({_sides(both)})
"""


GATES = "".join(map(_gate, ("sigmoid", "tanh", "relu")))
"""Before others: gates of one function come together first."""

JOINS = f"""
one_product_and_bias: x[m, k], a[k, n], b[k, p], c[n], e[p]: (add(mm(x, a), c), add(mm(x, b), e))
    == ({_sides("add(mm(x, cat(a, b, dim=1)), cat(c, e, dim=0))")})

one_sigmoid: (sigmoid(split(x, dim=1)[0]), sigmoid(split(x, dim=1)[1])) == ({_sides("sigmoid(x)")})

one_tanh: (tanh(split(x, dim=1)[0]), tanh(split(x, dim=1)[1])) == ({_sides("tanh(x)")})

one_addition: {_of_both("add")}

one_multiplication: {_of_both("mul")}

join_of_relu: cat(relu(x), relu(y), dim=1) == relu(cat(x, y, dim=1))

join_of_sigmoid: cat(sigmoid(x), sigmoid(y), dim=1) == sigmoid(cat(x, y, dim=1))

join_of_tanh: cat(tanh(x), tanh(y), dim=1) == tanh(cat(x, y, dim=1))

join_of_convolutions: x[n, i, u, v], a[o, i, h, k], b[q, i, h, k]:
    cat(convolution(x, a, {ALIKE}), convolution(x, b, {ALIKE}), dim=1) == convolution(x, cat(a, b, dim=0), {ALIKE})

join_with_biases: a[o, i, h, k], b[q, i, h, k], c[1, o, 1, 1], e[1, q, 1, 1]:
    cat(relu(add(convolution(x, a, {ALIKE}), c)), relu(add(convolution(x, b, {ALIKE}), e)), dim=1)
    == relu(add(convolution(x, cat(a, b, dim=0), {ALIKE}), cat(c, e, dim=1)))

join_of_enlarged: a[o, i, 1, 1], b[q, i, 3, 3], c[1, o, 1, 1], e[1, q, 1, 1]:
    cat(relu(add(convolution(x, a, stride=s, padding=0), c)),
        relu(add(convolution(x, b, stride=s, padding=1), e)), dim=1)
    == relu(add(convolution(x, cat(constant_pad_nd(a, pad=(1, 1, 1, 1)), b, dim=0), stride=s, padding=1),
                cat(c, e, dim=1)))
"""
"""Element-wise operators behind joins and splits, and convolutions whose results are joined."""

PARTS = f"""
grouped_parts: a[g * o, i, h, k], b[g * o, i, h, k]:
    cat(convolution(split(x, dim=1)[0], a, {ALIKE}, groups=g),
        convolution(split(x, dim=1)[1], b, {ALIKE}, groups=g), dim=1)
    == convolution(x, cat(a, b, dim=0), {ALIKE}, groups=2 * g)

grouped: x[n, g * i, u, v], y[n, g * i, u, v], a[g * o, i, h, k], b[g * o, i, h, k]:
    cat(convolution(x, a, {ALIKE}, groups=g), convolution(y, b, {ALIKE}, groups=g), dim=1)
    == convolution(cat(x, y, dim=1), cat(a, b, dim=0), {ALIKE}, groups=2 * g)

one_kernel: x[n, i, u, v], a[o, i, h, k], b[o, i, h, k]:
    add(convolution(x, a, {ALIKE}), convolution(x, b, {ALIKE})) == convolution(x, add(a, b), {ALIKE})

sum_in_convolution: x[n, i, u, v], y[n, j, u, v], a[o, i, h, k], b[o, j, h, k]:
    add(convolution(x, a, {ALIKE}), convolution(y, b, {ALIKE}))
    == convolution(cat(x, y, dim=1), cat(a, b, dim=1), {ALIKE})
"""
"""Convolutions of parts and sums of convolutions."""

POOLS = """
one_pool: x[n, i, u, v], y[n, i, u, v]: add(avg_pool2d(x, kernel_size=3, stride=1, padding=1),
    avg_pool2d(y, kernel_size=3, stride=1, padding=1)) == avg_pool2d(add(x, y), kernel_size=3, stride=1, padding=1)
"""
"""The sum of two pools is one. (The same holds of pools that do not count their padding, but is not proved yet, so it
is not here.)"""

TRAINING = """
scaled_sum: add(mul(x, other=c), y) == add(y, x, alpha=c)

scaled_difference: sub(x, mul(y, other=c)) == sub(x, y, alpha=c)

product_in_sum: x[i, j], y[i, j], z[i, j]: add(x, mul(y, z)) == addcmul(x, y, z)

product_in_difference: x[i, j], y[i, j], z[i, j]: sub(x, mul(y, z)) == addcmul(x, y, z, value=-1.0)

quotient_in_sum: x[i, j], y[i, j], z[i, j]: add(x, div(y, z)) == addcdiv(x, y, z)

between: x[i, j], y[i, j]: add(x, mul(sub(y, x), other=c)) == lerp.Scalar(x, y, weight=c)

common_factor: x[i, j], y[i, j], z[i, j]: add(mul(x, y), mul(x, z)) == mul(x, add(y, z))

less_of_less: sub(x, neg(y)) == add(x, y)

gradient_of_both: x[m, k], y[m, n], g[m, p]:
    (mm(permute(x, dims=(1, 0)), g), mm(permute(y, dims=(1, 0)), g))
    == (split(mm(permute(cat(x, y, dim=1), dims=(1, 0)), g), dim=0)[0],
        split(mm(permute(cat(x, y, dim=1), dims=(1, 0)), g), dim=0)[1])

turned_twice: x[m, n]: permute(permute(x, dims=(1, 0)), dims=(1, 0)) == x
"""
"""Element-wise chains of optimizers in one kernel, and gradients of several weights in one product; that of one input
by several weights is `one_product`, and their sum `one_sum`."""

ARRAYS = """
logistic: reciprocal(add(girih.exp(neg(x)), other=1.0)) == sigmoid(x)
"""
"""What array programs write for want of a name."""


@cache
def inference() -> tuple[Rule, ...]:
    return parse_all(GATES) + parse_all(JOINS) + parse_all(PARTS) + parse_all(POOLS)


@cache
def training() -> tuple[Rule, ...]:
    return parse_all(TRAINING)


@cache
def arrays() -> tuple[Rule, ...]:
    return parse_all(ARRAYS)
