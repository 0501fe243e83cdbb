"use strict";
/* The graph: operators in order as tiles, in rows by module, repeated layers folded. */
{
  const { make, byId, data } = girih;
  const { graph } = data;
  let matches = null;
  const PLURAL = count => `${count} operator${count === 1 ? "" : "s"}`;

  const operator = number => {
    const node = girih.node(number), received = girih.receivedFor(number);
    const words = girih.short(node.operator);
    const button = make("button", { type: "button", class: node.view ? "operator view" : "operator", "data-node": number,
      title: `${node.name}: ${node.divided}`, style: `--of-kind:var(${girih.kindStyle(node.kind)})`,
      "aria-label": `${node.name}, ${words}, ${girih.tileWords(node.tile)}${received ? `, ${girih.bytes(received)} moved` : ""}` },
    girih.tile(node.tile, node.view ? 16 : 26), make("span", { class: "name" }, words));
    if (received) button.append(make("span", { class: "bytes" }, `⇄ ${girih.bytes(received)}`));
    return button;
  };

  /* Rows of nodes that follow each other in one module; `inside` is left out of the modules' names. */
  const rows = (start, stop, inside) => {
    const made = [];
    for (let first = start; first < stop;) {
      const scope = graph.nodes.scope[first];
      let last = first;
      while (last < stop && graph.nodes.scope[last] === scope) last++;
      const numbers = Array.from({ length: last - first }, (_, n) => first + n);
      const name = girih.text(scope);
      const short = inside && name === inside ? "—" : inside && name.startsWith(`${inside}.`) ? name.slice(inside.length + 1) : name;
      made.push(make("div", { class: numbers.every(number => graph.nodes.view[number]) ? "row only-views" : "row" },
        make("div", { class: "scope", title: name }, short || "—"),
        make("div", { class: "operators" }, ...numbers.map(operator))));
      first = last;
    }
    return made;
  };

  const layerOf = (fold, copy) => {
    const [start, period, , first] = fold;
    if (!first) return `copy ${copy + 1}`;
    return girih.text(graph.nodes.scope[start + copy * period]).split(".").slice(0, first.split(".").length).join(".");
  };
  const folded = fold => {
    const [start, period, count, first, last, ways] = fold;
    const box = make("div", { class: "fold", "data-start": start });
    const button = make("button", { type: "button", "aria-expanded": "false" }, "Unfold");
    const inside = make("span", { class: "inside" });
    const alike = ways === 1 ? "all divided alike" : `divided in ${ways} ways`;
    const head = make("div", { class: "head" }, make("b", {}, `×${count}`), make("span", { class: "names" }, first ? `${first} to ${last}` : "repeated"),
      make("span", {}, `${PLURAL(period)} each, ${alike}`), inside, button);
    /* How many operators are found in the copies that are not drawn. */
    box.tell = () => {
      let hidden = 0;
      if (matches !== null && !box.classList.contains("open")) for (let node = start + period; node < start + period * count; node++) hidden += matches[node];
      inside.textContent = hidden ? `${hidden} found in folded copies` : "";
    };
    const show = open => {
      const body = open ? Array.from({ length: count }, (_, copy) => [
        make("div", { class: "copy" }, layerOf(fold, copy)), ...rows(start + copy * period, start + (copy + 1) * period, first && layerOf(fold, copy))]).flat()
        : rows(start, start + period, first);
      box.classList.toggle("open", open);
      button.textContent = open ? "Fold" : "Unfold";
      button.setAttribute("aria-expanded", String(open));
      box.replaceChildren(head, ...body);
      mark();
    };
    button.addEventListener("click", () => show(!box.classList.contains("open")));
    show(false);
    return box;
  };

  const section = ([start, stop, phase], number) => {
    const body = make("div", { class: "body" });
    let seconds = 0, moved = 0;
    for (let node = start; node < stop; node++) { seconds += girih.longest[node]; moved += girih.receivedFor(node); }
    const title = phase ? phase[0].toUpperCase() + phase.slice(1) : "Program";
    const box = make("details", { class: "phase", open: number === 0 }, make("summary", {}, title,
      make("small", {}, `${PLURAL(stop - start)}, ${girih.seconds(seconds)} of computing, ${girih.bytes(moved)} moved`)), body);
    box.fill = () => {
      if (body.childElementCount) return;
      let at = start;
      for (const fold of graph.folds.filter(item => item[0] >= start && item[0] < stop)) {
        body.append(...rows(at, fold[0], ""), folded(fold));
        at = fold[0] + fold[1] * fold[2];
      }
      body.append(...rows(at, stop, ""));
      mark();
    };
    box.holds = node => node >= start && node < stop;
    box.addEventListener("toggle", () => { if (box.open) box.fill(); });
    if (number === 0) box.fill();
    return box;
  };

  /* ------------------------------------------------------------------ searching */

  const mark = () => {
    document.querySelectorAll("#phases .fold").forEach(box => box.tell());
    document.querySelectorAll("#phases .operator").forEach(item => item.classList.toggle("match", matches !== null && matches[item.dataset.node] === 1));
  };
  const search = () => {
    matches = girih.matching(byId("graph-search").value);
    const found = matches === null ? [] : [...matches.keys()].filter(node => matches[node]);
    byId("graph-found").textContent = matches === null ? "" : found.length ? PLURAL(found.length) : "none found";
    if (found.length) {
      for (const box of byId("phases").children) if (found.some(box.holds)) { box.open = true; box.fill(); }
    }
    mark();
    const first = document.querySelector("#phases .operator.match");
    if (first) first.scrollIntoView({ block: "nearest" });
  };

  const legend = () => {
    const colours = girih.data.colours, most = 16, last = colours.length - 1;
    const dot = device => make("i", { class: "dot", style: `background:${colours[device]}` });
    const ramp = () => make("i", { class: "ramp", style: `background:linear-gradient(to right, ${Array.from({ length: 16 }, (_, n) => colours[Math.round(n * last / 15)]).join(", ")})` });
    const chips = colours.length <= most ? colours.map((_, device) => make("span", {}, dot(device), `device ${device}`)) : [make("span", {}, "device 0", ramp(), `device ${last}`)];
    if (graph.together > 1) chips.push(make("span", {}, `a cell is ${graph.together} neighbouring devices`));
    const sample = (drawn, words) => make("span", { class: "sample" }, drawn, words);
    const two = colours.length > 1, other = colours.length > most ? last : 1;
    byId("tile-legend").append(make("div", { class: "devices" }, ...chips));
    if (two) {
      byId("tile-legend").append(
        sample(girih.sampleTile(2, 1, [[0], [other]]), "samples divided"),
        sample(girih.sampleTile(1, 2, [[0], [other]]), "parameters, channels or positions divided"),
        sample(girih.sampleTile(1, 2, [[0], [other]], true), "a sum divided: partial sums"),
        sample(girih.sampleTile(1, 1, [[0, other]]), "repeated on several"));
    }
    byId("tile-legend").append(make("span", { class: "sample" }, make("span", { style: "color:var(--mark)" }, "⇄"), "bytes that all devices receive for it"),
      make("span", { class: "sample" }, make("span", { style: "border-bottom:2px solid var(--kind-0)" }, "name"), "underlined in the colour of its kind, as on the timeline"));
  };

  girih.startGraph = () => {
    legend();
    const phases = byId("phases");
    phases.append(...graph.sections.map(section));
    phases.addEventListener("click", event => {
      const chosen = event.target.closest(".operator");
      if (chosen) girih.showNode(Number(chosen.dataset.node));
    });
    byId("graph-search").addEventListener("input", search);
    byId("views").addEventListener("change", event => phases.classList.toggle("with-views", event.target.checked));
  };
}
