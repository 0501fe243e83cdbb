"use strict";
/* Pointing at the timeline: a line at the pointer's time, a tooltip for the span under it, details on a click. */
{
  const { byId, data, view, places, range, LEFT } = girih;
  const SLACK = 2; // pixels by which a span may be missed
  const plot = byId("timeline-plot");

  girih.timeAt = event => {
    const from = plot.getBoundingClientRect().left + LEFT;
    return range.start + ((event.clientX - from) / girih.plotWidth()) * (range.end - range.start);
  };
  girih.point = event => {
    const time = girih.timeAt(event);
    byId("pointer").hidden = time < range.start || time > range.end;
    byId("pointer").style.left = `${event.clientX - byId("chart").getBoundingClientRect().left}px`;
  };

  /* The span nearest to the pointer, of the lane under it. */
  const spanAt = event => {
    const y = event.clientY - plot.getBoundingClientRect().top;
    const time = girih.timeAt(event);
    const place = places.find(item => y >= item.top - 1 && y <= item.bottom + 1);
    const lane = place && girih.laneAt(place);
    if (!lane || time < range.start || time > range.end) return null;
    let near = ((range.end - range.start) / girih.plotWidth()) * SLACK;
    let best = -1;
    const last = time + near;
    for (let n = girih.firstEndingAfter(lane, time - near); n < lane.count && lane.begin[n] <= last; n++) {
      const away = Math.max(lane.begin[n] - time, time - lane.end[n], 0);
      if (away < near || best < 0) [best, near] = [n, away];
      if (away === 0) break;
    }
    return best < 0 ? null : { device: place.device, lane, n: best };
  };

  const tell = (event, { device, lane, n }) => {
    const transfer = girih.stepTransfer(lane.step[n]);
    const node = girih.node(girih.stepNode(lane.step[n]));
    const took = `${girih.seconds(lane.end[n] - lane.begin[n])}, from ${girih.seconds(lane.begin[n])}`;
    const where = [node.scope, node.source].filter(Boolean).join(", ");
    if (transfer < 0) {
      const over = (item, axis) => `${girih.axisWords(item, axis)[0]} over ${data.graph.axes[axis]}`;
      const what = `${node.operator}, ${data.graph.kinds[node.kind]}, ${node.phase}`;
      const results = girih.results(node);
      girih.tip(event, node.name, [
        what,
        node.division.map(over).join("; "),
        results && `makes ${results}`,
        where,
        `device ${device}: ${took}`,
      ]);
      return;
    }
    const item = girih.transfer(transfer);
    if (girih.isCopy(item)) {
      const when = item.purpose === "copy out" ? "behind" : "for";
      girih.tip(event, `${item.purpose} of ${girih.value(item.value).name}`, [
        `${when} ${node.name} (${girih.short(node.operator)})`,
        where,
        `device ${device}${lane.bytes ? ` copies ${girih.bytes(lane.bytes[n])}` : ""}: ${took}`,
      ]);
      return;
    }
    const here = lane.bytes ? `receives ${girih.bytes(lane.bytes[n])}` : "prepares and places messages";
    girih.tip(event, `${item.kind} of ${girih.value(item.value).name}`, [
      `${item.purpose === "fetch" ? "for" : "after"} ${node.name} (${girih.short(node.operator)})`,
      `all devices receive ${girih.bytes(item.bytes)}`,
      where,
      `device ${device} ${here}: ${took}`,
    ]);
  };

  girih.startPointing = () => {
    let pressed = [0, 0];
    plot.addEventListener("pointermove", event => {
      girih.point(event);
      const found = event.buttons ? null : spanAt(event);
      if (found) tell(event, found);
      else girih.hideTip();
    });
    const press = event => {
      pressed = [event.clientX, event.clientY];
    };
    const release = event => {
      const moved = Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]);
      const found = moved < 4 ? spanAt(event) : null;
      if (!found) return;
      view.focus = girih.stepNode(found.lane.step[found.n]);
      girih.showNode(view.focus);
      girih.redraw();
    };
    // Before Bokeh's own listeners, which keep these events to themselves.
    plot.addEventListener("pointerdown", press, true);
    plot.addEventListener("pointerup", release, true);
    for (const item of [plot, byId("memory-plot")]) {
      item.addEventListener("pointerleave", () => {
        girih.hideTip();
        byId("pointer").hidden = true;
      });
    }
  };
}
