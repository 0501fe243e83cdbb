"""Sums and means over what masks `labels == number` choose: one sum for all numbers, and what NumPy makes of them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from block_programs import TINY, groups, program_of
from borders import of_large
from counts import but_long, random_cases
from hypothesis import given, settings
from hypothesis import strategies as st

import girih.array as gnp
from girih.array.session.clusters import current
from girih.capture.lazy.expressions import needed
from girih.graph import Graph
from girih.program import Blocks
from girih.program.life.accounts import memory_use
from girih.run.loops.build import build
from girih.run.loops.torchscript import script_text
from girih.run.worker.measure import peak_bytes
from girih.run.worker.worker import Worker

pytestmark = of_large


@pytest.fixture(scope="module", params=but_long([1, 2, 3], [2]), ids=lambda workers: f"workers{workers}")
def tiny(request):
    """Workers whose caches hold 32 numbers: loops over so many blocks are TorchScript."""
    with gnp.cluster(workers=request.param, backend="threads", timeout=60.0) as made:
        made.blocks = TINY
        yield made


def graph_of(*arrays: gnp.Array) -> Graph:
    return current().plan_of(needed([array.expression for array in arrays])).graph


def operators(graph: Graph) -> list[str]:
    return [node.operator for node in graph.nodes]


def quietly(function, *arguments):
    """NumPy's result, without its warnings about the means of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)


def means(np, x, labels, numbers=range(4)):
    return np.stack([x[labels == number].mean(0) for number in numbers])


PROGRAMS = [
    means,
    lambda np, x, labels: means(np, x, labels, (3, 0, 3, 7, -1)),  # again, absent, in no order
    lambda np, x, labels: means(np, x, labels.astype(np.int32), (5, 2)),
    lambda np, x, labels: np.stack([x[number == labels].sum(axis=0) for number in (2, 1)]),
    lambda np, x, labels: np.stack([(labels == number).sum() for number in range(3)]),
    lambda np, x, labels: np.stack([x[:, 0][labels == number].sum() for number in range(3)]),
    lambda np, x, labels: np.stack([x.reshape(-1, 2, 2)[labels == number].sum(0) for number in range(3)]),
    lambda np, x, labels: np.stack([x[(labels + 1) == number].sum(0) + x.sum(0) for number in range(5)]),
    lambda np, x, labels: means(np, x, labels) + means(np, x * 2, labels, (1, 2, 3, 4)),
    lambda np, x, labels: x[labels == 1].sum(0) * x[labels == 2].sum(0) + np.where(labels == 1, 1, 0).sum(),
    lambda np, x, labels: means(np, x, (x[:, :3] - x[:, 1:]).argmax(1)),
]


@pytest.mark.parametrize("kind", ["float64", "float32", "int64", "int16", "complex64"])
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_what_numpy_makes_of_them(tiny, number, kind):
    random = np.random.default_rng(number)
    x, labels = (random.normal(size=(211, 4)) * 9).astype(kind), random.integers(0, 6, 211)
    expected = quietly(PROGRAMS[number], np, x, labels)
    made = PROGRAMS[number](gnp, gnp.array(x), gnp.array(labels))
    found = operators(graph_of(made))
    assert "girih.masked_sum" not in found
    assert found.count("girih.label_positions") == 1
    assert (made.shape, made.dtype) == (expected.shape, expected.dtype)
    bound = 1e-4 if kind in ("float32", "complex64") else 1e-12
    np.testing.assert_allclose(made.compute(), expected, rtol=bound, atol=100 * bound)


@settings(max_examples=random_cases(40), deadline=None)
@given(
    labels=st.lists(st.integers(-128, 127), max_size=60),
    numbers=st.lists(st.integers(-128, 127), min_size=1, max_size=6),
    kind=st.sampled_from(["int8", "int32", "int64", "uint8"]),
    seed=st.integers(0, 99),
)
def test_random_labels(tiny, labels, numbers, kind, seed):
    place = np.array(labels, np.int64).astype(kind)
    wanted = np.array(numbers).astype(kind)
    x = np.random.default_rng(seed).normal(size=(len(place), 3))
    expected = quietly(means, np, x, place, wanted)
    np.testing.assert_allclose(means(gnp, gnp.array(x), gnp.array(place), wanted).compute(), expected, atol=1e-12)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_what_a_group_did_not_choose_does_not_reach_it(tiny, odd):
    x, labels = np.ones((90, 3)), np.arange(90) % 5
    x[labels == 4] = odd  # in no sum
    x[labels == 2, 1] = odd
    made = means(gnp, gnp.array(x), gnp.array(labels)).compute()
    np.testing.assert_array_equal(made, [[1, 1, 1], [1, 1, 1], [1, odd, 1], [1, 1, 1]])


