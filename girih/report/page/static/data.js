"use strict";
/* The page's data: its columns as functions of a number, its timelines with absolute times. */
const girih = {};
{
  const data = JSON.parse(document.getElementById("girih-data").textContent);
  const { nodes, values, transfers } = data.graph;
  const text = number => data.texts[number];
  girih.data = data;
  girih.text = text;

  girih.node = number => ({
    number,
    name: text(nodes.name[number]),
    operator: text(nodes.operator[number]),
    scope: text(nodes.scope[number]),
    source: text(nodes.source[number]),
    phase: data.graph.phases[nodes.phase[number]],
    kind: nodes.kind[number],
    tile: nodes.tile[number],
    division: data.graph.divisions[nodes.division[number]],
    divided: text(nodes.divided[number]),
    view: nodes.view[number] === 1,
    inputs: nodes.inputs[number],
    reads: nodes.reads[number],
    outputs: nodes.outputs[number],
  });
  girih.nodeCount = nodes.name.length;
  girih.value = number => ({
    name: text(values.name[number]),
    shape: text(values.shape[number]),
    type: text(values.type[number]),
    layout: text(values.layout[number]),
    part: text(values.part[number]),
    bytes: values.bytes[number],
  });
  /* `y (S0·R), mean (S0·S0)`: what a node makes and how each result lies; nothing where it has one result alone. */
  girih.results = node =>
    node.outputs.length > 1
      ? node.outputs.map(girih.value).map(value => `${value.name} (${value.layout})`).join(", ")
      : "";
  girih.transfer = number => ({
    node: transfers.node[number],
    value: transfers.value[number],
    kind: text(transfers.kind[number]),
    purpose: text(transfers.purpose[number]),
    bytes: transfers.bytes[number],
  });
  const caused = new Map();
  transfers.node.forEach((node, number) =>
    caused.has(node) ? caused.get(node).push(number) : caused.set(node, [number]),
  );
  girih.transfersOf = node => caused.get(node) || [];
  girih.receivedFor = node => girih.transfersOf(node).reduce((sum, number) => sum + transfers.bytes[number], 0);

  /* What is copied between a device and the large memory behind it. */
  const COPIES = new Set(["copy out", "copy in"]);
  girih.isCopy = item => COPIES.has(item.purpose);

  /* The node of a step of the program; its transfer, or -1 where it is the node's own work. */
  girih.stepNode = step => {
    const item = data.graph.steps[step];
    return item < 0 ? transfers.node[-1 - item] : item;
  };
  girih.stepTransfer = step => {
    const item = data.graph.steps[step];
    return item < 0 ? -1 - item : -1;
  };

  /* Lanes with absolute times in seconds, from steps and ticks that count from the span before. */
  const lane = (item, unit) => {
    const count = item.step.length;
    const result = {
      device: item.device,
      stream: item.stream,
      busy: item.busy,
      count,
      step: new Int32Array(count),
      begin: new Float64Array(count),
      end: new Float64Array(count),
      bytes: item.bytes || null,
    };
    let step = 0;
    let at = 0;
    for (let n = 0; n < count; n++) {
      step += item.step[n];
      at += item.gap[n];
      result.step[n] = step;
      result.begin[n] = at * unit;
      at += item.took[n];
      result.end[n] = at * unit;
    }
    return result;
  };
  const curve = (item, unit) => {
    const sum = numbers => {
      let total = 0;
      return Float64Array.from(numbers, number => (total += number));
    };
    return { device: item.device, seconds: sum(item.seconds).map(tick => tick * unit), bytes: sum(item.bytes) };
  };
  girih.timelines = data.timelines.map(item => ({
    ...item,
    lanes: item.lanes.map(one => lane(one, item.unit)),
    memory: item.memory.map(one => curve(one, item.unit)),
  }));

  /* Seconds of each node's own work on the device where it takes longest, by the first timeline. */
  girih.nodeSeconds = new Float64Array(girih.nodeCount);
  for (const one of girih.timelines[0].lanes.filter(one => one.stream === 0)) {
    for (let n = 0; n < one.count; n++) {
      if (girih.stepTransfer(one.step[n]) >= 0) continue;
      const node = girih.stepNode(one.step[n]);
      girih.nodeSeconds[node] = Math.max(girih.nodeSeconds[node], one.end[n] - one.begin[n]);
    }
  }

  /* ------------------------------------------------------------------ searching */

  const haystacks = [];
  const haystack = number => {
    if (haystacks[number] === undefined) {
      const node = girih.node(number);
      const own = [node.name, node.operator, node.scope, node.source, data.graph.kinds[node.kind], node.phase];
      haystacks[number] = [...own, ...node.outputs.map(value => girih.value(value).name)].join("\n").toLowerCase();
    }
    return haystacks[number];
  };
  /* For each node 1 if its name, operator, module, … contain all words of a query; null for an empty query. */
  girih.matching = query => {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return null;
    const found = new Uint8Array(girih.nodeCount);
    return found.map((_, number) => Number(words.every(word => haystack(number).includes(word))));
  };
  girih.numbersOf = matches => [...matches.keys()].filter(number => matches[number]);
}
