"""The trace keeps the rules of the trace event format, and says what the timeline says."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest
from stand_in import timeline_of

from girih.api import Plan
from girih.report.trace import trace, write_trace


def test_events_keep_the_rules_of_the_format(gpt: Plan) -> None:
    timeline = timeline_of(gpt)
    made = json.loads(json.dumps(trace(timeline, gpt), allow_nan=False))
    assert made["displayTimeUnit"] in ("ms", "ns")
    for event in made["traceEvents"]:
        assert event["ph"] in ("X", "M", "C")
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["name"]
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert event["cat"]
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())


def test_processes_are_devices_and_threads_streams(gpt: Plan) -> None:
    timeline = timeline_of(gpt)
    events = trace(timeline, gpt)["traceEvents"]
    named = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert set(named) == {(device, stream) for device in range(4) for stream in range(3)}
    assert named[0, 0] == "compute"
    assert named[3, 2] == "receive over loopback 1 ×2"
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert processes == {device: f"device {device}" for device in range(4)}
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"} <= set(named)


def test_spans_and_counters_are_those_of_the_timeline(gpt: Plan) -> None:
    timeline = timeline_of(gpt)
    events = trace(timeline, gpt)["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == len(timeline.begin)
    assert max(event["ts"] + event["dur"] for event in spans) == pytest.approx(timeline.seconds * 1e6, abs=0.01)
    assert sum(event["args"].get("bytes received", 0) for event in spans) == gpt.bytes_received.sum()
    product = next(event for event in spans if event["name"] == "mm")
    assert product["cat"] == "matrix product"
    assert product["args"]["operator"] == "aten.mm"
    assert product["args"]["division"] == "i · i"
    assert product["args"]["module"] == "blocks.0.attention.query"
    counters = Counter(event["pid"] for event in events if event["ph"] == "C")
    assert counters == {device: len(memory.bytes) for device, memory in enumerate(timeline.memory)}


def test_spans_of_one_thread_do_not_overlap(gpt: Plan) -> None:
    """Complete events of one thread are nested or apart; ours are apart, up to rounding to nanoseconds."""
    last: dict[tuple[int, int], float] = {}
    for event in trace(timeline_of(gpt), gpt)["traceEvents"]:
        if event["ph"] == "X":
            thread = event["pid"], event["tid"]
            assert event["ts"] >= last.get(thread, 0.0) - 0.002
            last[thread] = event["ts"] + event["dur"]


def test_files_are_compressed_by_their_name(small: Plan, tmp_path: Path) -> None:
    timeline = timeline_of(small)
    plain = write_trace(tmp_path / "trace.json", timeline, small)
    packed = write_trace(tmp_path / "trace.json.gz", timeline, small)
    assert json.loads(plain.read_bytes()) == json.loads(gzip.decompress(packed.read_bytes()))
    assert packed.stat().st_size < plain.stat().st_size / 3
