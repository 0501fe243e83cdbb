"use strict";
/* Memory of each device under the timeline, on the same axis of time, with the limit where it is near, and what is
copied out of the first device and back: a bar as high as its bytes, as long as the copy takes. */
{
  const { byId, data, view, range, figure, paint } = girih;
  const { Range1d, ColumnDataSource, Plotting, CustomJSTickFormatter } = Bokeh;
  const COPIES = ["copy out", "copy in"];
  const copies = girih.timelines.some(item => COPIES.some(name => item.streams.includes(name)));
  const HEIGHT = copies ? 210 : 150;
  const NAMED = 7; // pixels of a letter
  const most = numbers => numbers.reduce((a, b) => Math.max(a, b), 0);
  const highest = Math.max(1, ...girih.timelines.flatMap(item => item.memory.map(curve => most(curve.bytes))));
  const { limit } = data.holdings;
  const near = limit > 0 && limit < highest * 1.8;
  const top = (near ? Math.max(limit, highest) : highest) * 1.24;

  /* ------------------------------------------------------------------ what is visible */

  /* The last point of a curve at or before a time. */
  const at = (curve, time) => {
    let low = 0;
    let high = curve.seconds.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (curve.seconds[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return Math.max(low - 1, 0);
  };
  /* The curve's steps in a range of time: of those within one pixel the highest and the last. */
  const steps = (curve, start, end, pixel) => {
    const { seconds, bytes } = curve;
    const x = [];
    const y = [];
    const put = (time, amount) => {
      x.push(time);
      y.push(amount);
    };
    let n = at(curve, start);
    let held = bytes[n];
    put(start, held);
    for (n += 1; n < seconds.length && seconds[n] < end;) {
      const begin = seconds[n];
      let peak = bytes[n];
      let last = peak;
      for (; n < seconds.length && seconds[n] < Math.min(begin + pixel, end); n++) {
        last = bytes[n];
        peak = Math.max(peak, last);
      }
      put(begin, held);
      put(begin, peak);
      if (peak !== last) {
        put(begin + pixel, peak);
        put(begin + pixel, last);
      }
      held = last;
    }
    put(Math.min(end, Math.max(view.shown.seconds, x.at(-1))), held);
    return { x, y, zero: y.map(() => 0) };
  };
  const copyLane = (device, name) => {
    const stream = view.shown.streams.indexOf(name);
    return stream < 0 ? undefined : view.shown.lanes.find(lane => lane.device === device && lane.stream === stream);
  };
  const nameOf = step => girih.value(girih.transfer(girih.stepTransfer(step)).value).name;
  /* The copies of a lane in a range of time; of those that are shorter than a pixel, and in one pixel, the largest. */
  const bars = (lane, start, end, pixel) => {
    const found = { left: [], right: [], top: [], x: [], text: [] };
    if (!lane) return found;
    for (let n = girih.firstEndingAfter(lane, start); n < lane.count && lane.begin[n] < end; n++) {
      const [left, right, bytes] = [lane.begin[n], Math.max(lane.end[n], lane.begin[n] + pixel), lane.bytes[n]];
      const last = found.left.length - 1;
      if (last >= 0 && right - found.left[last] <= 2 * pixel) {
        found.top[last] = Math.max(found.top[last], bytes);
        continue;
      }
      const name = nameOf(lane.step[n]);
      const shown = Math.max(left, start);
      found.left.push(left);
      found.right.push(right);
      found.top.push(bytes);
      found.x.push(shown);
      found.text.push((Math.min(right, end) - shown) / pixel > name.length * NAMED + 8 ? name : "");
    }
    return found;
  };
  /* `tanh goes out: 301 KB, 0.1 ms` of all that is copied at a time. */
  const copiedAt = (device, time) =>
    COPIES.flatMap(name => {
      const lane = copyLane(device, name);
      const n = lane ? girih.firstEndingAfter(lane, time) : 0;
      if (!lane || n >= lane.count || lane.begin[n] > time) return [];
      const way = name === "copy out" ? "goes out" : "comes in";
      const took = girih.seconds(lane.end[n] - lane.begin[n]);
      return [`device ${device}: ${nameOf(lane.step[n])} ${way}, ${girih.bytes(lane.bytes[n])} in ${took}`];
    });
  const peakOf = timeline => {
    let best = null;
    for (const curve of timeline.memory) {
      curve.bytes.forEach((bytes, n) => {
        if (!best || bytes > best.bytes) best = { bytes, time: curve.seconds[n], device: curve.device };
      });
    }
    return best;
  };

  /* ------------------------------------------------------------------ the chart */

  const field = name => ({ field: name });
  const point = { x: field("x"), y: field("y") };
  const label = { text_font_size: "11.5px", text_baseline: "bottom", x_offset: 4, y_offset: -4 };

  const drawCurves = chart => {
    const devices = [...new Set(girih.timelines.flatMap(item => item.memory.map(curve => curve.device)))];
    const alpha = 0.1 / Math.sqrt(devices.length);
    return new Map(
      devices.map(device => {
        const source = new ColumnDataSource({ data: { x: [], y: [], zero: [] } });
        const colour = girih.deviceColour(device);
        const area = { x: field("x"), y1: field("zero"), y2: field("y") };
        chart.varea({ ...area, source, fill_color: colour, fill_alpha: alpha });
        chart.line({ ...point, source, line_color: colour, line_width: 1.4, line_alpha: 0.9 });
        return [device, source];
      }),
    );
  };
  const drawCopies = chart =>
    (copies ? COPIES : []).map(name => {
      const source = new ColumnDataSource({ data: { left: [], right: [], top: [], x: [], text: [] } });
      const box = { left: field("left"), right: field("right"), bottom: 0, top: field("top") };
      const quad = chart.quad({ ...box, source, fill_alpha: 0.45, line_width: 1 });
      const told = { x: field("x"), y: field("top"), text: field("text"), text_font_size: "11px" };
      const words = chart.text({ ...told, source, text_baseline: "top", x_offset: 4, y_offset: 3 });
      return { name, source, quad, words };
    });
  const drawLimit = chart => {
    const line = new ColumnDataSource({ data: { x: [-girih.longest, 3 * girih.longest], y: [limit, limit] } });
    const words = new ColumnDataSource({ data: { x: [0], y: [limit], text: [`limit ${girih.bytes(limit)}`] } });
    return [
      chart.line({ ...point, source: line, line_dash: [5, 4], line_width: 1.5 }),
      chart.text({ ...point, text: field("text"), source: words, ...label }),
    ];
  };

  girih.startMemory = () => {
    const plot = byId("memory-plot");
    if (!girih.timelines.some(item => item.memory.length)) {
      plot.remove();
      return;
    }
    const chart = figure(HEIGHT, girih.linkedRange(), new Range1d({ start: 0, end: top }), true);
    chart.left[0].formatter = new CustomJSTickFormatter({ code: "return girih.memoryTick(tick, ticks)" });
    chart.left[0].ticker.desired_num_ticks = 4;
    const sources = drawCurves(chart);
    const moved = drawCopies(chart);
    const peak = new ColumnDataSource({ data: { x: [], y: [], text: [] } });
    const mark = chart.scatter({ ...point, source: peak, size: 7, line_width: 1.5 });
    const told = chart.text({ ...point, text: field("text"), source: peak, ...label });
    const limits = near ? drawLimit(chart) : [];

    let frame = 0;
    const draw = () => {
      frame = 0;
      const { start, end } = range;
      for (const [device, source] of sources) {
        const curve = view.shown.memory.find(item => item.device === device);
        const pixel = (end - start) / girih.plotWidth();
        source.data = curve ? steps(curve, Math.max(start, 0), end, pixel) : { x: [], y: [], zero: [] };
      }
      for (const { name, source } of moved) {
        const lane = copyLane(view.shown.devices[0], name);
        source.data = bars(lane, Math.max(start, 0), end, (end - start) / girih.plotWidth());
      }
    };
    const redraw = () => {
      if (!frame) frame = requestAnimationFrame(draw);
    };
    const recolour = () => {
      paint(chart);
      mark.glyph.fill_color = girih.style("--card");
      mark.glyph.line_color = told.glyph.text_color = girih.style("--ink");
      for (const { name, quad, words } of moved) {
        quad.glyph.fill_color = quad.glyph.line_color = girih.style(girih.transferStyle(name));
        words.glyph.text_color = girih.style("--ink");
        words.glyph.text_font = getComputedStyle(document.body).fontFamily;
      }
      if (near) limits[0].glyph.line_color = limits[1].glyph.text_color = girih.style("--warn");
      for (const words of [told, ...limits.slice(1)])
        words.glyph.text_font = getComputedStyle(document.body).fontFamily;
    };
    girih.showMemory = timeline => {
      const found = peakOf(timeline);
      const late = found !== null && found.time > timeline.seconds * 0.6;
      told.glyph.text_align = late ? "right" : "left";
      told.glyph.x_offset = late ? -6 : 6;
      peak.data = found
        ? { x: [found.time], y: [found.bytes], text: [`peak ${girih.bytes(found.bytes)}, device ${found.device}`] }
        : { x: [], y: [], text: [] };
      redraw();
    };
    const tell = event => {
      girih.point(event);
      const time = girih.timeAt(event);
      const curves = view.shown.memory.slice(0, 8);
      const rows = curves.map(curve => `device ${curve.device}: ${girih.bytes(curve.bytes[at(curve, time)])}`);
      const moving = copies ? curves.flatMap(curve => copiedAt(curve.device, time)) : [];
      if (time < 0 || time > view.shown.seconds) girih.hideTip();
      else girih.tip(event, `in use at ${girih.seconds(time)}`, [...rows, ...moving]);
    };

    recolour();
    Plotting.show(chart, plot);
    girih.showMemory(view.shown);
    range.change.connect(redraw);
    new ResizeObserver(redraw).observe(plot);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    plot.addEventListener("pointermove", tell);
  };
}
