"use strict";
/* Numbers as people read them, and elements made of words. */
{
  const BYTES = [
    ["TB", 1e12],
    ["GB", 1e9],
    ["MB", 1e6],
    ["KB", 1e3],
    ["B", 1],
  ];
  const SECONDS = [
    ["s", 1],
    ["ms", 1e-3],
    ["µs", 1e-6],
    ["ns", 1e-9],
  ];
  /* The largest unit of which there is at least one; else the smallest. */
  const unitOf = (amount, units) => units.find(([, size]) => Math.abs(amount) >= size) || units.at(-1);

  girih.bytes = amount => {
    const [unit, size] = unitOf(amount, BYTES);
    return `${(amount / size).toFixed(size === 1 ? 0 : 2)} ${unit}`;
  };
  girih.seconds = amount => {
    if (amount >= 60) return `${(amount / 60).toFixed(1)} min`;
    const [unit, size] = unitOf(amount, SECONDS);
    return amount === 0 ? "0 s" : `${(amount / size).toFixed(unit === "ns" ? 0 : 2)} ${unit}`;
  };
  girih.share = (part, whole) => {
    if (!whole) return "–";
    const share = (100 * part) / whole;
    return share > 0 && share < 0.1 ? "< 0.1 %" : `${share.toFixed(share < 10 ? 1 : 0)} %`;
  };
  /* A tick of an axis: all in one unit, with as many digits as tell neighbours apart. */
  const tick = units => (value, ticks) => {
    const apart = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : Math.abs(value) || 1;
    const [unit, size] = unitOf(Math.max(...ticks.map(Math.abs), apart), units);
    const digits = Math.max(0, Math.ceil(-Math.log10(apart / size) - 1e-9));
    return `${(value / size).toFixed(Math.min(digits, 9))} ${unit}`;
  };
  girih.timeTick = tick(SECONDS);
  girih.memoryTick = tick(BYTES);
  girih.operators = count => `${count} operator${count === 1 ? "" : "s"}`;
  /* `mm` for `aten.mm`, `add` for `aten.add.Tensor`. */
  girih.short = operator => operator.split(".")[1] || operator;

  girih.style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  girih.kindStyle = kind => `--kind-${kind}`;
  girih.transferStyle = kind => `--transfer-${kind.replaceAll(" ", "-")}`;
  girih.byId = id => document.getElementById(id);
  /* An element with attributes and children; texts become text nodes, never markup. */
  girih.make = (tag, attributes = {}, ...children) => {
    const item = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "class") item.className = value || "";
      else if (name.startsWith("on")) item.addEventListener(name.slice(2), value);
      else if (name === "style") item.style.cssText = value;
      else if (value !== false && value !== null) item.setAttribute(name, value === true ? "" : value);
    }
    item.append(...children.filter(child => child !== null && child !== undefined));
    return item;
  };
}
