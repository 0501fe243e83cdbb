"""Programs of a few steps, with times that were added by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hand_made import SIZE, compute, gather, machine, program, send, start, whole

from girih.cost.prices import Prices
from girih.layout import Mesh
from girih.machine import Machine
from girih.program import FreeStep
from girih.simulate.critical import OWN, PORT, TRANSFER
from girih.simulate.simulate import simulate
from girih.simulate.timeline import Timeline


def run(sizes: tuple[int, ...], *work: object, at: Machine | None = None) -> Timeline:
    made, prices = program(sizes, *work)  # type: ignore[arg-type]
    return simulate(made, at or machine(sizes), prices, memory=False).timeline


def ends(timeline: Timeline) -> list[float]:
    """Of the last span of each device: its own work, or receiving."""
    return [float(timeline.end[timeline.device == device].max(initial=0.0)) for device in range(timeline.devices)]


def messages(timeline: Timeline) -> list[tuple[int, float, float]]:
    """(receiver, begin, end), in order of time."""
    mine = np.flatnonzero(timeline.stream > 0)
    found = zip(timeline.device[mine].tolist(), timeline.begin[mine].tolist(), timeline.end[mine].tolist(), strict=True)
    return sorted(found, key=lambda item: (item[1], item[0]))


def test_a_transfer_waits_for_the_later_of_two() -> None:
    """Device 1 computes longer; packing, latency and bytes, placing."""
    mesh = Mesh((2,))
    timeline = run((2,), compute([1, 2]), whole(gather(mesh, "x"), 0.25, 0.125), at=machine((2,), latency=0.5))
    assert messages(timeline) == [(0, 2.25, 3.25), (1, 2.25, 3.25)]  # at the ports; then half a second under way
    assert ends(timeline) == [3.875, 3.875]
    assert timeline.amount[timeline.stream == 1].tolist() == [SIZE, SIZE]
    assert timeline.busy().tolist() == [1.375, 2.375]


@pytest.mark.parametrize(("beside", "end"), [(0.25, 1.375), (3, 3.375)])
def test_an_exchange_that_has_started_runs_beside_computation(beside: float, end: float) -> None:
    mesh = Mesh((2,))
    move = gather(mesh, "x")
    timeline = run((2,), start(move, 0.25), compute(beside), whole(move, 99, 0.125))
    assert messages(timeline) == [(0, 0.25, 1.25), (1, 0.25, 1.25)]
    assert ends(timeline) == [end, end]


def test_rounds_of_three_devices() -> None:
    """Each receives from two, one after the other; everybody is busy all the time."""
    timeline = run((3,), whole(gather(Mesh((3,)), "x")))
    assert messages(timeline) == [(d, begin, begin + 1) for begin in (0, 1) for d in range(3)]
    assert ends(timeline) == [2, 2, 2]


def test_who_is_late_is_served_late() -> None:
    """0 and 1 exchange at once; what 2 sends and receives waits for it, in rounds."""
    timeline = run((3,), compute([0, 0, 5]), whole(gather(Mesh((3,)), "x")))
    assert messages(timeline) == [(0, 0, 1), (1, 0, 1), (1, 5, 6), (2, 5, 6), (0, 6, 7), (2, 6, 7)]


def test_two_receivers_contend_for_a_sender() -> None:
    """The exchange that comes first in the program is served first."""
    mesh = Mesh((3,))
    first, second = send(mesh, "a", {0: 1}), send(mesh, "b", {0: 2})
    timeline = run((3,), start(first), start(second), whole(first), whole(second))
    assert messages(timeline) == [(1, 0, 1), (2, 1, 2)]
    assert ends(timeline) == [0, 1, 2]


def test_a_port_does_not_wait_for_who_is_not_ready() -> None:
    mesh = Mesh((3,))
    first, second = send(mesh, "a", {0: 1}), send(mesh, "b", {0: 2})
    timeline = run((3,), compute([0, 10, 0]), start(first), start(second), whole(first), whole(second))
    assert messages(timeline) == [(2, 0, 1), (1, 10, 11)]


def test_a_port_is_not_kept_free_for_who_waits_for_another_port() -> None:
    """0 and 1 send to 2 in one exchange; what 1 sends to 0 later need not wait until 2 is free."""
    mesh = Mesh((3,))
    first, second, third = send(mesh, "a", {0: 2}), send(mesh, "b", {1: 2}), send(mesh, "c", {1: 0})
    timeline = run((3,), start(first), start(second), start(third), whole(first), whole(second), whole(third))
    assert messages(timeline) == [(0, 0, 1), (2, 0, 1), (2, 1, 2)]


def test_senders_wait_for_what_they_send() -> None:
    mesh = Mesh((2,))
    timeline = run((2,), whole(send(mesh, "a", {0: 1})), compute(1))
    own = timeline.stream == 0
    assert timeline.begin[own].tolist() == [1, 1]


@pytest.mark.parametrize(("shared", "expected"), [(False, [(2, 0, 1), (3, 0, 1)]), (True, [(2, 0, 1), (3, 1, 2)])])
def test_devices_of_a_host_share_its_port(shared: bool, expected: list[tuple[int, float, float]]) -> None:
    timeline = run((2, 2), whole(send(Mesh((2, 2)), "a", {0: 2, 1: 3})), at=machine((2, 2), shared=shared))
    assert messages(timeline) == expected


def test_levels_do_not_contend() -> None:
    """0 sends to its neighbour and over the network at the same time; the inner link is twice as fast."""
    mesh = Mesh((2, 2))
    near, far = send(mesh, "a", {0: 1}), send(mesh, "b", {0: 2})
    timeline = run((2, 2), start(near), start(far), whole(near), whole(far))
    assert messages(timeline) == [(1, 0, 0.5), (2, 0, 1)]
    assert timeline.streams == ("compute", "level 0", "level 1")


def test_frees_and_exchanges_of_nothing_take_nothing() -> None:
    mesh = Mesh((2,))
    home = send(mesh, "a", {0: 0, 1: 1})
    free = (FreeStep(("x",)), 7.0, 7.0)
    timeline = run((2,), start(home, 0.5), free, compute(1), whole(home, 99, 0.25), whole(home, 0.25, 0.25))
    assert ends(timeline) == [2.25, 2.25]
    assert messages(timeline) == []


def test_a_message_takes_what_was_measured() -> None:
    mesh = Mesh((2,))
    level = machine((2,)).levels[0]
    measured = type(level)(level.name, (2,), 1.0, 0.0, points=((4, 0.25), (8, 0.75)))
    at = Machine("measured", machine((2,)).device, (measured,))
    assert run((2,), whole(gather(mesh, "x")), at=at).seconds == pytest.approx(0.75)


def test_the_critical_path_says_where_the_time_went() -> None:
    """Device 0 computes and sends to 1, whose port is taken for another half second; then 1 computes."""
    mesh = Mesh((3,))
    first, second = send(mesh, "a", {2: 1}), send(mesh, "b", {0: 1})
    made, prices = program((3,), compute([0.5, 0, 0]), start(first), start(second), whole(first), whole(second),
                           compute([0, 3, 0]))  # fmt: skip
    found = simulate(made, machine((3,)), prices, memory=False)
    path = found.critical
    assert found.seconds == 5.0
    assert path.kind.tolist() == [OWN, PORT, TRANSFER, OWN]
    assert path.device.tolist() == [0, 1, 1, 1]
    assert path.step.tolist() == [0, 4, 4, 5]
    assert path.begin.tolist() == [0, 0.5, 1, 2]
    assert path.end.tolist() == [0.5, 1, 2, 5]
    assert path.share(OWN) == 0.7
    assert found.busiest.name == "device 1, computing"
    assert found.busiest.seconds == 3


def test_an_empty_program_takes_nothing() -> None:
    made, prices = program((2,))
    found = simulate(made, machine((2,)), prices, memory=False)
    assert found.seconds == 0
    assert len(found.critical) == 0
    assert found.timeline.seconds == 0


def test_one_device_adds_up() -> None:
    made, prices = program((), compute(1), compute(2))
    assert simulate(made, Machine("one", machine((2,)).device, ()), prices, memory=False).seconds == 3


def test_what_does_not_fit_is_refused() -> None:
    made, prices = program((2,), compute(1))
    with pytest.raises(ValueError, match="a mesh 2, hand-made is one of 3"):
        simulate(made, machine((3,)), prices)
    with pytest.raises(ValueError, match=r"prices.after has shape \[2, 2\]: expected \[1, 2\]"):
        simulate(made, machine((2,)), Prices(prices.before, np.zeros((2, 2))))
    with pytest.raises(ValueError, match="expected seconds from 0"):
        simulate(made, machine((2,)), Prices(-prices.before, prices.after))
    with pytest.raises(ValueError, match="expected seconds from 0"):
        simulate(made, machine((2,)), Prices(prices.before * np.nan, prices.after))
