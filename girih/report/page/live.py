"""The steps of a run as they are done, on a page in a browser: what `girih.fit(progress="training.html")` writes.

The page is one file, as a plan's page is, without scripts or a server. It is replaced about once in a second, and asks
the browser to read it again as long as the run lasts; what is left at the end is the whole run.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from girih.machine.units import format_bytes, format_seconds
from girih.plans.file import check_folder
from girih.report.page.assemble import figure, fill, static
from girih.report.progress import Look

if TYPE_CHECKING:
    from girih.plans.plan import Plan

LOOK_SECONDS = 0.1
"""Between two looks at where the workers are."""
WRITE_SECONDS = 1.0
MOST_STEPS = 512
"""That are drawn; of a longer run every second one, every fourth, and so on."""
WIDTH, HEIGHT = 1000, 180


@dataclass(frozen=True)
class Step:
    """A step that is done. seconds: that it took. resident: bytes of this process in memory."""

    number: int
    loss: float
    seconds: float
    resident: int


class TrainingPage:
    """A view of a run (`girih.run.training.fit.View`) as a page. path: the file, which is written at once.

    A thread looks where the workers are ten times in a second, so that the page can say how often each one waited.

    Raises:
        PlanError: there is no folder to write it into.
        OSError: it cannot be written there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        check_folder(self.path)
        self.plan: Plan | None = None
        self.steps: list[Step] = []
        self.last: Step | None = None
        self.every = 1
        self.look: Look = list
        self.looks = 0
        self.waited: dict[int, int] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.write()

    def watch(self, look: Look) -> None:
        """Steps begin. look: how far each worker is now, as the page's thread asks."""
        self.look = look
        if self._thread is None:
            self._ended.clear()
            self._thread = threading.Thread(target=self._follow, name="girih page", daemon=True)
            self._thread.start()

    def __call__(self, plan: Plan, step: int, loss: float, seconds: float, resident: int) -> None:
        """After a step; arguments as `girih.report.progress.TrainingView` takes them."""
        with self._lock:
            self.plan, self.last = plan, Step(step, loss, seconds, resident)
            if step % self.every == 0:
                self.steps.append(self.last)
            if len(self.steps) > MOST_STEPS:
                self.every *= 2
                self.steps = [item for item in self.steps if item.number % self.every == 0]

    def close(self) -> None:
        """The run has ended: the page stays as it is."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ended.set()
            thread.join(timeout=5.0)
            self.look = list
            self.write(ended=True)

    def seen(self) -> list[tuple[int, int, float, str, bool]]:
        """Where the workers are now; whether each one waits is counted."""
        rows = list(self.look())
        under_way = any(done < 1.0 for _, _, done, _, _ in rows)
        self.looks += under_way
        for rank, _, done, _, waits in rows:  # who is ready waits for the others
            self.waited[rank] = self.waited.get(rank, 0) + (under_way and (waits or done >= 1.0))
        return rows

    def _follow(self) -> None:
        written = 0.0
        while not self._ended.wait(LOOK_SECONDS):
            with self._lock:
                rows = self.seen()
            if time.monotonic() - written >= WRITE_SECONDS:
                written = time.monotonic()
                with suppress(OSError):  # a disk that is full for a while ends no run
                    self.write(rows)

    def write(self, rows: Sequence[tuple[int, int, float, str, bool]] = (), ended: bool = False) -> None:
        """Replace the file by what is to be seen now. rows: where the workers are."""
        with self._lock:
            text = self.html(rows, ended)
        part = self.path.with_name(f"{self.path.name}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(self.path)

    def html(self, rows: Sequence[tuple[int, int, float, str, bool]], ended: bool) -> str:
        """The page."""
        plan, last = self.plan, self.last
        title = "training" if plan is None else f"{plan.origin.model or 'training'} on {plan.machine.described_devices}"
        lead = "The first step has not ended yet." if last is None else f"Step {last.number}: loss {last.loss:.5g}."
        waits = {rank: count / self.looks for rank, count in self.waited.items() if self.looks}
        return fill(
            static("live.html"),
            {
                "title": escape(title),
                "style": static("page.css"),
                "again": "" if ended else '<meta http-equiv="refresh" content="1">',
                "kind": "girih training, ended" if ended else "girih training",
                "lead": lead,
                "figures": "" if plan is None or last is None else "".join(map(figure, _figures(plan, last, waits))),
                "loss": _chart(self.steps, lambda step: step.loss, lambda loss: f"{loss:.5g}"),
                "seconds": _chart(
                    [step for step in self.steps if step.number > 1] or self.steps,  # the first starts workers
                    lambda step: step.seconds,
                    format_seconds,
                    None if plan is None else plan.costs.simulated,
                ),
                "workers": "".join(_row(*row[:4], waits.get(row[0], 0.0)) for row in rows),
            },
        )


def _figures(plan: Plan, last: Step, waits: dict[int, float]) -> list[tuple[str, str, str]]:
    """(name, number, note) of each key figure."""
    simulated = plan.costs.simulated
    predicted = "no prediction" if simulated is None else f"{format_seconds(simulated)} predicted"
    limit = "no limit" if plan.memory is None else f"of {format_bytes(plan.memory)}"
    found = [
        ("step", f"{last.number}", f"loss {last.loss:.5g}"),
        ("seconds of a step", format_seconds(last.seconds), predicted),
        ("the plan's peak", format_bytes(plan.peak), limit),
        ("this process", format_bytes(last.resident), "in memory"),
    ]
    if waits:
        rank = max(waits, key=lambda rank: waits[rank])
        found.append(("waits most", f"worker {rank}", f"{waits[rank]:.0%} of the time in steps"))
    return found


def _row(rank: int, memory: int, done: float, at: str, waits: float) -> str:
    bar = f'<span class="bar"><i style="width:{100 * done:.0f}%"></i></span>'
    cells = (format_bytes(memory) if memory else "", f"{waits:.0%}")
    first = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f"<tr><th scope=row>worker {rank}</th>{first}<td>{bar}</td><td>{escape(at)}</td></tr>"


def _chart(
    steps: Sequence[Step], of: Callable[[Step], float], words: Callable[[float], str], predicted: float | None = None
) -> str:
    """A curve over the steps, from 0 to the largest number, or from the least one where some are negative; predicted: a
    line across."""
    known = [(step.number, of(step)) for step in steps if abs(of(step)) < float("inf")]  # which NaN is not either
    if not known:
        return '<p class="note">Nothing yet.</p>'
    amounts = [amount for _, amount in known] + ([] if predicted is None else [predicted])
    low, high = min(0.0, *amounts), max(0.0, *amounts)
    first, last = known[0][0], known[-1][0]

    def height(amount: float) -> float:
        return HEIGHT - HEIGHT * (amount - low) / ((high - low) or 1.0)

    points = " ".join(f"{WIDTH * (n - first) / ((last - first) or 1):.1f},{height(item):.1f}" for n, item in known)
    across = ""
    if predicted is not None:
        at = f"{height(predicted):.1f}"
        across = f'<line x2="{WIDTH}" y1="{at}" y2="{at}" stroke="var(--mark)" stroke-dasharray="6 5"/>'
    told = f"steps {first} to {last}, from {words(low)} to {words(high)}"
    told += "" if predicted is None else f"; {words(predicted)} predicted (dashed)"
    return (
        f'<svg viewBox="0 -4 {WIDTH} {HEIGHT + 8}" width="100%" height="{HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="{escape(told)}">{across}<polyline points="{points}" fill="none" '
        f'stroke="var(--accent)" stroke-width="2" vector-effect="non-scaling-stroke"/></svg>'
        f'<p class="note">{escape(told)}</p>'
    )
