"""The page in a real browser: Chromium without a window, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counts import but_long
from graphs import machine_of, perceptron
from stand_in import as_if_measured, timeline_of

from girih.api import Plan, plan_graph
from girih.graph import parse_graph
from girih.layout import parse_sharding
from girih.program import MoveStep, StartStep
from girih.report.page import write_page

playwright = pytest.importorskip("playwright.sync_api", reason="drives a browser: pip install playwright")
pytest.importorskip("bokeh", reason="the page needs bokeh: pip install 'girih[report]'")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this host: apt-get install chromium")

LOCAL = ("file:", "data:", "blob:")
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = driver.chromium.launch(executable_path=CHROMIUM, args=root)
        yield started
        started.close()


@contextmanager
def opening(browser: Any) -> Iterator[Open]:
    """Opens a page's file; in the end nothing may have been complained of or asked from a network."""
    complaints: list[str] = []
    made: list[Any] = []

    def open_page(path: Path, width: int = 1400, scheme: str = "light") -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        made.append(page)
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda request: complaints.append(request.url))
        page.on("request", lambda request: None if request.url.startswith(LOCAL) else complaints.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=true]", state="attached", timeout=60_000)
        page.wait_for_function("girih.drawn > 0", timeout=60_000)
        return page

    yield open_page
    for page in made:
        page.close()
    assert not complaints


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    with opening(browser) as open_page:
        yield open_page


@pytest.fixture(scope="module")
def gpt_page(gpt: Plan, pages: Path) -> Path:
    timeline = timeline_of(gpt)
    return write_page(pages / "gpt.html", gpt, timeline, measured=as_if_measured(timeline), others=gpt.baselines)


@pytest.fixture(scope="module")
def gpt_kept(browser: Any, gpt_page: Path) -> Iterator[Any]:
    with opening(browser) as open_page:
        yield open_page(gpt_page)


@pytest.fixture
def gpt_open(gpt_kept: Any) -> Any:
    """The page as it was when it was opened, which takes two seconds of a core."""
    page = gpt_kept
    page.keyboard.press("Escape")
    for search in ("#search", "#graph-search"):
        page.fill(search, "")
    while (unfolded := page.get_by_role("button", name="Fold", exact=True)).count():
        unfolded.first.click()
    page.evaluate("document.querySelectorAll('.phase').forEach((phase, number) => { phase.open = number === 0; })")
    page.click("#whole")
    page.mouse.move(0, 0)
    page.evaluate("scrollTo(0, 0)")
    return page


def visible_colours(page: Any, selector: str, opaque: int = 255) -> set[str]:
    """Colours on the canvases of a plot, from so much opacity on: what is really drawn."""
    return set(page.evaluate(
        """([selector, opaque]) => { const found = new Set();
        const walk = node => {
          if (node.shadowRoot) walk(node.shadowRoot);
          for (const child of node.children || []) walk(child);
          if (node.tagName === "CANVAS" && node.width) {
            const copy = new OffscreenCanvas(node.width, node.height).getContext("2d", { willReadFrequently: true });
            copy.drawImage(node, 0, 0);
            const pixels = copy.getImageData(0, 0, node.width, node.height).data;
            for (let at = 0; at < pixels.length; at += 4) if (pixels[at + 3] >= opaque)
              found.add("#" + [0, 1, 2].map(n => pixels[at + n].toString(16).padStart(2, "0")).join(""));
          }
        };
        walk(document.querySelector(selector));
        return [...found]; }""",
        [selector, opaque],
    ))  # fmt: skip


def apart(one: str, other: str) -> int:
    """The largest difference of red, green and blue."""
    return max(abs(int(one[at : at + 2], 16) - int(other[at : at + 2], 16)) for at in (1, 3, 5))


def test_the_timeline_shows_every_device_and_stream(gpt: Plan, gpt_open: Any) -> None:
    page = gpt_open
    lanes = page.locator("#lanes li").evaluate_all(
        "items => items.map(item => [item.dataset.device, item.dataset.stream])"
    )
    assert lanes == [[str(device), str(stream)] for device in range(4) for stream in range(3)]
    assert page.locator("#lanes li.compute").all_inner_texts() == [f"device {device}" for device in range(4)]
    for kind in ("--transfer-all-gather", "--transfer-reduce-scatter"):
        assert page.evaluate("name => girih.style(name)", kind) in visible_colours(page, "#timeline-plot")
    assert page.evaluate("girih.timelines[0].lanes.every(lane => lane.count > 0)")


