"""Array programs on actors of Ray, on two nodes of this host: results, bytes, deaths of workers and of a node."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from counts import LONG
from run_programs import Slow, impatient_until_mended, stop
from user_threads import evaluated_by_threads

import girih.array as gnp
import girih.loop as gl
from benchmarks.loop_bodies import sgd_mf
from girih.array.session.planning import machine_of
from girih.run.engines.engine import Ray
from girih.run.engines.ray_connect import RayUnavailableError, connect
from girih.run.engines.ray_crew import RayOptions
from girih.run.tiles.tiles import TileRun

pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
POINTS = np.random.default_rng(0).normal(size=(600, 8))


@pytest.fixture(scope="module")
def nodes(ray_nodes) -> object:
    return ray_nodes()


@pytest.fixture(scope="module")
def cluster(nodes, tmp_path_factory) -> Iterator[gnp.Cluster]:
    place = tmp_path_factory.mktemp("checkpoints")
    with gnp.cluster(nodes.address, timeout=60.0, checkpoint=place, every=0.05, small=0) as made:
        assert made.workers == 2
        yield made


def kmeans(groups: int = 5, iterations: int = 6) -> np.ndarray:
    x = gnp.array(POINTS)
    centres = x[:groups]
    for _ in range(iterations):
        nearest = ((x[:, None, :] - centres[None]) ** 2).sum(-1).argmin(1)
        centres = gnp.stack([x[nearest == group].mean(0) for group in range(groups)])
        centres.persist()
    return (centres + 0.01 * gnp.random.default_rng(3).random(centres.shape)).compute()


@pytest.fixture(scope="module")
def undisturbed() -> np.ndarray:
    with gnp.cluster(workers=2, backend="threads", timeout=60.0, small=0):
        return kmeans()


def test_eight_threads_of_the_program(cluster) -> None:
    assert not evaluated_by_threads()


def test_the_same_program_on_actors(cluster, undisturbed):
    np.testing.assert_array_equal(kmeans(), undisturbed)
    ray = sys.modules["ray"]
    assert len({node["NodeID"] for node in ray.nodes() if node["Alive"]}) == 2
    assert len(set(cluster.run.crew.pids)) == 2
    x = (gnp.array(POINTS) + 1).persist()
    assert [x.expression.kept.key in own for own in cluster.run.tiles()] == [True, True]  # tiles live in the actors
    before = sum(item.bytes_received for item in cluster.run.statistics())
    y = (x @ x.T).sum(0)
    planned = gnp.explain(y).bytes
    y.persist()
    assert sum(item.bytes_received for item in cluster.run.statistics()) - before == planned > 0


def test_loops_on_actors(cluster):
    """The bits of threads; an actor that is killed is replaced, and arrays that it held come back."""
    draw = np.random.default_rng(0)
    ratings = gl.dense(draw.standard_normal((30, 20)).astype(np.float32))
    first = [draw.normal(0, 0.3, (size, 8)) for size in (30, 20)]

    def factors(loop, times: int) -> list[np.ndarray]:
        found = [gl.array(item, np.float32) for item in first]
        for _ in range(times):
            loop(*found, step=0.05)
        return [item.values for item in found]

    expected = factors(gl.parallel_for(ratings, ordered=False, workers=2)(sgd_mf), 2)
    x = (gnp.array(POINTS) + 1).persist()
    loop = gl.parallel_for(ratings, ordered=False)(sgd_mf)
    assert all(map(np.array_equal, factors(loop, 2), expected))
    assert "on threads" not in str(loop.explain())
    os.kill(cluster.run.crew.pids[1], signal.SIGKILL)
    assert all(map(np.array_equal, factors(loop, 2), expected))
    assert loop.losses[0].startswith("worker 1 died (")
    np.testing.assert_array_equal(x.compute(), POINTS + 1)


def test_a_slow_actor_changes_no_bits(cluster):
    x = np.random.default_rng(0).normal(size=(200_000, 8))

    def program() -> np.ndarray:
        y = gnp.array(x)
        for factor in (0.5, 1.5, 0.25):
            y = y * factor + 0.5
        return gnp.concatenate([y.max(1), (y * y).sum(0)]).compute()

    with gnp.cluster(workers=2, backend="threads", timeout=60.0, small=0):
        alone = program()
    cluster.run.crew.command("measure", [{"task": Slow(0.2)}] * 2)
    np.testing.assert_array_equal(program(), alone)
    cluster.run.crew.command("measure", [{"task": Slow(0.0)}] * 2)


def test_workers_killed_at_random_moments(cluster, undisturbed):
    chance = random.Random(1)
    run = cluster.run
    before = len(run.losses)
    kills = 2 if LONG else 1
    for number in range(kills):
        pid = run.crew.pids[chance.randrange(2)]
        killer = threading.Timer(chance.uniform(0, 0.1), os.kill, (pid, signal.SIGKILL))
        killer.start()
        for _ in range(20):  # until the kill was in the middle of it
            np.testing.assert_array_equal(kmeans(), undisturbed)
            if len(run.losses) > before + number:
                break
        killer.join()
    assert len(run.losses) >= before + kills


def test_a_worker_that_hangs(cluster, undisturbed, monkeypatch):
    run = cluster.run
    before = len(run.losses)
    stopped = run.crew.pids[1]
    stop(stopped)
    impatient_until_mended(run.crew, monkeypatch)
    np.testing.assert_array_equal(kmeans(), undisturbed)
    assert [loss.rank for loss in run.losses[before:]] == [1]
    assert "it hangs: its process is stopped" in run.losses[-1].reason
    assert run.crew.pids[1] != stopped


def test_the_programs_own_errors_lose_nothing(cluster):
    before = len(cluster.run.losses)
    pids = cluster.run.crew.pids
    x = (gnp.array(np.eye(6)) * 2).persist()
    with pytest.raises(np.linalg.LinAlgError, match="cholesky"):
        gnp.linalg.cholesky(-x).compute()
    np.testing.assert_array_equal((x + 1).compute(), np.eye(6) * 2 + 1)
    assert cluster.run.crew.pids == pids  # nobody had to go
    assert len(cluster.run.losses) == before  # and nothing had to be brought back


def test_a_node_that_goes(cluster, nodes, undisturbed):
    """Ray moves its worker to another node."""
    x = (gnp.array(POINTS) + 1).persist()
    run = cluster.run
    before = len(run.losses)
    other = next(node for node in nodes.list_all_nodes() if not node.head)
    places = dict(enumerate(place[:2] for place in run.crew.places))
    nodes.remove_node(other, allow_graceful=False)
    nodes.add_node(num_cpus=1)
    deadline = time.monotonic() + 120
    while len(run.losses) == before and time.monotonic() < deadline:  # its worker ends soon after it
        np.testing.assert_array_equal(kmeans(), undisturbed)
    np.testing.assert_array_equal(x.compute(), POINTS + 1)
    assert len(run.losses) > before
    assert sum(places[rank] != place[:2] for rank, place in enumerate(run.crew.places)) == 1


def test_without_checkpoints_a_death_ends_the_evaluation(cluster):
    cluster.run.close()  # its workers have the processors
    run = TileRun(machine_of(1).mesh, Ray(), RayOptions(timeout=30.0))
    os.kill(run.crew.pids[0], signal.SIGKILL)
    with pytest.raises(Exception, match=r"worker 0 .* on \d+\.\d+\.\d+\.\d+"):
        run.statistics()
    assert run.crew.broken is not None
    run.close()


def test_no_room(cluster):
    with pytest.raises(RayUnavailableError, match=r"no room for 2 workers of 8 processors within 0\.5 s: .* has 2"):
        TileRun(machine_of(2).mesh, Ray(), RayOptions(cpus=8.0, start=0.5))


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("ray://127.0.0.1:1", "nothing answers at 'ray://127.0.0.1:1'.*client server"),
        ("127.0.0.1:1", "nothing answers at '127.0.0.1:1'.*head"),
        ("ray://", "expected 'ray://host:port'"),
        ("somewhere", "expected 'ray://host:port'"),
    ],
)
def test_an_address_that_does_not_answer(address, says, monkeypatch):
    ray = sys.modules["ray"]
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    began = time.monotonic()
    with pytest.raises(RayUnavailableError, match=says):
        gnp.cluster(address)
    assert time.monotonic() - began < 25  # Ray itself tries for half a minute


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RayUnavailableError, match=r"pip install 'girih\[ray\]'"):
        connect()
