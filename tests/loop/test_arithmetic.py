"""Arithmetic of loop bodies is plain Python's: to the bit of floats, and of whole numbers all or an error."""

from __future__ import annotations

import importlib.util
import math
import random
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from counts import LONG

import girih.loop as gl
from girih.loop.capture.errors import LoopError

COUNT, EACH, ROWS = 200 if LONG else 60, 20, 40
"""Bodies, written and random, how many of them are compiled together, and iterations of each."""
WRITTEN = (
    "(x + y) - y",
    "(x * y + z) - x * y",
    "math.sqrt(abs(y * y - 4 * x * z - (y * y - 4 * x * z)))",
    "math.sqrt(x * x - 4 * (x / 2) * (x / 2))",
    "x * y + z",
    "x * 3 - x - x - x",
    "x / 3 * 3 - x",
    "(x / y) / z",
    "x / y * y",
    "x ** 2 + y ** 3 - z ** 4",
    "abs(x) ** 0.5 - math.sqrt(abs(x))",
    "x - x // y * y",
    "(i * 7 - 3) % (i + 2) + 3 ** 45 % 1000",
    "2 ** 70 * 0.5 - x",
    "(1 << i) - (-i >> 1)",
    "i // 3 - -i // 3 + divmod(i, 7)[1]",
    "i / 7 + float(i) ** 3",
    "round(x * 10) + int(y * 10) + math.floor(z)",
    "min(x, y) if x < z else max(y, z)",
    "0.0 * -abs(x) + y * 0",
    "((x + 1e16) - 1e16) + ((y + 1e8) - 1e8)",
)


def expression(draw: random.Random, depth: int) -> str:
    """A random expression of numbers x, y, z, that are no whole ones, and of i, j that are."""
    if depth == 0:
        return draw.choice(("x", "y", "z", "x", "y", "z", "i", "j", "0.1", "1e16", "3", "0.7", "-2.5e-9"))
    first, second = (expression(draw, depth - draw.choice((1, 1, 2)) if depth > 1 else 0) for _ in range(2))
    form = draw.choice((
        "({0} + {1})", "({0} - {1})", "({0} * {1})", "({0} + {1}) - {1}", "({0} * {1} + {0})",
        "({0} * {1} - {0} * {1})",
        "({0} / (1.5 + abs({1})))", "({0} % (1.5 + abs({1})))", "({0} // (1.5 + abs({1})))",
        "min({0}, {1})", "max({0}, {1})", "({0} if {0} < {1} else {1} * 3)", "math.sin({0})", "math.atan2({0}, {1})",
        "math.sqrt(abs({0}) + 0.1)", "math.exp(-abs({0}))", "math.log(1.0 + abs({0}))", "(math.tanh({0}) ** 3)",
        "(math.cos({0}) ** 2)", "-({0})", "((abs(math.sin({0})) + 0.1) ** math.cos({1}))",
    ))  # fmt: skip
    return form.format(first, second)


def module(folder: Path, text: str) -> ModuleType:
    """Functions of a text that can be read again."""
    path = folder / "bodies.py"
    path.write_text(text)
    specification = importlib.util.spec_from_file_location("bodies", path)
    assert specification is not None
    assert specification.loader is not None
    loaded = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(loaded)
    return loaded


def test_scalar_bodies_have_the_bits_of_plain_python(tmp_path: Path) -> None:
    """The written and the random ones, serially and ordered on three workers."""
    draw = random.Random(33)
    texts = [*WRITTEN, *(expression(draw, 2) for _ in range(COUNT - len(WRITTEN)))]
    batches = [texts[first : first + EACH] for first in range(0, COUNT, EACH)]
    lines = ["import math"]
    for number, batch in enumerate(batches):
        lines += [f"def body{number}(key, v, out):", "    i, j = key", "    x, y, z = v[0], v[1], v[2]"]
        lines += [f"    out[i, {at}] = {text}" for at, text in enumerate(batch)]
    bodies = module(tmp_path, "\n".join(lines))
    numbers = np.random.default_rng(3)
    values = numbers.normal(0, 1, (ROWS, 3)) * 10.0 ** numbers.integers(-3, 4, (ROWS, 1))
    keys = np.arange(ROWS), np.arange(ROWS)[::-1].copy()
    space = gl.sparse(keys, values)
    wrong = []
    for number, batch in enumerate(batches):
        body = getattr(bodies, f"body{number}")
        expected = np.zeros((ROWS, EACH))
        for i, j, v in zip(keys[0].tolist(), keys[1].tolist(), values.tolist(), strict=True):
            body((i, j), v, expected)
        loop = gl.parallel_for(space, ordered=True, workers=3)(body)
        for run in (loop, loop.serial):
            out = gl.array(np.full((ROWS, EACH), np.nan))
            run(out)
            same = out.values.view(np.int64) == expected.view(np.int64)
            wrong += [batch[at] for at in np.flatnonzero(~same.all(axis=0))]
    assert wrong == []


