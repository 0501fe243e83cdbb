"""The loop over a group's blocks: its members become the lines of one small function, compiled once.

Between two kernels that take some microseconds an interpreter of instructions would take as long as they do. So the
loop over the blocks is written out (`girih.run.worker.block_text`): as Python, and for groups that run longer as
TorchScript, if all members are PyTorch's own or of `girih.kernels.scripted`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from time import perf_counter
from typing import Any

import torch

from girih.graph.graph import ITEM_BYTES
from girih.lower import BlockStep, Program
from girih.lower.fusion.block_memory import chunks
from girih.lower.fusion.registers import Member, ranges
from girih.lower.fusion.slicing import at_block
from girih.ops.derive.kinds import is_product
from girih.run.errors import MemberError
from girih.run.worker.block_text import Text
from girih.run.worker.parts import Tensor, held_box, shape_of
from girih.run.worker.transfers import COMBINE

SCRIPTED = 64
"""A group of so many blocks is compiled as TorchScript at once, one of fewer when it runs again: that takes a while."""
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


class Loop:
    """A group's function on one device, its chunks, and what memory they use. A chunk's result depends on nothing but
    what it reads, so that any worker that has it may compute it.

    Outside tensors are what the group reads, as `outside` names them; made ones are the results that the members write
    where they belong. Both are in the device's own coordinates.
    """

    def __init__(self, program: Program, step: BlockStep, rank: int, device: Any) -> None:
        self.device = device
        self.text = text = Text(program, step, rank)
        self._code = text.compiled()
        low, high = ranges(program, step.members[0], step.variables[0])[rank].tolist()
        self._rows = min(step.rows, high - low)
        self.span = (low, high)
        self.chunks = chunks(low, high, self._rows)
        self.shapes = {name: shape_of(held_box(program, name, program.places[name], rank)) for name in step.writes}
        self.dtypes = {name: getattr(torch, program.graph.values[program.value_of[name]].dtype) for name in step.writes}
        self._pool = [text.members[largest] for largest in text.registers.pool]
        self._views = [(number, text.members[position]) for number, position in text.registers.views]
        # Several threads compute products together faster, even on a block.
        self._single = not any(is_product(member.description) for member in text.members)
        self._times = 0
        self._script: str | None = None
        self._block_seconds = 0.0

    @contextmanager
    def own_threads(self) -> Iterator[None]:
        """With as many threads of PyTorch's as pay on a block: else they wait for each other longer than they
        compute."""
        threads = torch.get_num_threads()
        alone = threads > 1 and self._single
        if alone:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if alone:
                torch.set_num_threads(threads)

    def compile(self) -> None:
        """As TorchScript, at the first run of a long loop or the second of a shorter one."""
        self._times += 1
        low, high = self.span
        if self._times == (1 if high - low >= SCRIPTED * self._rows else 2):
            self._script = self.text.script

    def memory(self) -> list[Tensor]:
        """What the buffers of one chunk at a time lie in."""
        low = self.span[0]
        sizes = [member.result_bytes(low, low + self._rows) for member in self._pool]
        return [torch.empty(size, dtype=torch.uint8, device=self.device) for size in sizes]

    def chunk(
        self,
        number: int,
        outside: list[Any],
        made: list[Tensor],
        memory: list[Tensor],
        tell: Callable[[int], None] | None = None,
    ) -> list[Tensor | None]:
        """Compute a chunk: its sums; what it makes is written into `made`. tell: how far it is, now and then.

        Raises:
            MemberError: a member failed.
        """
        first, last, rows = self.chunks[number]
        buffers = [_buffer(memory[place], member, first, rows) for place, member in self._views]
        arguments = (first, last, rows, outside, made, buffers, tell or _nobody)
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
            raise MemberError(self.text.failed(error)) from error

    def combine(self, totals: list[Any], part: list[Any]) -> None:
        for total, other, reducer in zip(totals, part, self.text.reducers, strict=True):
            COMBINE[reducer](total, other)

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
        sums: list[Tensor | None] = [None] * len(self.text.sums)
        while first < last:
            count = int(REPORT_SECONDS / self._block_seconds) if self._block_seconds else FIRST_BLOCKS
            stop = min(last, first + rows * max(1, count))
            began = perf_counter()
            sums = function(first, stop, rows, outside, made, buffers, sums)
            self._block_seconds = (perf_counter() - began) * rows / (stop - first)
            first = stop
            tell(stop)
        return sums


def _nobody(stop: int) -> None:
    """Is told how far a chunk is."""


def _buffer(memory: Tensor, member: Member, low: int, rows: int) -> Tensor:
    shape = shape_of(at_block(member.piece.output, low, low + rows))
    dtype = member.description.output.dtype
    return memory[: math.prod(shape) * ITEM_BYTES[dtype]].view(getattr(torch, dtype)).view(shape)
