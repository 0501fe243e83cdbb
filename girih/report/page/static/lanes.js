"use strict";
/* Where the lanes of the timeline lie, and what of their spans can be seen in a range of time.

Spans of a pixel and more are drawn one by one, shorter ones together: each pixel in the colour of the kind that fills
most of it, fainter where less of it is filled. */
{
  const { make, byId, data } = girih;
  const DIMMED = 0.14;
  const MOST_WORDS = 400;
  const SHADES = 5; // by how much a pixel is filled
  const many = data.timelines[0].devices.length > 8;
  const [TALL, LOW, APART] = many ? [18, 9, 9] : [24, 12, 12];
  const BETWEEN = 3;

  /* What is shown: a timeline, the nodes that match the search (null: no search), the node that was chosen. */
  const view = { shown: girih.timelines[0], matches: null, focus: -1 };
  girih.view = view;

  /* Each lane's device, stream, and extent in pixels from the top. */
  const places = [];
  let top = 2; // room for the outline of the first lane
  for (const device of data.timelines[0].devices) {
    view.shown.streams.forEach((name, stream) => {
      const height = stream === 0 ? TALL : LOW;
      places.push({ device, stream, name, top, bottom: top + height });
      top += height + BETWEEN;
    });
    top += APART;
  }
  girih.places = places;
  girih.lanesHeight = top - APART + 2;
  girih.laneAt = place => view.shown.lanes.find(lane => lane.device === place.device && lane.stream === place.stream);

  girih.labelLanes = () => {
    const label = ({ device, stream, name, top, bottom }) => {
      const words = stream === 0 ? `device ${device}` : data.graph.axes[stream - 1] || name;
      const attributes = {
        class: stream === 0 ? "compute" : "receive",
        "data-device": device,
        "data-stream": stream,
        "aria-label": `device ${device}, ${stream === 0 || !data.graph.axes[stream - 1] ? name : `receiving over ${words}`}`,
        style: `top:${top}px;height:${bottom - top}px`,
      };
      const dot = make("i", { class: "dot", style: `background:${girih.deviceColour(device)}` });
      return make("li", attributes, stream === 0 ? dot : null, words);
    };
    byId("lanes").replaceChildren(...places.map(label));
  };

  /* The first span of a lane that ends after a time. */
  girih.firstEndingAfter = (lane, time) => {
    let low = 0;
    let high = lane.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lane.end[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  /* The spans that share one grain of time, which is a pixel or a few. Where one of them matches the search, only those that match count. */
  class Grain {
    constructor() {
      this.number = -1;
      this.clear();
    }
    clear() {
      this.filled = new Map();
      this.matched = false;
    }
    add(colour, amount, match) {
      if (match && !this.matched && view.matches !== null) {
        this.matched = true;
        this.filled.clear();
      }
      if (match || !this.matched) this.filled.set(colour, (this.filled.get(colour) || 0) + amount);
    }
    /* [the colour that fills most, the amount of all] */
    most() {
      let best = null;
      let total = 0;
      for (const [colour, amount] of this.filled) {
        total += amount;
        if (best === null || amount > this.filled.get(best)) best = colour;
      }
      return [best, total];
    }
  }

  /* Columns of what is drawn: boxes, words in them, outlines around the chosen node. */
  class Drawing {
    constructor(start, end, pixel, grain, colourOfStep) {
      Object.assign(this, { start, end, pixel, grain, colourOfStep });
      this.boxes = { left: [], right: [], top: [], bottom: [], color: [], alpha: [] };
      this.words = { x: [], y: [], text: [], color: [] };
      this.outlines = { left: [], right: [], top: [], bottom: [] };
      places.forEach(place => this.lane(place, girih.laneAt(place)));
    }
    lane(place, lane) {
      if (!lane) return;
      const shared = new Grain();
      for (let n = girih.firstEndingAfter(lane, this.start); n < lane.count && lane.begin[n] < this.end; n++) {
        const begin = lane.begin[n];
        const stop = lane.end[n];
        const node = girih.stepNode(lane.step[n]);
        const match = view.matches === null || view.matches[node] === 1;
        if (stop - begin >= this.grain) {
          this.flush(place, shared);
          this.box(place, begin, stop, this.colourOfStep[lane.step[n]], match ? 1 : DIMMED);
          this.word(place, begin, stop, lane.step[n]);
        } else {
          const at = Math.floor((begin - this.start) / this.grain);
          if (at !== shared.number) this.flush(place, shared);
          shared.number = at;
          shared.add(this.colourOfStep[lane.step[n]], Math.max(stop - begin, this.grain * 1e-3), match);
        }
        if (node === view.focus) this.outline(place, begin, stop);
      }
      this.flush(place, shared);
    }
    flush(place, shared) {
      const [colour, total] = shared.most();
      if (colour !== null) {
        const left = this.start + shared.number * this.grain;
        const seen = view.matches === null || shared.matched ? 1 : DIMMED;
        const full = Math.round(Math.min(1, total / this.grain) * SHADES) / SHADES;
        this.shared(place, left, left + this.grain, colour, seen * (0.42 + 0.58 * full));
      }
      shared.clear();
    }
    /* A grain's box; the one before grows instead if it looks the same. */
    shared(place, left, right, colour, alpha) {
      const { boxes } = this;
      const last = boxes.left.length - 1;
      const touches =
        last >= 0 && boxes.top[last] === place.top && Math.abs(boxes.right[last] - left) < this.grain * 0.01;
      if (touches && boxes.color[last] === colour && boxes.alpha[last] === alpha) boxes.right[last] = right;
      else this.box(place, left, right, colour, alpha);
    }
    box(place, left, right, colour, alpha) {
      const { boxes } = this;
      boxes.left.push(left);
      boxes.right.push(right);
      boxes.top.push(place.top);
      boxes.bottom.push(place.bottom);
      boxes.color.push(colour);
      boxes.alpha.push(alpha);
    }
    /* The operator's name, as much of it as there is room for. */
    word(place, begin, stop, step) {
      const room = (Math.min(stop, this.end) - Math.max(begin, this.start)) / this.pixel;
      if (place.stream !== 0 || room < 40 || this.words.x.length >= MOST_WORDS) return;
      const operator = girih.text(data.graph.nodes.operator[girih.stepNode(step)]);
      const name = girih.stepTransfer(step) >= 0 ? "packing" : girih.short(operator);
      const fits = Math.floor((room - 10) / 6.4);
      this.words.x.push(Math.max(begin, this.start));
      this.words.y.push((place.top + place.bottom) / 2);
      this.words.text.push(name.length <= fits ? name : `${name.slice(0, fits - 1)}…`);
      this.words.color.push(girih.onColour(this.colourOfStep[step]));
    }
    outline(place, begin, stop) {
      this.outlines.left.push(begin);
      this.outlines.right.push(Math.max(stop, begin + 3 * this.pixel));
      this.outlines.top.push(place.top - 1);
      this.outlines.bottom.push(place.bottom + 1);
    }
  }
  /* grain: how long in pixels a span must be to be drawn by itself. */
  girih.visible = (start, end, width, grain, colourOfStep) => {
    const pixel = (end - start) / width;
    return new Drawing(start, end, pixel, grain * pixel, colourOfStep);
  };
}
