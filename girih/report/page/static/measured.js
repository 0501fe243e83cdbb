"use strict";
/* Predicted beside measured, where there is a timeline of a run. */
{
  const { make, byId, data, table, row, cell, number, name, bar, nodeButton } = girih;

  const MOST_TIMES = 1000; // beyond, nothing was predicted that a ratio could be of
  const told = seconds => (seconds > 0 && seconds < 1e-9 ? "less than 1 ns" : girih.seconds(seconds));

  /* rows: [words, note, seconds predicted, seconds measured] */
  const beside = (title, note, head, rows) => {
    const most = Math.max(...rows.flatMap(([, , one, other]) => [one, other]), 1e-12);
    const pair = (one, other) =>
      make("td", { class: "pair" }, bar([one], most, "--accent"), bar([other], most, "--mark"));
    const drawn = rows.map(([words, note, one, other]) =>
      row(
        name(words, note),
        pair(one, other),
        number(told(one)),
        number(told(other)),
        number(one > 0 && other < MOST_TIMES * one ? `${(other / one).toFixed(2)} ×` : "–"),
      ),
    );
    return table(title, [note], [head, "", "#predicted", "#measured", "#ratio"], drawn);
  };
  const step = ([at, one, other]) => {
    const transfer = girih.stepTransfer(at);
    const node = girih.node(girih.stepNode(at));
    const words = transfer >= 0 ? `${girih.transfer(transfer).kind} for ${node.name}` : node.name;
    return [nodeButton(node.number, words), [node.operator, node.scope].filter(Boolean).join(", "), one, other];
  };

  girih.startMeasured = () => {
    if (!data.measured) return;
    const { totals, kinds, steps } = data.measured;
    const plain = ([words, one, other]) => [words, "", one, other];
    byId("totals").append(beside("Busiest device", "upper bar predicted, lower bar measured", "", totals.map(plain)));
    byId("by-kind").append(beside("By kind of work", "mean of a device", "kind", kinds.map(plain)));
    byId("differences").append(beside("Where they differ most", "mean of a device", "step", steps.map(step)));
    byId("measured").hidden = false;
  };
}
