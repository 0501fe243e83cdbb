"""Memory by liveness: by hand, against PyTorch's views and strides, and against storages alive while PyTorch runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from counts import random_cases
from graphs import Maker, machine_of, perceptron, random_graph
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lowered_programs import THOROUGH, alone, lowered, strategies
from pieces import run_piece

from girih.graph import Graph, Output, Ref, parse_graph
from girih.layout import REPLICATE, Mesh
from girih.ops import description_of
from girih.ops.derive.pieces import make_piece
from girih.partition.space.problem import Objective
from girih.partition.strategy import Strategy
from girih.program import ComputeStep, FreeStep, Program, lower
from girih.program.life import accounts as memory
from girih.program.life.accounts import memory_use, memory_uses, taken_over
from girih.program.life.strides import contiguous_strides, is_contiguous, view_strides
from girih.run.worker.worker import settle


def divided(graph: Graph, sizes: tuple[int, ...], divisions: tuple, layouts: dict) -> Program:
    objective = Objective("bytes", machine_of(sizes))
    return lower(graph, Strategy.of_codes(Mesh(sizes), divisions, layouts), objective.transfers)


# ------------------------------------------------------------------------------------------- by hand


def test_a_chain_holds_two_at_a_time() -> None:
    text = """graph
  input %x: float32[10]  batch  "0"
  %a: float32[10] = aten.relu(self=%x)  # forward
  %b: float32[10] = aten.relu(self=%a)  # forward
  %c: float64[10, 10] = aten.expand(self=%b, size=[10, 10])  # forward
  return %b result"""
    graph = parse_graph(text.replace("float64", "float32"))
    use = memory_use(alone(graph))
    assert (use.state, use.peak, use.at) == (0, 80, 0)
    assert sorted(use.largest) == [("a", 40), ("x", 40)]


def test_updates_take_over_the_state_that_they_replace() -> None:
    text = """graph
  input %w: float32[5]  parameter  "w"
  input %m: float32[5]  state  "w/momentum"
  input %g: float32[5]  batch  "0"
  %n: float32[5] = aten.add.Tensor(self=%m, other=%g)  # update
  %u: float32[5] = aten.add.Tensor(self=%w, other=%n)  # update
  return %u update replaces %w, %n update replaces %m"""
    use = memory_use(alone(parse_graph(text)))
    assert use.state == 40
    assert (use.peak, use.at) == (60, -1)  # w, m and g; n takes over m, and u takes over w
    use = memory_use(alone(parse_graph(text.replace("%u update", "%u result, %u update"))))
    assert (use.peak, use.at) == (60, -1)


def test_state_that_others_see_stands_beside_its_update() -> None:
    text = """graph
  input %w: float32[5]  parameter  "w"
  input %g: float32[5]  batch  "0"
  %u: float32[5] = aten.add.Tensor(self=%w, other=%g)  # update
  return %u update replaces %w"""
    assert memory_use(alone(parse_graph(text))).peak == 40
    returned = text.replace("return %u", "return %u result, %u")  # the caller has what was returned the time before
    assert memory_use(alone(parse_graph(returned))).peak == 60


def test_what_is_not_replaced_stays() -> None:
    text = """graph
  input %w: float32[100]  parameter  "w"
  input %x: float32[100]  batch  "0"
  %y: float32[100] = aten.mul.Tensor(self=%w, other=%x)  # forward
  %z: float32[100] = aten.relu(self=%y)  # forward
  %a: float32[100, 2] = aten.stack(tensors=[%z, %z], dim=1)  # forward
  return %a result"""
    use = memory_use(alone(parse_graph(text)))
    assert use.state == 400
    assert (use.peak, use.at) == (400 + 400 + 800, 2)  # the frozen weight, z and a


def test_views_hold_no_memory_of_their_own_and_keep_their_base() -> None:
    text = """graph
  input %x: float32[4, 6]  batch  "0"
  %h: float32[4, 6] = aten.relu(self=%x)  # forward
  %t: float32[6, 4] = aten.permute(self=%h, dims=[1, 0])  # forward
  %v: float32[6, 2, 2] = aten.reshape(self=%t, shape=[6, 2, 2])  # forward
  %y: float32[6, 2, 2] = aten.relu(self=%v)  # forward
  %c: float32[24] = aten.reshape(self=%t, shape=[24])  # forward
  return %y result, %c result"""
    use = memory_use(alone(parse_graph(text)))
    assert (use.peak, use.at) == (3 * 96, 4)  # h (by its view t), y, and c, which PyTorch must copy


def test_a_fetch_and_its_staging_by_hand() -> None:
    """x [4, 6] lies by rows and is wanted by columns: each device stages a block of columns of what it sends."""
    text = """graph
  input %x: float32[4, 6]  batch  "0"
  %y: float32[4, 6] = aten.relu(self=%x)  # forward
  return %y result"""
    program = divided(parse_graph(text), (2,), ((1,),), {"x": (0,), "y": (1,)})
    assert [type(step).__name__ for step in program] == ["TransferStep", "FreeStep", "ComputeStep", "FreeStep"]
    for device in range(2):
        # x's two rows (48), the buffer of three columns (48), and the block of 2 x 3 that is sent (24): it is cut out
        # of rows. What arrives is two whole rows of the buffer and needs no staging.
        use = memory_use(program, device)
        assert (use.device, use.peak, use.at) == (device, 48 + 48 + 24, 0)


def test_contributions_to_a_reduction_are_staged() -> None:
    """Columns of x times rows of w on each device: partial sums [4, 8], of which each device keeps two rows."""
    text = """graph
  input %x: float32[4, 6]  batch  "0"
  input %w: float32[6, 8]  parameter  "w"
  %y: float32[4, 8] = aten.mm(self=%x, mat2=%w)  # forward
  return %y result"""
    program = divided(parse_graph(text), (2,), ((2,),), {"x": (1,), "w": (0,), "y": (0,)})
    (step,) = program.transfers
    assert program.exchange_of(step).kind == "reduce-scatter"
    use = memory_use(program)
    # w's half lives on (96); the product (128), the part that is kept (64), and the other's contribution (64).
    assert use.state == 96
    assert use.peak == 96 + 128 + 64 + 64


def test_replicated_state_is_held_by_every_device() -> None:
    graph = perceptron(1, 4, 8)
    whole = (REPLICATE,)
    program = divided(graph, (2,), tuple(whole for _ in graph.nodes), dict.fromkeys(graph.values, whole))
    assert program.transfers == ()
    assert memory_use(program, 0).state == 8 * 8 * 4
    assert replace(memory_use(program, 1), device=0) == memory_use(program, 0)


# ------------------------------------------------------------------------------------------- PyTorch's views


@st.composite
def strided(draw: st.DrawFn) -> torch.Tensor:
    """A tensor as views make them: permuted, narrowed, expanded."""
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=4))
    tensor = torch.zeros(shape)
    for _ in range(draw(st.integers(0, 3))):
        what = draw(st.sampled_from(["permute", "narrow", "expand"]))
        if what == "permute":
            tensor = tensor.permute(draw(st.permutations(range(tensor.dim()))))
        elif what == "narrow" and tensor.dim():
            dimension = draw(st.integers(0, tensor.dim() - 1))
            tensor = tensor.narrow(dimension, 0, draw(st.integers(1, tensor.shape[dimension])))
        elif what == "expand":
            tensor = tensor.expand([draw(st.sampled_from([2, 3])) if size == 1 else size for size in tensor.shape])
    return tensor


@st.composite
def targets(draw: st.DrawFn, tensor: torch.Tensor) -> tuple[int, ...]:
    left, shape = tensor.numel(), []
    for _ in range(draw(st.integers(0, 4))):
        shape.append(draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0])))
        left //= shape[-1]
    if left > 1 or draw(st.booleans()):
        shape.insert(draw(st.integers(0, len(shape))), left)
    return tuple(shape)


@given(st.data())
@settings(max_examples=random_cases(600))
def test_views_are_possible_exactly_where_pytorch_says(data: st.DataObject) -> None:
    tensor = data.draw(strided())
    target = data.draw(targets(tensor))
    found = view_strides(tuple(tensor.shape), tensor.stride(), target)
    try:
        expected = tensor.view(target).stride()
    except RuntimeError:
        expected = None
    assert found == expected


@given(strided())
@settings(max_examples=random_cases(300))
def test_contiguity_is_that_of_pytorch(tensor: torch.Tensor) -> None:
    assert is_contiguous(tuple(tensor.shape), tensor.stride()) == tensor.is_contiguous()
    assert contiguous_strides(tuple(tensor.shape)) == torch.empty(tensor.shape).stride()


# ------------------------------------------------------------------------------------------- storages that live


def measured_peak(program: Program) -> int:
    """Run the program of one device in PyTorch, and add up the storages alive after each step."""
    graph = program.graph
    held = {item.name: torch.ones(graph.values[item.name].shape) for item in graph.inputs}

    def alive() -> int:
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in held.values()}
        return sum(storages.values())

    peak = alive()
    taken = taken_over(program)
    for step in program:
        if isinstance(step, FreeStep):
            for buffer in step.buffers:
                held.pop(buffer, None)
        elif isinstance(step, ComputeStep):
            node = graph.nodes[step.node]
            description = description_of(graph, node)
            assert description is not None
            piece = make_piece(description, node.attributes, (0,) * description.rank, description.sizes)
            boxes = zip((part.buffer for part in step.reads), piece.regions, strict=True)
            tensors = [held[name][tuple(slice(*side) for side in box)] for name, box in boxes]
            held[step.writes[0]] = run_piece(piece, tensors)
            if step.writes[0] in taken:  # the operand ends here
                operand = held.pop(step.reads[taken[step.writes[0]]].buffer)
                made = held[step.writes[0]]
                assert operand.shape == made.shape
                sides = zip(made.shape, operand.stride(), made.stride(), strict=True)
                assert all(one == other for size, one, other in sides if size > 1)
                storages = [tensor.untyped_storage().data_ptr() for tensor in held.values()]
                assert operand.untyped_storage().data_ptr() not in storages
            peak = max(peak, alive())
    kept = {output.name for output in graph.outputs if output.replaces is None}
    readers = Counter(name for name in graph.updates.values() if name not in kept)
    state: list[torch.Tensor] = []  # as the worker settles it
    for item in graph.state_inputs:
        if (name := graph.updates.get(item.name)) is None:
            continue
        made = held[name]
        state.append(settle(made))
        own = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in state}
        beside = {made.untyped_storage().data_ptr() for made in held.values()}
        peak = max(peak, alive() + sum(size for at, size in own.items() if at not in beside))
        readers[name] -= 1
        if readers[name] == 0:
            del held[name]
    return peak


@given(st.integers(0, 2**32), st.integers(1, 10))
@settings(max_examples=random_cases(150))
def test_the_peak_is_that_of_storages_alive(seed: int, nodes: int) -> None:
    graph = random_graph(np.random.default_rng(seed), nodes)
    assume(all(description_of(graph, node) is not None for node in graph.nodes))
    assume(all(value.dtype == "float32" for value in graph.values.values()))
    program = alone(graph)
    with patch.object(
        memory.Tracker, "temporaries", lambda *_: 0
    ):  # tests/run/worker/test_run_memory.py measures those
        assert memory_use(program).peak == measured_peak(program)


@given(strategies())
@THOROUGH
def test_devices_that_share_a_walk_need_what_a_walk_of_their_own_says(case: tuple) -> None:
    program = lowered(case)
    devices = range(program.mesh.devices)
    together: set[str] = set()
    apart: set[str] = set()
    shared = memory_uses(program, devices, 1, lambda call: together.add(call.key) or call.bound)
    each = [memory_use(program, device, 1, lambda call: apart.add(call.key) or call.bound) for device in devices]
    assert shared == tuple(each)
    assert together == apart  # what a plan's file says of kernels


def test_devices_with_equal_parts_but_other_messages_have_peaks_of_their_own() -> None:
    """Rows of a part that stay at home are not packed, and those that lie apart in the part are."""
    text = """graph
  input %x: float32[6, 4, 4]  parameter  "0"
  %y: float32[6, 4, 4] = aten.mul.Tensor(self=%x, other=%x)  # forward
  return %y update replaces %x"""
    program = divided(parse_graph(text), (2, 2), ((1, 1),), {"x": (2, 1), "y": (2, 1)})
    assert len({program.part_shape("x", program.places["x"], device) for device in range(4)}) == 1
    uses = memory_uses(program, range(4))
    assert uses == tuple(memory_use(program, device) for device in range(4))
    assert [use.peak for use in uses] == [384, 480, 480, 384]


VIEWS = [
    ("aten.permute", {"dims": (2, 0, 1)}, (6, 4, 2)),
    ("aten.transpose.int", {"dim0": 0, "dim1": 2}, (6, 2, 4)),
    ("aten.slice.Tensor", {"dim": 2, "start": 0, "end": 6, "step": 2}, (4, 2, 3)),
    ("aten.slice.Tensor", {"dim": -1, "start": 1, "end": 5}, (4, 2, 4)),
    ("aten.select.int", {"dim": -1, "index": 1}, (4, 2)),
    ("aten.select.int", {"dim": 1, "index": 1}, (4, 6)),
    ("aten.unsqueeze", {"dim": 1}, (4, 1, 2, 6)),
    ("aten.squeeze", {}, (4, 2, 6)),
    ("aten.expand", {"size": (3, 4, 2, 6)}, (3, 4, 2, 6)),
    ("aten.view", {"size": (8, 6)}, (8, 6)),
    ("aten.diagonal", {"offset": 0, "dim1": 0, "dim2": 1}, (6, 2)),
    ("aten.alias", {}, (4, 2, 6)),
]


@pytest.mark.parametrize(("operator", "attributes", "shape"), VIEWS)
@pytest.mark.parametrize("flat", [True, False])
def test_every_view_operator_has_pytorchs_strides(operator: str, attributes: dict, shape: tuple, flat: bool) -> None:
    """A view of a frozen weight and then a reshape of it, which copies exactly where PyTorch copies."""
    make = Maker()
    x = make.input((4, 2, 6) if flat else (6, 2, 4), "parameter")
    if not flat:
        x = make.emit("aten.permute", (4, 2, 6), self=Ref(x), dims=(2, 1, 0))
    v = make.emit(operator, shape, self=Ref(x), **attributes)
    count = int(np.prod(shape))
    r = make.emit("aten.reshape", (count,), self=Ref(v), shape=(count,))
    keep = make.emit("aten.relu", (count,), self=Ref(r))
    program = alone(make.graph([Output(keep, "result")]))
    assert memory_use(program).peak == measured_peak(program)
