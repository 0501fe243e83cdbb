"""Prices of programs: every step has one, measured where it was; transfers cost what devices do in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graphs import machine_of, random_graph, random_labels

from girih.cost.device_calls import NOTHING, local_calls
from girih.cost.pricing import CALIBRATED, MEASURED, MOST_DEVICES, PRESET, Pricing, price
from girih.cost.profile import RING, Profile, save_profile
from girih.cost.roofline import fit
from girih.cost.store import Measurement, Setting, Store
from girih.cost.work import Work
from girih.graph import Graph, Input, Node, Output, Ref, Value
from girih.layout import Mesh
from girih.machine import Device, machine
from girih.machine.sizes import SizeTable
from girih.ops.derive.kinds import VIEW
from girih.partition.solver.elimination import cost_of
from girih.partition.space.options import Rules
from girih.partition.space.problem import Objective, build
from girih.partition.strategy import Strategy
from girih.program import ComputeStep, FreeStep, Overlap, Program, StartStep, TransferStep, lower, overlapped

CARD = Device("card", 1e9, 10**9, 1e9, 1e-6)
HERE = Setting("processor", "torch", 1, 2)


def any_program(mesh: tuple[int, ...], seed: int) -> Program:
    random = np.random.default_rng(seed)
    objective = Objective("bytes", machine_of(mesh))
    while True:
        graph = random_graph(random, 8)
        problem = build(graph, objective, Rules(repeat=True, partial=True))
        labels = random_labels(problem, random)
        if np.isfinite(cost_of(problem.problem, labels)):
            made = lower(graph, problem.strategy(labels), objective.transfers)
            if made.transfers:
                return made


def profile_of(name: str, samples: Sequence[tuple[Work, float]] = ()) -> Profile:
    """Copies take a second for each 1000 bytes, combining ten times as long; each message nothing."""
    copy = SizeTable.of([(1, 1e-3), (1000, 1.0)])
    combine = SizeTable.of([(1, 1e-2), (1000, 10.0)])
    links = ((RING, SizeTable.of([(1, 1e-6)])),)
    roofline = fit(samples, replace(CARD, launch_seconds=0.0))
    return Profile(name, "processes", HERE, roofline, links, copy, combine, "2026-11-21T12:00:00+00:00")


@pytest.mark.parametrize(("mesh", "seed"), [((2,), 0), ((2, 2), 1), ((3,), 2), ((2, 3), 3)])
def test_every_step_has_a_price(mesh: tuple[int, ...], seed: int) -> None:
    program = any_program(mesh, seed)
    item = machine_of(mesh)
    priced = price(program, item)
    before, after = priced.prices.before, priced.prices.after
    assert before.shape == after.shape == (len(program.steps), item.devices)
    assert np.isfinite(before).all()
    assert np.isfinite(after).all()
    calls = local_calls(program)
    for position, step in enumerate(program.steps):
        if isinstance(step, FreeStep):
            assert not before[position].any()
        if isinstance(step, ComputeStep):
            assert not after[position].any()
            for device, number in enumerate(calls.numbers[position]):
                moves = number != NOTHING and calls.calls[number].work.kind != VIEW
                assert (before[position, device] > 0) == moves
    computed = sum(isinstance(step, ComputeStep) for step in program.steps)
    assert priced.sources == {MEASURED: 0, CALIBRATED: 0, PRESET: computed}


def test_the_plain_roofline() -> None:
    program = product_program((2,), ((0,),))
    priced = price(program, replace(machine_of((2,)), device=CARD))
    position = next(number for number, step in enumerate(program.steps) if isinstance(step, ComputeStep))
    operations, traffic = 2 * 4 * 6 * 50, 4 * (4 * 50 + 50 * 6 + 4 * 6)
    assert priced.prices.before[position] == pytest.approx([1e-6 + max(operations, traffic) / 1e9] * 2)


def test_what_was_measured_is_the_price(tmp_path: Path) -> None:
    program = any_program((2,), 4)
    calls = local_calls(program)
    known = calls.calls[::2]
    with Store(tmp_path / "costs.sqlite") as store:
        rows = [(call, Measurement(7.0 + number, 0.0, 5, "now")) for number, call in enumerate(known)]
        store.put(HERE, rows)
        store.put(replace(HERE, threads=9), [(call, Measurement(1e9, 0.0, 5, "now")) for call in calls.calls])
        profile = profile_of("local:2", store.samples(HERE))
        item = machine("local:2", profile)
        priced = price(program, item, store=store, profile=profile)
        save_profile(store, profile)
        again = price(program, item, store=store)
        assert (again.prices.before == priced.prices.before).all()
        assert again.sources == priced.sources
        # What is written over an operand counts where it was measured so; before, as with a result of its own.
        over = replace(known[0], over=0)
        assert Pricing(item, store=store, profile=profile).of([over])[0, 0] == 7.0
        store.put(HERE, [(over, Measurement(3.0, 0.0, 5, "now"))])
        assert Pricing(item, store=store, profile=profile).of([over])[0, 0] == 3.0
    expected = {call.key: measured.seconds for call, measured in rows}
    measured_steps = 0
    for position, step in enumerate(program.steps):
        if not isinstance(step, ComputeStep):
            continue
        numbers = calls.numbers[position]
        for device, number in enumerate(numbers):
            if number != NOTHING and calls.calls[number].key in expected:
                assert priced.prices.before[position, device] == expected[calls.calls[number].key]
        measured_steps += all(number == NOTHING or calls.calls[number].key in expected for number in numbers)
    assert 0 < priced.sources[MEASURED] <= measured_steps
    assert sum(priced.sources.values()) == sum(
        (calls.numbers[position] != NOTHING).any() for position in range(len(program.steps))
    )


def test_kinds_that_were_measured_count_as_calibrated(tmp_path: Path) -> None:
    program = any_program((2,), 5)
    calls = local_calls(program).calls
    samples = [(call.work, 3.0) for call in calls]
    priced = price(program, machine("local:2"), profile=profile_of("local:2", samples))
    assert priced.sources[PRESET] == priced.sources[MEASURED] == 0
    assert priced.sources[CALIBRATED] > 0


def test_another_machine_lends_its_efficiencies() -> None:
    program = product_program((2,), ((0,),))
    work = local_calls(program).calls[0].work
    profile = profile_of("local:2", [(work, work.operations / 1e6)])
    item = replace(machine_of((2,)), device=CARD)
    lent = price(program, item, profile=profile)
    assert lent.sources == {MEASURED: 0, CALIBRATED: 1, PRESET: 0}
    position = next(number for number, step in enumerate(program.steps) if isinstance(step, ComputeStep))
    # The product ran at the peak of where it was measured, so it does here.
    assert lent.prices.before[position] == pytest.approx([1e-6 + work.operations / 1e9] * 2, rel=0.1)


# ------------------------------------------------------------------------------------------- transfers


def product_program(mesh: tuple[int, ...], division: tuple[tuple[int, ...], ...], layout: int = 0) -> Program:
    """[8, 50] @ [50, 6]: x and y divided by rows, w whole."""
    values = {name: Value(name, shape, "float32") for name, shape in (("x", (8, 50)), ("w", (50, 6)), ("y", (8, 6)))}
    node = Node("y", "aten.mm", (("self", Ref("x")), ("mat2", Ref("w"))), ("y",))
    graph = Graph(values, (node,), (Input("x", "batch", "x"), Input("w", "batch", "w")), (Output("y", "result"),))
    axes = len(mesh)
    layouts = {"x": (0,) * axes, "w": (-1,) * axes, "y": (layout,) * axes}
    strategy = Strategy.of_codes(Mesh(mesh), division, layouts)
    return lower(graph, strategy, Objective("bytes", machine_of(mesh)).transfers)


def own_work(program: Program) -> tuple[list[float], list[float]]:
    """(before, after) of the first device in each transfer."""
    priced = price(program, machine("local:2"), profile=profile_of("local:2"))
    rows = [number for number, step in enumerate(program.steps) if isinstance(step, TransferStep)]
    return priced.prices.before[rows, 0].tolist(), priced.prices.after[rows, 0].tolist()


def test_gathered_rows_arrive_in_place() -> None:
    """y divided by rows becomes whole: the own rows are copied, the others arrive where they belong."""
    before, after = own_work(product_program((2,), ((0,),), layout=-1))
    assert before == [0.0]
    assert after == pytest.approx([4 * 6 * 4 / 1000], rel=0.1)


def test_columns_are_packed_and_placed() -> None:
    """y divided by rows becomes divided by columns: each sends its rows' other columns, which do not lie in a run."""
    before, after = own_work(product_program((2,), ((0,),), layout=1))
    assert before == pytest.approx([4 * 3 * 4 / 1000], rel=0.1)
    assert after == pytest.approx([4 * 3 * 4 / 1000], rel=0.1)  # the own part; the other's rows arrive in a run


