"""A group of nodes, block by block: its members become the lines of one small function, compiled once.

Between two kernels that take some microseconds an interpreter of instructions would take as long as they do. So the
loop over the blocks is written out (`girih.run.block_text`; `Block.source` is the text): as Python, and for groups that
run longer as TorchScript, if all members are PyTorch's own or of `girih.ops.scripted_kernels`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, MutableSequence
from functools import lru_cache
from time import perf_counter
from typing import Any

import torch

from girih.graph.graph import ITEM_BYTES
from girih.lower import BlockStep, Program
from girih.lower.along import at_block
from girih.lower.block_memory import chunks, is_offered
from girih.lower.registers import Member, ranges
from girih.run.block_text import Text
from girih.run.compute import KERNELS, Slots
from girih.run.elsewhere import in_memory, mapped
from girih.run.errors import MemberError
from girih.run.parts import Tensor, held_box, narrow, shape_of
from girih.run.stealing import Board, Offer
from girih.run.transfers import COMBINE

SCRIPTED = 64
"""A group of so many blocks is compiled as TorchScript at once, one of fewer when it runs again: that takes a while."""
PRODUCTS = frozenset({"aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm"})
"""What several threads compute together faster, even on a block."""
REPORT_SECONDS = 0.1
"""How often a loop tells how far it is, at most."""
FIRST_BLOCKS = 8
"""So many are computed before it is known how long a block takes."""
_compiling = threading.Lock()


@lru_cache(maxsize=512)
def scripted(text: str, thread: int) -> Callable[..., list[Tensor | None]] | None:
    """The function as TorchScript, whose interpreter takes less time between kernels than Python's, and lets other
    threads run; None if it cannot be compiled. thread: that calls it; two in one function slow each other down."""
    Tensor = torch.Tensor  # noqa: F841 - TorchScript looks for the names of types here, where it is called
    with _compiling:
        try:
            return torch.jit.CompilationUnit(text).run  # type: ignore[no-any-return]
        except RuntimeError:
            return None


class Block:
    """Run a group: the instruction of a BlockStep on one device."""

    __slots__ = (
        "_block_seconds", "_board", "_chunks", "_code", "_dtypes", "_files", "_outside", "_pool", "_progress", "_rows",
        "_script", "_shapes", "_single", "_span", "_text", "_times", "_told", "_views", "device", "writes",
    )  # fmt: skip

    def __init__(
        self,
        program: Program,
        step: BlockStep,
        rank: int,
        slot_of: Mapping[str, int],
        device: Any,
        board: Board | None = None,
        progress: MutableSequence[int] | None = None,
    ) -> None:
        self.device = device
        text = Text(program, step, rank)
        self._text = text
        self._code = text.compiled()
        low, high = ranges(program, step.members[0], step.variables[0])[rank].tolist()
        self._rows = min(step.rows, high - low)
        self._span = (low, high)
        self._chunks = chunks(low, high, self._rows)
        self._board = board if is_offered(program, len(self._chunks)) else None
        self.writes = [(slot_of[name], name) for name in step.writes]
        self._dtypes = {
            name: getattr(torch, program.graph.values[program.value_of[name]].dtype) for name in step.writes
        }
        self._shapes = {name: shape_of(held_box(program, name, program.places[name], rank)) for name in step.writes}
        self._pool = [text.members[largest] for largest in text.registers.pool]
        self._views = [(number, text.members[position]) for number, position in text.registers.views]
        self._outside = [(slot_of[name], cuts) for name, cuts in text.outside]
        self._files = program.files
        self._single = PRODUCTS.isdisjoint(member.description.operator.name for member in text.members)
        self._times = 0
        self._script: str | None = None
        self._progress = progress
        self._told = 0.0
        self._block_seconds = 0.0

    @property
    def source(self) -> str:
        return self._text.source

    def run(self, slots: Slots, seconds: list[float]) -> None:
        threads = torch.get_num_threads()
        alone = threads > 1 and self._single
        if alone:
            torch.set_num_threads(1)  # on a block, threads would wait for each other longer than they compute
        try:
            self._run(slots, seconds)
        finally:
            if alone:
                torch.set_num_threads(threads)
            if self._progress is not None:
                self._progress[2] = 0

    def _run(self, slots: Slots, seconds: list[float]) -> None:
        began = perf_counter()
        self._compile()
        outside = [narrow(slots[slot], cuts) for slot, cuts in self._outside]
        for number in self._text.fixed:  # what all blocks read alike is read once
            outside[number] = in_memory(outside[number])
        made = {name: self._made(name) for name in self._text.direct}
        memory = [self._memory(member) for member in self._pool]
        done = [0] * len(self._chunks)  # of each chunk, whoever computes it
        self._told = began

        def run(number: int, memory: list[Tensor] | None = None) -> list[Tensor | None]:
            first, last, rows = self._chunks[number]
            if memory is None:
                memory = [self._memory(member) for member in self._pool]
            buffers = [self._buffer(memory[place], member, first, rows) for place, member in self._views]

            def tell(stop: int) -> None:
                done[number] = stop - first
                self._tell(done)

            return self._blocks((first, last, rows, outside, list(made.values()), buffers, tell))

        for name, total in zip(self._text.sums, self._totals(run, memory), strict=True):
            made[name] = self._made(name).copy_(total) if name in self._files else total.to(self._dtypes[name])
        for slot, name in self.writes:
            slots[slot] = made[name]
        seconds[KERNELS] += perf_counter() - began

    def _totals(self, run: Callable[..., list[Any]], memory: list[Tensor]) -> list[Any]:
        """Of the sums over all chunks, in their order; other threads may compute some of them."""
        count = len(self._chunks)
        if self._board is None:  # added up at once: two sets of sums are held, not all
            totals: list[Any] = run(0, memory)
            for number in range(1, count):
                self._combine(totals, run(number, memory))
            return totals
        here = threading.get_ident()
        offer = Offer(lambda number: run(number, memory if threading.get_ident() == here else None), count)
        with self._board.offering(offer):
            totals, *parts = offer.results()
        for part in parts:
            self._combine(totals, part)
        return totals

    def _combine(self, totals: list[Any], part: list[Any]) -> None:
        for total, other, reducer in zip(totals, part, self._text.reducers, strict=True):
            COMBINE[reducer](total, other)

    def _compile(self) -> None:
        """As TorchScript, at the first run of a long loop or the second of a shorter one."""
        self._times += 1
        low, high = self._span
        if self._times == (1 if high - low >= SCRIPTED * self._rows else 2):
            self._script = self._text.script

    def _blocks(self, arguments: tuple[Any, ...]) -> list[Tensor | None]:
        """The sums of a chunk."""
        script = None if self._script is None else scripted(self._script, threading.get_ident())
        if script is not None:
            try:
                with torch.jit.optimized_execution(False):  # which would take longer than it can save
                    return self._portions(script, *arguments)
            except RuntimeError:  # Python's function then says which member it was
                pass
        try:
            return self._portions(self._code, *arguments)
        except Exception as error:
            raise MemberError(self._text.failed(error)) from error

    def _portions(
        self,
        function: Callable[..., list[Tensor | None]],
        first: int,
        last: int,
        rows: int,
        outside: list[Any],
        made: list[Tensor],
        buffers: list[Tensor],
        tell: Callable[[int], None],
    ) -> list[Tensor | None]:
        """So many blocks at a time as take REPORT_SECONDS; their sums go on from one call to the next."""
        sums: list[Tensor | None] = [None] * len(self._text.sums)
        while first < last:
            count = int(REPORT_SECONDS / self._block_seconds) if self._block_seconds else FIRST_BLOCKS
            stop = min(last, first + rows * max(1, count))
            began = perf_counter()
            sums = function(first, stop, rows, outside, made, buffers, sums)
            self._block_seconds = (perf_counter() - began) * rows / (stop - first)
            first = stop
            tell(stop)
        return sums

    def _tell(self, done: list[int]) -> None:
        """How much of the loop is done, if it was not told just now."""
        now = perf_counter()
        if self._progress is not None and now - self._told >= REPORT_SECONDS:
            self._told = now
            low, high = self._span
            self._progress[2] = 1000 * sum(done) // (high - low)

    def _made(self, name: str) -> Tensor:
        shape, dtype = self._shapes[name], self._dtypes[name]
        if name in self._files:
            return mapped(shape, dtype)
        return torch.empty(shape, dtype=dtype, device=self.device)

    def _memory(self, member: Member) -> Tensor:
        low = self._span[0]
        size = member.result_bytes(low, low + self._rows)
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def _buffer(self, memory: Tensor, member: Member, low: int, rows: int) -> Tensor:
        shape = shape_of(at_block(member.piece.output, low, low + rows))
        dtype = member.description.output.dtype
        return memory[: math.prod(shape) * ITEM_BYTES[dtype]].view(getattr(torch, dtype)).view(shape)