def test_memory_over_time_has_every_copy_by_name(capped: Plan, pages: Path, opened: Open) -> None:
    timeline = capped.predict().timeline
    page = opened(write_page(pages / "capped.html", capped, timeline))
    assert page.locator("#lanes li").all_inner_texts() == ["device 0", "copy out", "copy in"]
    page.locator("#memory-plot").scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    page.mouse.move(0, 0)  # no pointer's line over the picture
    for name in ("--transfer-copy-out", "--transfer-copy-in"):
        colour = page.evaluate("name => girih.style(name)", name)
        assert colour in visible_colours(page, "#timeline-plot")
        drawn = visible_colours(page, "#memory-plot", 100)  # boxes are drawn over the curve, which shines through
        assert min(apart(colour, other) for other in drawn) <= 24
    box = page.locator("#memory-plot").bounding_box()
    for stream, words in ((1, "goes out"), (2, "comes in")):
        number = int(np.flatnonzero(timeline.stream == stream)[0])
        middle = (timeline.begin[number] + timeline.end[number]) / 2
        share = page.evaluate("time => (time - girih.range.start) / (girih.range.end - girih.range.start)", middle)
        page.mouse.move(box["x"] + 132 + (box["width"] - 150) * share, box["y"] + 60)
        page.wait_for_selector("#tooltip:not([hidden])")
        step = capped.program.steps[int(timeline.step[number])]
        move = step.transfer if isinstance(step, StartStep) else step
        assert isinstance(move, MoveStep)
        assert f"device 0: {move.value} {words}" in page.inner_text("#tooltip")
    assert page.inner_text("#timeline-legend").splitlines()[-2:] == ["copy in", "copy out"]


def test_searching_finds_an_operator_and_goes_to_it(gpt: Plan, gpt_open: Any) -> None:
    page = gpt_open
    page.fill("#search", "gelu blocks.1")
    expected = [n for n, node in enumerate(gpt.graph.nodes) if "gelu" in node.name and "blocks.1" in node.scope]
    assert page.evaluate("girih.matches") == expected
    assert page.inner_text("#found") == f"{len(expected)} operators"
    whole = page.evaluate("girih.range.end - girih.range.start")
    page.press("#search", "Enter")
    assert page.inner_text("#found") == f"1 of {len(expected)} operators"
    start, end = page.evaluate("[girih.range.start, girih.range.end]")
    span = page.evaluate(
        "node => { const lane = girih.timelines[0].lanes[0];"
        " const n = [...lane.step].findIndex(step => girih.stepNode(step) === node);"
        " return [lane.begin[n], lane.end[n]] }",
        expected[0],
    )
    assert start < span[0] < span[1] < end
    assert end - start < whole / 10
    page.fill("#search", "no such operator")
    assert page.inner_text("#found") == "none found"
    assert page.locator("#next").is_disabled()


def test_the_wheel_zooms_and_a_click_tells_more(gpt_open: Any) -> None:
    page = gpt_open
    page.locator("#chart").scroll_into_view_if_needed()
    page.fill("#search", "mm_15")
    page.press("#search", "Enter")
    page.wait_for_timeout(300)
    box = page.locator("#timeline-plot").bounding_box()
    before = page.evaluate("girih.range.end - girih.range.start")
    x = box["x"] + 132 + (box["width"] - 150) * page.evaluate(
        "(() => { const lane = girih.timelines[0].lanes[0], node = girih.matches[0];"
        " const n = [...lane.step].findIndex(step => girih.stepNode(step) === node);"
        " return ((lane.begin[n] + lane.end[n]) / 2 - girih.range.start) / (girih.range.end - girih.range.start) })()"
    )  # fmt: skip
    page.mouse.move(x, box["y"] + 10)
    page.wait_for_selector("#tooltip:not([hidden])")
    assert "mm_15" in page.inner_text("#tooltip")
    page.mouse.down()
    page.mouse.up()
    page.wait_for_selector("#details:not([hidden])")
    assert page.inner_text("#details h3") == "mm_15"
    assert "Division by mesh axis" in page.inner_text("#details")
    page.keyboard.press("Escape")
    assert page.locator("#details").is_hidden()
    page.mouse.move(x, box["y"] + 10)
    page.mouse.wheel(0, -240)
    page.wait_for_function("before => girih.range.end - girih.range.start < before", arg=before)
    page.click("#whole")
    assert page.evaluate("girih.range.end - girih.range.start") > before


