"""`girih compare FILE.py:FUNCTION --as-parallelized`: what a division costs that is written with PyTorch's own engines.

FUNCTION is called as on rank 0 of as many ranks as the machine has devices. Their process group is PyTorch's fake one,
whose collectives do nothing, so that `fully_shard` and `parallelize_module` lay the model out without any other rank.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from girih.api import Plan, check_choices, plan_graph
from girih.cli.programs import is_file, program
from girih.cli.terminal import BadInputError, TerminalProgress
from girih.machine.units import format_bytes, format_seconds
from girih.plans.inputs import program_of

LAUNCHED = {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
"""What torchrun says to a rank, beside how many there are."""


def compared(options: argparse.Namespace, store: Any, progress: TerminalProgress) -> tuple[Plan, Plan]:
    """The plan that holds the program's own division, and the best that a search finds.

    Raises:
        BadInputError: something else is given than one program of the user's own.
    """
    if len(options.plans) != 1 or not is_file(options.plans[0]):
        raise BadInputError("--as-parallelized takes one program, as file.py:function, in the place of plans")
    where, _, _, _ = check_choices(options.machine, objective=options.objective, store=store)
    if where.devices == 1:
        raise BadInputError(f"a model is laid out over several ranks, and {where.name} has one device")
    progress("model", 0.0)
    with pretended_ranks(where.devices):
        from girih.published.divisions.parallelized import as_parallelized

        named = program(options.plans[0])
        given = as_parallelized(named.step, where, options.seconds)
    progress("capture", 0.0)
    own = program_of(given.step, named.batch, named.name)
    ways: dict[str, Any] = {"machine": given.machine, "objective": options.objective, "store": store, "compare": (),
                            "observe": progress}  # fmt: skip
    held = own.in_plan(plan_graph(own.graph, search=given.search, memory="unlimited", **ways))
    better = own.in_plan(plan_graph(own.graph, **ways))
    if options.objective != "bytes":  # there a search may choose less: all work is divided, and everything held once
        told = better.certificate
        bound = min(told.bound, held.certificate.cost)
        held = held.but(certificate=replace(held.certificate, bound=bound, how=told.how))
    return held, better


def said(held: Plan, better: Plan) -> str:
    """One sentence: how much better the other plan is."""
    one, two = held.costs, better.costs
    if held.objective == "bytes":
        first, second = format_bytes(one.bytes), format_bytes(two.bytes)
        verb, ratio = "moves", one.bytes / two.bytes if two.bytes else float("inf")
    else:
        first, second = format_seconds(one.seconds), format_seconds(two.seconds)
        verb, ratio = "takes", one.seconds / two.seconds
    if ratio <= 1.0:
        return f"as parallelized, a step {verb} {first}: girih found nothing better"
    return f"as parallelized, a step {verb} {first}, and by girih's plan {second}, {ratio:.2f} times less"


@contextmanager
def pretended_ranks(count: int) -> Iterator[None]:
    """Inside, this process is rank 0 of so many, and `init_process_group` has been called already: what a program asks
    for is passed over.

    Raises:
        BadInputError: this process has a process group of its own.
    """
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise BadInputError("girih compare --as-parallelized pretends all ranks: start it once, not under torchrun")
    before, init = dict(os.environ), dist.init_process_group
    os.environ.update(LAUNCHED, WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count))
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=count)
    dist.init_process_group = lambda *args, **options: None
    try:
        yield
    finally:
        dist.init_process_group = init
        if dist.is_initialized():  # the program may have destroyed it
            dist.destroy_process_group()
        os.environ.clear()
        os.environ.update(before)
