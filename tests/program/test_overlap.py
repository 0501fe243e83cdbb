"""Windows of overlap: what is moved stays, what is split has work to run beside, and nothing is torn apart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from graphs import machine_of, perceptron
from hypothesis import given
from hypothesis import strategies as st
from lowered_programs import THOROUGH, check_buffers, check_frees_are_early, lowered, strategies

from girih.graph import parse_graph
from girih.layout import Mesh
from girih.ops import description_of
from girih.partition.space.options import Rules, division_codes, value_layouts
from girih.partition.space.problem import Objective, build
from girih.partition.strategy import PASS, Strategy
from girih.program import ComputeStep, Overlap, Program, StartStep, TransferStep, check, lower, overlapped
from girih.program.exchange import is_local
from girih.program.overlap import works

WINDOWS = [Overlap(1, 0), Overlap(0, 1), Overlap(1, 1), Overlap(2, 3), Overlap(5, 2), Overlap(100, 100)]


def check_windows(plain: Program, program: Program, options: Overlap) -> int:
    """The laws of overlap; how many exchanges were split."""
    check(program)
    check_buffers(program)
    check_frees_are_early(program)
    computes = [step for step in program if isinstance(step, ComputeStep)]
    assert computes == [step for step in plain if isinstance(step, ComputeStep)]
    assert sorted(map(id, program.transfers)) == sorted(map(id, plain.transfers))
    assert (program.bytes_received() == plain.bytes_received()).all()
    assert {kind: count for kind, (count, _) in program.kinds().items()} == {
        kind: count for kind, (count, _) in plain.kinds().items()
    }
    done, made = 0, {item.name: 0 for item in program.graph.inputs}  # work done, and when buffers were made
    started: dict[str, int] = {}
    split = 0
    for step in program:
        if isinstance(step, StartStep):
            assert not is_local(program.mesh, step.transfer.before, step.transfer.after)
            assert made[step.transfer.source] <= done
            assert step.transfer.target not in started
            started[step.transfer.target] = done
        elif isinstance(step, TransferStep):
            if step.target in started:
                split += 1
                assert 1 <= done - started[step.target] <= (options.fetch if step.purpose == "fetch" else options.store)
            made[step.target] = done
        elif isinstance(step, ComputeStep):
            for part in step.reads:
                first = first_hop(program, part.buffer)
                if first is not None and first in started:
                    assert done - started[first] <= options.fetch
            done += works(program, step)
            made.update((buffer, done) for buffer in step.writes)
    assert split == len(started) == sum(isinstance(step, StartStep) for step in program)
    produced = {buffer: made[buffer] for step in computes for buffer in step.writes}
    for step in program.transfers:
        if step.purpose == "store" and step.source in produced:
            last = step
            for hop in program.transfers:
                last = hop if hop.source == last.target and hop.purpose == "store" else last
            assert made[last.target] - produced[step.source] <= options.store
    return split


def first_hop(program: Program, buffer: str) -> str | None:
    """The target of the first hop of the fetch that makes a buffer."""
    made = {step.target: step for step in program.transfers if step.purpose == "fetch"}
    while buffer in made and made[buffer].source in made:
        buffer = made[buffer].source
    return buffer if buffer in made else None


@given(strategies(), st.integers(0, 4), st.integers(0, 6))
@THOROUGH
def test_windows_of_random_programs(case: tuple, fetch: int, store: int) -> None:
    plain = lowered(case)
    options = Overlap(fetch, store)
    check_windows(plain, overlapped(plain, options), options)


def test_what_is_needed_at_once_goes_first() -> None:
    """The fetch of x stays whole: nothing can be computed before. Its messages do not queue behind those of w."""
    text = """graph
  input %w: float32[6, 6]  parameter  "w"
  input %x: float32[4, 6]  batch  "0"
  %a: float32[4, 6] = aten.relu(self=%x)  # forward
  %y: float32[4, 6] = aten.mm(self=%a, mat2=%w)  # forward
  return %y result"""
    graph = parse_graph(text)
    strategy = Strategy.of_codes(Mesh((2,)), ((1,), (0,)), {"w": (0,), "x": (0,), "a": (1,), "y": (0,)})
    plain = lower(graph, strategy, Objective("bytes", machine_of((2,))).transfers)
    steps = [step for step in overlapped(plain, Overlap(3, 3)) if isinstance(step, (StartStep, TransferStep))]
    assert steps[0] == plain.transfers[0]
    assert plain.transfers[0].target == "x@a.0"
    assert [step.transfer.target for step in steps if isinstance(step, StartStep)] == ["w@y.1"]
    assert [type(step).__name__ for step in steps] == ["TransferStep", "StartStep", "TransferStep", "TransferStep"]


def random_program(sizes: tuple[int, ...], objective: str, seed: int) -> Program:
    """A training step under random divisions and layouts."""
    graph, mesh, rules = perceptron(3, 8, 12), Mesh(sizes), Rules(repeat=True)
    random = np.random.default_rng(seed)

    def some(choices: Sequence) -> tuple[int, ...]:
        return tuple(int(code) for code in choices[random.integers(len(choices))])

    layouts = {name: some(value_layouts(value.shape, False, mesh, rules)) for name, value in graph.values.items()}
    layouts.update((new, layouts[old]) for old, new in graph.updates.items())
    divisions = []
    for node in graph.nodes:
        description = description_of(graph, node)
        assert description is not None
        codes = division_codes(description, mesh, rules)
        divisions.append(some(codes[(codes > PASS).all(axis=1)]))
    strategy = Strategy.of_codes(mesh, tuple(divisions), layouts)
    return lower(graph, strategy, Objective(objective, machine_of(sizes)).transfers)


@pytest.mark.parametrize("options", WINDOWS, ids=str)
@pytest.mark.parametrize("sizes", [(2,), (2, 2)], ids=str)
@pytest.mark.parametrize("objective", ["bytes", "seconds"])
def test_windows_of_training_steps(sizes: tuple[int, ...], objective: str, options: Overlap) -> None:
    split = 0
    for seed in range(12):
        plain = random_program(sizes, objective, seed)
        split += check_windows(plain, overlapped(plain, options), options)
    assert split > 10


def test_routes_of_several_hops_are_among_them() -> None:
    seen = set()
    for seed in range(12):
        made = {step.target: step.purpose for step in random_program((2, 2), "seconds", seed).transfers}
        seen |= {made[step.source] for step in random_program((2, 2), "seconds", seed).transfers if step.source in made}
    assert seen == {"fetch", "store"}


def test_a_program_of_one_device_stays_as_it_is() -> None:
    graph = perceptron(2, 4, 4)
    problem = build(graph, Objective("bytes", machine_of(())), Rules())
    labels = np.zeros(len(problem.problem.domains), np.int64)
    plain = lower(graph, problem.strategy(labels), Objective("bytes", machine_of(())).transfers)
    assert overlapped(plain, Overlap()) is plain
    assert overlapped(plain, Overlap(4, 16)) == plain


CHAIN = """graph
  input %x: float32[4, 6]  batch  "0"
  input %w: float32[6, 6]  parameter  "w"
  %a: float32[4, 6] = aten.relu(self=%x)  # forward
  %b: float32[4, 6] = aten.neg(self=%a)  # forward
  %c: float32[4, 6] = aten.neg(self=%b)  # forward
  %y: float32[4, 6] = aten.mm(self=%c, mat2=%w)  # forward
  %d: float32[4, 6] = aten.neg(self=%b)  # forward
  %e: float32[4, 6] = aten.neg(self=%d)  # forward
  %z: float32[4, 6] = aten.add.Tensor(self=%e, other=%y)  # forward
  return %z result"""


def chain(options: Overlap) -> list[str]:
    """All by rows but w; w is fetched whole for y, which is moved to columns and back for z."""
    graph = parse_graph(CHAIN)
    layouts = {**dict.fromkeys(graph.values, (0,)), "y": (1,)}
    strategy = Strategy.of_codes(Mesh((2,)), ((0,),) * len(graph.nodes), layouts)
    program = lower(graph, strategy, Objective("bytes", machine_of((2,))).transfers)
    lines = []
    for step in overlapped(program, options):
        if isinstance(step, StartStep):
            lines.append(f"start {step.transfer.target}")
        elif isinstance(step, TransferStep):
            lines.append(f"transfer {step.target}")
        elif isinstance(step, ComputeStep):
            lines.append(step.writes[0])
    return lines


def test_windows_by_hand() -> None:
    assert chain(Overlap()) == [
        "a", "b", "c", "transfer w@y.1", "y~", "transfer y", "d", "e", "transfer y@z.1", "z",
    ]  # fmt: skip
    assert chain(Overlap(fetch=2)) == [
        "a", "start w@y.1", "b", "c", "transfer w@y.1", "y~", "transfer y", "start y@z.1", "d", "e",
        "transfer y@z.1", "z",
    ]  # fmt: skip
    assert chain(Overlap(fetch=9, store=9)) == [  # between y and z the store and the fetch share the room
        "start w@y.1", "a", "b", "c", "transfer w@y.1", "y~", "start y", "d", "transfer y", "start y@z.1", "e",
        "transfer y@z.1", "z",
    ]  # fmt: skip
    assert chain(Overlap(store=9)) == [
        "a", "b", "c", "transfer w@y.1", "y~", "start y", "d", "e", "transfer y", "transfer y@z.1", "z",
    ]  # fmt: skip


def test_views_are_no_work() -> None:
    """A transpose between start and finish hides nothing: the fetch stays whole, or reaches over it."""
    text = """graph
  input %x: float32[4, 6]  batch  "0"
  input %w: float32[6, 6]  parameter  "w"
  %a: float32[4, 6] = aten.relu(self=%x)  # forward
  %t: float32[6, 4] = aten.permute(self=%a, dims=[1, 0])  # forward
  %u: float32[4, 6] = aten.permute(self=%t, dims=[1, 0])  # forward
  %y: float32[4, 6] = aten.mm(self=%u, mat2=%w)  # forward
  return %y result"""
    graph = parse_graph(text)
    layouts = {**dict.fromkeys(graph.values, (0,)), "t": (1,)}
    divisions = ((0,), (1,), (0,), (0,))
    strategy = Strategy.of_codes(Mesh((2,)), divisions, layouts)
    program = lower(graph, strategy, Objective("bytes", machine_of((2,))).transfers)
    (fetch,) = program.transfers
    wide = overlapped(program, Overlap(fetch=1))
    assert wide.steps[0] == StartStep(fetch)
    narrow = [step for step in program.steps if step.node != 0]
    cut = Program(graph, program.strategy, tuple(narrow), program.places, program.value_of)
    assert not any(isinstance(step, StartStep) for step in overlapped(cut, Overlap(fetch=3)))


def test_the_first_to_be_needed_starts_first() -> None:
    program = overlapped(random_program((2, 2), "seconds", 0), Overlap(3, 50))
    ends = {step.target: place for place, step in enumerate(program.steps) if isinstance(step, TransferStep)}
    together = 0
    for one, other in pairwise(program.steps):
        if isinstance(one, StartStep) and isinstance(other, StartStep):
            together += 1
            assert ends[one.transfer.target] <= ends[other.transfer.target]
    assert together


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="from 0"):
        Overlap(fetch=-1)
    program = overlapped(random_program((2,), "bytes", 0), Overlap(2, 2))
    with pytest.raises(ValueError, match="overlap already"):
        overlapped(program, Overlap(1, 1))
