"""Random programs of views, copies, scalars and writes do what they do with NumPy: every name's value, shape, dtype,
whether it is a number or an array, and that what one refuses the other refuses."""

from __future__ import annotations

import random

import numpy as np
import pytest
from counts import random_cases

import girih.array as gnp

PROGRAMS = random_cases(1000)
STATEMENTS = 9
PUBLIC = ("builtins", "numpy.exceptions")
REFUSED = (
    "does not know whether NumPy",  # a reshape that NumPy may copy, then a write: docs/arrays.md, "Writing in place"
    ".at takes no complex numbers",  # multiply.at, maximum.at and minimum.at: the same page
)
"""Refusals of girih's own, with which a program ends."""

OTHER_RULE = {
    ("ValueError", "TypeError"): "Cannot cast from",  # out= has another shape and another kind of numbers
    ("UFuncTypeError", "ValueError"): "could not be broadcast together",  # as above, of x += y
    ("TypeError", "ValueError"): "setting an array element with a sequence",
}
"""Both refuse, by other classes: NumPy's, girih's, and what girih says. Statements that break two rules at once, of
which NumPy names the other; and a sequence for one element, which NumPy calls by either class."""


class Program:
    """A program that grows, run by NumPy and by girih statement by statement."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.numpy = {"np": np}
        self.girih = {"np": gnp}
        self.lines: list[str] = []
        self.count = 0

    def run(self, line: str) -> str:
        """Raises AssertionError where the errors differ. Returns what girih refuses of its own, or ""."""
        self.lines.append(line)
        errors: list[BaseException | None] = []
        for space in (self.numpy, self.girih):
            try:
                exec(line, space)
            except Exception as error:
                errors.append(error)
            else:
                errors.append(None)
        first, second = errors
        if any(text in str(second) for text in REFUSED):
            return str(second)
        known = next((kind for kind in type(first).__mro__ if kind.__module__ in PUBLIC), type(None))
        other = OTHER_RULE.get((type(first).__name__, type(second).__name__))
        assert isinstance(second, known) or (other is not None and other in str(second)), self.said(first, second)
        return ""

    def said(self, first: BaseException | None, second: BaseException | None) -> str:
        return f"NumPy: {first!r}, girih: {second!r} in\n" + "\n".join(self.lines)

    def names(self) -> list[str]:
        return [name for name in self.numpy if name.startswith("v")]

    def compare(self) -> None:
        for name in self.names():
            expected, got = self.numpy[name], self.girih[name]
            where = f"{name} in\n" + "\n".join(self.lines)
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype), where
            assert got.scalar == isinstance(expected, np.generic), f"number or array: {where}"
            np.testing.assert_allclose(got.compute(), expected, rtol=1e-14, err_msg=where)

    # ----------------------------------------------------------------------------------- what statements consist of

    def new(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def any(self) -> str:
        return self.draw.choice(self.names())

    def shape(self, name: str) -> tuple[int, ...]:
        return self.numpy[name].shape

    def dtype(self) -> str:
        return self.draw.choice(["float64", "float64", "int64", "float32", "complex128"])

    def is_writeable(self, name: str) -> bool:
        """NumPy's `at` writes to what is read-only, too."""
        return bool(self.numpy[name].flags.writeable) and isinstance(self.numpy[name], np.ndarray)

    def create(self) -> str:
        shape = self.draw.choice([(), (1,), (5,), (6,), (2, 3), (3, 4), (2, 1, 3), (1, 1), (0,), (4, 2)])
        size = int(np.prod(shape))
        first = self.draw.randint(-3, 3)
        if shape == ():
            return f"{self.new()} = np.array({self.draw.choice([2, 3.0, -1.5, 2j])})"
        made = f"np.arange({first}, {first + size}).reshape({shape}).astype({self.dtype()!r})"
        return f"{self.new()} = {made}.copy()" if self.draw.random() < 0.7 else f"{self.new()} = {made}"

    def item(self, size: int) -> str:
        kind = self.draw.random()
        if kind < 0.35:
            return str(self.draw.randint(-size - (kind < 0.02), max(size - 1, 0)))
        if kind < 0.7:
            low, high = self.draw.choice(["", "1", "-2"]), self.draw.choice(["", "3", "-1"])
            return f"{low}:{high}:{self.draw.choice(['', '2', '-1', '-2'])}"
        if kind < 0.85:
            count = self.draw.randint(1, 3)
            return str([self.draw.randint(-size, size - 1) for _ in range(count)]) if size else "[]"
        return ":"

    def key(self, name: str) -> str:
        shape = self.shape(name)
        kind = self.draw.random()
        if kind < 0.06:
            return "()"
        if kind < 0.14:
            return "..."
        if kind < 0.22:
            return f"{name} > {self.draw.randint(-1, 3)}" if self.numpy[name].dtype.kind != "c" else f"{name} == 1"
        if kind < 0.26:
            return self.draw.choice(["True", "False", "None"])
        items = [self.item(size) for size in shape[: self.draw.randint(0, len(shape))]]
        if self.draw.random() < 0.2:
            items.insert(self.draw.randint(0, len(items)), "None")
        if self.draw.random() < 0.2:
            items.insert(self.draw.randint(0, len(items)), "...")
        if not items:
            return "..." if not shape else ":"
        return ", ".join(items)

    def value(self) -> str:
        kind = self.draw.random()
        if kind < 0.5:
            return str(self.draw.randint(-9, 9))
        if kind < 0.6:
            return f"[{self.draw.randint(-9, 9)}, 4, 7]"
        return self.any()

    def view(self) -> str:
        name = self.any()
        shape = self.shape(name)
        size, rank = int(np.prod(shape)), len(shape)
        axis = self.draw.randint(-1, max(rank - 1, 0))
        divisors = [n for n in range(1, size + 1) if size % n == 0] or [1]
        n = self.draw.choice(divisors)
        texts = [
            f"{name}[{self.key(name)}]", f"{name}[{self.key(name)}]", f"{name}[{self.key(name)}]",
            f"{name}.reshape(-1)", f"{name}.reshape({n}, -1)", f"{name}.reshape({size // n}, {n})", f"{name}.ravel()",
            f"{name}.T", f"np.squeeze({name})", f"{name}.flatten()", f"np.transpose({name})", f"{name}.copy()",
            f"np.broadcast_to({name}, (2,) + {name}.shape)", f"np.broadcast_to({name}, {name}.shape)",
            f"np.diagonal({name})", f"{name}.real", f"np.real({name})", f"np.imag({name})", f"{name}.imag",
            f"np.atleast_1d({name})", f"np.atleast_2d({name})", f"np.expand_dims({name}, {axis})",
            f"np.swapaxes({name}, 0, {axis})", f"np.moveaxis({name}, 0, {axis})", f"np.flip({name})",
            f"np.asarray({name})", f"np.array({name})", f"np.copy({name})", f"np.flip({name}, {axis})",
            f"{name}.reshape(())", f"np.ravel({name})", f"{name}.astype('float64')", f"np.rot90({name})",
            f"{name}.astype({name}.dtype, copy=False)", f"np.split({name}, [1])[1]", f"{name}.flat[{self.item(size)}]",
            f"np.array({name}, copy=None)", f"np.atleast_3d({name})", f"np.asarray({name}, dtype='float64')",
            f"np.take({name}, 0, {axis})", f"np.roll({name}, 1)", f"np.repeat({name}, 2, {axis})",
        ]  # fmt: skip
        return f"{self.new()} = {self.draw.choice(texts)}"

    def compute(self) -> str:
        name, other = self.any(), self.value()
        axis = self.draw.choice(["None", "None", "0", "-1"])
        function = self.draw.choice(["add", "subtract", "multiply", "maximum", "minimum"])
        texts = [
            f"np.{function}({name}, {other})", f"np.{function}({name}, {other})", f"-{name}", f"np.abs({name})",
            f"{name}.sum({axis})", f"{name}.max({axis})", f"{name}.min({axis})", f"np.prod({name}[:2], {axis})",
            f"np.any({name}, {axis})", f"np.where({name} == 1, {name}, {other})", f"np.clip({name}, 0, 2)",
            f"{name} == {other}", f"np.positive({name})", f"np.square({name})", f"{name}.conj()", f"np.round({name})",
            f"np.cumsum({name}, {axis})", f"np.sort({name}, {axis})", f"{name}.argmax({axis})", f"np.ptp({name})",
            f"np.zeros_like({name})", f"np.full_like({name}, 3)", f"np.floor({name})", f"np.median({name}, {axis})",
            f"np.concatenate([{name}, {other}])", f"np.stack([{name}, {name}])", f"np.count_nonzero({name}, {axis})",
            f"np.trace({name})", f"np.add({name}, 1, where={name} == 1, out=np.zeros_like({name}))",
        ]  # fmt: skip
        return f"{self.new()} = {self.draw.choice(texts)}"

    def write(self) -> str:
        name, other = self.any(), self.value()
        size = int(np.prod(self.shape(name)))
        sign = self.draw.choice(["+", "-", "*"])
        function = self.draw.choice(["add", "multiply", "maximum"])
        key = self.key(name)
        texts = [
            *[f"{name}[{key}] = {other}"] * 6, *[f"{name}[{key}] {sign}= {other}"] * 3, f"{name} {sign}= {other}",
            f"{name} {sign}= {self.draw.randint(0, 3)}", f"np.{function}({name}, {other}, out={name})",
            f"np.{function}({name}, 2, out={name}, where={name} == 1)", f"np.copyto({name}, {other})",
            f"np.copyto({name}, {self.draw.randint(0, 3)}, where={name} == 1)", f"{name}.fill(4)", f"{name}.sort()",
            f"{name}.flat[{self.item(size)}] = {other}", f"{name}.flat[:3] = {other}", f"{name}.flat = {other}",
            f"np.put({name}, [0, -1], {other})", f"np.place({name}, {name} == 1, [8, 9])",
            f"np.putmask({name}, {name} == 1, {other})", f"np.fill_diagonal({name}, {self.draw.randint(0, 3)})",
            f"{name}.real = {self.draw.randint(0, 3)}", f"{name}.imag[...] = 2", f"{name}.T[...] = {other}",
            f"{name}.sum(0, out={self.any()})", f"np.cumsum({name}, 0, out={name})",
            f"{name}.ravel()[...] = {other}", f"{name}.reshape(-1)[:2] = {other}", f"np.negative({name}, {name})",
            *([f"np.{function}.at({name}, [0, 0], 1)"] if self.is_writeable(name) else []),
            f"np.clip({name}, 0, 2, out={name})",
        ]  # fmt: skip
        return self.draw.choice(texts)


