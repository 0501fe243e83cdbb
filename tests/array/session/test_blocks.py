"""Programs in blocks: what NumPy makes of them, on blocks so small that everything is cut."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from array_expressions import BINARY, UNARY, build
from block_programs import FUSED, TINY, groups, program_of
from counts import random_cases
from hypothesis import given, settings
from hypothesis import strategies as st

import girih.array as gnp
from girih.capture.lazy.expressions import needed
from girih.program import Blocks
from girih.program.life.accounts import memory_use
from girih.run.worker.measure import peak_bytes
from girih.run.worker.worker import Worker


@pytest.fixture(scope="module", params=[1, 2, 3], ids=lambda workers: f"workers{workers}")
def tiny(request: pytest.FixtureRequest) -> Iterator[gnp.Cluster]:
    """Workers whose caches hold 32 numbers."""
    with gnp.cluster(workers=request.param, backend="threads", timeout=60.0) as made:
        made.blocks = TINY
        yield made


@pytest.mark.parametrize("number", range(len(FUSED)))
def test_small_programs(tiny, number):
    x = np.random.default_rng(number).normal(size=(71, 5))
    made = FUSED[number](gnp, gnp.array(x))
    assert groups(program_of(made))
    np.testing.assert_allclose(made.compute(), FUSED[number](np, x), rtol=1e-6, atol=1e-9)


steps = st.lists(
    st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 30), st.integers(0, 30), st.booleans()),
    min_size=1,
    max_size=10,
)


@settings(max_examples=random_cases(40), deadline=None)
@given(steps=steps, rows=st.integers(1, 16), columns=st.integers(1, 6))
def test_random_programs(tiny, steps, rows, columns):
    random = np.random.default_rng(rows * 7 + columns)
    leaves = [random.normal(size=(rows, columns)), random.normal(size=(columns, 3))]
    expected = build(np, leaves, steps, lambda x: None)
    got = build(gnp, [gnp.array(x) for x in leaves], steps, lambda x: x.persist())
    left = [array for array in got if not array.expression.is_leaf]
    if left:
        program_of(*left)
    for first, second in zip(expected, got, strict=True):
        assert (second.shape, second.dtype) == (first.shape, first.dtype)
        np.testing.assert_allclose(second.compute(), first, rtol=1e-9, atol=1e-9)


def test_an_error_names_the_line(tiny):
    x = gnp.array(np.zeros((12, 3, 3)))
    made = gnp.linalg.inv(x * 2 + 1) * 3
    with pytest.raises(np.linalg.LinAlgError, match=r"test_blocks.py"):
        made.compute()


def test_bytes_between_workers_do_not_change():
    moved = []
    x = np.random.default_rng(0).normal(size=(2000, 5))
    for blocks in (Blocks(cache=1 << 14, call=0.0), Blocks(cache=1 << 30)):
        with gnp.cluster(workers=2, backend="threads") as cluster:
            cluster.blocks = blocks
            for function in FUSED:
                function(gnp, gnp.array(x)).compute()
            moved.append(sum(item.bytes_received for item in cluster.run.statistics()))
    assert moved[0] == moved[1] > 0


@pytest.mark.parametrize("number", [0, 1, 3, 5])
def test_memory_is_as_predicted(number):
    with gnp.cluster(workers=1, backend="threads") as cluster:
        cluster.blocks = Blocks(cache=1 << 14, call=0.0, small=0)
        work = needed([FUSED[number](gnp, gnp.array(np.ones((2001, 5)))).expression])
        program = cluster.plan_of(work).program
    assert groups(program)
    tensors = {work.names[item]: torch.from_numpy(item.content) for item in work.inputs}
    state = {item.name for item in program.graph.state_inputs}
    worker = Worker(program, 0)
    worker.take_state({name: tensors[name] for name in state})
    measured = peak_bytes(worker, {name: tensors[name] for name in tensors if name not in state})
    predicted = memory_use(program, 0, 1).peak
    assert predicted == measured
    assert measured < 8 * (2001 * 5 * 8)


@pytest.mark.parametrize(("columns", "least", "most"), [(700, 192, 200), (8000, 20, 24), (100, 400, 800)])
def test_blocks_of_a_product_have_rows_enough(columns, least, most):
    """As many as a product wants, if four caches hold them; more where one cache does."""
    x = np.random.default_rng(0).normal(size=(3000, columns))
    with gnp.cluster(workers=1, backend="threads"):
        made = gnp.exp(gnp.array(x)) @ gnp.array(x[:10].T)
        (step,) = groups(program_of(made))
        np.testing.assert_allclose(made.compute(), np.exp(x) @ x[:10].T)
    assert least <= step.rows <= most


@pytest.mark.parametrize(("readers", "written"), [(2, 0), (3, 1)])
def test_a_difference_with_two_readers_is_made_twice(readers, written):
    """It would take 1.6 MB that nobody asks for; with a third reader it is written once and read."""
    x = np.random.default_rng(0).normal(size=(20_000, 10))

    def scaled(np_, x):
        y = x - x.mean(0)
        for _ in range(readers - 1):
            y = (x - x.mean(0)) @ np_.tanh(y.T @ (x - x.mean(0)))
        return y

    with gnp.cluster(workers=1, backend="threads") as cluster:
        cluster.blocks = Blocks(cache=1 << 16)
        made = scaled(gnp, gnp.array(x))
        program = program_of(made)
        large = [name for step in groups(program) for name in step.writes if name.startswith("sub.")]
        np.testing.assert_allclose(made.compute(), scaled(np, x), rtol=1e-9)
    assert len(large) == written
