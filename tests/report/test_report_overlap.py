"""How much overlaps is told in words, and what is told is what the spans say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs import machine_of, perceptron
from stand_in import timeline_of

from girih.api import Plan, plan_graph
from girih.program import Overlap
from girih.report.overlap import overlap_words, receiving_seconds
from girih.report.trace import trace
from girih.simulate.timeline import COMPUTE, Timeline


def timeline(devices: int, *spans: tuple[int, int, float, float]) -> Timeline:
    """spans: (device, stream, begin, end)."""
    device, stream, begin, end = (np.asarray(column) for column in zip(*spans, strict=True))
    return Timeline(
        devices, ("compute", "bus", "network"), device.astype(np.int32), stream.astype(np.int32),
        np.zeros(len(spans), np.int32), begin.astype(float), end.astype(float), np.zeros(len(spans), np.int64),
    )  # fmt: skip


def test_seconds_of_receiving_are_counted_once_and_held_against_computing() -> None:
    made = timeline(
        2,
        (0, 1, 1.0, 3.0), (0, 2, 2.0, 4.0), (0, 0, 0.0, 1.5), (0, 0, 3.5, 6.0), (0, 1, 5.0, 5.5),
        (1, 1, 0.0, 1.0), (1, 0, 1.0, 2.0),
    )  # fmt: skip
    assert receiving_seconds(made) == pytest.approx((3.0 + 0.5 + 1.0, 0.5 + 0.5 + 0.5))


def test_seconds_of_random_spans_are_those_of_a_fine_grid() -> None:
    random = np.random.default_rng(0)
    begin = random.integers(0, 200, 60)
    end = begin + random.integers(0, 12, 60)
    stream = random.integers(0, 3, 60)
    whole, hidden = receiving_seconds(timeline(1, *((0, *row) for row in zip(stream, begin, end, strict=True))))
    busy = np.zeros((2, 220), bool)
    for number, low, high in zip(stream, begin, end, strict=True):
        busy[int(number != COMPUTE), low:high] = True
    assert (whole, hidden) == (busy[1].sum(), busy.all(axis=0).sum())


def words(plan: Plan) -> str:
    return overlap_words(plan, plan.predict().timeline)


def test_where_there_is_nothing_to_overlap_it_is_said() -> None:
    alone = plan_graph(perceptron(), machine="local:1", objective="bytes")
    assert words(alone) == "one device: nothing is exchanged, so there is nothing to overlap"
    copies = plan_graph(perceptron(), machine=machine_of((2,)), search="single", objective="bytes")
    assert words(copies) == "no device receives anything from another: there is nothing to overlap"
    assert trace(copies.predict().timeline, copies)["otherData"]["overlap"] == words(copies)


def test_what_overlaps_is_a_share_and_what_does_not_is_said(small: Plan) -> None:
    whole, hidden = receiving_seconds(small.predict().timeline)
    assert 0 < hidden < whole
    assert words(small).startswith(f"{hidden / whole:.0%} of the ")
    apart = timeline_of(small)  # the stand-in's devices stand still while they receive
    assert overlap_words(small, apart).startswith("nothing overlaps: no device computes while it receives (")


def test_next_to_nothing_has_no_share(small: Plan) -> None:
    made = timeline_of(small)
    links = made.stream != COMPUTE
    short = replace(made, end=np.where(links, made.begin + 1e-6 * made.seconds / links.sum(), made.end))
    assert overlap_words(small, short).startswith("receiving takes less than 0.1% of the step: there is next")


def test_of_a_run_it_is_told_what_starts_early(small: Plan) -> None:
    measured = replace(timeline_of(small), measured=True)
    assert " transfers start early, beside computing" in overlap_words(small, measured)
    plain = small.but(overlap=Overlap())
    assert overlap_words(plain, measured) == "nothing overlaps: no exchange starts before its result is needed"
