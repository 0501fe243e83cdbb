"""The page without a browser: its data say what the plan says, and nothing in a name can break out of it."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from stand_in import HOSTILE, as_if_measured, timeline_of

from girih.api import Plan, plan_graph
from girih.machine.units import format_bytes
from girih.plans.plan import Costs
from girih.program import ComputeStep
from girih.report.page import MissingLibraryError, page, write_page
from girih.report.page.assemble import page_data
from girih.report.page.spans import MOST_POINTS, chosen_devices, timeline_data
from girih.report.page.verdict import bound_sentence, comparisons, gap_sentence, headline, sentences
from girih.rewrite.certificate import Certificate
from girih.search.compare import simulated_alternatives
from girih.simulate.timeline import Memory, Timeline

pytest.importorskip("bokeh", reason="the page needs bokeh: pip install 'girih[report]'")


class _Elements(HTMLParser):
    """Tags, their attributes, and the text of script elements."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data = ""
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = dict(attrs).get("id") == "girih-data"

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.data += data


def read(text: str) -> _Elements:
    parser = _Elements()
    parser.feed(text)
    parser.close()
    return parser


# ------------------------------------------------------------------------------------------- the data


def decoded(lane: dict, unit: float) -> np.ndarray:
    """[spans, (step, begin, end)] of a lane, as the page's scripts decode it."""
    end = np.cumsum(np.asarray(lane["gap"]) + np.asarray(lane["took"]))
    return np.stack([np.cumsum(lane["step"]), (end - lane["took"]) * unit, end * unit], axis=1)


def test_lanes_are_the_spans_of_the_timeline(small: Plan) -> None:
    timeline = timeline_of(small)
    data = timeline_data(timeline, tuple(range(4)))
    assert [(lane["device"], lane["stream"]) for lane in data["lanes"]] == [(d, s) for d in range(4) for s in range(3)]
    for lane in data["lanes"]:
        mine = (timeline.device == lane["device"]) & (timeline.stream == lane["stream"])
        expected = np.stack([timeline.step[mine], timeline.begin[mine], timeline.end[mine]], axis=1)
        order = np.lexsort((expected[:, 2], expected[:, 1]))
        np.testing.assert_allclose(decoded(lane, data["unit"]), expected[order], rtol=0, atol=data["unit"])
        if lane["stream"]:
            assert sum(lane["bytes"]) == timeline.amount[mine].sum()
    assert data["unit"] <= timeline.seconds * 1e-8


def test_empty_timelines_have_their_lanes() -> None:
    none = np.zeros(0)
    whole = np.zeros(0, np.int32)
    timeline = Timeline(2, ("compute", "bus"), whole, whole, whole, none, none, np.zeros(0, np.int64))
    assert [lane["step"] for lane in timeline_data(timeline, (0, 1))["lanes"]] == [[], [], [], []]


def test_long_curves_of_memory_keep_their_peak(small: Plan) -> None:
    random = np.random.default_rng(0)
    seconds, amounts = np.cumsum(random.random(50_000)), random.integers(0, 10**9, 50_000)
    timeline = replace(timeline_of(small), memory=(Memory(seconds, amounts),) * 4)
    for curve in timeline_data(timeline, (0, 1, 2, 3))["memory"]:
        kept = np.cumsum(curve["bytes"])
        assert len(kept) <= MOST_POINTS + 2
        assert kept.max() == amounts.max()
        assert kept.min() == amounts.min()
        assert kept[-1] == amounts[-1]


def test_of_many_devices_some_are_drawn_and_the_page_says_which() -> None:
    count = 64
    device = np.arange(count, dtype=np.int32)
    begin, end = np.zeros(count), np.ones(count)
    end[37] = 5.0
    timeline = Timeline(count, ("compute",), device, device * 0, device * 0, begin, end, np.zeros(count, np.int64))
    chosen, why = chosen_devices(timeline)
    assert {0, 37, 63} <= set(chosen)
    assert len(chosen) <= 16
    assert "of 64 devices are drawn" in why
    assert "37 is the one that computes longest" in why


