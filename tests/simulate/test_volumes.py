"""`volumes` beside `messages`: equal where no traffic is hidden from it, and near elsewhere.

Equal: where in every exchange each device receives from one device over each mesh axis, sends as much as it receives,
and the members of its gate post when its sender does. Of two devices that exchange equal parts, all of this holds.
Not seen by `volumes`: that a device's latencies add up, that senders' ports are busy, that a device waits for what it
sends, and who of a group a device really waits for.
"""

from __future__ import annotations

import numpy as np
import pytest
from counts import random_cases
from graphs import fitting_labels, perceptron
from hand_made import compute, gather, machine, program, whole
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulate_programs import Case, cases, machine_of, problem_of, random_prices

from girih.layout import Mesh
from girih.partition.space.options import Rules
from girih.partition.space.problem import Objective
from girih.program import Overlap, lower, overlapped
from girih.simulate.incremental import Simulator
from girih.simulate.simulate import simulate
from girih.simulate.tasks import EXACT_DEVICES


def both(case: Case) -> tuple[float, float]:
    volumes, messages = (Simulator(*case, resolution=name) for name in ("volumes", "messages"))  # type: ignore[arg-type]
    return volumes.seconds, messages.seconds


@given(st.integers(0, 2**32))
@settings(max_examples=random_cases(60), suppress_health_check=[HealthCheck.too_slow])
def test_equal_for_two_devices_and_equal_parts(seed: int) -> None:
    """All extents are even, so that what goes one way is as large as what goes the other."""
    random = np.random.default_rng(seed)
    graph, at = perceptron(2, 8, 12), machine_of((2,), random)
    problem = problem_of(graph, at, Rules(repeat=True, partial=True))
    labels = fitting_labels(problem, random)
    made = lower(graph, problem.strategy(labels), Objective("seconds", at).transfers)
    made = overlapped(made, Overlap(int(random.integers(3)), int(random.integers(3))))
    volumes, messages = both((made, at, random_prices(random, made)))
    assert volumes == messages


def test_equal_on_axes_of_two_when_all_post_together() -> None:
    """Gathering inside of hosts of two devices: one message each."""
    mesh = Mesh((3, 2))
    step = gather(Mesh((2,)), "x")
    before, after = (np.tile(place.regions, (3, 1, 1)) for place in (step.before, step.after))
    moved = type(step)("v", 0, "x", "x'", type(step.before)(before, (False, False)),
                       type(step.after)(after, (False, False)), "fetch", "sum")  # fmt: skip
    made, prices = program((3, 2), compute([1, 1, 2, 2, 3, 3]), whole(moved, 0.5, 0.25), compute(1))
    assert (
        both((made, machine(mesh.sizes, latency=0.125), prices))[0]
        == both((made, machine(mesh.sizes, latency=0.125), prices))[1]
    )


@given(cases())
@settings(max_examples=random_cases(150), suppress_health_check=[HealthCheck.too_slow])
def test_near_on_small_meshes(case: Case) -> None:
    """Between 0.7 and 1.4 times in 3,000 random programs on up to eight devices; latencies are small there."""
    volumes, messages = both(case)
    assert messages / 2 <= volumes <= messages * 2


def test_latencies_of_many_messages_are_spent_together() -> None:
    made, prices = program((8,), whole(gather(Mesh((8,)), "x", 1)))
    volumes, messages = both((made, machine((8,), latency=1.0), prices))
    assert messages == volumes == pytest.approx(1 + 7 / 8)


def test_large_meshes_take_volumes() -> None:
    sizes = (EXACT_DEVICES, 2)
    made, prices = program(sizes, whole(gather(Mesh(sizes), "x", 1)))
    found = simulate(made, machine(sizes), prices, memory=False)
    assert found.resolution == "volumes"
    assert found.tasks.message_tasks == 2 * 2 * EXACT_DEVICES
    made, prices = program((EXACT_DEVICES,), whole(gather(Mesh((EXACT_DEVICES,)), "x", 1)))
    found = simulate(made, machine((EXACT_DEVICES,)), prices, memory=False)
    assert found.resolution == "messages"
    assert found.tasks.message_tasks == EXACT_DEVICES * (EXACT_DEVICES - 1)
