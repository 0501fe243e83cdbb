"""Calls by themselves are what workers execute: the same function on tensors of the same shapes and memory order."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from run_programs import ANYTHING, Example, program_of

from girih.cost.device_calls import NOTHING, CallCollector, WorkCollector, local_calls
from girih.layout import Mesh
from girih.partition.space.options import Rules
from girih.program import ComputeStep, TransferStep
from girih.run.calibrate.measure_operators import measure, prepare
from girih.run.training.session import start
from girih.run.worker.compute import Compute
from girih.run.worker.parts import narrow


def signature(instruction: Compute, slots: list) -> tuple:
    """The operator, and of each tensor that it gets the shape, dtype, padding and order in memory."""
    found = []
    for _, _, slot, cuts, pads in instruction.places:
        tensor = narrow(slots[slot] if isinstance(slot, int) else slot, cuts)
        large = [dim for dim in range(tensor.dim()) if tensor.shape[dim] > 1]
        order = tuple(sorted(large, key=lambda dim: -tensor.stride(dim)))
        found.append((tuple(tensor.shape), tensor.dtype, pads, order, tensor.is_contiguous()))
    operator = getattr(instruction.function, "overloadpacket", instruction.function)
    return str(operator).removesuffix("_"), tuple(found), instruction.shapes


@pytest.mark.parametrize("rules", [ANYTHING, replace(ANYTHING, places=True)], ids=["everywhere", "placed"])
@pytest.mark.parametrize(
    ("sizes", "seed"),
    [((), 0), ((2,), 1), ((2, 2), 2), ((3,), 3), ((2, 2), 4), ((5,), 5), ((2, 3), 6), ((2,), 7), ((4,), 8)],
)
def test_a_call_is_what_a_worker_executes(
    example: Example, sizes: tuple[int, ...], seed: int, rules: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = program_of(example.graph, Mesh(sizes), seed, rules)
    seen: dict[int, tuple] = {}
    original = Compute.run

    def watched(self: Compute, slots: list, seconds: list) -> None:
        seen[id(self)] = signature(self, slots)
        original(self, slots, seconds)

    monkeypatch.setattr(Compute, "run", watched)
    with start(program, example.initial, backend="threads", state=example.state) as run:
        run.step(example.batch, example.scalars)
        workers = [
            dict(zip(program.order_of(rank), service.worker._instructions, strict=True))
            for rank, service in enumerate(run.crew.services)
        ]
    calls = local_calls(program, over=True)
    batch = {item.name for item in program.graph.inputs if item.role == "batch"}  # threads get it as views
    compared = 0
    for position, step in enumerate(program.steps):
        for rank, instructions in enumerate(workers):
            number = calls.numbers[position, rank]
            executed = isinstance(step, ComputeStep) and isinstance(instructions.get(position), Compute)
            assert (number != NOTHING) == executed
            if executed and not batch & {part.buffer for part in step.reads}:
                instruction, slots = prepare(calls.calls[number], torch.device("cpu"))
                assert signature(instruction, slots) == seen[id(instructions[position])]
                if rank == 0:  # whose memory is taken over elsewhere may differ
                    assert instruction.over == instructions[position].over
                compared += 1
    assert compared > len(program.graph.nodes) // 2


def test_a_result_over_an_operand_is_a_call_of_its_own(example: Example) -> None:
    program = program_of(example.graph, Mesh((2,)), 5)
    apart, over = local_calls(program), local_calls(program, over=True)
    written = [call for call in over.calls if call.over is not None]
    assert written
    assert all(call.over is None for call in apart.calls)
    assert {call.apart for call in over.calls} == {call.key for call in apart.calls}
    assert all(call.key == f"{call.apart} over %{call.over}" for call in written)
    samples = measure(written * 2, 0.05)
    assert not any(isinstance(sample, str) for sample in samples)
    instruction, slots = prepare(written[0], torch.device("cpu"))
    instruction.run(slots, [0.0, 0.0])
    assert slots[instruction.writes[0]].data_ptr() == slots[written[0].over].data_ptr()


def test_equal_pieces_are_one_call(example: Example) -> None:
    program = program_of(example.graph, Mesh((2, 2)), 4)
    calls = local_calls(program)
    assert len({call.key for call in calls.calls}) == len(set(calls.calls)) == len(calls.calls)
    computed = sum(isinstance(step, ComputeStep) for step in program.steps)
    assert len(calls.calls) < 4 * computed
    assert calls.numbers.max() == len(calls.calls) - 1
    assert calls.numbers.shape == (len(program.steps), 4)


def test_every_call_of_a_training_step_can_be_measured(example: Example) -> None:
    calls = local_calls(program_of(example.graph, Mesh((2,)), 5)).calls
    samples = measure(calls, 0.05)
    assert len(samples) == len(calls)
    for call, sample in zip(calls, samples, strict=True):
        assert not isinstance(sample, str), f"{call.key}: {sample}"
        assert sample.seconds > 0
        assert sample.spread >= 0
        assert sample.repeats >= 3


@pytest.mark.parametrize(("sizes", "seed"), [((2,), 1), ((5,), 5), ((2, 2), 2)])
def test_work_alone_is_that_of_the_calls(example: Example, sizes: tuple[int, ...], seed: int) -> None:
    program = program_of(example.graph, Mesh(sizes), seed, replace(ANYTHING, places=True))
    calls, works = CallCollector(program), WorkCollector(program)
    for item in program.graph.inputs:
        calls.contiguous(item.name)
        works.contiguous(item.name)
    for step in program.steps:
        if isinstance(step, ComputeStep):
            numbers, alone = calls.row(step), works.row(step)
            every, only = list(calls.calls), list(works.calls)
            assert [every[number].work if number >= 0 else None for number in numbers.tolist()] == [
                only[number] if number >= 0 else None for number in alone.tolist()
            ]
            calls.made(step)
            works.made(step)
        elif isinstance(step, TransferStep):
            calls.contiguous(step.target)
            works.contiguous(step.target)
