"use strict";
/* Memory at the peak, bytes on the links, predicted beside measured: tables with bars. */
{
  const { make, byId, data } = girih;
  const cell = (words, number) => make("td", { class: number ? "number" : false }, words);
  const head = (...names) => make("thead", {}, make("tr", {}, ...names.map(name => make("th", { scope: "col", class: name.startsWith("#") ? "number" : false }, name.replace("#", "")))));
  const meter = (parts, whole, plain, colour) => make("td", {}, make("span", { class: plain ? "meter plain" : "meter", style: colour ? `--of-row:var(${colour}, var(--transfer))` : "" },
    ...parts.map(([from, to]) => make("i", { style: `left:${(100 * from / whole).toFixed(2)}%;width:${(100 * (to - from) / whole).toFixed(2)}%` }))));
  const nodeButton = (number, words) => make("button", { type: "button", class: "plain-button", onclick: () => girih.showNode(number) }, words);

  /* ------------------------------------------------------------------ memory */

  const tensors = item => {
    const rest = item.peak - item.tensors.reduce((sum, [, size]) => sum + size, 0);
    const most = Math.max(...item.tensors.map(([, size]) => size), rest, 1);
    const rows = item.tensors.map(([name, size, what]) => make("tr", {},
      make("th", { scope: "row", class: "name-cell" }, name, make("div", { class: "what" }, what)), meter([[0, size]], most, true), cell(girih.bytes(size), true), cell(girih.share(size, item.peak), true)));
    if (rest > 0) rows.push(make("tr", {}, make("th", { scope: "row" }, "all others, and what kernels hold"), meter([[0, rest]], most, true, "--faint"), cell(girih.bytes(rest), true), cell(girih.share(rest, item.peak), true)));
    const during = item.node >= 0 ? ["Reached during ", nodeButton(item.node, girih.node(item.node).name)] : ["Reached at the start"];
    byId("tensors").replaceChildren(make("table", {}, make("caption", {}, `Tensors on device ${item.device} at its peak`, make("small", {}, ...during)),
      head("tensor", "", "#bytes", "#of the peak"), make("tbody", {}, ...rows)));
  };
  const memory = () => {
    const { devices, limit, given } = data.holdings;
    const most = Math.max(...devices.map(item => item.peak), 1), scale = limit && limit < 1.8 * most ? Math.max(limit, most) : most;
    const rows = devices.map(item => make("tr", { class: "choose", "aria-selected": "false" },
      make("th", { scope: "row" }, make("button", { type: "button", class: "plain-button" }, make("i", { class: "dot", style: `background:${girih.deviceColour(item.device)};margin-right:8px` }), `device ${item.device}`)),
      meter([[0, item.state], [item.state, item.peak]], scale), cell(girih.bytes(item.state), true), cell(girih.bytes(item.peak), true), cell(limit ? girih.share(item.peak, limit) : "–", true)));
    const choose = number => { rows.forEach((row, n) => row.setAttribute("aria-selected", String(n === number))); tensors(devices[number]); };
    rows.forEach((row, number) => row.addEventListener("click", () => choose(number)));
    const title = `${given ? "Limit" : "The device has"} ${girih.bytes(limit)}`;
    const note = devices.length < data.devices ? `; ${devices.length} of ${data.devices} devices were followed` : "";
    byId("peaks").append(make("table", {}, make("caption", {}, "Each device", make("small", {}, title + note)), head("device", "", "#state", "#peak", "#of it"), make("tbody", {}, ...rows)));
    choose(devices.reduce((best, item, number) => item.peak > devices[best].peak ? number : best, 0));
  };

  /* ------------------------------------------------------------------ links */

  const links = () => {
    const { axes, devices, received, total, kinds } = data.links;
    const most = Math.max(...received.flat(), 1);
    const shade = amount => `background:color-mix(in srgb, var(--transfer) ${(70 * amount / most).toFixed(0)}%, var(--soft))`;
    const rows = devices.map((device, n) => make("tr", {},
      make("th", { scope: "row" }, make("i", { class: "dot", style: `background:${girih.deviceColour(device)};margin-right:8px` }), `device ${device}`),
      ...received[n].map(amount => make("td", { style: shade(amount) }, girih.bytes(amount))), cell(girih.bytes(received[n].reduce((a, b) => a + b, 0)), true)));
    const all = make("tr", {}, make("th", { scope: "row" }, make("b", {}, "all devices")), ...total.map(amount => cell(girih.bytes(amount), true)), cell(girih.bytes(total.reduce((a, b) => a + b, 0)), true));
    byId("received").append(make("table", { class: "heat" }, make("caption", {}, "Received over each axis of the mesh"), head("device", ...axes.map(name => `#${name}`), "#together"), make("tbody", {}, ...rows, all)));
    const largest = Math.max(...kinds.map(([, , amount]) => amount), 1);
    byId("collectives").append(make("table", {}, make("caption", {}, "By collective"), head("collective", "", "#times", "#bytes"), make("tbody", {},
      ...kinds.map(([name, count, amount]) => make("tr", {}, make("th", { scope: "row" }, name), meter([[0, amount]], largest, true, girih.transferStyle(name)), cell(String(count), true), cell(girih.bytes(amount), true))))));
    const order = data.graph.transfers.bytes.map((bytes, number) => [bytes, number]).filter(([bytes]) => bytes > 0).sort((a, b) => b[0] - a[0]).slice(0, 10);
    const sum = total.reduce((a, b) => a + b, 0);
    if (!order.length) return;
    byId("largest").append(make("table", {}, make("caption", {}, "The largest transfers"), head("tensor", "collective", "for", "module", "#bytes", "#of all"), make("tbody", {}, ...order.map(([bytes, number]) => {
      const item = girih.transfer(number), node = girih.node(item.node), value = girih.value(item.value);
      return make("tr", {}, make("th", { scope: "row", class: "name-cell" }, value.name, make("div", { class: "what" }, `${value.type} ${value.shape}`)), cell(item.kind),
        make("td", { class: "name-cell" }, nodeButton(item.node, node.name), make("div", { class: "what" }, girih.short(node.operator))), make("td", { class: "name-cell what" }, node.scope || "–"), cell(girih.bytes(bytes), true), cell(girih.share(bytes, sum), true));
    }))));
  };

  /* ------------------------------------------------------------------ measured */

  const ratio = (one, other) => one > 0 ? `${(other / one).toFixed(2)} ×` : "–";
  const beside = (title, note, rows, name) => {
    const most = Math.max(...rows.flatMap(row => [row[1], row[2]]), 1e-12);
    return make("table", {}, make("caption", {}, title, make("small", {}, note)), head(name, "", "#predicted", "#measured", "#ratio"), make("tbody", {}, ...rows.map(([words, one, other]) => make("tr", {},
      make("th", { scope: "row", class: "name-cell" }, words),
      make("td", {}, make("span", { class: "meter plain", style: "height:7px;margin-bottom:3px;--of-row:var(--accent)" }, make("i", { style: `width:${100 * one / most}%` })), make("span", { class: "meter plain", style: "height:7px;--of-row:var(--mark)" }, make("i", { style: `width:${100 * other / most}%` }))),
      cell(girih.seconds(one), true), cell(girih.seconds(other), true), cell(ratio(one, other), true)))));
  };
  const measured = () => {
    if (!data.measured) return;
    byId("measured").hidden = false;
    byId("totals").append(beside("Busiest device", "upper bar predicted, lower bar measured", data.measured.totals, ""));
    byId("by-kind").append(beside("By kind of work", "mean of a device", data.measured.kinds, "kind"));
    const rows = data.measured.steps.map(([step, one, other]) => {
      const transfer = girih.stepTransfer(step), node = girih.stepNode(step), item = girih.node(node);
      const words = transfer >= 0 ? `${girih.transfer(transfer).kind} for ${item.name}` : item.name;
      return [make("span", {}, nodeButton(node, words), make("div", { class: "what" }, [item.operator, item.scope].filter(Boolean).join(", "))), one, other];
    });
    byId("differences").append(beside("Where they differ most", "mean of a device", rows, "step"));
  };

  girih.startPanels = () => { memory(); links(); measured(); };
}
