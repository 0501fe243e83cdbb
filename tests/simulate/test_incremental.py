"""Changes of a program, simulated from the earlier schedule: equal to a full simulation, to the last bit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from counts import random_cases
from hand_made import compute, gather, machine, send, start, whole
from hand_made import program as hand_made
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulate_programs import MESHES, machine_of, random_prices, random_program

from girih.cost.prices import Prices
from girih.layout import Mesh
from girih.machine import Machine
from girih.program import Program, StartStep, Step, TransferStep
from girih.simulate.incremental import Segment, Simulator
from girih.simulate.patterns import Resolution

Blocks = dict[int, Segment]


def renamed(steps: Iterable[Step], tag: str) -> tuple[Step, ...]:
    """The same steps with other buffers, so that each transfer has a target of its own."""

    def other(step: Step) -> Step:
        if isinstance(step, TransferStep):
            return replace(step, target=step.target + tag)
        if isinstance(step, StartStep):
            return StartStep(replace(step.transfer, target=step.transfer.target + tag))
        return step

    return tuple(map(other, steps))


def ends_of(blocks: Blocks) -> dict[str, tuple[int | None, int | None]]:
    """Of each transfer the blocks in which it starts, or None, and finishes, or None."""
    found: dict[str, tuple[int | None, int | None]] = {}
    for number, block in sorted(blocks.items()):
        for step in block.steps:
            if isinstance(step, StartStep):
                found[step.transfer.target] = (number, found.get(step.transfer.target, (None, None))[1])
            elif isinstance(step, TransferStep):
                found[step.target] = (found.get(step.target, (None, None))[0], number)
    return found


def without_loose_starts(blocks: Blocks, changed: set[int]) -> None:
    """Starts whose transfers have gone leave too."""
    ends = ends_of(blocks)
    for number in changed:
        block = blocks[number]
        kept = [
            position
            for position, step in enumerate(block.steps)
            if not isinstance(step, StartStep) or ends[step.transfer.target][1] is not None
        ]
        prices = Prices(block.prices.before[kept], block.prices.after[kept])
        blocks[number] = Segment(tuple(block.steps[position] for position in kept), prices)


def closed(blocks: Blocks, changed: set[int]) -> set[int]:
    """With the blocks that hold the other ends of what the changed ones start or finish."""
    pairs = [pair for pair in ends_of(blocks).values() if None not in pair]
    size = 0
    while size != len(changed):
        size = len(changed)
        for first, last in pairs:
            if first in changed or last in changed:
                changed |= {first, last}  # type: ignore[arg-type]
    return changed


@dataclass
class Walk:
    """A program whose blocks change at random."""

    random: np.random.Generator
    program: Program
    machine: Machine
    blocks: Blocks
    spare: tuple[Step, ...]
    resolution: Resolution
    changes: int = 0

    def new_block(self, block: Segment) -> Segment:
        """Other prices, one other price, or other steps."""
        self.changes += 1
        steps, prices, kind = block.steps, block.prices, self.random.random()
        if kind < 0.2 and steps:
            before = prices.before.copy()
            before[int(self.random.integers(len(steps)))] += 1e-5
            return Segment(steps, Prices(before, prices.after))
        if kind > 0.4:
            first = int(self.random.integers(len(self.spare) + 1))
            steps = renamed(self.spare[first : first + int(self.random.integers(6))], f"@{self.changes}")
        shape = (len(steps), self.program.mesh.devices)
        busy = self.random.random() < 0.8
        return Segment(steps, Prices(self.random.random(shape) * 1e-4 * busy, self.random.random(shape) * 1e-5))

    def proposal(self) -> tuple[Blocks, set[int]]:
        changed = set(self.random.integers(0, len(self.blocks), int(self.random.integers(1, 4))).tolist())
        changed = closed(self.blocks, changed)
        blocks = dict(self.blocks)
        for number in changed:
            blocks[number] = self.new_block(blocks[number])
        without_loose_starts(blocks, changed)
        return blocks, changed

    def in_full(self, blocks: Blocks) -> Simulator:
        steps = tuple(step for _, block in sorted(blocks.items()) for step in block.steps)
        before = np.concatenate([block.prices.before for _, block in sorted(blocks.items())])
        after = np.concatenate([block.prices.after for _, block in sorted(blocks.items())])
        program = replace(self.program, steps=steps)
        return Simulator(program, self.machine, Prices(before, after), resolution=self.resolution)


def cut(program: Program, prices: Prices, random: np.random.Generator) -> tuple[list[int], Blocks]:
    """The first step of each block, and the blocks."""
    count = len(program.steps)
    firsts = sorted({0, *random.integers(0, count, int(random.integers(1, count + 1))).tolist()})
    bounds = [*firsts, count]
    blocks = {
        number: Segment(program.steps[a:b], Prices(prices.before[a:b], prices.after[a:b]))
        for number, (a, b) in enumerate(pairwise(bounds))
    }
    return firsts, blocks


@given(st.integers(0, 2**32), st.sampled_from(MESHES), st.booleans(), st.sampled_from(["messages", "volumes"]))
@settings(max_examples=random_cases(80), suppress_health_check=[HealthCheck.too_slow])
def test_changes_equal_a_full_simulation(
    seed: int, sizes: tuple[int, ...], training: bool, resolution: Resolution
) -> None:
    random = np.random.default_rng(seed)
    program, machine = random_program(random, sizes, int(random.integers(1, 10)), training=training)
    spare = program.steps
    copies = int(random.integers(1, 5))
    steps = tuple(step for copy in range(copies) for step in renamed(program.steps, f"#{copy}"))
    program = replace(program, steps=steps)
    prices = random_prices(random, program)
    firsts, blocks = cut(program, prices, random)
    simulator = Simulator(program, machine, prices, blocks=firsts, resolution=resolution)
    walk = Walk(random, program, machine, blocks, spare, resolution)
    for _ in range(10):
        blocks, changed = walk.proposal()
        full = walk.in_full(blocks)
        assert simulator.propose({number: blocks[number] for number in changed}) == full.seconds
        if random.random() < 0.6:
            simulator.accept()
            walk.blocks = blocks
            one, other = simulator.schedule(), full.schedule()
            assert (one.done == other.done).all()
            assert (one.start == other.start).all()
            assert simulator.seconds == full.seconds


def long_program(repeats: int = 200) -> tuple[Program, Machine, Prices]:
    """Compute steps with an exchange of all devices after each."""
    mesh = Mesh((2, 2))
    random = np.random.default_rng(0)
    work = []
    for number in range(repeats):
        work += [compute(float(random.random()) + 0.1), whole(gather(mesh, f"x{number}"), 0.1, 0.1)]
    made, prices = hand_made((2, 2), *work)
    return made, machine((2, 2)), prices


def block_of(seconds: list[float]) -> Segment:
    made, prices = hand_made((2, 2), compute(seconds))
    return Segment(made.steps, prices)


@pytest.mark.parametrize("seconds", [[1, 1, 1, 1], [1, 2, 3, 4], [50, 50, 50, 50]])
def test_a_change_ends_where_all_devices_have_met(seconds: list[float]) -> None:
    """The step becomes longer, but what lies behind is only moved."""
    program, at, prices = long_program()
    simulator = Simulator(program, at, prices)
    before = simulator.seconds
    whole_effort = simulator.effort
    changed = simulator.propose({100: block_of(seconds)})
    assert changed != before
    assert simulator.effort.messages < whole_effort.messages / 20
    assert simulator.effort.device_tasks < whole_effort.device_tasks / 20
    simulator.accept()
    assert simulator.seconds == changed


def test_changes_far_apart_do_not_touch_what_lies_between() -> None:
    program, at, prices = long_program()
    simulator = Simulator(program, at, prices)
    whole_effort = simulator.effort
    simulator.propose({number: block_of([1, 2, 3, 4]) for number in (20, 200, 380)})
    assert simulator.effort.restorations == 3
    assert simulator.effort.messages < whole_effort.messages / 10


def test_a_change_in_the_shadow_of_another_device_changes_nothing() -> None:
    """Device 1 takes 10 seconds; whether device 0 takes 1 or 2 is all the same."""
    mesh = Mesh((2,))
    made, prices = hand_made((2,), compute([1, 10]), *[whole(gather(mesh, f"x{n}"), 0.5) for n in range(50)])
    simulator = Simulator(made, machine((2,)), prices)
    before = simulator.seconds
    steps, other = hand_made((2,), compute([2, 10]))
    assert simulator.propose({0: Segment(steps.steps, other)}) == before
    assert simulator.effort.messages <= 6


def test_a_proposal_is_forgotten_unless_it_is_accepted() -> None:
    program, at, prices = long_program(10)
    simulator = Simulator(program, at, prices)
    before, schedule = simulator.seconds, simulator.schedule()
    for _ in range(3):
        assert simulator.propose({4: block_of([9, 9, 9, 9])}) > before
    simulator.forget()
    assert simulator.seconds == before
    assert (simulator.schedule().done == schedule.done).all()
    with pytest.raises(ValueError, match="there is no proposal"):
        simulator.accept()
    assert simulator.propose({}) == before


def test_both_ends_of_a_transfer_change_together() -> None:
    mesh = Mesh((2,))
    move = send(mesh, "a", {0: 1})
    made, prices = hand_made((2,), start(move), compute(1), whole(move))
    simulator = Simulator(made, machine((2,)), prices)
    before = simulator.seconds
    with pytest.raises(ValueError, match="one end of a transfer whose other end lies in a block that is not changed"):
        simulator.propose({0: Segment((), Prices(np.zeros((0, 2)), np.zeros((0, 2))))})
    late, other = hand_made((2,), compute(1), whole(move))
    with pytest.raises(ValueError, match="started and never finished"):
        simulator.propose({0: Segment(made.steps[:1], Prices(prices.before[:1], prices.after[:1])),
                           2: Segment(late.steps[:1], Prices(other.before[:1], other.after[:1]))})  # fmt: skip
    assert simulator.seconds == before
    nothing = Segment((), Prices(np.zeros((0, 2)), np.zeros((0, 2))))
    assert simulator.propose({0: nothing, 2: Segment(late.steps, other)}) == 3.0


def test_blocks_and_prices_must_fit() -> None:
    program, at, prices = long_program(3)
    with pytest.raises(ValueError, match="blocks are positions of steps"):
        Simulator(program, at, prices, blocks=[1, 3])
    simulator = Simulator(program, at, prices, blocks=[0, 2, 4])
    with pytest.raises(ValueError, match="a block of 1 steps has prices of shape"):
        simulator.propose({1: Segment(program.steps[:1], Prices(np.zeros((2, 4)), np.zeros((2, 4))))})
    with pytest.raises(ValueError, match="there are 3, counted from 0"):
        simulator.propose({3: Segment((), Prices(np.zeros((0, 4)), np.zeros((0, 4))))})


def test_room_is_used_again() -> None:
    """Thousands of proposals do not make the arrays grow."""
    program, _ = random_program(np.random.default_rng(5), (2, 2), 6, training=True)
    at = machine_of((2, 2))
    random = np.random.default_rng(0)
    prices = random_prices(random, program)
    simulator = Simulator(program, at, prices)
    moves = [number for number, step in enumerate(program.steps) if isinstance(step, TransferStep)]
    started = {step.transfer.target for step in program.steps if isinstance(step, StartStep)}
    moves = [number for number in moves if program.steps[number].target not in started]  # type: ignore[union-attr]
    sizes = []
    for _ in range(300):
        number = int(random.choice(moves))
        row = Prices(prices.before[number : number + 1] * random.random(), prices.after[number : number + 1])
        simulator.propose({number: Segment((program.steps[number],), row)})
        if random.random() < 0.5:
            simulator.accept()
        sizes.append((simulator.graph.row_places.end, simulator.graph.task_places.end))
    assert max(sizes) == max(sizes[:20])
