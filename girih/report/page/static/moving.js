"use strict";
/* Moving over the timeline: buttons, keys, and searching. */
{
  const { byId, view, range, longest } = girih;
  const [LOW, HIGH] = [-longest * 0.02, longest * 1.02];

  const show = (start, end) => {
    const size = Math.min(Math.max(end - start, longest * 1e-6), HIGH - LOW);
    const begin = Math.min(Math.max(start, LOW), HIGH - size);
    range.setv({ start: begin, end: begin + size });
  };
  const zoom = factor => {
    const middle = (range.start + range.end) / 2;
    const half = ((range.end - range.start) / 2) * factor;
    show(middle - half, middle + half);
  };
  const shift = share => {
    const by = (range.end - range.start) * share;
    show(range.start + by, range.end + by);
  };
  const whole = () => {
    const seconds = view.shown.seconds || longest;
    show(-seconds * 0.004, seconds * 1.004);
  };
  girih.showWhole = whole;
  const KEYS = {
    ArrowLeft: () => shift(-0.2),
    ArrowRight: () => shift(0.2),
    "+": () => zoom(0.6),
    "=": () => zoom(0.6),
    "-": () => zoom(1 / 0.6),
    0: whole,
    Home: () => show(0, range.end - range.start),
    End: () => show(longest, 2 * longest),
  };

  /* From the first span of a node to its last on any lane; null if it takes no time. */
  const extentOf = node => {
    let begin = Infinity;
    let end = -Infinity;
    for (const lane of view.shown.lanes) {
      for (let n = 0; n < lane.count; n++) {
        if (girih.stepNode(lane.step[n]) !== node) continue;
        begin = Math.min(begin, lane.begin[n]);
        end = Math.max(end, lane.end[n]);
      }
    }
    return end >= begin ? [begin, end] : null;
  };
  const goTo = node => {
    const found = extentOf(node);
    view.focus = node;
    if (found) {
      const middle = (found[0] + found[1]) / 2;
      const half = Math.max((found[1] - found[0]) * 1.2, longest * 1e-6);
      show(middle - half, middle + half);
    }
    girih.redraw();
  };
  girih.showOnTimeline = node => {
    goTo(node);
    byId("chart").scrollIntoView({ block: "center" });
  };

  /* ------------------------------------------------------------------ searching */

  let order = [];
  let current = -1;
  const search = () => {
    view.matches = girih.matching(byId("search").value);
    view.focus = -1;
    order = view.matches === null ? [] : girih.numbersOf(view.matches);
    current = -1;
    girih.matches = view.matches === null ? null : order;
    tell();
    girih.redraw();
  };
  const tell = () => {
    const where = current >= 0 ? `${current + 1} of ` : "";
    const told = order.length ? where + girih.operators(order.length) : "none found";
    byId("found").textContent = view.matches === null ? "" : told;
    byId("previous").disabled = byId("next").disabled = !order.length;
  };
  const step = by => {
    if (!order.length) return;
    const from = current < 0 && by < 0 ? 0 : current;
    current = (from + by + order.length) % order.length;
    goTo(order[current]);
    tell();
  };

  girih.startMoving = () => {
    const plot = byId("timeline-plot");
    plot.addEventListener("dblclick", whole);
    plot.addEventListener("keydown", event => {
      if (!KEYS[event.key]) return;
      KEYS[event.key]();
      event.preventDefault();
    });
    byId("search").addEventListener("input", search);
    byId("search").addEventListener("keydown", event => {
      if (event.key !== "Enter") return;
      step(event.shiftKey ? -1 : 1);
      event.preventDefault();
    });
    byId("previous").addEventListener("click", () => step(-1));
    byId("next").addEventListener("click", () => step(1));
    byId("zoom-in").addEventListener("click", () => zoom(0.5));
    byId("zoom-out").addEventListener("click", () => zoom(2));
    byId("whole").addEventListener("click", whole);
  };
}
