"use strict";
/* Tiles: small grids whose cells are coloured by device. Each different tile is drawn once and used many times. */
{
  const SVG = "http://www.w3.org/2000/svg";
  const SIDE = 24; // of a tile, in its own units
  const GAP = 1;
  const MOST_STRIPES = 8;
  const element = (tag, attributes, ...children) => {
    const item = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) item.setAttribute(name, value);
    item.append(...children);
    return item;
  };
  const { tiles } = girih.data.graph;
  const colour = device => girih.data.colours[device];
  girih.deviceColour = colour;

  /* Stripes where several devices compute one cell: a pattern for each set of devices. */
  const patterns = new Map();
  const definitions = girih.byId("definitions");
  const fill = all => {
    if (all.length === 1) return colour(all[0]);
    const shown = Math.min(all.length, MOST_STRIPES);
    const devices = Array.from({ length: shown }, (_, n) => all[Math.floor((n * all.length) / shown)]);
    const key = devices.join("-");
    if (!patterns.has(key)) {
      const name = `stripes-${patterns.size}`;
      const width = 3;
      const pattern = element("pattern", {
        id: name,
        width: width * devices.length,
        height: 8,
        patternUnits: "userSpaceOnUse",
        patternTransform: "rotate(45)",
      });
      devices.forEach((device, n) =>
        pattern.append(element("rect", { x: n * width, width: width + 0.2, height: 8, fill: colour(device) })),
      );
      definitions.append(pattern);
      patterns.set(key, name);
    }
    return `url(#${patterns.get(key)})`;
  };

  const cellsOf = tile => {
    const [rows, columns, cells] = tile;
    const gap = Math.max(rows, columns) > 8 ? 0 : GAP;
    const width = (SIDE - gap * (columns - 1)) / columns;
    const height = (SIDE - gap * (rows - 1)) / rows;
    return cells.map((devices, n) =>
      element("rect", {
        x: (n % columns) * (width + gap),
        y: Math.floor(n / columns) * (height + gap),
        width,
        height,
        rx: Math.min(1.5, width / 4, height / 4),
        fill: fill(devices),
        "data-devices": devices.join(" "),
      }),
    );
  };
  const sum = () => {
    const sign = element("text", { x: SIDE / 2, y: SIDE / 2 + 3.4, class: "sum-sign" });
    sign.textContent = "Σ";
    return [element("circle", { cx: SIDE / 2, cy: SIDE / 2, r: 6.4, class: "sum-back" }), sign];
  };
  const viewBox = `0 0 ${SIDE} ${SIDE}`;
  const pictureOf = tile => [...cellsOf(tile), ...(tile[3] ? sum() : [])];
  tiles.forEach((tile, number) => {
    definitions.append(element("symbol", { id: `tile-${number}`, viewBox }, ...pictureOf(tile)));
  });

  girih.tile = (number, side = SIDE) =>
    element("svg", { width: side, height: side, "aria-hidden": "true" }, element("use", { href: `#tile-${number}` }));

  /* A large tile with the devices' numbers in its cells. */
  girih.largeTile = number => {
    const [rows, columns, cells] = tiles[number];
    const drawn = element(
      "svg",
      { viewBox, role: "img", "aria-label": girih.tileWords(number) },
      ...cellsOf(tiles[number]),
    );
    const width = SIDE / columns;
    const height = SIDE / rows;
    if (Math.max(rows, columns) <= 8) {
      cells.forEach((devices, n) => {
        const words = devices.length > 4 ? `${devices[0]}…${devices.at(-1)}` : devices.join(" ");
        const size = Math.min(height * 0.5, (width * 1.35) / Math.max(words.length, 1.5), 5);
        const label = element("text", {
          x: ((n % columns) + 0.5) * width,
          y: (Math.floor(n / columns) + 0.5) * height + size * 0.35,
          "font-size": size,
          class: "cell-label",
        });
        label.textContent = words;
        drawn.append(label);
      });
    }
    return drawn;
  };
  girih.tileWords = number => {
    const [rows, columns, cells, summed] = tiles[number];
    const copies = cells[0].length;
    const words = cells.length === 1 ? ["not divided"] : [`${rows} by ${columns} parts`];
    if (copies > 1) words.push(`each computed by ${copies} devices`);
    if (summed) words.push("partial sums");
    return words.join(", ");
  };

  /* A tile made for the legend. */
  girih.sampleTile = (rows, columns, cells, summed = false) =>
    element(
      "svg",
      { width: SIDE, height: SIDE, viewBox, "aria-hidden": "true" },
      ...pictureOf([rows, columns, cells, summed]),
    );
}
