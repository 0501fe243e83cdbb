"""One device's instructions: each step of its order with everything looked up beforehand.

What can be known before the run is: functions, positions of tensors in their arguments, slices relative to buffers,
peers. Buffers are numbered slots of a list. Running an instruction then touches nothing but slots.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, MutableSequence
from time import perf_counter
from typing import Any

import torch

from girih.program import BlockStep, ComputeStep, FreeStep, MoveStep, Program, StartStep, TransferStep
from girih.program.fusion.block_memory import is_offered
from girih.program.life.accounts import taken_over
from girih.run.loops import loop as loops
from girih.run.loops.form import Result, Total
from girih.run.loops.loop import Loop
from girih.run.tiles.spill import in_memory, mapped
from girih.run.transport.stealing import Board, Offer
from girih.run.transport.transport import Transport
from girih.run.worker.compute import KERNELS, Compute, Nothing, Slots, compile_compute
from girih.run.worker.moves import AnyCopiers, FinishMove, Move, StartMove
from girih.run.worker.parts import Tensor, narrow
from girih.run.worker.transfers import Finish, Start, Transfer


class BlockLoop:
    """Run a group of nodes block by block (`girih.run.loops.loop`): the instruction of a BlockStep on one device."""

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
        self._outside = [(slot_of[item.buffer], item.cuts, item.once) for item in self.loop.form.outside]
        self._files = program.files
        self._progress = progress
        self._told = 0.0

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
        cut = [(narrow(slots[slot], cuts), once) for slot, cuts, once in self._outside]
        outside = [in_memory(tensor) if once else tensor for tensor, once in cut]
        results = {item.buffer: self._empty(item) for item in loop.form.results}
        self._told = began
        totals = self._totals(outside, list(results.values()))
        for item, total in zip(loop.form.totals, totals, strict=True):
            file = item.buffer in self._files
            results[item.buffer] = self._empty(item).copy_(total) if file else total.to(getattr(torch, item.dtype))
        for slot, name in self.writes:
            slots[slot] = results[name]
        seconds[KERNELS] += perf_counter() - began

    def _totals(self, outside: list[Any], results: list[Tensor]) -> list[Any]:
        """The sums over all chunks, combined in their order; other workers may compute some of the chunks."""
        with self.loop.reading(outside) as own:
            return self._combined(outside, own, results)

    def _combined(self, outside: list[Any], own: list[Any], results: list[Tensor]) -> list[Any]:
        """own: what this thread reads of what is outside."""
        loop, count, memory = self.loop, len(self.loop.chunks), self.loop.memory()
        done = [0] * count  # of each chunk, whoever computes it
        here = threading.get_ident()

        def run(number: int) -> list[Tensor | None]:
            def tell(stop: int) -> None:
                done[number] = stop - loop.chunks[number][0]
                self._tell(done)

            if threading.get_ident() == here:
                return loop.chunk(number, own, results, memory, tell)
            with loop.reading(outside) as theirs:
                return loop.chunk(number, theirs, results, loop.memory(), tell)

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
            low, high = self.loop.form.span
            self._progress[2] = 1000 * sum(done) // (high - low)

    def _empty(self, item: Result | Total) -> Tensor:
        dtype = getattr(torch, item.dtype)
        if item.buffer in self._files:
            return mapped(item.shape, dtype)
        return torch.empty(item.shape, dtype=dtype, device=self.loop.device)


class FreeBuffers:
    __slots__ = ("slots",)

    def __init__(self, step: FreeStep, slots: Mapping[str, int]) -> None:
        self.slots = [slots[name] for name in step.buffers]

    def run(self, slots: Slots, seconds: list[float]) -> None:
        for slot in self.slots:
            slots[slot] = None


Instruction = Compute | BlockLoop | Nothing | Transfer | Start | Finish | StartMove | FinishMove | Move | FreeBuffers


def compile_instructions(
    program: Program,
    rank: int,
    slots: Mapping[str, int],
    transport: Transport,
    device: Any,
    progress: MutableSequence[int],
    copiers: AnyCopiers | None = None,
) -> list[Instruction]:
    """The instructions of one device, one for each step of its order. copiers: where the program moves anything."""
    result: list[Instruction] = []
    moving: set[str] = set()  # targets of moves that have begun
    started: dict[str, Transfer] = {}  # by target
    taken = taken_over(program, rank)
    for position in program.order_of(rank):
        step = program.steps[position]
        if isinstance(step, ComputeStep):
            result.append(compile_compute(program, step, rank, slots, device, taken.get(step.writes[0])))
        elif isinstance(step, BlockStep):
            result.append(BlockLoop(program, step, rank, slots, device, transport.board, progress))
        elif isinstance(step, StartStep) and isinstance(step.transfer, MoveStep):
            assert copiers is not None
            moving.add(step.transfer.target)
            result.append(StartMove(step.transfer, step.after, slots, copiers))
        elif isinstance(step, MoveStep):
            assert copiers is not None
            begun = step.target in moving
            result.append(FinishMove(step, slots) if begun else Move(step, slots, copiers))
        elif isinstance(step, StartStep):
            assert isinstance(step.transfer, TransferStep)
            transfer = started[step.transfer.target] = Transfer(program, step.transfer, rank, slots, transport, device)
            result.append(Start(transfer))
        elif isinstance(step, TransferStep) and step.target in started:
            result.append(Finish(started.pop(step.target)))
        elif isinstance(step, TransferStep):
            result.append(Transfer(program, step, rank, slots, transport, device))
        else:
            result.append(FreeBuffers(step, slots))
    return result
