"use strict";
/* The graph: operators in order, forward, backward and update apart; its legend and its search. */
{
  const { make, byId, data } = girih;
  const { graph } = data;
  const MOST_COLOURS = 16;
  let matches = null;

  const mark = () => {
    document.querySelectorAll("#phases .fold").forEach(box => box.tell(matches));
    document.querySelectorAll("#phases .operator").forEach(item => {
      item.classList.toggle("match", matches !== null && matches[item.dataset.node] === 1);
    });
  };

  const section = ([start, stop, phase], number) => {
    let seconds = 0;
    let moved = 0;
    for (let node = start; node < stop; node++) {
      seconds += girih.nodeSeconds[node];
      moved += girih.receivedFor(node);
    }
    const title = phase ? phase[0].toUpperCase() + phase.slice(1) : "Program";
    const told = `${girih.operators(stop - start)}, ${girih.seconds(seconds)} of computing, ${girih.bytes(moved)} moved`;
    const body = make("div", { class: "body" });
    const summary = make("summary", {}, title, make("small", {}, told));
    const box = make("details", { class: "phase", open: number === 0 }, summary, body);
    box.fill = () => {
      if (body.childElementCount) return;
      let at = start;
      for (const fold of graph.folds.filter(([first]) => first >= start && first < stop)) {
        body.append(...girih.rows(at, fold[0]), girih.folded(fold, mark));
        at = fold[0] + fold[1] * fold[2];
      }
      body.append(...girih.rows(at, stop));
      mark();
    };
    box.holds = node => node >= start && node < stop;
    box.addEventListener("toggle", () => {
      if (box.open) box.fill();
    });
    if (number === 0) box.fill();
    return box;
  };

  const search = () => {
    matches = girih.matching(byId("graph-search").value);
    const found = matches === null ? [] : girih.numbersOf(matches);
    const told = found.length ? girih.operators(found.length) : "none found";
    byId("graph-found").textContent = matches === null ? "" : told;
    for (const box of byId("phases").children) {
      if (!found.some(box.holds)) continue;
      box.open = true;
      box.fill();
    }
    mark();
    document.querySelector("#phases .operator.match")?.scrollIntoView({ block: "nearest" });
  };

  /* ------------------------------------------------------------------ legend */

  const deviceChips = () => {
    const { colours } = data;
    const last = colours.length - 1;
    const chip = (...children) => make("span", {}, ...children);
    if (last < MOST_COLOURS) {
      const dot = colour => make("i", { class: "dot", style: `background:${colour}` });
      return colours.map((colour, device) => chip(dot(colour), `device ${device}`));
    }
    const some = Array.from({ length: MOST_COLOURS }, (_, n) => colours[Math.round((n * last) / (MOST_COLOURS - 1))]);
    const ramp = make("i", { class: "ramp", style: `background:linear-gradient(to right, ${some.join(", ")})` });
    return [chip("device 0", ramp, `device ${last}`)];
  };
  const samples = () => {
    const other = data.colours.length > MOST_COLOURS ? data.colours.length - 1 : 1;
    const sample = (drawn, words) => make("span", { class: "sample" }, drawn, words);
    const pair = [[0], [other]];
    const divided = [
      sample(girih.sampleTile(2, 1, pair), "samples divided"),
      sample(girih.sampleTile(1, 2, pair), "parameters, channels or positions divided"),
      sample(girih.sampleTile(1, 2, pair, true), "a sum divided: partial sums"),
      sample(girih.sampleTile(1, 1, [[0, other]]), "repeated on several"),
    ];
    const underlined = make("span", { style: "border-bottom:2px solid var(--kind-0)" }, "name");
    return [
      ...(data.colours.length > 1 ? divided : []),
      sample(make("span", { style: "color:var(--mark)" }, "⇄"), "bytes that all devices receive for it"),
      ...(graph.nodes.outputs.some(made => made.length > 1)
        ? [sample(make("span", { style: "color:var(--muted)" }, "→ 2"), "makes so many results")]
        : []),
      sample(underlined, "underlined in the colour of its kind, as on the timeline"),
    ];
  };
  const legend = () => {
    const chips = deviceChips();
    if (graph.together > 1) chips.push(make("span", {}, `a cell is ${graph.together} neighbouring devices`));
    byId("tile-legend").append(make("div", { class: "devices" }, ...chips), ...samples());
  };

  girih.startGraph = () => {
    const phases = byId("phases");
    legend();
    phases.append(...graph.sections.map(section));
    phases.addEventListener("click", event => {
      const chosen = event.target.closest(".operator");
      if (chosen) girih.showNode(Number(chosen.dataset.node));
    });
    byId("graph-search").addEventListener("input", search);
    byId("views").addEventListener("change", event => phases.classList.toggle("with-views", event.target.checked));
  };
}