def kahan(i, v, out):
    total, lost = 0.0, 0.0
    for k in range(v.shape[0]):
        part = v[k] - lost
        following = total + part
        lost = (following - total) - part
        total = following
    out[i] = total


def helped(x, y):
    return (x + y) - y + x**3


def test_sums_that_carry_what_was_lost_keep_their_point() -> None:
    """And functions that a body calls are computed as they are written too, unless fast arithmetic is asked for."""
    values = np.random.default_rng(0).normal(size=(7, 1000)) * 10.0 ** (np.arange(1000) % 9)
    out = gl.array(np.zeros(7))
    loop = gl.parallel_for(gl.sparse((np.arange(7),), values), workers=2)(kahan)
    loop(out)
    expected = np.zeros(7)
    for i in range(7):
        kahan(i, values[i], expected)
    assert np.array_equal(out.values, expected)

    def body(i, v, a):
        a[i] = helped(v, 1e16)

    space = gl.dense(np.linspace(0.1, 5, 30))
    bits = []
    for fastmath in (False, True):
        a = gl.array(np.zeros(30))
        gl.parallel_for(space, workers=2, fastmath=fastmath)(body)(a)
        bits.append(a.numpy())
    assert bits[0].tolist() == [helped(x, 1e16) for x in np.linspace(0.1, 5, 30).tolist()]
    assert not np.array_equal(*bits)
    np.testing.assert_allclose(bits[0], bits[1], atol=3)


def test_rows_are_summed_in_any_order_and_nothing_else_is() -> None:
    """The compiler has SIMD for `@`; what stands around it is as it was written."""

    def body(i, a, b, c):
        d = a[i] @ b[i]
        c[i] = (d + 1e16) - 1e16

    draw = np.random.default_rng(0)
    a, b, c = (gl.array(draw.normal(size=size)) for size in ((9, 100), (9, 100), (9,)))
    gl.parallel_for(gl.range(9), workers=2)(body)(a, b, c)
    assert c.numpy().tolist() == [(float(x @ y) + 1e16) - 1e16 for x, y in zip(a.values, b.values, strict=True)]


def product(x, y):
    return [x * part for part in (1, y)][1]


def test_whole_numbers_do_not_wrap() -> None:
    """What may not fit 64 bits is checked, and named by its line; so is what does not fit the array that it goes to."""
    large = np.array([1, 1 << 62, -(1 << 63)])
    small = np.array([100, 200, 1], np.uint8)

    def added(i, a, n, s):
        a[i] = n[i] + (1 << 62)

    def times(i, a, n, s):
        a[i] = product(n[i], 4)

    def turned(i, a, n, s):
        a[i] = -n[i]

    def counted(i, a, n, s):
        k = 1
        for _ in range(40 * i):
            k *= 3
        a[i] = k

    def power(i, a, n, s):
        x = i + 5
        a[i] = x**30 % 7

    def moved(i, a, n, s):
        a[i] = 1 << 60 * i

    def in_place(i, a, n, s):
        n[i] -= 1
        a[i] = n[i]

    def narrow(i, a, n, s):
        s[i] += 100
        a[i] = s[i]

    def cut(i, a, n, s):
        s[i] = 300.0 * i

    def divided(i, a, n, s):
        a[i] = n[i] / 3

    def bin_of(i, a, n, s):
        a[i] = int(1e30 * i)

    def least(i, a, n, s):
        a[i] = n[i] // (i - 3)

    for body, text in (
        (added, r"n\[i\] \+ \(1 << 62\)"), (times, r"\*` in product"), (turned, r"-n\[i\]"), (counted, r"k \*= 3"),
        (power, r"x \*\* 30"), (moved, r"1 << 60 \* i"), (in_place, r"n\[i\] -= 1"), (narrow, r"s\[i\]"),
        (cut, r"s\[i\]"), (divided, r"n\[i\] / 3"), (bin_of, r"int\(1e\+?30 \* i\)"), (least, r"n\[i\] // \(i - 3\)"),
    ):  # fmt: skip
        with pytest.raises(OverflowError, match=rf"test_arithmetic\.py:\d+: `{text}"):
            gl.parallel_for(gl.range(3), workers=2)(body)(*map(gl.array, (np.zeros(3, np.int64), large, small)))


