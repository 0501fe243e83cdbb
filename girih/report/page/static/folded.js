"use strict";
/* Rows of operators by module, and repeated layers folded into one box. */
{
  const { make, data } = girih;
  const { graph } = data;

  const operator = number => {
    const node = girih.node(number);
    const received = girih.receivedFor(number);
    const name = girih.short(node.operator);
    const results = girih.results(node);
    const told = [node.name, name, girih.tileWords(node.tile)];
    if (results) told.push(`makes ${results}`);
    if (received) told.push(`${girih.bytes(received)} moved`);
    return make(
      "button",
      {
        type: "button",
        class: node.view ? "operator view" : "operator",
        "data-node": number,
        title: `${node.name}: ${node.divided}${results ? `; makes ${results}` : ""}`,
        style: `--of-kind:var(${girih.kindStyle(node.kind)})`,
        "aria-label": told.join(", "),
      },
      girih.tile(node.tile, node.view ? 16 : 26),
      make("span", { class: "name" }, name),
      results ? make("span", { class: "results" }, `→ ${node.outputs.length}`) : null,
      received ? make("span", { class: "bytes" }, `⇄ ${girih.bytes(received)}`) : null,
    );
  };

  /* A module's name without the layer's, which stands above. */
  const within = (name, layer) => {
    if (!name || name === layer) return "—";
    return layer && name.startsWith(`${layer}.`) ? name.slice(layer.length + 1) : name;
  };
  /* One row for each run of nodes of one module; `layer` is left out of the modules' names. */
  girih.rows = (start, stop, layer = "") => {
    const made = [];
    for (let first = start; first < stop;) {
      let last = first;
      while (last < stop && graph.nodes.scope[last] === graph.nodes.scope[first]) last++;
      const numbers = Array.from({ length: last - first }, (_, n) => first + n);
      const name = girih.text(graph.nodes.scope[first]);
      const views = numbers.every(number => graph.nodes.view[number]);
      made.push(
        make(
          "div",
          { class: views ? "row only-views" : "row" },
          make("div", { class: "scope", title: name }, within(name, layer)),
          make("div", { class: "operators" }, ...numbers.map(operator)),
        ),
      );
      first = last;
    }
    return made;
  };

  /* Repeated layers: the first copy, or all of them. `tell(matches)` says what is found in copies not drawn. */
  girih.folded = (fold, changed) => {
    const [start, period, count, first, last, ways] = fold;
    const layer = copy => {
      if (!first) return "";
      const path = girih.text(graph.nodes.scope[start + copy * period]).split(".");
      return path.slice(0, first.split(".").length).join(".");
    };
    const inside = make("span", { class: "inside" });
    const button = make("button", { type: "button", onclick: () => show(!box.classList.contains("open")) });
    const head = make(
      "div",
      { class: "head" },
      make("b", {}, `×${count}`),
      make("span", { class: "names" }, first ? `${first} to ${last}` : "repeated"),
      make(
        "span",
        {},
        `${girih.operators(period)} each, ${ways === 1 ? "all divided alike" : `divided in ${ways} ways`}`,
      ),
      inside,
      button,
    );
    const box = make("div", { class: "fold", "data-start": start });
    const copyRows = copy => [
      make("div", { class: "copy" }, layer(copy) || `copy ${copy + 1}`),
      ...girih.rows(start + copy * period, start + (copy + 1) * period, layer(copy)),
    ];
    const show = open => {
      const copies = Array.from({ length: count }, (_, copy) => copy);
      box.replaceChildren(head, ...(open ? copies.flatMap(copyRows) : girih.rows(start, start + period, first)));
      box.classList.toggle("open", open);
      button.textContent = open ? "Fold" : "Unfold";
      button.setAttribute("aria-expanded", String(open));
      changed();
    };
    box.tell = matches => {
      const hidden =
        matches === null || box.classList.contains("open") ? [] : matches.slice(start + period, start + period * count);
      const found = hidden.reduce((sum, one) => sum + one, 0);
      inside.textContent = found ? `${found} found in folded copies` : "";
    };
    show(false);
    return box;
  };
}
