"""The law of a loop's form.

1. Registers are named once, read when they are written, and not after they were freed.
2. Slices are within their registers, in every block; buffers are within their memory.
3. Kernels and copies write into buffers and results only. Whoever writes into a piece of memory ends all other
   registers that lie there; an operand that lies there is read as it is written: whole, with the same shape and type.
4. Each result is written once in a block, and each total is combined once.
5. At the end of a block nothing is left that it made, so that two blocks are never in memory.

Cost: linear in the statements times the registers that lie in one piece of memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from girih.graph.graph import ITEM_BYTES
from girih.program.fusion.slicing import Number, at_block
from girih.run.loops.form import Accumulate, Copy, Free, KernelLine, LoopForm, Read, Slice, Statement, View

NEIGHBOURS = 3
"""So many statements before and behind one that breaks the law are shown."""


class LoopFormError(ValueError):
    """A form breaks the law."""


def check(form: LoopForm) -> None:
    """Hold a form against the law.

    Raises:
        LoopFormError: which statement breaks it, why, and its neighbours.
    """
    walk = _Walk(form)
    for number, item in enumerate(form.buffers):
        for low, high in walk.blocks:
            size = prod(at_block(item.shape, low, high)) * ITEM_BYTES[item.dtype]
            if size > form.memory[item.memory]:
                raise LoopFormError(f"b{number} takes {size} bytes of the {form.memory[item.memory]} of its memory")
    for number, statement in enumerate(form.body):
        try:
            walk.take(statement)
        except LoopFormError as error:
            raise LoopFormError(f"{error}\n{_place(form, number)}") from None
    walk.end()


def _place(form: LoopForm, number: int) -> str:
    first = max(0, number - NEIGHBOURS)
    shown = enumerate(form.body[first : number + NEIGHBOURS + 1], first)
    return "\n".join(f"{'>' if position == number else ' '} {position:4}  {item}" for position, item in shown)


class _Walk:
    """What is known of the registers before a statement.

    storage: the memory in which a register lies, by the name of what made it (memory 0 is m0). readable: what may be
    read. lost: why another register may not.
    """

    def __init__(self, form: LoopForm) -> None:
        self.form = form
        first, last = form.span
        whole = (last - first) // form.rows * form.rows + first
        # Numbers are affine in the block: the first, the last whole one and the rest prove all that lie between.
        ends = [(first, first + form.rows), (whole - form.rows, whole), (whole, last)]
        self.blocks = [(low, high) for low, high in ends if first <= low < high]
        self.kinds = replace(form, body=()).kinds()
        self.storage = {name: name for name in self.kinds} | {
            f"b{number}": f"m{item.memory}" for number, item in enumerate(form.buffers)
        }
        self.readable = {name for name in self.kinds if name[0] == "x"}
        self.lost: dict[str, str] = {}
        self.written: set[str] = set()  # results and totals

    def take(self, statement: Statement) -> None:
        name = statement.register
        match statement:
            case View():
                self.cut(statement.source)
                self.name(name, *self.kind(statement.source), self.storage[statement.source.register])
                if statement.source.register in self.readable:
                    self.readable.add(name)
                elif self.storage[name][0] != "w":
                    self.read([statement.source])
            case Read():
                self.read([statement.source])
                self.name(name, *self.kind(statement.source), name)
                self.readable.add(name)
            case KernelLine():
                self.read(statement.slices)
                if statement.into:
                    self.write(name, statement.slices, str(statement))
                    return
                base = next(statement.slices, None) if statement.view else None
                self.name(name, statement.shape, statement.dtype, self.storage[base.register] if base else name)
                self.readable.add(name)
            case Copy():
                self.read([statement.source])
                self.write(name, [statement.source], str(statement))
            case Accumulate():
                self.read([Slice(statement.source)])
                self.once(name, [f"a{number}" for number in range(len(self.form.totals))])
            case Free():
                if name not in self.kinds or name[0] in "xwb":
                    raise LoopFormError(f"{name} is freed, which the block did not make")
                self.lose(name, "it was freed")
                del self.kinds[name], self.storage[name]

    def name(self, name: str, shape: tuple[Number, ...], dtype: str, storage: str) -> None:
        if name in self.kinds or name in self.lost:
            raise LoopFormError(f"{name} is named twice")
        self.kinds[name] = shape, dtype
        self.storage[name] = storage

    def kind(self, item: Slice) -> tuple[tuple[Number, ...], str]:
        shape, dtype = self.kinds[item.register]
        return item.shape(shape), dtype

    def cut(self, item: Slice) -> None:
        """Is the slice within its register?"""
        if item.register not in self.kinds:
            why = self.lost.get(item.register, "nothing made it")
            raise LoopFormError(f"{item.register} is read, but {why}")
        shape, _ = self.kinds[item.register]
        for dimension, start, stop in item.cuts:
            if dimension >= len(shape):
                raise LoopFormError(f"{item} is cut in dimension {dimension}; {item.register} has {len(shape)}")
            for low, high in self.blocks:
                begin, end, size = at_block((start, stop, shape[dimension]), low, high)
                if not 0 <= begin <= end <= size:
                    raise LoopFormError(
                        f"{item} is [{begin}, {end}) of {size} in dimension {dimension} for the block [{low}, {high})"
                    )

    def read(self, items: Iterable[Slice]) -> None:
        for item in items:
            self.cut(item)
            if item.register not in self.readable:
                why = self.lost.get(item.register, "nothing has written it")
                raise LoopFormError(f"{item.register} is read, but {why}")

    def write(self, name: str, operands: Iterable[Slice], text: str) -> None:
        if name not in self.kinds or self.storage[name][0] not in "wm":
            raise LoopFormError(f"{name} is written, but it is neither a buffer nor a result")
        storage = self.storage[name]
        for item in operands:
            if self.storage[item.register] == storage and (item.cuts or self.kinds[item.register] != self.kinds[name]):
                raise LoopFormError(f"{item} is read from the memory into which {name} is written, but not as it is")
        if storage[0] == "w":
            self.once(storage, [storage])
        for other in [other for other, place in self.storage.items() if place == storage and other != name]:
            if other in self.readable:
                self.lose(other, f"its memory was written again by {text}")
        self.readable.add(name)

    def once(self, name: str, names: list[str]) -> None:
        if name not in names or name in self.written:
            raise LoopFormError(f"{name} is {'written twice' if name in self.written else 'unknown'}")
        self.written.add(name)

    def lose(self, name: str, why: str) -> None:
        self.readable.discard(name)
        self.lost[name] = why

    def end(self) -> None:
        left = sorted(name for name, place in self.storage.items() if place[0] not in "xwm")
        if left:
            raise LoopFormError(f"at the end of a block {', '.join(left)} are not freed\n{self.form}")
        results = {f"w{number}" for number in range(len(self.form.results))}
        unwritten = (results | {f"a{number}" for number in range(len(self.form.totals))}) - self.written
        if unwritten:
            raise LoopFormError(f"nothing writes {', '.join(sorted(unwritten))}\n{self.form}")
