"""Graph + Strategy → Program: what each device does, in which order, and with whom it exchanges what."""

from girih.program.check import ProgramError, check
from girih.program.exchange import Exchange, Message, exchange
from girih.program.fusion.blocks import CACHE_BYTES, Blocks, blocked
from girih.program.lower import lower
from girih.program.overlap import Overlap, overlapped
from girih.program.program import Program
from girih.program.schedule import SCHEDULES, scheduled
from girih.program.steps import (
    BlockStep,
    ComputeStep,
    Devices,
    FreeStep,
    MoveStep,
    Order,
    ReadPart,
    StartStep,
    Step,
    Stream,
    TransferStep,
)

__all__ = [
    "CACHE_BYTES",
    "SCHEDULES",
    "BlockStep",
    "Blocks",
    "ComputeStep",
    "Devices",
    "Exchange",
    "FreeStep",
    "Message",
    "MoveStep",
    "Order",
    "Overlap",
    "Program",
    "ProgramError",
    "ReadPart",
    "StartStep",
    "Step",
    "Stream",
    "TransferStep",
    "blocked",
    "check",
    "exchange",
    "lower",
    "overlapped",
    "scheduled",
]
