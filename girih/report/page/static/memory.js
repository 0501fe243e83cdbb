"use strict";
/* Memory of each device under the timeline, on the same axis of time, with the limit where it is near. */
{
  const { make, byId, data } = girih;
  const HEIGHT = 150;
  const { Range1d, ColumnDataSource, Plotting, CustomJSTickFormatter } = Bokeh;
  const highest = Math.max(1, ...girih.timelines.flatMap(item => item.memory.map(curve => curve.bytes.reduce((a, b) => Math.max(a, b), 0))));
  const limit = data.holdings.limit, near = limit > 0 && limit < highest * 1.8;
  const top = (near ? Math.max(limit, highest) : highest) * 1.24;
  let shown = girih.timelines[0], sources = [], frame = 0;

  girih.memoryTick = (tick, ticks) => {
    const units = [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["KB", 1e3], ["B", 1]];
    const most = Math.max(...ticks), apart = ticks.length > 1 ? ticks[1] - ticks[0] : most;
    const [unit, size] = units.find(([, size]) => most >= size) || ["B", 1];
    return `${(tick / size).toFixed(Math.max(0, Math.ceil(-Math.log10(apart / size) - 1e-9)))} ${unit}`;
  };

  const at = (curve, time) => {
    let low = 0, high = curve.seconds.length;
    while (low < high) { const middle = (low + high) >> 1; if (curve.seconds[middle] <= time) low = middle + 1; else high = middle; }
    return low - 1;
  };
  /* The curve's steps that can be seen: of those within one pixel the highest. */
  const steps = (curve, start, end, pixel) => {
    const x = [], y = [];
    if (!curve.seconds.length) return { x, y, zero: [] };
    let held = curve.bytes[Math.max(at(curve, start), 0)];
    x.push(start); y.push(held);
    let n = at(curve, start) + 1;
    while (n < curve.seconds.length && curve.seconds[n] < end) {
      const limitTime = curve.seconds[n] + pixel, begin = curve.seconds[n];
      let most = curve.bytes[n], last = most;
      while (n < curve.seconds.length && curve.seconds[n] < limitTime && curve.seconds[n] < end) { last = curve.bytes[n]; most = Math.max(most, last); n++; }
      x.push(begin, begin); y.push(held, most);
      if (most !== last) { x.push(limitTime, limitTime); y.push(most, last); }
      held = last;
    }
    const stop = Math.min(end, Math.max(shown.seconds, x.at(-1)));
    x.push(stop); y.push(held);
    return { x, y, zero: y.map(() => 0) };
  };
  const draw = () => {
    frame = 0;
    const { start, end } = girih.range, pixel = (end - start) / Math.max(byId("memory-plot").clientWidth - 150, 100);
    shown.memory.forEach((curve, n) => { sources[n].data = steps(curve, Math.max(start, 0), end, pixel); });
  };
  const redraw = () => { if (!frame) frame = requestAnimationFrame(draw); };

  const peakOf = timeline => {
    let best = null;
    for (const curve of timeline.memory) {
      curve.bytes.forEach((bytes, n) => { if (!best || bytes > best.bytes) best = { bytes, time: curve.seconds[n], device: curve.device }; });
    }
    return best;
  };

  girih.startMemory = () => {
    const plot = byId("memory-plot");
    if (!shown.memory.length) { plot.remove(); return; }
    const chart = girih.figure(HEIGHT, girih.linkedRange(), new Range1d({ start: 0, end: top }), true);
    const field = name => ({ field: name });
    sources = shown.memory.map(() => new ColumnDataSource({ data: { x: [], y: [], zero: [] } }));
    shown.memory.forEach((curve, n) => {
      const colour = girih.deviceColour(curve.device);
      chart.varea({ x: field("x"), y1: field("zero"), y2: field("y"), source: sources[n], fill_color: colour, fill_alpha: 0.1 / Math.sqrt(shown.memory.length) });
      chart.line({ x: field("x"), y: field("y"), source: sources[n], line_color: colour, line_width: 1.4, line_alpha: 0.9 });
    });
    const peak = new ColumnDataSource({ data: { x: [], y: [], text: [] } });
    const marks = chart.scatter({ x: field("x"), y: field("y"), source: peak, size: 7, line_width: 1.5 });
    const told = chart.text({ x: field("x"), y: field("y"), text: field("text"), source: peak, text_font_size: "11.5px", text_baseline: "bottom", y_offset: -5 });
    const line = near ? chart.line({ x: [-1e6, 1e6], y: [limit, limit], line_dash: [5, 4], line_width: 1.5 }) : null;
    const limitText = near ? chart.text({ x: { value: 0 }, y: { value: limit }, text: { value: `limit ${girih.bytes(limit)}` }, source: new ColumnDataSource({ data: { n: [0] } }), text_font_size: "11.5px", text_baseline: "bottom", x_offset: 4, y_offset: -3 }) : null;
    chart.left[0].formatter = new CustomJSTickFormatter({ code: "return girih.memoryTick(tick, ticks)" });
    chart.left[0].ticker.desired_num_ticks = 4;
    const recolour = () => {
      girih.paint(chart);
      marks.glyph.fill_color = girih.style("--card");
      marks.glyph.line_color = told.glyph.text_color = girih.style("--ink");
      told.glyph.text_font = getComputedStyle(document.body).fontFamily;
      if (line) {
        line.glyph.line_color = limitText.glyph.text_color = girih.style("--warn");
        limitText.glyph.text_font = getComputedStyle(document.body).fontFamily;
      }
    };
    girih.showMemory = timeline => {
      shown = timeline;
      const found = peakOf(timeline);
      const late = found && found.time > timeline.seconds * 0.8;
      told.glyph.text_align = late ? "right" : "left";
      if (found) peak.data = { x: [found.time], y: [found.bytes], text: [`${late ? "" : "  "}peak ${girih.bytes(found.bytes)}, device ${found.device}${late ? "  " : ""}`] };
      redraw();
    };
    recolour();
    Plotting.show(chart, plot);
    girih.showMemory(shown);
    girih.range.change.connect(redraw);
    new ResizeObserver(redraw).observe(plot);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    plot.addEventListener("pointermove", event => {
      girih.point(event);
      const time = girih.timeAt(event);
      if (time < 0 || time > shown.seconds) { girih.hideTip(); return; }
      const rows = shown.memory.slice(0, 8).map(curve => `device ${curve.device}: ${girih.bytes(curve.bytes[Math.max(at(curve, time), 0)])}`);
      girih.tip(event, `in use at ${girih.seconds(time)}`, rows);
    });
  };
}
