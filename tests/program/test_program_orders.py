"""Orders of classes of like devices: who takes part in what, the law of orders, and the text of programs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from graphs import fitting_labels, machine_of, perceptron, random_graph
from hand_made import compute, send, start, whole
from hand_made import program as hand_made
from hypothesis import given
from hypothesis import strategies as st
from lowered_programs import THOROUGH, lowered, strategies

from girih.layout import REPLICATE, Mesh, among
from girih.partition.space.options import Rules
from girih.partition.space.problem import Objective, build
from girih.partition.strategy import Strategy
from girih.program import (
    Blocks,
    ComputeStep,
    Devices,
    FreeStep,
    Order,
    Overlap,
    Program,
    ProgramError,
    StartStep,
    Stream,
    TransferStep,
    blocked,
    check,
    lower,
    overlapped,
)
from girih.program.life.accounts import live_bytes, memory_use
from girih.program.orders import Shares

PLACED = Rules(repeat=True, partial=True, places=True)


# ------------------------------------------------------------------------------------------- sets of devices


@given(st.sets(st.integers(0, 200)))
def test_sets_of_devices_are_what_is_in_them(numbers: set[int]) -> None:
    devices = Devices.of(numbers)
    assert list(devices) == sorted(devices) == sorted(numbers)
    assert len(devices) == len(numbers)
    assert all((number in devices) == (number in numbers) for number in range(201))
    assert Devices.of(sorted(numbers, reverse=True)) == devices


def test_thousands_of_devices_are_one_range() -> None:
    assert Devices.of(range(4096)) == Devices((range(4096),))
    assert str(Devices.of([0, 1, 2, 3, 8, 16, 18, 20])) == "0-3, 8, 16-20:2"
    assert len(Devices.of(range(5, 4096, 8)).ranges) == 1


# ------------------------------------------------------------------------------------------- classes


def two_layers(sizes: tuple[int, ...] = (2,), first: int = 0, second: int = 1) -> Program:
    """Everything of the first product on one coordinate of the first axis, everything else on another."""
    graph = perceptron(1, 8, 12)
    rest = (REPLICATE,) * (len(sizes) - 1)
    one, other = (among(REPLICATE, (first,)), *rest), (among(REPLICATE, (second,)), *rest)
    names = {name for node in graph.nodes[:1] for name in (*node.inputs, *node.outputs)}
    layouts = {name: one if name in names else other for name in graph.values}
    for old, new in graph.updates.items():
        layouts[new] = layouts[old]
    divisions = tuple(one if number == 0 else other for number in range(len(graph.nodes)))
    strategy = Strategy.of_codes(Mesh(sizes), divisions, layouts)
    return lower(graph, strategy, Objective("bytes", machine_of(sizes)).transfers)


def test_devices_that_do_the_same_are_one_class() -> None:
    graph = perceptron(2, 8, 12)
    strategy = Strategy.of_codes(Mesh((4, 2)), ((0, 0),) * len(graph.nodes), dict.fromkeys(graph.values, (0, 0)))
    program = lower(graph, strategy, Objective("bytes", machine_of((4, 2))).transfers)
    assert program.orders == ()
    assert [order.devices for order in program.classes] == [Devices((range(8),))]
    assert program.steps_of(5) == program.steps


def test_each_device_does_what_it_takes_part_in() -> None:
    program = two_layers((2, 3))
    check(program)
    assert [str(order.devices) for order in program.orders] == ["0-2", "3-5"]
    for device in range(6):
        computed = {step.node for step in program.steps_of(device) if isinstance(step, ComputeStep)}
        assert computed == ({0} if device < 3 else set(range(1, len(program.graph.nodes))))
    exchanged = [step for step in program.transfers if set(program.exchange_of(step).messages)]
    assert exchanged
    assert all(step in program.steps_of(0) and step in program.steps_of(3) for step in exchanged)
    assert program.steps_of(0) is not program.steps_of(1)
    assert program.order_of(0) is program.order_of(2)


def test_devices_elsewhere_have_no_order_to_wait_for() -> None:
    program = two_layers((4,))
    orders = {device: program.order_of(device) for device in range(4)}
    assert orders[2] == orders[3] == ()
    assert memory_use(program, 2).peak == 0
    assert (live_bytes(program, 2) == 0).all()


def test_memory_is_followed_in_every_step_of_the_program() -> None:
    program = two_layers()
    for device in range(2):
        amounts = live_bytes(program, device)
        assert amounts.shape == (len(program.steps) + 2,)
        assert amounts.max() == memory_use(program, device).peak


def test_frees_are_after_a_devices_own_last_use() -> None:
    program = two_layers()
    for device in range(2):
        mine = program.steps_of(device)
        for before, step in pairwise(mine):
            if isinstance(step, FreeStep):
                assert not isinstance(before, FreeStep)


def test_steps_tell_their_stream() -> None:
    program = overlapped(two_layers(), Overlap(3, 3))
    kinds = {ComputeStep: Stream.COMPUTE, TransferStep: Stream.TRANSFER, StartStep: Stream.TRANSFER,
             FreeStep: Stream.MEMORY}  # fmt: skip
    assert {type(step) for step in program} >= {ComputeStep, TransferStep, FreeStep}
    assert all(step.stream is kinds[type(step)] for step in program)


def placed(seed: int, sizes: tuple[int, ...]) -> Program:
    """A random strategy with places, of a random graph."""
    random = np.random.default_rng(seed)
    graph = random_graph(random, int(random.integers(1, 6)))
    problem = build(graph, Objective("bytes", machine_of(sizes)), PLACED)
    labels = fitting_labels(problem, random)
    return lowered((graph, Objective("bytes", machine_of(sizes)), problem, labels))


@given(st.integers(0, 2**32), st.sampled_from([(2,), (3,), (2, 2)]), st.integers(0, 4))
@THOROUGH
def test_orders_of_random_placed_programs_are_lawful(seed: int, sizes: tuple[int, ...], window: int) -> None:
    program = placed(seed, sizes)
    program = overlapped(program, Overlap(window, window))
    check(program)
    shares = Shares(program)
    devices = [device for order in program.classes for device in order.devices]
    assert sorted(devices) == list(range(program.mesh.devices))
    for device in range(program.mesh.devices):
        mine = set(program.order_of(device))
        for number, step in enumerate(program.steps):
            if program.orders and not isinstance(step, FreeStep):
                assert (number in mine) == bool(shares.of_step(step)[device])
            if isinstance(step, TransferStep):
                assert number in mine or not program.messages_of(step, device)
    assert Program.parse(str(program), program.graph, program.strategy) == program


# ------------------------------------------------------------------------------------------- the law


def broken(program: Program, message: str) -> str:
    with pytest.raises(ProgramError, match=message) as found:
        check(program)
    return str(found.value)


def with_order(program: Program, place: int, steps: tuple[int, ...]) -> Program:
    orders = list(program.orders)
    orders[place] = replace(orders[place], steps=steps)
    return replace(program, orders=tuple(orders))


def test_every_device_of_an_exchange_has_it() -> None:
    program = two_layers()
    number = next(at for at, step in enumerate(program.steps) if isinstance(step, TransferStep)
                  and at in program.order_of(0) and at in program.order_of(1))  # fmt: skip
    order = tuple(at for at in program.order_of(0) if at != number)
    text = broken(with_order(program, 0, order), f"devices 0 take part in step {number}, transfer .* leaves out")
    assert len(text.splitlines()) > 2  # with its neighbours


def test_orders_go_forward() -> None:
    program = two_layers()
    order = program.order_of(1)
    text = broken(with_order(program, 1, (*order[:3], order[4], order[3], *order[5:])), "number the steps so that all")
    assert f"> {order[3]:>5}" in text


def test_devices_that_wait_for_each_other_are_told() -> None:
    mesh = Mesh((2,))
    first, second = send(mesh, "a", {0: 1}), send(mesh, "b", {1: 0})
    program, _ = hand_made((2,), start(first), start(second), whole(first), whole(second), compute(1.0))
    crossing = (Order(Devices((range(1),)), (0, 2, 1, 3, 4)), Order(Devices((range(1, 2),)), (1, 3, 0, 2, 4)))
    text = broken(replace(program, orders=crossing), "would wait for each other: by their orders step")
    assert " before step " in text


def test_every_device_has_one_order_of_known_steps() -> None:
    program = two_layers()
    broken(replace(program, orders=program.orders[:1]), "device 1 has 0 orders: expected one for each of 2 devices")
    broken(replace(program, orders=(*program.orders, program.orders[0])), "device 0 has 2 orders")
    count = len(program.steps)
    broken(with_order(program, 0, (*program.order_of(0), count)), f"has a step {count}: there are {count}")


def test_devices_of_one_order_hold_alike() -> None:
    program = two_layers()
    together = (Order(Devices((range(2),)), tuple(range(len(program.steps)))),)
    broken(replace(program, orders=together), "one order, but device 1 holds parts of other buffers than device 0")


def test_what_an_order_reads_was_made_in_it() -> None:
    program = two_layers()
    steps, order = program.steps, program.order_of(1)
    at = next(at for at in order if isinstance(steps[at], FreeStep))
    twice = replace(program, steps=(*steps[: at + 1], steps[at], *steps[at + 1 :]))
    moved = [tuple(n + (n > at) for n in program.order_of(device)) for device in range(2)]
    moved[1] = tuple(sorted((*moved[1], at + 1)))
    orders = tuple(replace(old, steps=new) for old, new in zip(program.orders, moved, strict=True))
    broken(replace(twice, orders=orders), f"devices 1, step {at + 1} of .* is freed, but it was freed before")


# ------------------------------------------------------------------------------------------- text


@given(strategies(), st.integers(0, 3))
@THOROUGH
def test_text_round_trips(case: tuple, window: int) -> None:
    program = lowered(case)
    program = overlapped(program, Overlap(window, window))
    parsed = Program.parse(str(program), program.graph, program.strategy)
    assert parsed == program
    assert str(parsed) == str(program)
    check(parsed)
    assert (parsed.bytes_received() == program.bytes_received()).all()
    assert memory_use(parsed, 0) == memory_use(program, 0)


def test_text_of_blocks_round_trips() -> None:
    graph = perceptron(2, 4096, 64)
    strategy = Strategy.of_codes(Mesh((2,)), ((0,),) * len(graph.nodes), dict.fromkeys(graph.values, (0,)))
    plain = lower(graph, strategy, Objective("bytes", machine_of((2,))).transfers)
    program = blocked(plain, Blocks(cache=1 << 16, always=True, stealing=True))
    assert "blocks " in str(program)
    assert "stealing" in str(program)
    parsed = Program.parse(str(program), graph, strategy)
    assert parsed == program
    assert parsed != plain
    assert parsed.stealing


def test_text_says_what_each_device_does() -> None:
    text = str(two_layers())
    assert text.startswith("program\n  place 0: 0 [")
    assert "step 0: compute  " in text or "step 0: transfer " in text
    assert "\n  order 0: 0" in text
    assert repr(two_layers()).startswith("<Program: ")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("step 0: fly away", "line 2 .*'fly' is no step"),
        ("step 0: compute  x = nothing", "line 2 .*expected the form"),
        ("buffer x of x in 3", "line 2 .*index out of range"),
        ("weather: fine", "line 2 .*expected a place, a buffer, a step or an order"),
    ],
)
def test_text_that_is_none_names_its_line(line: str, told: str) -> None:
    program = two_layers()
    with pytest.raises(ValueError, match=told):
        Program.parse(f"program\n  {line}", program.graph, program.strategy)