def test_repeated_layers_unfold(gpt: Plan, gpt_open: Any) -> None:
    page = gpt_open
    fold = page.locator(".fold").first
    assert fold.locator(".head b").inner_text() == "×2"
    assert "blocks.0 to blocks.1" in fold.locator(".head").inner_text()
    assert fold.locator(".operator").count() == 63
    fold.get_by_role("button", name="Unfold").click()
    assert fold.locator(".operator").count() == 126
    assert fold.locator(".copy").all_inner_texts() == ["blocks.0", "blocks.1"]
    fold.get_by_role("button", name="Fold", exact=True).click()
    assert fold.locator(".operator").count() == 63
    page.locator(".phase > summary").nth(1).click()
    page.locator(".phase > summary").nth(2).click()
    page.wait_for_function("document.querySelectorAll('.phase')[2].querySelector('.operator')")
    copies = 63 + 32  # of each fold one copy is not there
    assert page.locator("#phases .operator").count() == len(gpt.graph.nodes) - copies


def test_tiles_have_a_cell_of_its_colour_for_every_device(gpt: Plan, gpt_open: Any) -> None:
    page = gpt_open
    colours = page.evaluate("girih.data.colours")
    tiles = page.evaluate(
        "[...document.querySelectorAll('#definitions symbol')].map(symbol =>"
        " [...symbol.querySelectorAll('rect')].map(cell => [cell.dataset.devices, cell.getAttribute('fill')]))"
    )
    assert len(tiles) == page.evaluate("girih.data.graph.tiles.length")
    for cells in tiles:
        devices = [int(device) for named, _ in cells for device in named.split()]
        assert sorted(devices) == [0, 1, 2, 3]
        for named, fill in cells:
            assert fill == colours[int(named)] if " " not in named else fill.startswith("url(#stripes-")
    first = next(n for n, node in enumerate(gpt.graph.nodes) if node.operator == "aten.mm")
    page.locator(f".operator[data-node='{first}']").click()
    assert page.locator("#details .big-tile rect").count() == 4
    assert page.locator("#details .big-tile text").all_text_contents() == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("scheme", "width"),
    but_long([("light", 1400), ("dark", 800), ("light", 800), ("dark", 1400)], [("light", 800), ("dark", 1400)]),
)
def test_every_part_is_there_in_light_and_dark(
    gpt: Plan, gpt_page: Path, opened: Open, tmp_path: Path, width: int, scheme: str
) -> None:
    page = opened(gpt_page, width, scheme)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(17, 22, 27)") == (scheme == "dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("#peaks tbody tr").count() == 4
    assert page.locator("#tensors tbody tr").count() >= 12
    assert page.locator("#received tbody tr").count() == 5
    assert page.locator("#collectives tbody tr").count() == len(gpt.program.kinds())
    assert page.locator("#totals tbody tr").count() == 3
    assert page.locator("#which button").all_inner_texts() == ["Predicted", "Measured"]
    page.click("#which button:last-child")
    for text in page.locator("section h2").all_inner_texts():
        assert text
    assert page.screenshot(path=tmp_path / "page.png", full_page=True)


def test_changing_the_scheme_repaints_the_charts(gpt_page: Path, opened: Open) -> None:
    page = opened(gpt_page)
    light = page.evaluate("girih.style('--transfer-all-gather')")
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("light => girih.style('--transfer-all-gather') !== light", arg=light)
    page.wait_for_timeout(300)
    dark = page.evaluate("girih.style('--transfer-all-gather')")
    colours = visible_colours(page, "#timeline-plot")
    assert dark in colours
    assert light not in colours


def test_names_that_would_break_out_are_only_words(hostile: Plan, pages: Path, opened: Open) -> None:
    page = opened(write_page(pages / "hostile.html", hostile, timeline_of(hostile)))
    assert "broken" not in page.evaluate("document.title.replace(/onerror[^>]*>/, '')")
    assert page.locator("img").count() == 0
    page.locator("#phases .operator").first.click()
    assert "<img src=x" in page.inner_text("#details h3")
    assert page.locator("img").count() == 0


