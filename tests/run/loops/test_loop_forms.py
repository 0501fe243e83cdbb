"""Loops over blocks: their form as text, the law that it keeps, and that each target computes what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from block_programs import FUSED, TINY, groups, program_of
from interpreted_loops import Interpreted
from loop_form_law import LoopFormError, check

import girih.array as gnp
from girih.capture.lazy.expressions import needed
from girih.program import Program
from girih.program.fusion.slicing import Moving, difference
from girih.run.loops import python, torchscript
from girih.run.loops.build import build
from girih.run.loops.form import (
    Accumulate,
    Copy,
    Free,
    KernelLine,
    LoopForm,
    Outside,
    Read,
    Result,
    Reused,
    Slice,
    Total,
    View,
    number_text,
)

LOW, HIGH = Moving(0, 1, 0), Moving(0, 0, 1)


def program(function: Any, rows: int = 40, columns: int = 5, workers: int = 1) -> Program:
    content = np.random.default_rng(0).normal(size=(rows, columns))
    with gnp.cluster(workers, backend="threads", small=0) as cluster:
        cluster.blocks = TINY
        results = function(gnp, gnp.array(content))
        return program_of(*(results if isinstance(results, tuple) else (results,)))


def form_of(function: Any, **sizes: int) -> LoopForm:
    made = program(function, **sizes)
    return build(made, groups(made)[-1], 0)


def distances(np, x):
    """A mean with a buffer, a view, a kernel's own result, a sum in a wider type, and two results that leave."""
    y = np.exp(x * 2) - x
    return y.T @ y, y.sum(1), y.astype(np.float32).sum(0)


def test_forms_and_what_targets_print(golden):
    form = form_of(distances)
    golden("form.txt", f"{form}\n")
    golden("python.txt", python.python_text(form))
    golden("torchscript.txt", str(torchscript.script_text(form)))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (7, "7"),
        (LOW, "low"),
        (Moving(-3, 1, 0), "low - 3"),
        (Moving(3, 0, 2), "2 * high + 3"),
        (Moving(0, -1, 1), "high - low"),
        (Moving(5, -1, 0), "-low + 5"),
    ],
)
def test_numbers_of_a_block_are_readable(number, text):
    assert number_text(number) == text
    low, high = 11, 16
    assert eval(text) == (number.at(low, high) if isinstance(number, Moving) else number)


def test_differences_that_do_not_move_are_whole():
    assert difference(Moving(7, 1, 0), Moving(4, 1, 0)) == 3
    assert difference(HIGH, LOW) == Moving(0, -1, 1)
    assert difference(9, 4) == 5


# ------------------------------------------------------------------------------------------- targets


def arguments(form: LoopForm, seed: int) -> list[Any]:
    """Of a loop's function, in the order: outside, results, buffers, totals."""
    random = np.random.default_rng(seed)

    def tensor(shape: Any, dtype: str) -> torch.Tensor:
        content = random.normal(size=shape) if dtype.startswith("float") else random.integers(0, 2, size=shape)
        return torch.from_numpy(np.asarray(content)).to(getattr(torch, dtype))

    outside = [tensor(item.shape, item.dtype) for item in form.outside]
    results = [torch.zeros(item.shape, dtype=getattr(torch, item.dtype)) for item in form.results]
    shapes = [tuple(size.at(0, form.rows) if isinstance(size, Moving) else size for size in item.shape)
              for item in form.buffers]  # fmt: skip
    buffers = [torch.zeros(shape, dtype=getattr(torch, item.dtype))
               for shape, item in zip(shapes, form.buffers, strict=True)]  # fmt: skip
    return [outside, results, buffers, [None] * len(form.totals)]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", range(len(FUSED)))