def test_contributions_are_combined() -> None:
    """The sum is divided: x is fetched by columns, then each adds the other's contribution to its rows."""
    before, after = own_work(product_program((2,), ((2,),), layout=0))
    rows = 4 * 6 * 4 / 1000
    assert before[-1] == 0.0  # rows of a contribution lie in a run
    assert after[-1] == pytest.approx(rows + 10 * rows, rel=0.1)


def test_a_start_takes_what_is_done_before_the_messages() -> None:
    program = overlapped(any_program((2, 2), 6), Overlap(2, 2))
    starts = {step.transfer.target: number for number, step in enumerate(program.steps) if isinstance(step, StartStep)}
    assert starts
    priced = price(program, machine_of((2, 2)))
    for number, step in enumerate(program.steps):
        if isinstance(step, TransferStep) and step.target in starts:
            assert (priced.prices.before[starts[step.target]] == priced.prices.before[number]).all()
            assert not priced.prices.after[starts[step.target]].any()


def test_large_meshes_are_priced_by_volumes() -> None:
    devices = 2 * MOST_DEVICES
    values = {name: Value(name, (1024, 512), "float32") for name in "xy"}
    node = Node("y", "aten.relu", (("self", Ref("x")),), ("y",))
    graph = Graph(values, (node,), (Input("x", "batch", "x"),), (Output("y", "result"),))
    mesh = (2, devices // 2)
    strategy = Strategy.of_codes(Mesh(mesh), ((0, 0),), {"x": (0, 0), "y": (1, 1)})
    program = lower(graph, strategy, Objective("bytes", machine_of(mesh)).transfers)
    priced = price(program, machine("local:2"), profile=profile_of("local:2"))
    (row,) = [number for number, step in enumerate(program.steps) if isinstance(step, TransferStep)]
    part = 1024 * 512 * 4 / devices / 1000  # of one device, in seconds to copy
    home = part / devices
    assert priced.prices.before[row] == pytest.approx(np.full(devices, part - home), rel=0.1)
    assert priced.prices.after[row] == pytest.approx(np.full(devices, part), rel=0.1)