def test_searching_the_graph_marks_operators_and_counts_those_in_folded_copies(gpt_open: Any) -> None:
    page = gpt_open
    page.fill("#graph-search", "forward attention.query mm")
    assert page.inner_text("#graph-found") == "2 operators"
    assert page.locator("#phases .operator.match").all_text_contents()[0].startswith("mm")
    assert page.locator("#phases .operator.match").count() == 1
    assert page.locator(".fold .inside").first.inner_text() == "1 found in folded copies"
    page.locator(".fold").first.get_by_role("button", name="Unfold").click()
    assert page.locator("#phases .operator.match").count() == 2
    assert page.locator(".fold .inside").first.inner_text() == ""


@pytest.mark.parametrize("sizes", [(), (3,), (8, 16)])
def test_machines_of_one_three_and_many_devices(sizes: tuple[int, ...], pages: Path, opened: Open) -> None:
    plan = plan_graph(perceptron(), machine=machine_of(sizes), objective="bytes")
    page = opened(write_page(pages / f"machine-{len(sizes)}.html", plan, timeline_of(plan)))
    drawn = page.evaluate("girih.data.timelines[0].devices")
    assert page.locator("#lanes li").count() == len(drawn) * (1 + len(sizes))
    assert page.locator("#drawn").is_visible() == (plan.machine.devices > 16)
    assert len(drawn) == plan.machine.devices if plan.machine.devices <= 16 else {0, 127} <= set(drawn)
    assert page.locator("#received thead th").count() == 2 + len(sizes)
    forward = [node for node in plan.graph.nodes if node.phase == "forward"]  # the only phase that is open
    assert page.locator("#phases .operator").count() == len(forward)
    page.locator("#phases .operator").first.click()
    assert page.locator("#details").is_visible()


def test_a_node_of_several_results_tells_all_of_them(pages: Path, opened: Open) -> None:
    graph = parse_graph("""graph
  input %x: float32[4, 8, 6]  batch  "0"
  %q: float32[4, 8, 6], %triangle: float32[4, 6, 6] = aten.linalg_qr(A=%x)  # forward
  %largest: float32[4, 6], %place: int64[4, 6] = aten.max.dim(self=%q, dim=1, keepdim=False)  # forward
  %r: float32[4, 6, 6] = aten.neg(self=%triangle)  # forward
  return %largest result, %place result, %r result""")
    plan = plan_graph(graph, machine=machine_of((2,)), objective="seconds", search="single")
    rows, columns = parse_sharding("S0"), parse_sharding("S1")
    layouts = plan.strategy.layouts | {"q": rows, "triangle": columns, "place": rows}
    divisions = (rows, *plan.strategy.divisions[1:])
    plan = plan.but(strategy=replace(plan.strategy, divisions=divisions, layouts=layouts))
    page = opened(write_page(pages / "several.html", plan, timeline_of(plan)))
    boxes = page.locator("#phases .operator")
    assert boxes.locator(".results").all_inner_texts() == ["→ 2", "→ 2"]
    titles = [box.get_attribute("title").partition("; makes ")[2] for box in boxes.all()]
    assert titles == ["q (S0), triangle (S1)", "largest (R), place (S0)", ""]
    assert "makes q (S0), triangle (S1)" in boxes.first.get_attribute("aria-label")
    boxes.first.click()
    told = page.inner_text("#details")
    assert "Makes 2 results" in told
    assert "q\nfloat32 4 × 8 × 6; lies S0; a device keeps 2 × 8 × 6" in told
    assert "triangle\nfloat32 4 × 6 × 6; lies S1; a device keeps 4 × 3 × 6" in told
    for word, number in (("triangle linalg_qr", 0), ("q linalg_qr", 0), ("place max", 1)):
        page.fill("#graph-search", word)
        assert page.inner_text("#graph-found") == "1 operator"
        assert page.locator("#phases .operator.match").get_attribute("data-node") == str(number)
        page.fill("#search", word)
        assert page.evaluate("girih.matches") == [number]
    assert "makes so many results" in page.inner_text("#tile-legend")
