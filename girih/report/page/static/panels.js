"use strict";
/* Memory at the peak and bytes on the links: tables with bars. */
{
  const { make, byId, data } = girih;
  const MOST_TRANSFERS = 10;
  const sumOf = numbers => numbers.reduce((a, b) => a + b, 0);

  /* ------------------------------------------------------------------ parts of tables */

  const number = words => make("td", { class: "number" }, words);
  const name = (words, note = "") =>
    make("th", { scope: "row", class: "name-cell" }, words, note ? make("div", { class: "what" }, note) : null);
  const deviceName = device =>
    make(
      "span",
      { class: "device" },
      make("i", { class: "dot", style: `background:${girih.deviceColour(device)}` }),
      `device ${device}`,
    );
  const nodeButton = (node, words) =>
    make("button", { type: "button", class: "plain-button", onclick: () => girih.showNode(node) }, words);
  /* A bar of one part, or of several one after another. */
  const bar = (amounts, whole, colour) => {
    const attributes = colour
      ? { class: "meter plain", style: `--of-row:var(${colour}, var(--transfer))` }
      : { class: "meter" };
    const percent = amount => `${((100 * amount) / whole).toFixed(2)}%`;
    let from = 0;
    const parts = amounts.map(amount => {
      const part = make("i", { style: `left:${percent(from)};width:${percent(amount)}` });
      from += amount;
      return part;
    });
    return make("span", attributes, ...parts);
  };
  const cell = (...children) => make("td", {}, ...children);
  const row = (...cells) => make("tr", {}, ...cells);
  /* heads: names of columns, `#` before those of numbers. */
  const table = (title, notes, heads, rows, attributes = {}) => {
    const column = words => {
      const isNumber = words.startsWith("#");
      return make("th", { scope: "col", class: isNumber ? "number" : "" }, isNumber ? words.slice(1) : words);
    };
    const caption = make("caption", {}, title, make("small", {}, ...notes));
    return make("table", attributes, caption, make("thead", {}, row(...heads.map(column))), make("tbody", {}, ...rows));
  };
  Object.assign(girih, { table, row, cell, number, name, bar, nodeButton });

  /* ------------------------------------------------------------------ memory at the peak */

  const showTensors = ({ device, peak, tensors, node }) => {
    const rest = peak - sumOf(tensors.map(([, size]) => size));
    const most = Math.max(...tensors.map(([, size]) => size), rest, 1);
    const one = (words, note, size, colour) =>
      row(
        name(words, note),
        cell(bar([size], most, colour)),
        number(girih.bytes(size)),
        number(girih.share(size, peak)),
      );
    const rows = tensors.map(([buffer, size, what]) => one(buffer, what, size, "--accent"));
    if (rest > 0) rows.push(one("all others, and what kernels hold", "", rest, "--faint"));
    const during = node >= 0 ? ["Reached during ", nodeButton(node, girih.node(node).name)] : ["Reached at the start"];
    const title = `Tensors on device ${device} at its peak`;
    byId("tensors").replaceChildren(table(title, during, ["tensor", "", "#bytes", "#of the peak"], rows));
  };
  const memory = () => {
    const { devices, limit, given } = data.holdings;
    const most = Math.max(...devices.map(item => item.peak), 1);
    const whole = limit && limit < 1.8 * most ? Math.max(limit, most) : most;
    const rows = devices.map(({ device, state, peak }) => {
      const button = make("button", { type: "button", class: "plain-button" }, deviceName(device));
      const cells = [
        cell(bar([state, peak - state], whole)),
        ...[state, peak].map(amount => number(girih.bytes(amount))),
      ];
      return row(name(button), ...cells, number(limit ? girih.share(peak, limit) : "–"));
    });
    const choose = number => {
      rows.forEach((item, n) => item.setAttribute("aria-selected", String(n === number)));
      showTensors(devices[number]);
    };
    rows.forEach((item, n) => {
      item.className = "choose";
      item.addEventListener("click", () => choose(n));
    });
    const notes = [`${given ? "limit" : "the device has"} ${girih.bytes(limit)}`];
    if (devices.length < data.devices) notes.push(`; ${devices.length} of ${data.devices} devices were followed`);
    byId("peaks").append(table("Each device", notes, ["device", "", "#state", "#peak", "#of it"], rows));
    const highest = devices.map(item => item.peak).indexOf(most);
    choose(Math.max(highest, 0));
  };

  /* ------------------------------------------------------------------ bytes on the links */

  const received = () => {
    const { axes, devices, received, total } = data.links;
    const most = Math.max(...received.flat(), 1);
    const shade = amount =>
      `background:color-mix(in srgb, var(--transfer) ${Math.round((70 * amount) / most)}%, var(--soft))`;
    const heat = amount => make("td", { class: "number", style: shade(amount) }, girih.bytes(amount));
    const rows = devices.map((device, n) =>
      row(name(deviceName(device)), ...received[n].map(heat), number(girih.bytes(sumOf(received[n])))),
    );
    const all = [...total, sumOf(total)].map(amount => number(girih.bytes(amount)));
    rows.push(row(name(make("b", {}, "all devices")), ...all));
    const heads = ["device", ...axes.map(axis => `#${axis}`), "#together"];
    byId("received").append(table("Received over each axis of the mesh", [], heads, rows, { class: "heat" }));
  };
  const collectives = () => {
    const { kinds } = data.links;
    const most = Math.max(...kinds.map(([, , amount]) => amount), 1);
    const rows = kinds.map(([kind, count, amount]) => {
      const drawn = cell(bar([amount], most, girih.transferStyle(kind)));
      return row(name(kind), drawn, number(String(count)), number(girih.bytes(amount)));
    });
    byId("collectives").append(table("By collective", [], ["collective", "", "#times", "#bytes"], rows));
  };
  const largest = () => {
    const amounts = data.graph.transfers.bytes;
    const whole = sumOf(amounts);
    const order = [...amounts.keys()].filter(item => amounts[item] > 0).sort((a, b) => amounts[b] - amounts[a]);
    if (!order.length) return;
    const rows = order
      .slice(0, MOST_TRANSFERS)
      .map(girih.transfer)
      .map(item => {
        const node = girih.node(item.node);
        const value = girih.value(item.value);
        const reader = make("td", { class: "name-cell" }, nodeButton(item.node, node.name));
        reader.append(make("div", { class: "what" }, girih.short(node.operator)));
        return row(
          name(value.name, `${value.type} ${value.shape}`),
          cell(item.kind),
          reader,
          make("td", { class: "name-cell what" }, node.scope || "–"),
          number(girih.bytes(item.bytes)),
          number(girih.share(item.bytes, whole)),
        );
      });
    const heads = ["tensor", "collective", "for", "module", "#bytes", "#of all"];
    byId("largest").append(table("The largest transfers", [], heads, rows));
  };

  girih.startPanels = () => {
    memory();
    received();
    collectives();
    largest();
  };
}