def test_targets_compute_the_bits_of_the_interpreter(number, workers):
    made = program(FUSED[number], workers=workers)
    for step in groups(made):
        form = build(made, step, workers - 1)
        first, last = form.span
        last -= (last - first) % form.rows
        text = torchscript.script_text(form)
        targets = [python.compiled(form), *([torchscript.compiled(text, 0)] if text else [])]
        expected = arguments(form, number)
        sums = Interpreted(form)(first, last, form.rows, *expected)
        for run in targets:
            own = arguments(form, number)
            totals = run(first, last, form.rows, *own)
            for one, other in zip((*own[1], *totals), (*expected[1], *sums), strict=True):
                assert torch.equal(one, other) or torch.equal(one.isnan(), other.isnan())


def test_an_error_is_that_of_its_statement():
    form = form_of(lambda np, x: np.linalg.inv(x.reshape(40, 5, 1) * x.reshape(40, 1, 5) + 0) * 3)
    (place,) = (number for number, item in enumerate(form.body) if getattr(item, "operator", "") == "aten.linalg_inv")
    values = arguments(form, 0)
    for tensor in values[0]:
        tensor.zero_()  # which has no inverse
    with pytest.raises(RuntimeError) as failed:
        python.compiled(form)(*form.span, form.rows, *values)
    assert python.node_of(form, failed.value) == form.body[place].node


# ------------------------------------------------------------------------------------------- the law

LENGTH = difference(HIGH, LOW)
FORM = LoopForm(
    span=(0, 40),
    rows=16,
    outside=(Outside("x", (), (40, 5), "float64", False),),
    results=(Result("y", (40,), "float64"),),
    memory=(640,),
    buffers=(Reused(0, (LENGTH, 5), "float64"),),
    totals=(Total("z", (), "float64", "sum"),),
    body=(
        View(0, "e0", Slice("x0", ((0, LOW, HIGH),))),
        KernelLine(1, "b0", "aten.exp", (Slice("e0"),), (), (LENGTH, 5), "float64", into=True),
        KernelLine(2, "t1", "aten.sum.dim_IntList", (Slice("b0"), (1,), False), (), (LENGTH,), "float64"),
        View(2, "o1", Slice("w0", ((0, LOW, HIGH),))),
        Copy(2, "o1", Slice("t1")),
        KernelLine(3, "t2", "aten.sum", (Slice("t1"),), (), (), "float64"),
        Accumulate(3, "a0", "t2", "sum"),
        Free("t2"),
        Free("t1"),
    ),
    products=False,
)


def position(kind: type) -> int:
    return next(number for number, item in enumerate(FORM.body) if type(item) is kind)


def without(number: int) -> LoopForm:
    return replace(FORM, body=FORM.body[:number] + FORM.body[number + 1 :])


def instead(number: int, *statements: Any) -> LoopForm:
    return replace(FORM, body=FORM.body[:number] + statements + FORM.body[number + 1 :])


def test_the_law_is_kept():
    check(FORM)
    ones = [[torch.zeros(40, 5, dtype=torch.float64)], [torch.zeros(40, dtype=torch.float64)]]
    buffers = [torch.zeros(8, 5, dtype=torch.float64)]
    totals = python.compiled(FORM)(0, 40, 8, *ones, buffers, [None])
    assert totals == [200]
    assert torch.equal(ones[1][0], torch.full((40,), 5.0, dtype=torch.float64))


