"""Ctrl-C at any moment: KeyboardInterrupt comes out, workers end, what is done next is right, and nothing aborts."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import forked_programs
import interrupts_program
import pytest

from girih.loop.run import threads
from girih.loop.schedules.schedule import Schedule, Task
from girih.run.engines.stopping import StoppedError, WorkerThread, held_back, stop

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("what", "engine", "times"),
    [
        ("arrays", "threads", 4),
        ("arrays", "processes", 1),
        ("train", "threads", 3),
        ("train", "processes", 1),
        ("loops", "threads", 3),
        ("loops", "processes", 1),
    ],
)
def test_random_moments(what: str, engine: str, times: int) -> None:
    command = [sys.executable, interrupts_program.__file__, what, engine, str(times), "7"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = forked_programs.run(command, environment, timeout=200)
    assert f"{times} interrupts" in done.stdout, done.stderr
    assert done.returncode == -signal.SIGINT, done.stderr
    assert done.stderr.rstrip().endswith("KeyboardInterrupt"), done.stderr
    assert "terminate called" not in done.stderr


def test_a_thread_is_stopped_wherever_it_is() -> None:
    """Also where it catches everything once, and where it waits for ever until it is woken."""
    came: list[str] = []
    more, caught = threading.Event(), threading.Event()

    def stubborn() -> None:
        try:
            while True:
                time.sleep(0.001)
        except BaseException as error:
            came.append(type(error).__name__)
            caught.set()
        while True:
            time.sleep(0.001)

    begun = [WorkerThread(stubborn), WorkerThread(more.wait, wake=more.set)]
    for thread in begun:
        thread.start()
    assert stop(begun, 60.0)
    assert came == [StoppedError.__name__]
    begun[0].stop()  # it has ended: nothing happens
    assert stop([WorkerThread(more.wait)], 0.0)  # it was never started


def test_a_thread_that_is_stopped_before_it_begins_does_nothing() -> None:
    """As where Ctrl-C comes while it is being started."""
    came: list[str] = []
    thread = WorkerThread(lambda: came.append("began"))
    assert stop([thread], 5.0)
    thread.start()
    thread.join(5.0)
    assert not thread.is_alive()
    assert not came


def test_who_does_not_come_back_is_left_behind() -> None:
    go_on = threading.Event()
    thread = WorkerThread(lambda: go_on.wait())
    thread.start()
    assert not stop([thread], 0.1)
    go_on.set()
    thread.join(60.0)
    assert not thread.is_alive()


def interrupted_in_the_middle(done: list[str]) -> None:
    with held_back():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        done.append("in order")


def test_what_puts_things_in_order_is_not_interrupted() -> None:
    done: list[str] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted_in_the_middle(done)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["in order"]


def test_no_thread_of_a_loop_goes_on_alone() -> None:
    """The main thread is interrupted while it waits for the others, whose blocks are long."""
    seen: list[tuple[int, int]] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def block(worker: int, space: int, part: int) -> None:
        seen.append((space, part))
        if worker == 1:
            if len(seen) == 3:
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)

    try:
        with pytest.raises(KeyboardInterrupt):
            threads.run(Schedule(2, 1, ((Task(0, 0),), tuple(Task(1, 0) for _ in range(400)))), block)
    finally:
        signal.signal(signal.SIGINT, before)
    count = len(seen)
    assert count < 100
    time.sleep(0.2)
    assert len(seen) == count
