"""Jobs (`girih.run.engines.jobs`) as actors of Ray, which starts, places and watches them.

An actor that dies is not started again by Ray: whoever started the job is told that it was lost.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import cloudpickle

from girih.run.engines.jobs import Ended, JobWork, failed, outcome_of
from girih.run.engines.ray_connect import CLIENT, connect, imported

LEAVE_SECONDS = 5.0
PLACE_SECONDS = 120.0  # for Ray to find room for an actor, and to start it


class JobActor:
    """One job. `run` takes one of the actor's threads, questions another."""

    def __init__(self) -> None:
        self._said: Any = None
        self._begun = threading.Event()

    def pid(self) -> int:
        return os.getpid()

    def run(self, data: bytes) -> bytes:
        """Do a piece of work; how it ended."""
        try:
            work: JobWork = cloudpickle.loads(data)
            work = work.placed(str(imported().util.get_node_ip_address()))
            outcome = outcome_of(work, None, self._ready, lambda: False)
        except Exception as error:  # a module of the user's that this node does not have
            outcome = failed(error)
        finally:
            self._begun.set()
        try:
            return bytes(cloudpickle.dumps(outcome))
        except Exception as error:  # what it returns, or raised, cannot travel
            return bytes(cloudpickle.dumps(Ended(False, f"{type(error).__name__}: {error}", outcome.details)))

    def _ready(self, value: Any) -> None:
        self._said = value
        self._begun.set()

    def ready(self, seconds: float) -> Any:
        """What the work says when it has begun; None: it has ended, or did not say anything for so long."""
        self._begun.wait(seconds)
        return self._said


class RayHost:
    """Starts actors, for which Ray reserves so many processors; `close` leaves a cluster that was started for it.

    address: `ray://host:port` of a cluster; else the one that this process is connected to, or one of this host.

    Raises:
        RayUnavailableError: Ray is not installed, or does not answer.
    """

    def __init__(self, threads: int, address: str) -> None:
        self._threads = threads
        self._connection = connect(address if address.startswith(CLIENT) else "")

    def start(self, work: JobWork) -> RayJob:
        return RayJob(work, self._threads if work.computes else 0)

    def close(self) -> None:
        self._connection.close()


class RayJob:
    look = 0.05

    def __init__(self, work: JobWork, cpus: int) -> None:
        self._ray = imported()
        kind = self._ray.remote(max_concurrency=2, num_cpus=cpus, scheduling_strategy="SPREAD")(JobActor)
        self._cpus, self._deadline = cpus, time.monotonic() + PLACE_SECONDS
        self._actor = kind.remote()
        self._asked = self._actor.pid.remote()
        self._run = self._actor.run.remote(cloudpickle.dumps(work))
        self._outcome: Ended | None = None

    @property
    def pid(self) -> int:
        """On its node; 0: it has died, or is not there yet."""
        there, _ = self._ray.wait([self._asked], timeout=0)
        try:
            return int(self._ray.get(self._asked)) if there else 0
        except self._ray.exceptions.RayError:
            return 0

    def ready(self, seconds: float) -> Any:
        try:
            return self._ray.get(self._actor.ready.remote(seconds), timeout=seconds)
        except self._ray.exceptions.GetTimeoutError:
            raise TimeoutError(f"Ray has not started an actor within {seconds:g} s: is there room for it?") from None
        except self._ray.exceptions.RayError as error:
            self._died(error)
            return None

    def ended(self) -> Ended | None:
        if self._outcome is None and self._ray.wait([self._run], timeout=0)[0]:
            try:
                self._outcome = cloudpickle.loads(self._ray.get(self._run))
            except self._ray.exceptions.RayError as error:
                self._died(error)
        if self._outcome is None and time.monotonic() > self._deadline:
            if not self._ray.wait([self._asked], timeout=0)[0]:
                there, free = (
                    found.get("CPU", 0.0) for found in (self._ray.cluster_resources(), self._ray.available_resources())
                )
                self._outcome = Ended(
                    False,
                    f"was not started by Ray within {PLACE_SECONDS:g} s: it needs {self._cpus} processors, the cluster "
                    f"has {there:g}, of which {free:g} are free; ask for fewer workers, or fewer threads for each",
                )
            self._deadline = float("inf")
        return self._outcome

    def _died(self, error: Exception) -> None:
        words = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        self._outcome = Ended(False, f"died ({type(error).__name__}: {words})", lost=True)

    def kill(self) -> None:
        self._ray.kill(self._actor)
        if self._outcome is None:
            self._outcome = Ended(False, "was ended", lost=True)

    def leave(self) -> None:
        self._ray.wait([self._run], timeout=LEAVE_SECONDS)
        self.ended()
        self.kill()
