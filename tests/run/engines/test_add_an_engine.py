"""A newcomer's engine, written by docs/add-an-engine.md alone: threads whose commands are written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

import girih
import girih.array as gnp
from girih.program import Program
from girih.run.engines.crew import Crew
from girih.run.engines.engine import CALIBRATED, ENGINES, KEEPING_TILES, TRAINING, Engine, Ray, engine_of
from girih.run.engines.threads import ThreadCrew
from girih.run.worker.service import Options


class NarratedCrew(ThreadCrew):
    def __init__(self, program: Program, options: Options, said: list[str]) -> None:
        self.said = said
        super().__init__(program, options)

    def command(self, name: str, fields: Sequence[dict[str, Any]]) -> list[Any]:
        self.said.append(name)
        return super().command(name, fields)


@dataclass(frozen=True)
class Narrated(Engine):
    """Threads of this process, whose commands are written down.

    said: where.
    """

    said: list[str] = field(default_factory=list)

    name = "narrated"
    one_process = True

    def crew(self, program: Program, options: Options) -> Crew:
        return NarratedCrew(program, options, self.said)


@pytest.fixture(scope="module")
def plan() -> girih.Plan:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Tanh(), torch.nn.Linear(12, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = girih.TrainingStep(model, loss=torch.nn.functional.mse_loss, optimizer=optimizer)
    return girih.plan(step, (torch.zeros(8, 8), torch.zeros(8, 4)), machine="local:2", compare=(), objective="bytes")


def test_it_trains_as_on_one_device(plan: girih.Plan) -> None:
    engine = Narrated()
    batch = torch.randn(8, 8), torch.randn(8, 4)
    with plan.start(backend=engine) as run:
        assert all(run.verified_step(batch).ok for _ in range(3))
    assert engine.said.count("step") == 3
    assert engine.said[0] == "set_state"


def test_it_keeps_arrays() -> None:
    engine = Narrated()
    x = np.arange(600.0).reshape(20, 30)
    with girih.cluster(3, backend=engine, small=0) as cluster:
        assert np.allclose(np.asarray(gnp.asarray(x) @ gnp.asarray(x).T), x @ x.T)
        assert "narrated" in repr(cluster)
    assert "evaluate" in engine.said


def test_it_says_what_it_is() -> None:
    assert Narrated.summary() == "Threads of this process, whose commands are written down"
    assert isinstance(Narrated().connect().processors, float)
    assert Narrated().most_workers(3.5) == 3


def test_the_table() -> None:
    assert tuple(ENGINES) == ("processes", "threads", "torchrun", "ray")
    assert TRAINING == ("processes", "threads", "torchrun", "ray")
    assert CALIBRATED == ("processes", "threads")
    assert KEEPING_TILES == ("processes", "threads", "ray")
    assert Ray(cpus=2.0).most_workers(7.0) == 3
    assert engine_of(Ray()) == engine_of("ray") == Ray()
    assert all(engine.summary() and "\n" not in engine.summary() for engine in ENGINES.values())


def test_what_an_engine_cannot_do_is_refused(plan: girih.Plan) -> None:
    with pytest.raises(girih.PlanError, match="no backend 'carriers': expected an Engine, or one of processes"):
        plan.start(backend="carriers")
    with pytest.raises(ValueError, match=r"no backend 'carriers'.* one of processes, threads, ray"):
        girih.cluster(2, backend="carriers")
    with pytest.raises(girih.PlanError, match="Ray address 'nowhere'"):
        plan.start(backend=Ray("nowhere"))
    with pytest.raises(ValueError, match="no backend 'torchrun'"):
        girih.cluster(2, backend="torchrun")
    with pytest.raises(ValueError, match="backend torchrun keeps no arrays"):
        girih.cluster(2, backend=ENGINES["torchrun"])


def test_every_crew_is_one() -> None:
    from girih.run.engines.processes import ProcessCrew
    from girih.run.engines.ray_crew import RayCrew
    from girih.run.engines.torchrun import RankCrew

    wanted = {"command", "status", "close", "rank", "carries"}
    for kind in (ThreadCrew, ProcessCrew, RankCrew):
        assert wanted - {"rank", "carries"} <= set(dir(kind))
        assert not hasattr(kind, "mend")
    assert {*wanted, "mend"} <= set(dir(RayCrew))
