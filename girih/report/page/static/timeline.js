"use strict";
/* The timeline, drawn by BokehJS: its canvas, axes and zoom; what is visible comes from lanes.js. */
{
  const { make, byId, data, view, places, range, figure, paint, longest } = girih;
  const { Plotting, Range1d, ColumnDataSource } = Bokeh;

  /* ------------------------------------------------------------------ colours */

  let colourOfStep = [];
  const stepColours = () => {
    const kinds = data.graph.kinds.map((_, kind) => girih.style(girih.kindStyle(kind)));
    const collectives = new Map();
    const collective = kind => {
      if (!collectives.has(kind))
        collectives.set(kind, girih.style(girih.transferStyle(kind)) || girih.style("--transfer"));
      return collectives.get(kind);
    };
    return data.graph.steps.map((_, step) => {
      const transfer = girih.stepTransfer(step);
      if (transfer >= 0) return collective(girih.transfer(transfer).kind);
      return kinds[data.graph.nodes.kind[girih.stepNode(step)]];
    });
  };
  /* Dark words on light colours, light ones on dark. */
  girih.onColour = colour => {
    const [red, green, blue] = [1, 3, 5].map(at => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.25 ? "#10151a" : "#ffffff";
  };

  /* ------------------------------------------------------------------ the chart */

  const field = name => ({ field: name });
  const box = { left: field("left"), right: field("right"), top: field("top"), bottom: field("bottom") };
  const empty = (...names) => new ColumnDataSource({ data: Object.fromEntries(names.map(name => [name, []])) });
  const boxes = empty("left", "right", "top", "bottom", "color", "alpha");
  const outlines = empty("left", "right", "top", "bottom");
  const words = empty("x", "y", "text", "color");
  const whole = new ColumnDataSource({
    data: {
      left: places.map(() => -longest),
      right: places.map(() => longest * 3),
      top: places.map(place => place.top),
      bottom: places.map(place => place.bottom),
    },
  });
  const chart = figure(girih.lanesHeight, range, new Range1d({ start: girih.lanesHeight, end: 0 }), false);
  const backs = chart.quad({ ...box, source: whole, line_color: null, fill_alpha: 0.55 });
  chart.quad({ ...box, source: boxes, line_color: null, fill_color: field("color"), fill_alpha: field("alpha") });
  const frames = chart.quad({ ...box, source: outlines, fill_color: null, line_width: 1.5 });
  const names = chart.text({
    x: field("x"),
    y: field("y"),
    text: field("text"),
    source: words,
    text_color: field("color"),
    text_baseline: "middle",
    text_font_size: "11px",
    x_offset: 5,
  });
  chart.ygrid.visible = false;

  /* While the range moves, spans of up to COARSE pixels are drawn together; when it rests, all that can be seen. */
  const COARSE = 2.5;
  const REST = 150; // milliseconds
  let frame = 0;
  let settling = 0;
  let asked = -Infinity;
  const draw = grain => {
    frame = 0;
    const drawing = girih.visible(range.start, range.end, girih.plotWidth(), grain, colourOfStep);
    boxes.data = drawing.boxes;
    words.data = drawing.words;
    outlines.data = drawing.outlines;
    girih.drawn = drawing.boxes.left.length;
  };
  girih.redraw = () => {
    const moving = performance.now() - asked < REST;
    asked = performance.now();
    if (!frame) frame = requestAnimationFrame(() => draw(moving ? COARSE : 1));
    clearTimeout(settling);
    if (moving) settling = setTimeout(draw, REST, 1);
  };
  const recolour = () => {
    colourOfStep = stepColours();
    paint(chart);
    backs.glyph.fill_color = girih.style("--soft");
    frames.glyph.line_color = girih.style("--ink");
    names.glyph.text_font = getComputedStyle(document.body).fontFamily;
    girih.redraw();
  };

  /* ------------------------------------------------------------------ around it */

  const legend = () => {
    const kinds = new Set(data.graph.nodes.kind);
    const collectives = new Set(data.graph.transfers.kind.map(girih.text));
    const item = (style, name) =>
      make("li", {}, make("i", { class: "dot", style: `background:var(${style}, var(--transfer))` }), name);
    const own = data.graph.kinds.map((name, kind) => (kinds.has(kind) ? item(girih.kindStyle(kind), name) : ""));
    const received = [...collectives].map(name => item(girih.transferStyle(name), name));
    byId("timeline-legend").replaceChildren(...own, ...received);
  };
  /* Buttons that change between what was predicted and what was measured. */
  const chooser = () => {
    if (girih.timelines.length < 2) return;
    const group = byId("which");
    const show = number => {
      view.shown = girih.timelines[number];
      [...group.children].forEach((button, n) => button.setAttribute("aria-pressed", String(n === number)));
      girih.showWhole();
      girih.redraw();
      if (girih.showMemory) girih.showMemory(view.shown);
    };
    girih.timelines.forEach((item, number) => {
      const attributes = { type: "button", "aria-pressed": String(number === 0), onclick: () => show(number) };
      group.append(make("button", attributes, item.measured ? "Measured" : "Predicted"));
    });
    group.hidden = false;
  };

  girih.startTimeline = () => {
    byId("drawn").textContent = data.drawn;
    byId("drawn").hidden = !data.drawn;
    girih.labelLanes();
    legend();
    chooser();
    recolour();
    Plotting.show(chart, byId("timeline-plot"));
    range.change.connect(girih.redraw);
    new ResizeObserver(girih.redraw).observe(byId("timeline-plot"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  };
}
