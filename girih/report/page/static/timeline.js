"use strict";
/* The timeline: lanes of spans on BokehJS's axes, zoom and canvas.

What is drawn is found anew for the visible range: spans of a pixel and more one by one, shorter ones together, each
pixel in the colour of the kind that fills most of it. */
{
  const { make, byId, data } = girih;
  const LEFT = 132, RIGHT = 18;
  const many = data.timelines[0].devices.length > 8;
  const TALL = many ? 18 : 24, LOW = many ? 9 : 12, BETWEEN = 3, APART = many ? 9 : 12;
  const devices = data.timelines[0].devices;
  const longest = Math.max(...girih.timelines.map(item => item.seconds), 1e-9);
  let shown = girih.timelines[0];
  let matches = null, focus = -1, frame = 0;

  /* Where the lanes are, in pixels from the top. */
  const places = [];
  let height = 0;
  for (const device of devices) {
    shown.streams.forEach((name, stream) => {
      const size = stream === 0 ? TALL : LOW;
      places.push({ device, stream, name, top: height, bottom: height + size });
      height += size + BETWEEN;
    });
    height += APART;
  }
  height -= APART;
  const laneOf = (device, stream) => shown.lanes.find(lane => lane.device === device && lane.stream === stream);

  const labels = () => {
    const axes = [null, ...data.graph.axes];
    byId("lanes").replaceChildren(...places.map(({ device, stream, name, top, bottom }) => {
      const dot = make("i", { class: "dot", style: `background:${girih.deviceColour(device)}` });
      const words = stream === 0 ? `device ${device}` : axes[stream] || name;
      return make("li", { class: stream === 0 ? "compute" : "receive", "data-device": device, "data-stream": stream,
        "aria-label": stream === 0 ? `device ${device}, ${name}` : `device ${device}, receiving over ${words}`,
        style: `top:${top}px;height:${bottom - top}px` }, ...(stream === 0 ? [dot] : []), words);
    }));
  };

  /* ------------------------------------------------------------------ colours */

  let colours = [], transferColours = new Map(), theme = {};
  const readColours = () => {
    colours = data.graph.kinds.map((_, kind) => girih.style(girih.kindStyle(kind)));
    transferColours = new Map();
    theme = Object.fromEntries(["ink", "muted", "faint", "line", "soft", "card", "accent", "warn", "mark"].map(name => [name, girih.style(`--${name}`)]));
  };
  const transferColour = kind => {
    if (!transferColours.has(kind)) transferColours.set(kind, girih.style(girih.transferStyle(kind)) || girih.style("--transfer"));
    return transferColours.get(kind);
  };
  /* Dark words on light colours, light ones on dark. */
  const onColour = colour => {
    const [red, green, blue] = [1, 3, 5].map(at => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.25 ? "#10151a" : "#ffffff";
  };
  const stepColours = () => data.graph.steps.map((_, step) => {
    const transfer = girih.stepTransfer(step);
    return transfer >= 0 ? transferColour(girih.transfer(transfer).kind) : colours[data.graph.nodes.kind[girih.stepNode(step)]];
  });
  let colourOfStep = [];

  /* ------------------------------------------------------------------ Bokeh's part */

  const { Plotting, Range1d, ColumnDataSource, WheelZoomTool, PanTool, CustomJSTickFormatter } = Bokeh;
  const makeRange = () => new Range1d({ start: -longest * 0.004, end: longest * 1.004, bounds: [-longest * 0.02, longest * 1.02], min_interval: longest * 1e-6 });
  const range = makeRange();
  girih.range = range;
  /* A range of a figure in another Bokeh document, which moves as this one does. */
  girih.linkedRange = () => {
    const other = makeRange();
    const follow = (from, to) => from.change.connect(() => { if (from.start !== to.start || from.end !== to.end) to.setv({ start: from.start, end: from.end }); });
    follow(range, other);
    follow(other, range);
    return other;
  };

  /* Ticks in one unit, with as many digits as tell neighbours apart. */
  girih.timeTick = (tick, ticks) => {
    const apart = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : longest;
    const top = Math.max(...ticks.map(Math.abs), apart);
    const [unit, size] = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]].find(([, size]) => top >= size) || ["ns", 1e-9];
    const digits = Math.max(0, Math.ceil(-Math.log10(apart / size) - 1e-9));
    return `${(tick / size).toFixed(Math.min(digits, 9))} ${unit}`;
  };
  const figure = (frameHeight, xRange, yRange, yAxis) => {
    const wheel = new WheelZoomTool({ dimensions: "width", zoom_on_axis: true }), pan = new PanTool({ dimensions: "width" });
    const made = Plotting.figure({
      frame_height: frameHeight, sizing_mode: "stretch_width", x_range: xRange, y_range: yRange, tools: [wheel, pan],
      toolbar_location: null, min_border_left: LEFT, min_border_right: RIGHT, min_border_top: yAxis ? 8 : 0, min_border_bottom: 30,
      outline_line_color: null, output_backend: "canvas", lod_factor: 1,
    });
    made.toolbar.active_scroll = wheel;
    made.toolbar.active_drag = pan;
    made.yaxis.visible = yAxis;
    const [axis] = made.below;
    axis.formatter = new CustomJSTickFormatter({ code: "return girih.timeTick(tick, ticks)" });
    axis.ticker.desired_num_ticks = 9;
    return made;
  };
  const paint = made => {
    made.background_fill_color = made.border_fill_color = null;
    for (const axis of [...made.below, ...made.left]) {
      Object.assign(axis, { axis_line_color: null, major_tick_line_color: null, minor_tick_line_color: null,
        major_label_text_color: theme.muted, major_label_text_font_size: "11.5px", major_label_text_font: getComputedStyle(document.body).fontFamily });
    }
    for (const grid of made.center) Object.assign(grid, { grid_line_color: theme.line, grid_line_alpha: 0.8 });
  };
  girih.figure = figure;
  girih.paint = paint;

  const EMPTY = { left: [], right: [], top: [], bottom: [], color: [], alpha: [] };
  const spans = new ColumnDataSource({ data: { ...EMPTY } });
  const outlines = new ColumnDataSource({ data: { left: [], right: [], top: [], bottom: [] } });
  const words = new ColumnDataSource({ data: { x: [], y: [], text: [], color: [] } });
  const background = new ColumnDataSource({ data: {
    left: places.map(() => -longest), right: places.map(() => longest * 3), top: places.map(place => place.top), bottom: places.map(place => place.bottom) } });
  const chart = figure(height, range, new Range1d({ start: height, end: 0 }), false);
  const field = name => ({ field: name });
  const box = { left: field("left"), right: field("right"), top: field("top"), bottom: field("bottom") };
  const backs = chart.quad({ ...box, source: background, line_color: null });
  chart.quad({ ...box, source: spans, line_color: null, fill_color: field("color"), fill_alpha: field("alpha") });
  const frames = chart.quad({ ...box, source: outlines, fill_color: null, line_width: 1.5 });
  const names = chart.text({ x: field("x"), y: field("y"), text: field("text"), source: words, text_color: field("color"), text_baseline: "middle",
    text_font_size: "11px", x_offset: 5 });
  chart.ygrid.visible = false;

  /* ------------------------------------------------------------------ what is visible */

  const firstEndingAfter = (lane, time) => {
    let low = 0, high = lane.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lane.end[middle] <= time) low = middle + 1; else high = middle;
    }
    return low;
  };
  const width = () => Math.max(byId("timeline-plot").clientWidth - LEFT - RIGHT, 100);
  const isMatch = node => matches === null || matches[node] === 1;

  const visible = () => {
    const { start, end } = range, pixel = (end - start) / width();
    const out = { left: [], right: [], top: [], bottom: [], color: [], alpha: [] };
    const text = { x: [], y: [], text: [], color: [] };
    const around = { left: [], right: [], top: [], bottom: [] };
    const put = (place, left, right, color, alpha) => {
      out.left.push(left); out.right.push(right); out.top.push(place.top); out.bottom.push(place.bottom);
      out.color.push(color); out.alpha.push(alpha);
    };
    for (const place of places) {
      const lane = laneOf(place.device, place.stream);
      if (!lane) continue;
      let bucket = -1, filled = new Map(), matched = false;
      const flush = () => {
        if (bucket < 0) return;
        let best = null, most = 0, total = 0;
        for (const [color, amount] of filled) { total += amount; if (amount > most) { most = amount; best = color; } }
        const dimmed = matches !== null && !matched;
        if (best !== null) put(place, start + bucket * pixel, start + (bucket + 1) * pixel, best, (dimmed ? 0.14 : 1) * Math.min(1, 0.42 + 0.58 * total / pixel));
        bucket = -1; filled = new Map(); matched = false;
      };
      for (let n = firstEndingAfter(lane, start); n < lane.count && lane.begin[n] < end; n++) {
        const begin = lane.begin[n], stop = lane.end[n], step = lane.step[n], node = girih.stepNode(step);
        const match = isMatch(node);
        if (stop - begin >= pixel) {
          flush();
          put(place, begin, stop, colourOfStep[step], matches !== null && !match ? 0.14 : 1);
          const room = (Math.min(stop, end) - Math.max(begin, start)) / pixel;
          if (place.stream === 0 && room > 40 && text.x.length < 400) {
            const name = girih.stepTransfer(step) >= 0 ? "packing" : girih.short(girih.text(data.graph.nodes.operator[node]));
            const fits = Math.floor((room - 10) / 6.4);
            text.x.push(Math.max(begin, start));
            text.y.push((place.top + place.bottom) / 2);
            text.color.push(onColour(colourOfStep[step]));
            text.text.push(name.length <= fits ? name : `${name.slice(0, fits - 1)}…`);
          }
        } else {
          const at = Math.floor((begin - start) / pixel);
          if (at !== bucket) { flush(); bucket = at; }
          const color = colourOfStep[step];
          if (matches !== null && match && !matched) { matched = true; filled.clear(); }
          if (!matched || match) filled.set(color, (filled.get(color) || 0) + Math.max(stop - begin, pixel * 1e-3));
        }
        if (node === focus) {
          around.left.push(begin); around.right.push(Math.max(stop, begin + 3 * pixel));
          around.top.push(place.top - 1); around.bottom.push(place.bottom + 1);
        }
      }
      flush();
    }
    return [out, text, around];
  };
  const draw = () => {
    frame = 0;
    const [out, text, around] = visible();
    spans.data = out;
    words.data = text;
    outlines.data = around;
    girih.drawn = out.left.length;
  };
  girih.redraw = () => { if (!frame) frame = requestAnimationFrame(draw); };
  range.change.connect(girih.redraw);

  const recolour = () => {
    readColours();
    colourOfStep = stepColours();
    paint(chart);
    backs.glyph.fill_color = theme.soft;
    backs.glyph.fill_alpha = 0.55;
    frames.glyph.line_color = theme.ink;
    names.glyph.text_font = getComputedStyle(document.body).fontFamily;
    girih.redraw();
  };

  /* ------------------------------------------------------------------ moving */

  const clamp = (start, end) => {
    const [low, high] = [-longest * 0.02, longest * 1.02];
    const size = Math.min(Math.max(end - start, longest * 1e-6), high - low);
    const begin = Math.min(Math.max(start, low), high - size);
    range.setv({ start: begin, end: begin + size });
  };
  const zoom = factor => {
    const middle = (range.start + range.end) / 2, half = (range.end - range.start) / 2 * factor;
    clamp(middle - half, middle + half);
  };
  const shift = share => { const by = (range.end - range.start) * share; clamp(range.start + by, range.end + by); };
  const whole = () => clamp(-longest * 0.004, longest * 1.004);
  const KEYS = { ArrowLeft: () => shift(-0.2), ArrowRight: () => shift(0.2), "+": () => zoom(0.6), "=": () => zoom(0.6),
    "-": () => zoom(1 / 0.6), "0": whole, Home: () => clamp(0, range.end - range.start), End: () => clamp(longest, 2 * longest) };

  const spansOf = node => {
    let begin = Infinity, end = -Infinity, count = 0;
    for (const lane of shown.lanes) {
      for (let n = 0; n < lane.count; n++) {
        if (girih.stepNode(lane.step[n]) !== node) continue;
        begin = Math.min(begin, lane.begin[n]); end = Math.max(end, lane.end[n]); count++;
      }
    }
    return { begin, end, count };
  };
  const goTo = node => {
    const found = spansOf(node);
    focus = node;
    if (found.count) {
      const size = Math.max((found.end - found.begin) * 2.4, longest * 2e-6);
      const middle = (found.begin + found.end) / 2;
      clamp(middle - size / 2, middle + size / 2);
    }
    girih.redraw();
  };
  girih.showOnTimeline = node => {
    goTo(node);
    byId("chart").scrollIntoView({ block: "center" });
  };

  /* ------------------------------------------------------------------ searching */

  let order = [], current = -1;
  const search = () => {
    matches = girih.matching(byId("search").value);
    order = [];
    current = -1;
    focus = -1;
    if (matches !== null) for (let node = 0; node < matches.length; node++) if (matches[node]) order.push(node);
    girih.matches = matches === null ? null : order;
    told();
    girih.redraw();
  };
  const told = () => {
    const where = current >= 0 ? `${current + 1} of ` : "";
    byId("found").textContent = matches === null ? "" : order.length ? `${where}${order.length} operator${order.length > 1 ? "s" : ""}` : "none found";
    byId("previous").disabled = byId("next").disabled = !order.length;
  };
  const step = by => {
    if (!order.length) return;
    current = current < 0 ? (by > 0 ? 0 : order.length - 1) : (current + by + order.length) % order.length;
    goTo(order[current]);
    told();
  };

  /* ------------------------------------------------------------------ pointing */

  const plot = byId("timeline-plot");
  const timeAt = event => {
    const left = plot.getBoundingClientRect().left + LEFT;
    return range.start + (event.clientX - left) / width() * (range.end - range.start);
  };
  girih.timeAt = timeAt;
  const spanAt = event => {
    const y = event.clientY - plot.getBoundingClientRect().top, time = timeAt(event);
    const place = places.find(item => y >= item.top - 1 && y <= item.bottom + 1);
    const lane = place && laneOf(place.device, place.stream);
    if (!lane || time < range.start || time > range.end) return null;
    const slack = (range.end - range.start) / width() * 2;
    const n = firstEndingAfter(lane, time - slack);
    let best = -1, near = slack;
    for (let k = n; k < lane.count && lane.begin[k] <= time + slack; k++) {
      const away = Math.max(lane.begin[k] - time, time - lane.end[k], 0);
      if (away < near || (away === near && best < 0)) { best = k; near = away; }
      if (away === 0) break;
    }
    return best < 0 ? null : { place, lane, n: best };
  };
  const tell = (event, { place, lane, n }) => {
    const at = lane.step[n], transfer = girih.stepTransfer(at), node = girih.node(girih.stepNode(at));
    const took = `${girih.seconds(lane.end[n] - lane.begin[n])}, from ${girih.seconds(lane.begin[n])}`;
    const division = node.division.map((item, axis) => `${girih.axisWords(item, axis)[0]} over ${data.graph.axes[axis]}`).join("; ");
    const where = [node.scope, node.source].filter(Boolean).join(", ");
    if (transfer < 0) {
      girih.tip(event, node.name, [`${node.operator}, ${data.graph.kinds[node.kind]}, ${node.phase}`, division, where, `device ${place.device}: ${took}`]);
      return;
    }
    const item = girih.transfer(transfer), verb = item.purpose === "fetch" ? "for" : "after";
    const here = lane.bytes ? `receives ${girih.bytes(lane.bytes[n])}` : "prepares and places messages";
    girih.tip(event, `${item.kind} of ${girih.value(item.value).name}`, [`${verb} ${node.name} (${girih.short(node.operator)})`,
      `all devices receive ${girih.bytes(item.bytes)}`, where, `device ${place.device} ${here}: ${took}`]);
  };
  const point = event => {
    const line = byId("pointer"), inside = timeAt(event) >= range.start && timeAt(event) <= range.end;
    line.hidden = !inside;
    line.style.left = `${event.clientX - byId("chart").getBoundingClientRect().left}px`;
  };
  girih.point = point;

  let pressed = null;
  plot.addEventListener("pointermove", event => {
    point(event);
    const found = event.buttons ? null : spanAt(event);
    if (found) tell(event, found); else girih.hideTip();
  });
  plot.addEventListener("pointerdown", event => { pressed = [event.clientX, event.clientY]; }, true);
  plot.addEventListener("pointerup", event => {
    const still = pressed && Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]) < 4;
    const found = still ? spanAt(event) : null;
    if (found) {
      focus = girih.stepNode(found.lane.step[found.n]);
      girih.showNode(focus);
      girih.redraw();
    }
  }, true);
  plot.addEventListener("dblclick", whole);
  for (const item of [plot, byId("memory-plot")]) item.addEventListener("pointerleave", () => { girih.hideTip(); byId("pointer").hidden = true; });
  plot.addEventListener("keydown", event => {
    const act = KEYS[event.key];
    if (act) { act(); event.preventDefault(); }
  });

  /* ------------------------------------------------------------------ around it */

  const legend = () => {
    const kinds = new Set(data.graph.nodes.kind);
    const collectives = new Set(data.graph.transfers.kind.map(girih.text));
    const item = (style, words) => make("li", {}, make("i", { class: "dot", style: `background:var(${style}, var(--transfer))` }), words);
    byId("timeline-legend").replaceChildren(
      ...data.graph.kinds.map((name, kind) => kinds.has(kind) ? item(girih.kindStyle(kind), name) : null).filter(Boolean),
      ...[...collectives].map(name => item(girih.transferStyle(name), name)));
  };
  const chooser = () => {
    if (girih.timelines.length < 2) return;
    const group = byId("which");
    group.hidden = false;
    const show = number => {
      shown = girih.timelines[number];
      [...group.children].forEach((button, n) => button.setAttribute("aria-pressed", String(n === number)));
      girih.redraw();
      if (girih.showMemory) girih.showMemory(shown);
    };
    girih.timelines.forEach((item, number) => group.append(make("button", { type: "button", "aria-pressed": String(number === 0), onclick: () => show(number) }, item.measured ? "Measured" : "Predicted")));
  };

  girih.startTimeline = () => {
    if (data.drawn) { byId("drawn").textContent = data.drawn; byId("drawn").hidden = false; }
    labels();
    legend();
    chooser();
    recolour();
    Plotting.show(chart, plot);
    byId("search").addEventListener("input", search);
    byId("search").addEventListener("keydown", event => { if (event.key === "Enter") { step(event.shiftKey ? -1 : 1); event.preventDefault(); } });
    byId("previous").addEventListener("click", () => step(-1));
    byId("next").addEventListener("click", () => step(1));
    byId("zoom-in").addEventListener("click", () => zoom(0.5));
    byId("zoom-out").addEventListener("click", () => zoom(2));
    byId("whole").addEventListener("click", whole);
    new ResizeObserver(girih.redraw).observe(plot);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  };
}