def test_the_points_are_read_once(two):
    random = np.random.default_rng(0)
    x = gnp.array(random.normal(size=(60_000, 8)))
    centres = x[:5]
    for _ in range(2):
        centres = means(gnp, x, ((centres**2).sum(1) - 2 * (x @ centres.T)).argmin(1), range(5))
    program = program_of(centres)
    found = operators(program.graph)
    assert [found.count(f"girih.{name}_by_position") for name in ("sums", "counts")] == [2, 2]
    assert "aten.eq.Tensor" not in found
    steps = groups(program)
    assert len(steps) == 2  # one pass for each iteration, which leaves sums and counts
    assert [len(step.writes) for step in steps] == [2, 2]
    assert all(script_text(build(program, step, 0)) for step in steps)  # which runs without the interpreter's lock


def test_masks_and_sums_that_are_kept_have_their_values(tiny):
    content, place = np.random.default_rng(0).normal(size=(70, 3)), np.arange(70) % 3
    x, labels = gnp.array(content), gnp.array(place)
    masks = [labels == number for number in range(3)]
    sums = [x[mask].sum(0) for mask in masks]
    total = sum(sums[1:], sums[0]).compute()
    np.testing.assert_allclose(total, content.sum(0))
    for number, (mask, one) in enumerate(zip(masks, sums, strict=True)):
        np.testing.assert_array_equal(mask.compute(), place == number)
        np.testing.assert_allclose(one.compute(), content[place == number].sum(0))


def test_what_is_no_family_stays(two):
    x, labels = gnp.array(np.ones((40, 2))), gnp.array(np.arange(40) % 4)
    alone = x[labels == 1].sum(0)
    computed = gnp.stack([x[labels == labels[number]].sum(0) for number in range(2)])
    rounded = gnp.stack([x[labels * 1.0 == number].sum(0) for number in range(2)])
    for made in (alone, computed, rounded):
        assert "girih.label_positions" not in operators(graph_of(made))
        np.testing.assert_array_equal(made.compute(), np.full(made.shape, 10))


def test_a_source_is_read_block_by_block(tmp_path):
    content = np.random.default_rng(0).normal(size=(40_000, 8))
    np.save(tmp_path / "points.npy", content)
    with gnp.cluster(workers=2, backend="threads", memory="2 MB"):
        x = gnp.from_npy(tmp_path / "points.npy")
        labels = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
        place = (content[:, 0] > 0).astype(int) + (content[:, 1] > 0)
        np.testing.assert_allclose(means(gnp, x, labels, range(3)).compute(), means(np, content, place, range(3)))
        assert x.expression.kept is None


@pytest.mark.parametrize("numbers", [(0, 1, 2), (5, 1, 9)])
@pytest.mark.parametrize("kind", ["float64", "float32"])
@pytest.mark.parametrize("cache", [1 << 14, 1 << 30])
def test_memory_is_bounded_as_predicted(numbers, kind, cache):
    import torch

    with gnp.cluster(workers=1, backend="threads") as cluster:
        cluster.blocks = Blocks(cache=cache, call=0.0, small=0)
        x, labels = gnp.array(np.ones((3001, 6), kind)), gnp.array(np.arange(3001) % 4)
        work = needed([means(gnp, x, labels, numbers).expression])
        program = cluster.plan_of(work).program
    tensors = {work.names[item]: torch.from_numpy(item.content) for item in work.inputs}
    state = {item.name for item in program.graph.state_inputs}
    worker = Worker(program, 0)
    worker.take_state({name: tensors[name] for name in state})
    measured = peak_bytes(worker, {name: tensors[name] for name in tensors if name not in state})
    assert measured <= memory_use(program, 0, 1).peak
