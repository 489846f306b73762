// Shows the epistemic confusion matrix as a heat map: a real table with its values, in which the
// arrow keys move.
import { h, part, show, visible } from "./dom.js";
import { className, criticalFirst } from "./classes.js";
import { count, data, nats, of, share } from "./format.js";

const MOST = 64; // most classes
const STEPS = 8; // number of colours, the last one the strongest
let top = 0; // value of the strongest colour, in nats
let topOf = "";
let cursor = [0, 1]; // the cell that Tab reaches

// renderMatrix shows the pairs of a model over a span.
export function renderMatrix(model, span) {
  const named = criticalFirst(model.classes).filter((i) => !model.classes[i].shared);
  const order = named.slice(0, MOST);
  const cells = new Map();
  let block = 0;
  let all = 0;
  let most = 0;
  for (const pair of span.pairs ?? []) {
    cells.set(`${pair.a} ${pair.b}`, pair);
    cells.set(`${pair.b} ${pair.a}`, pair);
    all += pair.nats;
    if (crosses(model, pair.a, pair.b)) block += pair.nats;
    most = Math.max(most, pair.nats);
  }
  const strongest = scale(model.name, most);
  const possible = (order.length * (order.length - 1)) / 2;
  const here = new Set(order);
  const drawn = (span.pairs ?? []).filter((pair) => here.has(pair.a) && here.has(pair.b)).length;
  const absent = possible - drawn;
  cursor = cursor.map((c) => Math.min(c, order.length - 1));

  show(
    part("confusion-note"),
    "in nats per input. ",
    named.length > MOST ? h("span", { class: "cut" }, `The first ${MOST} of ${count(named.length)} classes, critical ones first. `) : null,
    model.pairs_cut > 0 ? h("span", { class: "cut", id: "pairs-cut" }, `${model.pairs_cut === 1 ? "1 pair is" : `${count(model.pairs_cut)} pairs are`} left out: a class of theirs has no row.`) : null,
  );
  const wide = order.length > 12;
  show(
    part("confusion"),
    h(
      "table",
      { class: `heat ${wide ? "small" : ""}`, role: "grid", "aria-readonly": "true" },
      h("caption", { class: "unseen" }, `Epistemic confusion of pairs of classes, in nats per input. Pairs not computed: ${absent}.`),
      h("thead", null, h("tr", null, h("td", { class: "corner" }, h("span", { class: "unseen" }, "Class")), order.map((i) => h("th", { scope: "col", class: model.classes[i].critical ? "critical" : null }, h("span", null, className(model.classes[i])))))),
      h(
        "tbody",
        null,
        order.map((a, r) =>
          h("tr", null, h("th", { scope: "row", class: model.classes[a].critical ? "critical" : null }, className(model.classes[a])), order.map((b, c) => cell(model, cells.get(`${a} ${b}`), order, r, c, strongest, span.inputs > 0))),
        ),
      ),
    ),
  );
  show(
    part("legend"),
    legend(strongest, absent),
    h(
      "p",
      { class: "quiet" },
      all > 0 ? between(model, block, all) : "No confusion was counted.",
    ),
  );
  const focused = part("confusion").contains(document.activeElement);
  if (focused || pointed) say(model, order, cells);
  last = { model, order, cells };
}

// between returns how much confusion crosses from safe to critical classes. Its share of all
// confusion is known only if all pairs are computed.
function between({ pairs }, block, all) {
  if (pairs !== "all") return ["Confusion between safe and critical classes: ", data(nats(block), block), " nats per input."];
  return ["Of all confusion, ", data(share(of(block, all)), of(block, all)), " is between safe and critical classes: ", data(nats(block), block), " nats per input."];
}

// walkMatrix moves through the cells with the keys of a grid.
export function walkMatrix(event) {
  const size = last?.order.length ?? 0;
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -size], End: [0, size] };
  const move = moves[event.key];
  if (!move || !event.target.dataset?.cell || event.altKey || event.metaKey) return;
  event.preventDefault();
  if (event.ctrlKey && event.key === "Home") move[0] = -size;
  if (event.ctrlKey && event.key === "End") move[0] = size;
  const clamp = (x) => Math.min(size - 1, Math.max(0, x));
  const [r, c] = event.target.dataset.cell.split(" ").map(Number);
  go(clamp(r + move[0]), clamp(c + move[1]), true);
}

