"use strict";
/* The page's data, its columns as functions of a number, and numbers as people read them. */
const girih = {};
{
  const data = JSON.parse(document.getElementById("girih-data").textContent);
  const { nodes, values, transfers } = data.graph;
  const text = number => data.texts[number];
  girih.data = data;
  girih.text = text;

  girih.node = number => ({
    number, name: text(nodes.name[number]), operator: text(nodes.operator[number]), scope: text(nodes.scope[number]),
    source: text(nodes.source[number]), phase: data.graph.phases[nodes.phase[number]], kind: nodes.kind[number],
    tile: nodes.tile[number], division: data.graph.divisions[nodes.division[number]], divided: text(nodes.divided[number]),
    view: nodes.view[number] === 1, inputs: nodes.inputs[number], reads: nodes.reads[number], outputs: nodes.outputs[number],
  });
  girih.nodeCount = nodes.name.length;
  girih.value = number => ({
    name: text(values.name[number]), shape: text(values.shape[number]), type: text(values.type[number]),
    layout: text(values.layout[number]), part: text(values.part[number]), bytes: values.bytes[number],
  });
  girih.transfer = number => ({
    node: transfers.node[number], value: transfers.value[number], kind: text(transfers.kind[number]),
    purpose: text(transfers.purpose[number]), bytes: transfers.bytes[number],
  });
  const caused = new Map();
  transfers.node.forEach((node, number) => caused.has(node) ? caused.get(node).push(number) : caused.set(node, [number]));
  girih.transfersOf = node => caused.get(node) || [];
  girih.receivedFor = node => girih.transfersOf(node).reduce((sum, number) => sum + transfers.bytes[number], 0);

  /* What a step of the program is: {node, transfer}; transfer is -1 for a node's own work. */
  girih.stepNode = step => { const item = data.graph.steps[step]; return item < 0 ? transfers.node[-1 - item] : item; };
  girih.stepTransfer = step => { const item = data.graph.steps[step]; return item < 0 ? -1 - item : -1; };

  /* `mm` for `aten.mm`, `add` for `aten.add.Tensor`. */
  girih.short = operator => operator.split(".")[1] || operator;

  const scaled = (amount, units, digits) => {
    for (const [unit, size] of units) if (Math.abs(amount) >= size) return (amount / size).toFixed(digits) + " " + unit;
    return null;
  };
  girih.bytes = amount => scaled(amount, [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["KB", 1e3]], 2) || amount.toFixed(0) + " B";
  girih.seconds = amount => {
    if (amount === 0) return "0 s";
    if (amount >= 60) return (amount / 60).toFixed(1) + " min";
    return scaled(amount, [["s", 1], ["ms", 1e-3], ["µs", 1e-6]], 2) || (amount * 1e9).toFixed(0) + " ns";
  };
  girih.share = (part, whole) => {
    if (!whole) return "–";
    const share = 100 * part / whole;
    return share > 0 && share < 0.1 ? "< 0.1 %" : `${share.toFixed(share < 10 ? 1 : 0)} %`;
  };

  girih.style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  girih.kindStyle = kind => `--kind-${kind}`;
  girih.transferStyle = kind => `--transfer-${kind.replaceAll(" ", "-")}`;
  girih.byId = id => document.getElementById(id);
  /* An element with attributes and children; texts become text nodes, never markup. */
  girih.make = (tag, attributes = {}, ...children) => {
    const item = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "class") item.className = value;
      else if (name.startsWith("on")) item.addEventListener(name.slice(2), value);
      else if (name === "style") item.style.cssText = value;
      else if (value !== false && value !== null) item.setAttribute(name, value === true ? "" : value);
    }
    item.append(...children.filter(child => child !== null && child !== undefined));
    return item;
  };

  /* Lanes with absolute times in seconds, from steps and ticks that count from the span before. */
  const lane = (item, unit) => {
    const count = item.step.length;
    const result = { device: item.device, stream: item.stream, busy: item.busy, count, step: new Int32Array(count),
      begin: new Float64Array(count), end: new Float64Array(count), bytes: item.bytes || null };
    let step = 0, at = 0;
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
    const sum = numbers => { let total = 0; return Float64Array.from(numbers, number => total += number); };
    return { device: item.device, seconds: sum(item.seconds).map(tick => tick * unit), bytes: sum(item.bytes) };
  };
  girih.timelines = data.timelines.map(item => ({
    ...item, lanes: item.lanes.map(one => lane(one, item.unit)), memory: item.memory.map(one => curve(one, item.unit)),
  }));

  /* Seconds of each node's own work on the device where it takes longest, by the first timeline. */
  const longest = new Float64Array(girih.nodeCount);
  for (const one of girih.timelines[0].lanes) {
    if (one.stream !== 0) continue;
    for (let n = 0; n < one.count; n++) {
      if (girih.stepTransfer(one.step[n]) >= 0) continue;
      const node = girih.stepNode(one.step[n]);
      longest[node] = Math.max(longest[node], one.end[n] - one.begin[n]);
    }
  }
  girih.longest = longest;

  /* Nodes whose name, operator, module, source or values contain all words of a query; null for an empty query. */
  const haystacks = [];
  const haystack = number => {
    if (haystacks[number] === undefined) {
      const node = girih.node(number);
      const own = [node.name, node.operator, node.scope, node.source, data.graph.kinds[node.kind], node.phase];
      haystacks[number] = [...own, ...node.outputs.map(value => girih.value(value).name)].join("\n").toLowerCase();
    }
    return haystacks[number];
  };
  girih.matching = query => {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return null;
    const found = new Uint8Array(girih.nodeCount);
    for (let number = 0; number < girih.nodeCount; number++) {
      const inside = haystack(number);
      found[number] = words.every(word => inside.includes(word)) ? 1 : 0;
    }
    return found;
  };
}