BROKEN = {
    "nothing made it": lambda: without(position(View)),
    "is freed, which the block did not make": lambda: instead(position(Free), Free("x0")),
    "are not freed": lambda: without(position(Free)),
    "it was freed": lambda: instead(
        position(Free), FORM.body[position(Free)], Copy(0, "b0", Slice(FORM.body[position(Free)].register))
    ),
    "is named twice": lambda: instead(position(View), FORM.body[position(View)], FORM.body[position(View)]),
    "for the block": lambda: instead(
        position(View), replace(FORM.body[position(View)], source=Slice("x0", ((0, LOW, Moving(1, 0, 1)),)))
    ),
    "cut in dimension 2": lambda: instead(
        position(View), replace(FORM.body[position(View)], source=Slice("x0", ((2, 0, 1),)))
    ),
    "neither a buffer nor a result": lambda: instead(position(Copy), replace(FORM.body[position(Copy)], register="x0")),
    "nothing writes": lambda: without(position(Copy)),
    "nothing has written it": lambda: instead(0, Copy(0, "b0", Slice("b0"))),
    "is written twice": lambda: instead(position(Copy), FORM.body[position(Copy)], FORM.body[position(Copy)]),
    "of its memory": lambda: replace(FORM, memory=tuple(size - 1 for size in FORM.memory)),
    "is unknown": lambda: instead(
        position(Accumulate), replace(FORM.body[position(Accumulate)], register="a9")
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", BROKEN)
def test_a_form_that_breaks_the_law_is_refused(why):
    with pytest.raises(LoopFormError, match=why):
        check(BROKEN[why]())


def test_memory_is_not_read_when_another_register_is_written_there():
    """b1 lies where b0 does: from when it is written b0, and what shows it, are over."""
    buffers = (replace(FORM.buffers[0], memory=0), replace(FORM.buffers[0], memory=0))
    start = FORM.body[position(View)]
    call = KernelLine(0, "b0", "aten.exp", (Slice(start.register),), (), FORM.buffers[0].shape, "float64", into=True)
    body = (start, call, View(0, "v", Slice("b0", ((1, 0, 2),))), replace(call, register="b1"))
    form = replace(FORM, buffers=buffers, body=body, results=(), totals=())
    check(form)
    with pytest.raises(LoopFormError, match=r"v is read, but its memory was written again by b1 <- aten\.exp"):
        check(replace(form, body=(*body, Copy(0, "b1", Slice("v")))))
    with pytest.raises(LoopFormError, match="but not as it is"):
        check(replace(form, body=(*body[:3], replace(call, register="b1", arguments=(Slice("v"),)))))


def test_a_refusal_shows_the_statement_with_its_neighbours():
    number = position(Free)
    with pytest.raises(LoopFormError) as failed:
        check(instead(number, Free("t99")))
    lines = str(failed.value).splitlines()
    assert f">   {number:2}  free t99" in lines
    assert f"    {number - 1:2}  {FORM.body[number - 1]}" in lines


# ------------------------------------------------------------------------------------------- files


# ------------------------------------------------------------------------------------------- files


def forms_of_files(function: Any, *names: str) -> list[LoopForm]:
    """names: of the inputs that are files'."""
    with gnp.cluster(1, backend="threads", small=0) as cluster:
        arrays = [gnp.array(np.ones((rows, 5))) for rows in (40, 5)]
        plan = cluster.plan_of(needed([function(gnp, *arrays).expression]))
        made = plan.but(blocks=replace(TINY, streamed=frozenset(names))).program
    forms = [build(made, step, 0) for step in groups(made)]
    for form in forms:
        check(form)
    return forms


@pytest.mark.parametrize(
    "function",
    [
        lambda np, x, y: (x * 2 + 1).sum(),
        lambda np, x, y: (x[:, None, :] * 2).sum((0, 1)),
        lambda np, x, y: np.exp(x.T).sum(0),
        lambda np, x, y: np.exp(x.reshape(40, 5, 1)[:, 1:3]).sum(0),
    ],
)
def test_blocks_of_files_are_freed_with_all_that_shows_them(function):
    """Else two blocks of a file would be in memory at once."""
    forms = forms_of_files(function, "x0")
    assert any(isinstance(item, Read) for form in forms for item in form.body)
    for form in forms:
        assert torchscript.script_text(form) is None
        assert "read(" in python.python_text(form)


def test_what_all_blocks_read_of_a_file_is_read_once():
    (form,) = forms_of_files(lambda np, x, y: np.exp(x @ y), "x0", "x1")
    assert sorted(item.once for item in form.outside) == [False, True]
    assert len([item for item in form.body if isinstance(item, Read)]) == 1