def test_bytes_on_links_are_those_of_the_program(gpt: Plan) -> None:
    links = page_data(gpt, timeline_of(gpt))["links"]
    assert np.asarray(links["received"]).sum(axis=1).tolist() == gpt.bytes_received.tolist()
    assert sum(links["total"]) == gpt.bytes_received.sum()
    assert {kind: (count, amount) for kind, count, amount in links["kinds"]} == gpt.program.kinds()
    assert links["axes"] == ["loopback 0 ×2", "loopback 1 ×2"]


def test_every_node_has_its_tile_and_its_transfers(gpt: Plan) -> None:
    data = page_data(gpt, timeline_of(gpt))
    nodes, texts = data["graph"]["nodes"], data["texts"]
    assert [texts[number] for number in nodes["name"]] == [node.name for node in gpt.graph.nodes]
    assert [texts[number] for number in nodes["source"]] == [node.source for node in gpt.graph.nodes]
    assert max(nodes["tile"]) == len(data["graph"]["tiles"]) - 1
    transfers = data["graph"]["transfers"]
    assert transfers["node"] == [step.node for step in gpt.program.transfers]
    assert sum(transfers["bytes"]) == gpt.bytes_received.sum()
    assert [low for low, _, _ in data["graph"]["sections"]] == [0, 153, 342]


def test_tensors_at_the_peak_are_those_of_memory_use(gpt: Plan) -> None:
    holdings = page_data(gpt, timeline_of(gpt))["holdings"]
    for drawn, use in zip(holdings["devices"], gpt.memory_by_device, strict=True):
        assert (drawn["peak"], drawn["state"]) == (use.peak, use.state)
        assert [(name, size) for name, size, _ in drawn["tensors"]] == list(use.largest)
    assert "activation" in {what for _, _, what in holdings["devices"][0]["tensors"]}


def test_measured_beside_predicted(gpt: Plan) -> None:
    timeline = timeline_of(gpt)
    measured = as_if_measured(timeline)
    data = page_data(gpt, timeline, measured)["measured"]
    assert data["totals"][0] == ["whole step", timeline.seconds, measured.seconds]
    name, predicted, taken = data["totals"][2]
    assert name == "receiving, latency aside; measured: and waiting for it"
    axes = range(1, len(timeline.streams))
    assert predicted == max(sum(timeline.busy(axis)[device] for axis in axes) for device in range(timeline.devices))
    assert taken == max(sum(measured.busy(axis)[device] for axis in axes) for device in range(measured.devices))
    assert len(data["totals"]) == 3
    for column, item in ((1, timeline), (2, measured)):
        total = (item.end - item.begin).sum() / item.devices
        assert sum(row[column] for row in data["kinds"]) == pytest.approx(total)
    differences = [abs(one - other) for _, one, other in data["steps"]]
    assert differences == sorted(differences, reverse=True)


# ------------------------------------------------------------------------------------------- the verdict


def test_the_headline_compares_simulated_seconds(small: Plan) -> None:
    """Whatever seconds the plan itself has: of another objective than time they know no overlap."""
    timeline = timeline_of(small)
    second = timeline.seconds

    class Told(Plan):
        costs = Costs("exact", 100 * second, 0, 10**6)
        peak = 10**6

    kept = {field.name: getattr(small, field.name) for field in fields(Plan) if field.init}
    plan = Told(**{**kept, "goal": replace(small.goal, memory=10**9)})
    others = (Costs("single", 3.5 * second, 0, 4 * 10**6), Costs("data", 1.5 * second, 0, 2 * 10**6))
    text = headline(plan, timeline, others)
    assert "1.50× faster than data parallelism, 3.5× faster than one device" in text
    assert text.endswith("; each device needs 1.00 MB, 4.0× less than alone.")
    own, data, single = comparisons(plan, timeline, others)[0]["rows"]
    assert [item[1] for item in (own, data, single)] == [second, 1.5 * second, 3.5 * second]
    others = (Costs("data", 0.05 * second, 0, 10**6), Costs("single", 2.0 * second, 0, 10**10))
    text = headline(plan, timeline, others)
    assert "20× slower than data parallelism" in text
    assert text.endswith(
        "; each device needs 1.00 MB, where it would need 10.00 GB alone: more than the 1.00 GB that it has."
    )