CALLS = (
    "sum([x, x])", "sum((x, n[i], 1))", "sum(n)", "sum([x], 3)", "abs(x)", "-x", "int(y)", "round(y)", "math.floor(y)",
    "math.ceil(y)", "math.trunc(y)", "round(x)", "math.floor(x)", "round(x, -2)", "round(x, -19)", "round(x, 1)",
    "divmod(x, -1)[0]", "divmod(x, i)[1]", "pow(x, 3)", "math.gcd(x, x)", "math.floor(y) * x", "x << 1",
    "max(x, 1) * 2", "min(x, 1) - 1", "np.int64(y)", "np.int32(x)", "np.uint8(x)",
)  # fmt: skip
"""Of whole numbers x and n, a float y, and i = 0 or 1."""


def test_functions_of_whole_numbers_do_not_wrap(tmp_path: Path) -> None:
    """Each gives Python's number or is an error with its line, in a body and in a function that it calls."""
    lines = ["import math", "import numpy as np", "def helped(k, i, x, y, n):"]
    lines += [f"    if k == {number}: return {text}" for number, text in enumerate(CALLS)]
    lines += ["    return 0", "def inner(i, a, n, f, w):", "    a[i] = helped(w[0], i, int(n[i]), f[i], n)"]
    lines += ["def plain(i, a, n, f, w):", "    k, x, y = w[0], int(n[i]), f[i]"]
    lines += [f"    if k == {number}: a[i] = {text}" for number, text in enumerate(CALLS)]
    bodies = module(tmp_path, "\n".join(lines))
    loops = {name: gl.parallel_for(gl.range(2), workers=1)(getattr(bodies, name)) for name in ("inner", "plain")}
    wrong = []
    for number, text in enumerate(CALLS):
        for x, y in ((-57, 2.5), (2**63 - 1, 1e30), (-(2**63), -1e19), (3**39, math.nan)):
            expected: list[int] | None = [0, 0]
            try:
                for i in range(2):
                    bodies.plain(i, expected, [x, x], [y, y], [number])
                if not all(-(2**63) <= int(item) < 2**63 for item in expected):
                    expected = None
            except (OverflowError, ValueError, ZeroDivisionError):
                expected = None
            for name, loop in loops.items():
                a = gl.array(np.zeros(2, np.int64))
                found: list[int] | None = None
                try:
                    loop(a, *map(gl.array, (np.array([x, x]), np.array([y, y]), np.array([number]))))
                    found = a.numpy().tolist()
                except (OverflowError, ZeroDivisionError) as error:
                    line = lines[int(str(error).split(":")[1]) - 1]
                    of_inner = "return" in line
                    found = None if f"k == {number}:" in line and of_inner == (name == "inner") else [-1]
                if found != expected:
                    wrong.append((name, text, x, y, found))
    assert wrong == []


def store(s, i, x):
    s[i] = x


def test_stores_do_not_wrap_wherever_they_are() -> None:
    """In a function, in an array of the body's own, and with a type that is written beside them."""

    def within(i, s, n):
        store(s, i, n[i])

    def own(i, s, n):
        t = np.zeros(2, np.int8)
        t[1] = n[i]
        s[i] = t[1]

    def added(i, s, n):
        t = np.zeros(2, np.int8)
        t[1] += n[i]
        s[i] = t[1]

    def typed(i, s, n):
        s[i]: int = n[i]

    for body, text in ((within, r"\[…\] = …` in store"), (own, r"t\[1\]"), (added, r"t\[1\]"), (typed, r"s\[i\]")):
        s, loop = gl.array(np.zeros(2, np.int8)), gl.parallel_for(gl.range(2), workers=2)(body)
        loop(s, gl.array(np.array([100, -100])))
        assert s.numpy().tolist() == [100, -100]
        with pytest.raises(OverflowError, match=rf"test_arithmetic\.py:\d+: `{text}.*the number does not fit int8"):
            loop(s, gl.array(np.array([1, 200])))


