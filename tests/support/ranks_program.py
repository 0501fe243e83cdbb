"""What `test_run_ranks.py` runs under torchrun: plans and `girih.fit`, whose workers are the ranks.

Command line: a plan of `model`, and a folder in which every rank leaves what it has seen.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import girih
from girih.cli.main import main as command
from girih.plans.inputs import source_of
from girih.run.engines.engine import Processes

STEPS, COMMAND_STEPS = 3, 30


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Tanh(), torch.nn.Linear(12, 4))


def parts(module: torch.nn.Module) -> tuple[Any, torch.optim.Optimizer]:
    return torch.nn.functional.mse_loss, torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(number)
    return torch.randn(8, 8, generator=draw), torch.randn(8, 4, generator=draw)


def plan(devices: int) -> girih.Plan:
    own = model()
    loss, optimizer = parts(own)
    step = girih.TrainingStep(own, loss=loss, optimizer=optimizer)
    return girih.plan(step, batch(0), machine=f"local:{devices}", compare=(), objective="bytes")


def on_one_device() -> tuple[list[float], dict[str, torch.Tensor]]:
    """By PyTorch alone."""
    own = model()
    loss, optimizer = parts(own)
    losses = []
    for number in range(STEPS):
        optimizer.zero_grad()
        now = loss(own(batch(number)[0]), batch(number)[1])
        now.backward()
        optimizer.step()
        losses.append(float(now.detach()))
    return losses, own.state_dict()


def trained(planned: girih.Plan, **options: Any) -> dict[str, Any]:
    """A run, in which the ranks are the workers, and after which they are free."""
    with planned.start(model=model(), **options) as run:
        inside = dist.is_initialized() and dist.get_world_size() == planned.machine.devices
        losses = [run.step(*batch(number)) for number in range(STEPS)]
        state = run.state_dict()
        received = [item.bytes_received for item in run.statistics()]
        sent = sum(run.statistics()[run.run.crew.rank].sent)
    return {"group": inside, "left": dist.is_initialized(), "losses": losses, "state": state, "received": received,
            "sent": sent}  # fmt: skip


def fitted(devices: int) -> dict[str, Any]:
    own = model()
    loss, optimizer = parts(own)
    with girih.fit(own, loss, optimizer, batch(0), machine=f"local:{devices}") as train:
        losses = [train(*batch(number)) for number in range(STEPS)]
        inside = dist.is_initialized()
    return {"group": inside, "left": dist.is_initialized(), "losses": losses, "state": own.state_dict()}


def drivers_that_differ(planned: girih.Plan, rank: int) -> None:
    """What each rank would take its part of another whole of: that is an error on every rank."""
    with planned.start(model=model()) as run:
        with pytest.raises(girih.PlanError, match=r"rank 1 has another batch than rank 0.*the same whole batch"):
            run.step(*batch(rank))
        with pytest.raises(girih.PlanError, match=r"rank 1 has another batch than rank 0.*learning rate"):
            run.step(*batch(0), lr=0.1 + rank)
        assert run.steps == 0
        assert run.step(*batch(0)) == pytest.approx(on_one_device()[0][0], rel=1e-5)  # nothing had happened
    other = model()
    with torch.no_grad():
        next(other.parameters()).add_(rank)
    with pytest.raises(girih.PlanError, match=r"rank 1 has another state than rank 0.*torch.manual_seed"):
        planned.start(model=other)
    with pytest.raises(girih.PlanError, match=r"rank 1 has another state than rank 0"):
        planned.start(seed=rank)
    mine = planned if rank == 0 else girih.plan(planned_step(), batch(0), machine="local:2", search="data", compare=())
    with pytest.raises(girih.PlanError, match=r"rank 1 has another program than rank 0.*save the plan"):
        mine.start(model=model())
    assert not dist.is_initialized()


def planned_step() -> girih.TrainingStep:
    own = model()
    loss, optimizer = parts(own)
    return girih.TrainingStep(own, loss=loss, optimizer=optimizer)


def written_behind_a_run(rank: int) -> None:
    """One rank writes into its model while the run has weights of its own: it is told, and no rank waits for it."""
    with warnings.catch_warnings(record=True) as told, plan(2).start() as run:
        warnings.simplefilter("always")
        losses = [run.step(*batch(0))]
        if rank == 0:
            source = source_of(run.plan)
            assert source is not None
            with torch.no_grad():
                next(source.step.model.parameters()).zero_()
        losses += [run.step(*batch(number)) for number in range(1, STEPS)]
    assert losses == pytest.approx(on_one_device()[0], rel=1e-5)
    assert sum("goes on with weights of its own" in str(item.message) for item in told) == (rank == 0)


def received_over(interface: str) -> int:
    """Bytes that this host has received over a network interface."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.strip().startswith(f"{interface}:"))


def main(path: str, folder: str, interface: str) -> None:
    """interface: of each host, where ranks are on several; then one plan and one command are run, else all."""
    planned = girih.load(path)
    rank = int(os.environ["RANK"])
    seen: dict[str, Any] = {"plan": trained(planned)}
    if interface:
        before = received_over(interface)
        assert command(["run", path, "--steps", str(COMMAND_STEPS), "--backend", "torchrun", "--json"]) == 0
        seen["over"] = received_over(interface) - before
    else:
        seen |= {"again": trained(planned, backend=Processes()), "named": trained(planned, backend="torchrun")}
        seen["fit"] = fitted(planned.machine.devices)
        drivers_that_differ(planned, rank)
        written_behind_a_run(rank)
        dist.init_process_group("gloo")  # by the user, who keeps it
        seen["theirs"] = trained(planned)
        dist.destroy_process_group()
    torch.save(seen, Path(folder) / f"{rank}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