def run(seed: int) -> bool:
    """Whether the program went to its end."""
    program = Program(seed)
    with np.errstate(all="ignore"):
        program.run(program.create())
        for _ in range(program.draw.randint(3, STATEMENTS)):
            kind = program.draw.random()
            make = (
                program.create if kind < 0.1 else program.view if kind < 0.45 else
                program.compute if kind < 0.6 else program.write
            )  # fmt: skip
            if program.run(make()):
                return False
        program.compare()
    return True


@pytest.fixture(scope="module")
def one():
    with gnp.cluster(workers=1, backend="threads", timeout=60.0) as made:
        yield made


@pytest.mark.filterwarnings("ignore")
def test_programs_of_views_and_writes_are_numpys(one):
    ended = [run(seed) for seed in range(PROGRAMS)]
    assert sum(ended) > 0.9 * PROGRAMS


WHOLE = {
    "...": lambda module, x: x[...], "slice": lambda module, x: x[:], "view": lambda module, x: x.view(),
    "reshape": lambda module, x: x.reshape(x.shape), "transpose": lambda module, x: module.transpose(x, (0, 1)),
    "moveaxis": lambda module, x: module.moveaxis(x, 0, 0), "flip": lambda module, x: module.flip(x, ()),
    "rot90": lambda module, x: module.rot90(x, 4), "roll": lambda module, x: module.roll(x, 1, axis=()),
    "fftshift": lambda module, x: module.fft.fftshift(x, axes=()), "mask": lambda module, x: x[np.array([True] * 3)],
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_all_of_an_array_is_a_view_or_a_copy_and_never_itself(name: str) -> None:
    """A shape that is set on it leaves the array's as it is; what is written to a copy is not seen."""
    results = []
    for module in (np, gnp):
        x = module.array(np.arange(12.0).reshape(3, 4))
        y = WHOLE[name](module, x)
        assert y is not x
        y.shape = (-1,)
        y[2:] = 7.0
        x += 1.0
        results.append((x.shape, y.shape, np.asarray(x).tolist(), np.asarray(y).tolist()))
    assert results[0] == results[1]
