"""Graph + Strategy → Program: what each device does, in which order, and with whom it exchanges what."""

from girih.lower.check import ProgramError, check
from girih.lower.exchange import Exchange, Message, exchange
from girih.lower.fusion.block_units import CACHE_BYTES, Blocks
from girih.lower.fusion.blocks import blocked
from girih.lower.lower import lower
from girih.lower.overlap import Overlap, overlapped
from girih.lower.program import Program
from girih.lower.schedule import SCHEDULES, scheduled
from girih.lower.steps import (
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
