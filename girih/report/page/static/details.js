"use strict";
/* The panel at the side that tells all of one operator, and the tooltip. */
{
  const { make, byId } = girih;
  const panel = byId("details");
  const tooltip = byId("tooltip");
  let opener = null;

  const axisWords = ([what, variable, kind, size, part], axis) => {
    const ways = girih.data.graph.axes[axis] + (part.length ? `, on coordinate ${part.join(", ")} alone` : "");
    if (what === "divides") return [`divides ${variable}`, `${kind} dimension of ${size}, over ${ways}`];
    if (what === "sums")
      return [`divides the sum over ${variable}`, `${kind} dimension of ${size}, over ${ways}: partial sums`];
    if (what === "passes") return ["lets partial results pass", `over ${ways}`];
    return ["repeats the work", `over ${ways}`];
  };
  girih.axisWords = axisWords;

  const list = (title, rows) => (rows.length ? [make("h4", {}, title), make("ul", {}, ...rows)] : []);
  const line = (first, second) => make("li", {}, first, make("span", {}, second));
  const operand = (number, part) => {
    const value = girih.value(number);
    return line(value.name, `${value.type} ${value.shape}; lies ${value.layout}; a device ${part}`);
  };

  const transferLine = item => {
    const when = item.purpose === "fetch" ? "before it" : "after it";
    const what = `${item.kind} of ${girih.value(item.value).name}`;
    if (girih.isCopy(item)) return line(what, `${girih.bytes(item.bytes)} copied by all devices`);
    return line(what, `${girih.bytes(item.bytes)} received by all devices, ${when}`);
  };
  const KEY = "S0: an axis splits dimension 0; R: copies; P: partial sums, Pmax and Pmin maxima and minima; @: on these coordinates alone.";

  girih.showNode = number => {
    const node = girih.node(number);
    if (panel.hidden) opener = document.activeElement;
    const seconds = girih.nodeSeconds[number];
    const sub = words => make("p", { class: "sub" }, words);
    const axes = node.division.map((item, axis) => line(...axisWords(item, axis)));
    const reads = node.inputs.map((value, n) => operand(value, `reads ${girih.text(node.reads[n])}`));
    const makes = node.outputs.map(value => operand(value, `keeps ${girih.value(value).part}`));
    const transfers = girih.transfersOf(number).map(girih.transfer).map(transferLine);
    const time = seconds > 0 ? [line(girih.seconds(seconds), "on the device where it takes longest")] : [];
    panel.replaceChildren(
      make("button", { class: "close", "aria-label": "Close details", onclick: girih.hideDetails }, "×"),
      make("h3", {}, node.name),
      sub(`${node.operator}, ${girih.data.graph.kinds[node.kind]}, ${node.phase}`),
      ...[node.scope && `in ${node.scope}`, node.source].filter(Boolean).map(sub),
      make("div", { class: "big-tile" }, girih.largeTile(node.tile), sub(girih.tileWords(node.tile))),
      ...list("Division by mesh axis", axes),
      ...list("Reads", reads),
      ...list(makes.length > 1 ? `Makes ${makes.length} results` : "Makes", makes),
      ...list("Transfers that it causes", transfers),
      ...list("Time", time),
      make("p", { class: "key" }, KEY),
      make("button", { class: "go", onclick: () => girih.showOnTimeline(number) }, "Show on the timeline"),
    );
    girih.hideTip();
    panel.hidden = false;
    panel.scrollTop = 0;
    panel.querySelector(".close").focus({ preventScroll: true });
    document.querySelectorAll(".operator.chosen").forEach(item => item.classList.remove("chosen"));
    document.querySelectorAll(`.operator[data-node="${number}"]`).forEach(item => item.classList.add("chosen"));
  };
  girih.hideDetails = () => {
    panel.hidden = true;
    document.querySelectorAll(".operator.chosen").forEach(item => item.classList.remove("chosen"));
    if (opener && opener.isConnected) opener.focus({ preventScroll: true });
  };
  document.addEventListener("keydown", event => {
    if (event.key === "Escape" && !panel.hidden) girih.hideDetails();
  });

  girih.tip = (event, title, lines) => {
    tooltip.replaceChildren(make("strong", {}, title), ...lines.filter(Boolean).map(words => make("span", {}, words)));
    tooltip.hidden = false;
    const { width, height } = tooltip.getBoundingClientRect();
    const left = event.clientX + 16 + width > innerWidth ? event.clientX - 16 - width : event.clientX + 16;
    const top = event.clientY + 18 + height > innerHeight ? event.clientY - 14 - height : event.clientY + 18;
    tooltip.style.left = `${Math.max(8, left)}px`;
    tooltip.style.top = `${Math.max(8, top)}px`;
  };
  girih.hideTip = () => {
    tooltip.hidden = true;
  };
}