@pytest.mark.parametrize("workers", [1, 2])
def test_buffers_of_whole_numbers_do_not_wrap(workers: int) -> None:
    """What is added is kept in 64 bits, so that only a total that does not fit is an error."""

    def body(i, v, b):
        b[i - i, 0] += v

    def run(dtype: type, values: list[int], apply: object = None, delay: int | None = None) -> list[int]:
        w = gl.array(np.array([[100, 7]], dtype))
        further = None if apply is None else gl.array(np.zeros((1, 1, 2)))
        loop = gl.parallel_for(gl.dense(np.array(values)), workers=workers)(body)
        loop(gl.buffer(w, apply, delay=delay, further=further))  # type: ignore[arg-type]
        return w.numpy().tolist()[0]  # type: ignore[no-any-return]

    assert run(np.int64, [2**61] * 3) == [3 * 2**61 + 100, 7]
    if workers == 1:  # else each worker's sum is added by itself
        assert run(np.uint8, [200, -160]) == [140, 7]
    for apply in (None, lambda element, update, further: element + update):
        for dtype, values in ((np.uint8, [90, 90]), (np.int64, [2**62] * 2)):
            with pytest.raises(OverflowError, match=r"test_arithmetic\.py:\d+: `(b\[i - i, 0\] \+= v|\+` in <lambda>)"):
                run(dtype, values, apply, None if apply else 1)


@pytest.mark.parametrize("workers", [1, 3])
def test_sums_over_iterations_do_not_wrap(workers: int) -> None:
    """The workers' parts may be larger, or below 0, where their total fits."""

    def count(i, v, h):
        h[i % 2] += v

    values = np.array([200, -150, -100, 50, 60, -60])
    loop = gl.parallel_for(gl.dense(values), workers=workers)(count)
    h = gl.array(np.array([0, 200], np.uint8))
    loop(h)
    assert h.numpy().tolist() == [160, 40]
    with pytest.raises(OverflowError, match="h: a sum over iterations does not fit uint8"):
        loop(h)


def difference(x, y):
    return x - y


