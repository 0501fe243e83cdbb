"""A group's loop on one device: compiled for a target, run chunk by chunk, with its buffers."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import Any

import torch

from girih.graph.graph import ITEM_BYTES
from girih.program import BlockStep, Program
from girih.program.fusion.block_memory import chunks
from girih.program.fusion.slicing import at_block
from girih.run.errors import MemberError
from girih.run.loops import python, torchscript
from girih.run.loops.build import build
from girih.run.loops.form import Reused
from girih.run.loops.reading import reading
from girih.run.worker.parts import COMBINE, Tensor

SCRIPTED = 64
"""A group of so many blocks is compiled as TorchScript at once, one of fewer when it runs again: that takes a while."""
REPORT_SECONDS = 0.1
"""How often a loop tells how far it is, at most."""
FIRST_BLOCKS = 8
"""So many are computed before it is known how long a block takes."""


class Loop:
    """A group's function on one device, its chunks, and what memory they use. A chunk's result depends on nothing but
    what it reads, so that any worker that has it may compute it.

    Outside tensors and results are those that the form names, in its order, in the device's own coordinates.
    """

    def __init__(self, program: Program, step: BlockStep, rank: int, device: Any) -> None:
        self.device = device
        self.form = form = build(program, step, rank)
        self._code = python.compiled(form)
        self.chunks = chunks(*form.span, form.rows)
        self._times = 0
        self._script: str | None = None
        self._block_seconds = 0.0

    @contextmanager
    def own_threads(self) -> Iterator[None]:
        """With as many threads of PyTorch's as pay on a block: else they wait for each other longer than they
        compute."""
        threads = torch.get_num_threads()
        alone = threads > 1 and not self.form.products  # which several threads compute together faster, even on a block
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
        low, high = self.form.span
        if self._times == (1 if high - low >= SCRIPTED * self.form.rows else 2):
            self._script = torchscript.script_text(self.form)

    def memory(self) -> list[Tensor]:
        """What the buffers of one chunk at a time lie in."""
        return [torch.empty(size, dtype=torch.uint8, device=self.device) for size in self.form.memory]

    def reading(self, outside: list[Any]) -> AbstractContextManager[list[Any]]:
        """What one thread reads for chunks that it computes in their order."""
        return reading(self.form, outside)

    def chunk(
        self,
        number: int,
        outside: list[Any],
        results: list[Tensor],
        memory: list[Tensor],
        tell: Callable[[int], None] | None = None,
    ) -> list[Tensor | None]:
        """Compute a chunk: its sums; what it makes is written into `results`. tell: how far it is, now and then.

        Raises:
            MemberError: a member failed.
        """
        first, last, rows = self.chunks[number]
        buffers = [_buffer(memory[item.memory], item, first, rows) for item in self.form.buffers]
        arguments = (first, last, rows, outside, results, buffers, tell or _nobody)
        script = None if self._script is None else torchscript.compiled(self._script, threading.get_ident())
        if script is not None:
            try:
                with torch.jit.optimized_execution(False):  # which would take longer than it can save
                    return self._portions(script, *arguments)
            except RuntimeError:  # Python's function then says which member it was
                pass
        try:
            return self._portions(self._code, *arguments)
        except Exception as error:
            raise MemberError(python.node_of(self.form, error)) from error

    def combine(self, totals: list[Any], part: list[Any]) -> None:
        for total, other, item in zip(totals, part, self.form.totals, strict=True):
            COMBINE[item.reducer](total, other)

    def _portions(
        self,
        function: python.Run,
        first: int,
        last: int,
        rows: int,
        outside: list[Any],
        results: list[Tensor],
        buffers: list[Tensor],
        tell: Callable[[int], None],
    ) -> list[Tensor | None]:
        """So many blocks at a time as take REPORT_SECONDS; their totals go on from one call to the next."""
        totals: list[Tensor | None] = [None] * len(self.form.totals)
        while first < last:
            count = int(REPORT_SECONDS / self._block_seconds) if self._block_seconds else FIRST_BLOCKS
            stop = min(last, first + rows * max(1, count))
            began = perf_counter()
            totals = function(first, stop, rows, outside, results, buffers, totals)
            self._block_seconds = (perf_counter() - began) * rows / (stop - first)
            first = stop
            tell(stop)
        return totals


def _nobody(stop: int) -> None:
    """Is told how far a chunk is."""


def _buffer(memory: Tensor, item: Reused, low: int, rows: int) -> Tensor:
    shape = at_block(item.shape, low, low + rows)
    return memory[: math.prod(shape) * ITEM_BYTES[item.dtype]].view(getattr(torch, item.dtype)).view(shape)
