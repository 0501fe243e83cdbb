"use strict";
/* What the charts over time share: one range of time, axes that fit it, colours of the page. */
{
  const { Plotting, Range1d, WheelZoomTool, PanTool, CustomJSTickFormatter } = Bokeh;
  const LEFT = 132;
  const RIGHT = 18;
  const longest = Math.max(...girih.timelines.map(item => item.seconds), 1e-9);
  const makeRange = () =>
    new Range1d({
      start: -girih.timelines[0].seconds * 0.004,
      end: (girih.timelines[0].seconds || longest) * 1.004,
      bounds: [-longest * 0.02, longest * 1.02],
      min_interval: longest * 1e-6,
    });
  const range = makeRange();
  /* A range of a figure in another Bokeh document, which moves as this one does. */
  girih.linkedRange = () => {
    const other = makeRange();
    const follow = (from, to) =>
      from.change.connect(() => {
        if (from.start !== to.start || from.end !== to.end) to.setv({ start: from.start, end: from.end });
      });
    follow(range, other);
    follow(other, range);
    return other;
  };

  const figure = (frameHeight, xRange, yRange, yAxis) => {
    const wheel = new WheelZoomTool({ dimensions: "width", zoom_on_axis: true });
    const pan = new PanTool({ dimensions: "width" });
    const made = Plotting.figure({
      frame_height: frameHeight,
      sizing_mode: "stretch_width",
      x_range: xRange,
      y_range: yRange,
      tools: [wheel, pan],
      toolbar_location: null,
      min_border_left: LEFT,
      min_border_right: RIGHT,
      min_border_top: yAxis ? 8 : 0,
      min_border_bottom: 30,
      outline_line_color: null,
      output_backend: "canvas",
      lod_factor: 1,
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
      Object.assign(axis, {
        axis_line_color: null,
        major_tick_line_color: null,
        minor_tick_line_color: null,
        major_label_text_color: girih.style("--muted"),
        major_label_text_font_size: "11.5px",
        major_label_text_font: getComputedStyle(document.body).fontFamily,
      });
    }
    for (const grid of made.center)
      Object.assign(grid, { grid_line_color: girih.style("--line"), grid_line_alpha: 0.8 });
  };

  /* Pixels of the range of time on the page. */
  const plotWidth = () => Math.max(girih.byId("timeline-plot").clientWidth - LEFT - RIGHT, 100);

  Object.assign(girih, { range, figure, paint, plotWidth, longest, LEFT });
}
