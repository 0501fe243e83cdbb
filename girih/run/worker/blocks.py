"""A group of nodes, block by block: the instruction. What it runs is `girih.run.worker.loops`."""

from __future__ import annotations

import threading
from collections.abc import Mapping, MutableSequence
from time import perf_counter
from typing import Any

import torch

from girih.lower import BlockStep, Program
from girih.lower.fusion.block_memory import is_offered
from girih.run.tiles.spill import in_memory, mapped
from girih.run.transport.stealing import Board, Offer
from girih.run.worker import loops
from girih.run.worker.compute import KERNELS, Slots
from girih.run.worker.loops import Loop
from girih.run.worker.parts import Tensor, narrow


class BlockLoop:
    """Run a group: the instruction of a BlockStep on one device."""

    __slots__ = ("_board", "_files", "_outside", "_progress", "_told", "loop", "writes")

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
        self.loop = Loop(program, step, rank, device)
        self._board = board if is_offered(program, len(self.loop.chunks)) else None
        self.writes = [(slot_of[name], name) for name in step.writes]
        self._outside = [(slot_of[name], cuts) for name, cuts in self.loop.text.outside]
        self._files = program.files
        self._progress = progress
        self._told = 0.0

    @property
    def source(self) -> str:
        return self.loop.text.source

    def run(self, slots: Slots, seconds: list[float]) -> None:
        try:
            with self.loop.own_threads():
                self._run(slots, seconds)
        finally:
            if self._progress is not None:
                self._progress[2] = 0

    def _run(self, slots: Slots, seconds: list[float]) -> None:
        began = perf_counter()
        loop = self.loop
        loop.compile()
        outside = [narrow(slots[slot], cuts) for slot, cuts in self._outside]
        for number in loop.text.fixed:  # what all blocks read alike is read once
            outside[number] = in_memory(outside[number])
        made = {name: self._made(name) for name in loop.text.direct}
        self._told = began
        totals = self._totals(outside, list(made.values()))
        for name, total in zip(loop.text.sums, totals, strict=True):
            made[name] = self._made(name).copy_(total) if name in self._files else total.to(loop.dtypes[name])
        for slot, name in self.writes:
            slots[slot] = made[name]
        seconds[KERNELS] += perf_counter() - began

    def _totals(self, outside: list[Any], made: list[Tensor]) -> list[Any]:
        """Of the sums over all chunks, in their order; other workers may compute some of them."""
        loop, count = self.loop, len(self.loop.chunks)
        memory = loop.memory()
        done = [0] * count  # of each chunk, whoever computes it
        here = threading.get_ident()

        def run(number: int) -> list[Tensor | None]:
            def tell(stop: int) -> None:
                done[number] = stop - loop.chunks[number][0]
                self._tell(done)

            return loop.chunk(number, outside, made, memory if threading.get_ident() == here else loop.memory(), tell)

        if self._board is None:  # added up at once: two sets of sums are held, not all
            totals: list[Any] = run(0)
            for number in range(1, count):
                loop.combine(totals, run(number))
            return totals
        offer = Offer(run, count)
        with self._board.offering(offer):
            totals, *parts = offer.results()
        for part in parts:
            loop.combine(totals, part)
        return totals

    def _tell(self, done: list[int]) -> None:
        """How much of the loop is done, if it was not told just now."""
        now = perf_counter()
        if self._progress is not None and now - self._told >= loops.REPORT_SECONDS:
            self._told = now
            low, high = self.loop.span
            self._progress[2] = 1000 * sum(done) // (high - low)

    def _made(self, name: str) -> Tensor:
        shape, dtype = self.loop.shapes[name], self.loop.dtypes[name]
        if name in self._files:
            return mapped(shape, dtype)
        return torch.empty(shape, dtype=dtype, device=self.loop.device)