// pointMatrix describes the cell under the pointer or in focus.
export function pointMatrix(event) {
  const at = event.target.closest?.("[data-cell]");
  if (!at) return;
  pointed = event.type === "pointerover";
  const [r, c] = at.dataset.cell.split(" ").map(Number);
  go(r, c, false);
}

let last = null;
let pointed = false;

function go(r, c, focus) {
  const table = part("confusion");
  table.querySelector('[data-cell][tabindex="0"]')?.setAttribute("tabindex", "-1");
  cursor = [r, c];
  const next = table.querySelector(`[data-cell="${r} ${c}"]`);
  next?.setAttribute("tabindex", "0");
  if (focus) next?.focus();
  say(last.model, last.order, last.cells);
}

function say(model, order, cells) {
  const [a, b] = cursor.map((i) => order[i]);
  if (a === undefined || b === undefined) return;
  const name = (i) => visible(model.classes[i].name) + (model.classes[i].critical ? " (critical)" : "");
  const pair = cells.get(`${a} ${b}`);
  let text = `${name(a)} and ${name(b)}: `;
  if (a === b) text = `${name(a)}: a class is no pair with itself.`;
  else if (!pair) text += "not computed.";
  else text += `${nats(pair.nats)} nats per input${crosses(model, a, b) ? ", safe and critical" : ""}.`;
  show(part("cell"), text);
}

function cell(model, pair, order, r, c, strongest, counted) {
  const inBlock = crosses(model, order[r], order[c]);
  const edge = (dr, dc) => {
    const [y, x] = [r + dr, c + dc];
    return order[y] === undefined || order[x] === undefined || !crosses(model, order[y], order[x]);
  };
  const sides = inBlock ? [edge(-1, 0) && "edge-t", edge(1, 0) && "edge-b", edge(0, -1) && "edge-l", edge(0, 1) && "edge-r"].filter(Boolean).join(" ") : "";
  const at = { "data-cell": `${r} ${c}`, tabindex: cursor[0] === r && cursor[1] === c ? "0" : "-1" };
  if (r === c) return h("td", { ...at, class: "self" }, h("span", { class: "unseen" }, "itself"));
  if (!pair) return h("td", { ...at, class: `absent ${sides}` }, h("span", { class: "unseen" }, "not computed"));
  const step = counted ? stepOf(pair.nats, strongest) : 0;
  return h("td", { ...at, class: `heat-${step} ${sides}`, "data-block": inBlock ? "true" : null }, data(counted ? nats(pair.nats) : "–", counted ? pair.nats : null));
}

const crosses = (model, a, b) => (model.classes[a].critical && model.classes[b].safe) || (model.classes[a].safe && model.classes[b].critical);

// scale returns the value of the strongest colour. It stays the same while the largest pair changes little.
function scale(name, most) {
  if (topOf !== name || most > top || most < top / 4) [topOf, top] = [name, most];
  return top;
}

// stepOf returns the colour of a value: 0 for none, and each stronger one for twice as much.
const stepOf = (x, strongest) => (x > 0 && strongest > 0 ? Math.max(1, STEPS - Math.floor(Math.log2(strongest / x))) : 0);

function legend(strongest, absent) {
  return h(
    "ul",
    { class: "legend", "aria-label": "Legend of the heat map" },
    strongest > 0 ? [...Array(STEPS)].map((_, i) => h("li", null, h("i", { class: `swatch heat-${i + 1}` }), i === 0 ? "least" : i === STEPS - 1 ? `to ${nats(strongest)}, each twice the one before` : null)) : null,
    h("li", null, h("i", { class: "swatch block" }), "safe and critical"),
    h("li", null, h("i", { class: "swatch self" }), "itself"),
    absent > 0 ? h("li", null, h("i", { class: "swatch absent" }), `not computed (${count(absent)} ${absent === 1 ? "pair" : "pairs"})`) : null,
  );
}