def test_alternatives_are_simulated_as_the_plan_is(small: Plan) -> None:
    others = simulated_alternatives(small)
    assert [item.name for item in others] == ["single", "data"]
    for item, known in zip(others, small.baselines, strict=True):
        again = plan_graph(small.graph, machine=small.machine, search=item.name, compare=(), objective="bytes")
        assert item.seconds == again.but(overlap=small.choice.overlap).predict().seconds
        assert (item.bytes, item.peak) == (known.bytes, known.peak)
    timed = small.but(objective="time")
    assert simulated_alternatives(timed) is timed.baselines


def test_the_bound_is_the_busiest_resource(small: Plan) -> None:
    text = bound_sentence(small, timeline_of(small))
    assert text.startswith("Computing bounds it: the busiest device computes for")
    assert text.endswith("of that in matrix products.")
    timeline = timeline_of(small)
    slow = replace(timeline, end=timeline.end + 100.0 * (timeline.stream == 1))
    assert "Transfers over level 0 bound it: a device receives over it for" in bound_sentence(small, slow)
    steps = np.asarray([not isinstance(small.program.steps[step], ComputeStep) for step in timeline.step])
    packing = replace(timeline, stream=timeline.stream * 0, end=timeline.end + 100.0 * steps)
    assert "Exchanges bound it: the busiest device works for" in bound_sentence(small, packing)


@pytest.mark.parametrize(
    ("cost", "bound", "expected"),
    [
        (100.0, 100.0, "No plan moves fewer bytes, of all that the search may choose from (all): proved."),
        (110.0, 100.0, "The best plan moves at most 9.09 % less, of all in the search's space (all)."),
        (110.0, 0.0, "How far it is from the best plan is not known"),
    ],
)
def test_the_gap_in_words(small: Plan, cost: float, bound: float, expected: str) -> None:
    certificate = Certificate(cost, bound, "bytes", "dual", "time", "all", {})
    assert expected in gap_sentence(replace(small, certificate=certificate))


# ------------------------------------------------------------------------------------------- the file


def test_a_page_is_one_file_that_loads_nothing(gpt: Plan, pages: Path) -> None:
    timeline = timeline_of(gpt)
    path = write_page(pages / "gpt.html", gpt, timeline, measured=as_if_measured(timeline))
    text = path.read_text(encoding="utf-8")
    assert len(text) < 3_000_000
    found = read(text)
    for tag, attributes in found.tags:
        assert tag not in ("iframe", "object", "embed", "base")
        assert attributes.get("src") is None
        assert attributes.get("href", "data:,") == "data:,"
    style = text[text.index("<style>") : text.index("</style>")]
    assert "@import" not in style
    assert "http" not in style
    assert re.search(r"<title>gpt-tiny@\d+ on 4 × CPU process — girih</title>", text)
    data = json.loads(found.data)
    assert data["texts"]
    assert len(data["timelines"]) == 2


def test_names_cannot_break_out_of_the_page(hostile: Plan) -> None:
    text = page(hostile, timeline_of(hostile))
    found = read(text)
    assert not [tag for tag, attributes in found.tags if tag == "img" or "onerror" in attributes]
    assert json.loads(found.data)["texts"].count(HOSTILE) == 1
    assert "<img" not in text


def test_without_bokeh_the_page_says_what_to_install(small: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("girih.report.page.assemble.find_spec", lambda name: None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'girih\[report\]'"):
        page(small, timeline_of(small))


def test_the_verdict_says_how_a_limit_is_kept(small: Plan, capped: Plan) -> None:
    told = sentences(capped, capped.predict().timeline, ())
    assert told[1].startswith(f"It keeps within {format_bytes(capped.memory)} by moving tensors: each step ")
    assert len(sentences(small, timeline_of(small), ())) == len(told) - 1
