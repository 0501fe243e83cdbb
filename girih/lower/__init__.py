"""Graph + Strategy → Program: what each device does, in which order, and with whom it exchanges what."""

from girih.lower.check import ProgramError, check
from girih.lower.exchange import Exchange, Message, exchange
from girih.lower.fusion.block_units import CACHE_BYTES, Blocks
from girih.lower.fusion.blocks import blocked
from girih.lower.lower import lower
from girih.lower.overlap import Overlap, overlapped
from girih.lower.program import BlockStep, ComputeStep, FreeStep, Program, ReadPart, StartStep, Step, TransferStep

__all__ = [
    "CACHE_BYTES",
    "BlockStep",
    "Blocks",
    "ComputeStep",
    "Exchange",
    "FreeStep",
    "Message",
    "Overlap",
    "Program",
    "ProgramError",
    "ReadPart",
    "StartStep",
    "Step",
    "TransferStep",
    "blocked",
    "check",
    "exchange",
    "lower",
    "overlapped",
]
