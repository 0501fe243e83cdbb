"""What `benchmarks.gpu` holds against its floors, of rows that are told."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from benchmarks.gpu import apart, losses_apart, through, wrong
from girih.run.transport.gloo import through_host

ROW = {
    "model": "gpt", "dtype": "float32", "limit": "50%", "loss apart": 1e-6, "allowed": 2e-4, "weights apart": 1e-5,
    "allowed too": 2e-4, "planned MB": 10.0, "measured MB": 10.0, "limit MB": 10.5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"limit MB": None}, None),
        ({"loss apart": 3e-4}, "apart from PyTorch's"),
        ({"weights apart": float("nan")}, "apart from PyTorch's"),
        ({"measured MB": 10.001}, r"10\.001 MB measured, 10\.000 planned"),
        ({"planned MB": 11.0, "measured MB": 10.6}, r"10\.600 MB measured, limit 10\.500"),
    ],
)
def test_what_misses_a_floor(change: dict[str, Any], words: str | None) -> None:
    if words is None:
        assert list(wrong(ROW | change)) == []
        return
    (miss,) = wrong(ROW | change)
    assert re.search(words, miss)


def test_how_far_apart_two_runs_are() -> None:
    theirs = {"a": torch.tensor([10.0, -1.0]), "zero": torch.tensor([0.0]), "none": torch.empty(0)}
    own = theirs | {"a": torch.tensor([10.0, -1.5]), "zero": torch.tensor([1e-5])}
    assert apart(own, theirs) == (pytest.approx(0.05), "a")
    assert losses_apart([1.0, 2.2], [1.0, 2.0]) == pytest.approx(0.1)


def test_workers_send_by_what_is_said_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GIRIH_TRANSPORT", raising=False)
    with through("gloo"):
        assert through_host()
    assert not through_host()
