"""Clocks that a step reads: no part of a plan without a word."""

from __future__ import annotations

import datetime as dates
import glob
import itertools
import os
import pickle
import random
import secrets
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import datetime
from os.path import isfile
from pathlib import Path
from time import perf_counter
from time import time as now
from types import BuiltinFunctionType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from girih.capture import CaptureError, Inference, TrainingStep, capture

BATCH = torch.ones(2, 4), torch.zeros(2, 4)


class Timed(nn.Module):
    """A layer that has a clock, and what its programs measure."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.clock, self.seconds, self.log = time.monotonic, 0.0, [""]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        begun, first = perf_counter(), self.clock()
        made: torch.Tensor = self.layer(x)
        self.seconds += time.perf_counter() - begun
        self.log.append(
            f"{datetime.now():%H:%M} {time.strftime('%H:%M')} {time.localtime(0)[0]} {self.clock() - first}"
        )
        return made


def step_with(number: Callable[[Any], Any]) -> TrainingStep:
    """Its loss is multiplied by a number."""

    def step(model: Any, batch: Any) -> torch.Tensor:
        return (model(batch[0]) - batch[1]).square().mean() * number(model)

    return TrainingStep(nn.Linear(4, 4) if number is not timed else Timed(), step=step)


def timed(model: Any) -> float:
    return float(model.clock())


def elapsed(_: Any) -> int:
    begun = perf_counter()
    return 2 if perf_counter() - begun > 60 else 1


def in_a_function(_: Any) -> float:
    import time as another

    return another.time()


def by_default(model: Any, clock: Any = time.time, *, other: Any = perf_counter) -> float:
    return float(clock() + other())


def never(_: Any) -> int:
    if now() > START + 3600:
        raise TimeoutError("an hour is over")
    return 1


START = now()


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (lambda _: time.time(), "time.time"),
        (lambda _: now() - START, "time.time"),
        (lambda _: torch.tensor(perf_counter()), "time.perf_counter"),
        (lambda _: time.process_time_ns() % 1000, "time.process_time_ns"),
        (timed, "time.monotonic"),
        (by_default, r"time\.time at .*time\.perf_counter"),
        (lambda _: random.Random().random(), r"random\.Random\(\)"),
        (lambda _: 2 if now() - START > 3600 else 1, "time.time"),
        (elapsed, "time.perf_counter"),
        (in_a_function, "time.time"),
        (lambda _: 2 if time.localtime().tm_hour < 12 else 1, "time.localtime"),
        (lambda _: 2 if time.strftime("%p") == time.strftime("%p", time.gmtime(0)) else 1, "time.strftime"),
        (lambda _: datetime.now().second + 1, "datetime.now"),
        (lambda _: 2 if dates.datetime.now(dates.UTC).hour < 12 else 1, "datetime.now"),
        (lambda _: dates.date.today().weekday(), "time.time"),
        (lambda _: os.urandom(1)[0], "os.urandom"),
        (lambda _: secrets.randbelow(10**9), "os.urandom"),
        (lambda _: uuid.uuid4().time, "os.urandom"),
        (lambda _: np.random.default_rng().random(), "os.urandom"),
    ],
)
def test_a_step_that_computes_with_a_clock_is_refused(number: Callable[[Any], Any], told: str) -> None:
    with pytest.raises(CaptureError, match=rf"reads .*{told} at .*{__name__}\.py:\d+.* another time;.*with the batch"):
        capture(step_with(number), BATCH)


def test_a_step_that_ends_later_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"another time \(.*TimeoutError: an hour is over\)"):
        capture(step_with(never), BATCH)


def test_a_time_among_the_results_is_refused() -> None:
    def step(model: Any, batch: Any) -> Any:
        begun = perf_counter()
        return model(batch[0]).mean(), {"seconds": perf_counter() - begun}

    with pytest.raises(CaptureError, match=r"time\.perf_counter.*another time"):
        capture(TrainingStep(nn.Linear(4, 4), step=step), BATCH)


def test_a_counter_among_the_results_is_refused() -> None:
    """It would be the first step's in each."""

    def step(model: Any, batch: Any) -> Any:
        model.calls = getattr(model, "calls", 0) + 1
        return model(batch[0]).mean(), model.calls

    with pytest.raises(CaptureError, match=r"model\.calls"):
        capture(TrainingStep(nn.Linear(4, 4), step=step), BATCH)


def test_inference_is_asked_too() -> None:
    with pytest.raises(CaptureError, match=r"time\.time at"):
        capture(Inference(nn.Linear(4, 4), call=lambda model, x: model(x) + time.time()), BATCH[0])