def test_unsigned_numbers_have_signed_differences() -> None:
    """Of rows they are NumPy's, modulo their width; where 64 bits meet a sign, they fit or are an error."""

    def body(i, a, s, rows, turned):
        a[i] = (s[i] - s[0]) + -s[i] + difference(s[i], s[0]) + (s[i] - 10) // 3 + (s[i] * s[0] - 60000) / 4
        rows[i] = turned[i] - turned[0]

    s = np.array([250, 7, 8], np.uint8)
    turned = np.arange(12, dtype=np.uint8).reshape(3, 4)[::-1].copy()
    a, rows = gl.array(np.zeros(3)), gl.array(np.zeros((3, 4)))
    gl.parallel_for(gl.range(3), workers=2)(body)(a, gl.array(s), rows, gl.array(turned))
    expected = [2 * (x - 250) - x + (x - 10) // 3 + (x * 250 - 60000) / 4 for x in s.tolist()]
    assert a.numpy().tolist() == expected
    assert np.array_equal(rows.values, (turned - turned[0]).astype(float))

    def mixed(i, a, n):
        a[i] = n[0] - i

    loop = gl.parallel_for(gl.range(3), workers=2)(mixed)
    for n, low in (((2**62,), 2**62), (np.array([5], np.uint64), 5), (np.array([2**64 - 1], np.uint64), 2**64 - 1)):
        loop(a, n)
        assert a.numpy().tolist() == [float(low - i) for i in range(3)]
    for n in (2**63, [1, [2**70]]):
        with pytest.raises(
            LoopError, match=r"test_arithmetic\.py:\d+: `n`: n is, or has, \d+, which does not fit 64 bits"
        ):
            loop(a, n)


def larger(x, y):
    return max(x, y, 0) - min(y, x)


def test_numbers_with_and_without_a_sign_keep_their_digits() -> None:
    """Of one of each NumPy and Numba make floats; what is chosen, and how they compare, is told by all 64 bits."""

    def body(i, u, s, out, signs):
        out[i, 0], out[i, 1], out[i, 2] = max(u[i], s[i]), min(s[i], u[i], 2**62), larger(u[i], s[i])
        signs[i] = (u[i] < s[i]) + 2 * (u[i] == s[i]) + 4 * (s[i] <= u[i]) + 8 * (s[i] != u[i])
        signs[i] += 16 * (0 < u[i] < s[i] < 2**62) + 32 * (max((s[i], u[i])) == max([u[i], s[i], 5]))

    def few(i, u, n):
        n[i] = max(u[i], 5)

    large = 2**53 + 1
    u, s = [large, large + 2, 7, large + 6], [large, large + 4, -3, large + 8]
    out, signs, n = (gl.array(np.zeros(shape, np.int64)) for shape in ((4, 3), 4, 4))
    unsigned, signed = gl.array(np.array(u, np.uint64)), gl.array(np.array(s))
    gl.parallel_for(gl.range(4), workers=2)(body)(unsigned, signed, out, signs)
    pairs = list(zip(u, s, strict=True))
    assert out.numpy().tolist() == [[max(a, b), min(a, b, 2**62), larger(a, b)] for a, b in pairs]
    told = [
        (a < b) + 2 * (a == b) + 4 * (b <= a) + 8 * (b != a) + 16 * (a < b) + 32 * (max(a, b) >= 5) for a, b in pairs
    ]
    assert signs.numpy().tolist() == told
    gl.parallel_for(gl.range(4), workers=2)(few)(unsigned, n)
    assert n.numpy().tolist() == [max(a, 5) for a in u]
    m = gl.accumulator(0, "max")

    def most(i, u):
        m = max(m, u[i])

    gl.parallel_for(gl.range(4), workers=2)(most)(unsigned)
    assert m.value == large + 6
    unsigned[0] = np.uint64(2**64 - 1)
    with pytest.raises(
        OverflowError, match=r"test_arithmetic\.py:\d+: `max\(u\[i\], s\[i\]\)`: the whole number would not"
    ):
        gl.parallel_for(gl.range(4), workers=2)(body)(unsigned, signed, out, signs)

    def chain(i, u, s, out):
        out[i, 0] = s[i] < abs(u[i]) < s[i]

    with pytest.raises(LoopError, match=r"compared at once; compare two at a time, joined by `and`"):
        gl.parallel_for(gl.range(4), workers=2)(chain)(unsigned, signed, out)

    def beside(i, s, out):
        out[i, 0] = max(s[i], 0.5)

    with pytest.raises(OverflowError, match=r"`max\(s\[i\], 0\.5\)`: a whole number above 2\*\*53"):
        gl.parallel_for(gl.range(4), workers=2)(beside)(signed, out)


def test_a_variable_that_would_become_a_float_is_refused() -> None:
    def chosen(i, u, s, out):
        x = s[i]
        if i == 1:
            x = u[i]
        out[i] = x

    def either(i, u, s, out):
        out[i] = s[i] if i % 2 else u[i]

    for body, what in ((chosen, "x"), (either, "the result of `… if … else …`")):
        arrays = [gl.array(np.ones(3, dtype)) for dtype in (np.uint64, np.int64, np.int64)]
        with pytest.raises(LoopError, match=f"{what} is an unsigned number of 64 bits at one place") as told:
            gl.parallel_for(gl.range(3), workers=1)(body)(*arrays)
        assert "write np.int64(…)" in str(told.value)


def test_what_cannot_overflow_is_not_checked() -> None:
    def body(key, v, a, n):
        i, j = key
        k = i * 30 + j
        a[i, j] = (k * k + v[0] * 3) % 7 + i // 2 + (1 << 5)
        n[i, j] += 0.5

    space = gl.sparse((np.arange(9), np.arange(9)), np.ones((9, 2), np.int32), shape=(20, 30))
    loop = gl.parallel_for(space)(body)
    recipe = loop.prepared(
        loop.bound((gl.array(np.zeros((20, 30))), gl.array(np.zeros((20, 30)))), {}), 2
    ).kernel.recipe
    assert not {kind for _, kind, _ in recipe.helpers} & {"operation", "fits"}


def test_constants_are_pythons() -> None:
    def body(i, a, n):
        a[i] = 3**45 % 1000 + 2**70 / 2.0**70 + (7**30 - 7**30)
        n[i] = np.uint64(2**64 - 1) - np.uint64(i)

    a, n = gl.array(np.zeros(3)), gl.array(np.zeros(3, np.uint64))
    gl.parallel_for(gl.range(3), workers=2)(body)(a, n)
    assert a.numpy().tolist() == [644.0] * 3
    assert n.numpy().tolist() == [2**64 - 1 - i for i in range(3)]

    def beyond(i, a):
        a[i] = 2**70 % (i + 7)

    with pytest.raises(LoopError, match=r"test_arithmetic\.py:\d+: `2 \*\* 70`: the whole number does not fit 64 bits"):
        gl.parallel_for(gl.range(3))(beyond)(a)
    assert math.isclose(a[0], 644.0)
