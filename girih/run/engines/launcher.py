"""What torchrun, or another launcher of torch.distributed, has started: this process as one of several ranks."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from girih.machine.units import counted

VARIABLES = frozenset(("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
"""What a launcher sets in the environment of every process."""


@dataclass(frozen=True)
class Rank:
    """This process among those that a launcher has started. size: how many they are, on all hosts together."""

    rank: int
    size: int


def launched_rank() -> Rank | None:
    """This process's rank, from the group of torch.distributed that it has joined, or from its environment; None where
    nobody has launched it.

    Raises:
        ValueError: the environment's rank and world size are no numbers.
    """
    dist = getattr(sys.modules.get("torch"), "distributed", None)
    # A group of one is what programs make that only want torch.distributed's files.
    if dist is not None and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return Rank(dist.get_rank(), dist.get_world_size())
    if not os.environ.keys() >= VARIABLES:
        return None
    try:
        return Rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    except ValueError as error:
        raise ValueError(f"RANK and WORLD_SIZE in the environment must be whole numbers: {error}") from None


def local_rank(rank: Rank) -> Rank:
    """The rank among those of this host, by LOCAL_RANK and LOCAL_WORLD_SIZE; among all, where the launcher, which may
    be another than torchrun, does not set both."""
    own, size = os.environ.get("LOCAL_RANK", ""), os.environ.get("LOCAL_WORLD_SIZE", "")
    return Rank(int(own), int(size)) if own.isdigit() and size.isdigit() else rank


def fits(rank: Rank, devices: int) -> Rank:
    """The rank, if a program for so many devices is for all ranks.

    Raises:
        ValueError: it is for more or for fewer.
    """
    if rank.size != devices:
        raise ValueError(
            f"{counted(rank.size, 'rank')} {'was' if rank.size == 1 else 'were'} started, the program is for "
            f"{counted(devices, 'device')}: start as many ranks (--nproc-per-node times --nnodes), or plan for "
            f"{rank.size}"
        )
    return rank


def refusal_alone(what: str) -> str:
    """Why something that starts workers of its own does not go on in one of several ranks, or ""."""
    rank = launched_rank()
    if rank is None or rank.size == 1:
        return ""
    return (
        f"a launcher has started {rank.size} ranks, and {what} would start workers of its own in each of them: every "
        "rank would do all of the work. Start it in one process"
    )