def test_a_step_that_only_measures_and_prints_is_captured() -> None:
    def loss(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        print("at", now())
        return mse_loss(made, wanted)

    model = Timed()
    plain = capture(TrainingStep(nn.Sequential(OrderedDict(layer=model.layer)), mse_loss), BATCH)
    assert len(capture(TrainingStep(model, loss), BATCH).graph.nodes) == len(plain.graph.nodes)
    assert (model.seconds, model.log, model.clock) == (0.0, [""], time.monotonic)


@pytest.mark.parametrize(("reads", "runs"), [(False, 1), (True, 2)])
def test_only_a_step_that_reads_a_clock_is_captured_again(reads: bool, runs: int, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:  # which capture does not put back

        def loss(made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
            log.write(f"{perf_counter()}\n" if reads else "a run\n")
            return (made - wanted).square().mean()

        capture(TrainingStep(nn.Linear(4, 4), loss), BATCH)
    assert len((tmp_path / "log").read_text().splitlines()) == runs


def read(path: Path) -> str:
    with open(path) as file:
        return file.read()


@pytest.mark.parametrize("reads", [lambda path: path.read_text(), read])
def test_a_step_that_reads_a_file_is_told_of(reads: Callable[[Path], Any], tmp_path: Path) -> None:
    file = tmp_path / "scale"
    file.write_text("2")
    with pytest.warns(UserWarning, match=rf"step reads '.*scale' at .*{__name__}\.py:\d+: a plan has what was there"):
        capture(step_with(lambda _: float(reads(file))), BATCH)


@pytest.mark.parametrize(
    "asks",
    [
        os.path.exists,
        os.path.getsize,
        os.stat,
        isfile,
        Path.exists,
        Path.is_file,
        lambda path: os.access(path, os.R_OK),
        lambda path: glob.glob(str(path)),
    ],
)
def test_a_step_that_asks_whether_a_file_exists_is_told_of(asks: Callable[[Path], Any], tmp_path: Path) -> None:
    file = tmp_path / "flag"
    file.write_text("2")
    with pytest.warns(UserWarning, match=rf"step asks for '.*flag' at .*{__name__}\.py:\d+: a plan has what was there"):
        capture(step_with(lambda _: 2 if asks(file) else 1), BATCH)
    assert isinstance(os.stat, BuiltinFunctionType)


def test_a_folder_that_is_listed_is_told_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"step asks for '.*' at .*: a plan has what was there"):
        capture(step_with(lambda _: len(os.listdir(tmp_path)) + 1), BATCH)


def test_a_step_that_writes_a_file_is_told_nothing(tmp_path: Path) -> None:
    capture(step_with(lambda _: (tmp_path / "log").write_text("a step") and 1), BATCH)
    capture(step_with(lambda _: os.makedirs(tmp_path / "a" / "b", exist_ok=True) or 1), BATCH)


def test_clocks_are_the_users_own_again() -> None:
    """Behind a capture, and meanwhile for other threads."""
    reading, end, times = threading.Event(), threading.Event(), []

    def read() -> None:
        reading.wait()
        times.extend([now(), time.time(), datetime.now().timestamp(), pickle.loads(pickle.dumps(datetime.now()))])
        end.set()

    thread = threading.Thread(target=read)
    thread.start()

    def number(_: Any) -> int:
        if now() > START + 3600:  # of the second capture
            reading.set()
            end.wait()
        return 1

    capture(step_with(number), BATCH)
    thread.join()
    assert all(abs(item - START) < 3600 for item in times[:3])
    assert abs(times[3].timestamp() - START) < 3600
    assert time.time is now
    assert datetime is dates.datetime
    assert [item.__class__.__name__ for item in (now, os.urandom)] == ["builtin_function_or_method"] * 2


def rising() -> Iterator[float]:
    number = 1.0
    while True:
        yield number
        number += 1


class Follows(nn.Module):
    """It has iterators, and a step takes their next."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.items: Any = {"generator": rising(), "list": iter([1, 2, 3]), "count": itertools.count(1)}
        self.item: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.layer(x)
        return made * next(self.item)


@pytest.mark.parametrize("kind", ["generator", "list", "count"])
def test_a_step_that_takes_the_next_of_an_iterator_is_refused(kind: str) -> None:
    model = Follows()
    model.item = own = model.items[kind]
    with pytest.raises(CaptureError, match=r"the next of 'model\.item' at .*with the batch"):
        capture(TrainingStep(model, mse_loss), BATCH)
    assert model.item is own


def test_an_iterator_that_only_counts_is_no_matter() -> None:
    number = itertools.count(1)
    capture(step_with(lambda _: 1 if next(number) else 2), BATCH)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (
            lambda _: torch.manual_seed(1) and torch.rand(()),
            r"calls torch\.manual_seed at .*same random numbers in each",
        ),
        (lambda _: torch.seed() % 1000, r"reads torch\.seed at"),
        (lambda _: torch.initial_seed() % 1000, r"reads torch\.initial_seed at"),
    ],
)
def test_seeds_are_set_and_read_outside_of_the_step(number: Callable[[Any], Any], told: str) -> None:
    with pytest.raises(CaptureError, match=told):
        capture(step_with(number), BATCH)


def test_a_seed_of_what_is_drawn_elsewhere_is_no_matter() -> None:
    capture(step_with(lambda _: 1 if torch.manual_seed(1) else 2), BATCH)


def test_a_clock_of_the_users_own_is_there_again_behind_a_capture(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def frozen() -> float:
        return 7.0

    monkeypatch.setattr(time, "time", frozen)

    class Printed(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            print(time.time())
            return super().forward(x)

    capture(Inference(Printed(4, 4)), BATCH[0])
    assert time.time is frozen
    assert capsys.readouterr().out.startswith("7.0\n")


def test_functions_with_stand_ins_take_arguments_by_name() -> None:
    class Seeded(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.manual_seed(seed=3)
            random.Random(x=3).seed(a=4)
            return super().forward(x)

    graph = capture(Inference(Seeded(4, 4)), BATCH[0]).graph
    assert graph.nodes
