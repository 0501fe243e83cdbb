"""A number that picks no row of a table, or no class, is an IndexError, also where devices have parts of the table."""

from __future__ import annotations

import pytest
import torch

from girih.api import plan_graph
from girih.graph import parse_graph
from girih.run.errors import WorkerError
from girih.run.training.session import start

ROWS = 4096
TABLE = """graph
  input %x: float32[64]  batch  "0"
  input %table: float32[4096, 1]  parameter  "table"
  %i: int64[64] = aten._to_copy(self=%x, dtype="int64")  # forward
  %rows: float32[64, 1] = girih.embedding(weight=%table, indices=%i)  # forward
  return %rows result"""
CLASSES = """graph
  input %x: float32[1]  batch  "0"
  input %table: float32[1, 4096]  parameter  "table"
  %i: int64[1] = aten._to_copy(self=%x, dtype="int64")  # forward
  %rows: float32[1] = girih.pick(input=%table, index=%i, dim=1)  # forward
  return %rows result"""
PLACES = """graph
  input %x: float32[1]  batch  "0"
  input %table: float32[4096]  parameter  "table"
  %i: int64[1] = aten._to_copy(self=%x, dtype="int64")  # forward
  %placed: float32[1, 4096] = girih.place(value=%x, index=%i, dim=1, size=4096)  # forward
  %y: float32[1, 4096] = aten.add.Tensor(self=%placed, other=%table)  # forward
  return %y result"""
GRADIENT = """graph
  input %x: float32[64]  batch  "0"
  input %table: float32[4096, 1]  parameter  "table"
  %i: int64[64] = aten._to_copy(self=%x, dtype="int64")  # forward
  %g: float32[64, 1] = aten.unsqueeze(self=%x, dim=1)  # forward
  %rows: float32[4096, 1] = girih.embedding_gradient(grad=%g, indices=%i, rows=4096)  # forward
  %y: float32[4096, 1] = aten.add.Tensor(self=%rows, other=%table)  # forward
  return %y update %table"""
PROGRAMS = {
    "girih.embedding": TABLE,
    "girih.pick": CLASSES,
    "girih.place": PLACES,
    "girih.embedding_gradient": GRADIENT,
}


@pytest.mark.parametrize("operator", PROGRAMS)
@pytest.mark.parametrize("workers", [1, 2])
def test_computed_numbers_that_pick_no_row_are_an_error(operator: str, workers: int) -> None:
    graph = parse_graph(PROGRAMS[operator])
    whole = plan_graph(graph, machine="local:1", objective="bytes").peak
    limit = None if workers == 1 else int(whole * 0.7)  # nothing but the rows can be divided
    plan = plan_graph(graph, machine=f"local:{workers}", memory=limit, objective="bytes", hold="none")
    table = torch.arange(float(ROWS)).reshape(graph.values["table"].shape)
    x = torch.arange(float(graph.values["x"].shape[0]))
    with start(plan.program, backend="threads", state={"table": table}) as run:
        run.step({"x": x}, {})
    for wrong in (-1.0, float(ROWS)):
        with start(plan.program, backend="threads", state={"table": table}) as run:
            text = rf"{operator}\b.*\n(.*\n)*.*rows 0 to {ROWS - 1}, and none {int(wrong)}"
            with pytest.raises(IndexError, match=text) as told:
                run.step({"x": x.index_fill(0, torch.tensor(0), wrong)}, {})
            assert isinstance(told.value, WorkerError)
