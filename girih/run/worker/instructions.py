"""One device's instructions: each step of its order with everything looked up beforehand.

What can be known before the run is: functions, positions of tensors in their arguments, slices relative to buffers,
peers. Buffers are numbered slots of a list. Running an instruction then touches nothing but slots.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence
from typing import Any

from girih.lower import BlockStep, ComputeStep, FreeStep, MoveStep, Program, StartStep, TransferStep
from girih.memory.accounts import taken_over
from girih.run.transport.transport import Transport
from girih.run.worker.blocks import BlockLoop
from girih.run.worker.compute import Compute, Nothing, Slots, compile_compute
from girih.run.worker.moves import Copiers, FinishMove, Move, StartMove
from girih.run.worker.transfers import Finish, Start, Transfer


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
    copiers: Copiers | None = None,
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
