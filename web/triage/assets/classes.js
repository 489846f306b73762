// The classes: a row for each, and C_k over time for the first rows in the order that is chosen.
import { h, nameOf, part, show } from "./dom.js";
import { closed, draw, drop, logarithmic, series, tidy } from "./charts.js";
import { count, data, nats, of, quantile, share, z } from "./format.js";

const FLOOR = 1e-6; // smaller C_k are drawn here
let order = { by: "class", down: false };
export const MOST = 128; // most rows of a table
const FIRST = matchMedia("(max-width: 640px)").matches ? 3 : 6;

// criticalFirst returns the positions of classes: critical ones first, then the others, each in
// their order, and the row for many at the end.
export function criticalFirst(classes) {
  const rank = (c) => (c.shared ? 2 : c.critical ? 0 : 1);
  return classes.map((_, i) => i).sort((a, b) => rank(classes[a]) - rank(classes[b]) || a - b);
}

// className returns how a class is written. Critical ones have a mark and a label.
export const className = (c) => [
  c.critical ? [h("span", { class: "mark", "aria-hidden": "true" }, "◆"), h("span", { class: "unseen" }, "critical: ")] : null,
  nameOf(c.shared ? `${c.name} (${c.of === 1 ? "1 class" : `${c.of} classes`})` : c.name),
];

const COLUMNS = [
  ["class", "Class", (row) => row.rank, false],
  ["strip", "C", null],
  ["p50", "p50", (row) => row.quantiles?.[1], true],
  ["p90", "p90", (row) => row.quantiles?.[2], true],
  ["p99", "p99", (row) => row.quantiles?.[3], true],
  ["mean", "mean", (row) => row.mean, true],
  ["unreliable", "Unreliable", (row) => row.unreliable, true],
  ["predicted", "Predicted", (row) => row.predicted, true],
  ["dominant", "Dominant", (row) => row.dominant, true],
  ["deciding", "Deciding", (row) => row.deciding, true],
  ["drift", "Drift", (row) => row.z, true],
];

const MINOR = ["p50", "p99", "mean", "unreliable", "predicted", "dominant"]; // a phone has no room for these

// renderClasses shows the classes of a model over a span.
export function renderClasses(model, span) {
  const { classes } = model;
  const criticals = classes.filter((c) => c.critical).length;
  show(
    part("classes-note"),
    model.classes_cut === 0
      ? `${count(classes.length)}, ${count(criticals)} of them critical`
      : h(
          "span",
          { class: "cut", id: "classes-cut" },
          `${count(classes.length - 1)} of ${count(classes.length - 1 + model.classes_cut)} have a row, critical ones first. ` +
            (model.classes_cut === 1 ? `The other one is counted as ${classes.at(-1).name}.` : `The other ${count(model.classes_cut)} are counted together, as ${classes.at(-1).name}.`),
        ),
  );
  const rows = criticalFirst(classes).map((i, rank) => rowOf(model, span, i, rank));
  sort(rows);
  const range = decades(rows);
  const all = rows.length;
  rows.splice(MOST);
  show(
    part("classes"),
    all > MOST ? h("p", { class: "cut" }, `The first ${MOST} of ${count(all)} rows, in the order that is chosen:`) : null,
    h(
      "table",
      { class: "wide classes" },
      h("caption", { class: "unseen" }, "Classes: C_k in nats, shares of the inputs, and drift. The buttons sort."),
      h("thead", null, h("tr", null, COLUMNS.map((column) => head(column, range)))),
      h("tbody", null, rows.map((row) => body(row, range))),
    ),
  );
  renderMultiples(model, rows);
}

// onClasses handles clicks that sort.
export function onClasses(event, again) {
  const button = event.target.closest("button");
  if (!button) return;
  const by = button.dataset.sort;
  order = { by, down: order.by === by ? !order.down : COLUMNS.find(([key]) => key === by)[3] };
  again();
}

function rowOf(model, span, i, rank) {
  const c = model.classes[i];
  const s = span.classes?.[i] ?? {};
  const drift = model.drift?.classes.find((d) => d.class === i);
  const strongest = drift ? strongestOf(drift, model.drift) : null;
  return {
    i,
    rank,
    class: c,
    quantiles: s.quantiles ?? null,
    mean: s.observations > 0 ? s.mean_c : null,
    unreliable: of(s.unreliable, s.observations),
    predicted: of(s.predicted, span.inputs),
    dominant: of(s.dominant, span.inputs),
    deciding: of(s.deciding, span.deferred),
    drift,
    strongest,
    z: strongest ? Math.abs(strongest.z) : null,
    reference: model.drift !== null,
    filled: model.drift?.windows.some((w) => w.full),
  };
}

function strongestOf(drift, { windows }) {
  let best = null;
  for (const signal of ["epistemic", "skewness", "predicted"]) {
    windows.forEach((w, i) => {
      const value = drift[signal].z[i];
      if (w.full && (best === null || Math.abs(value) > Math.abs(best.z))) best = { z: value, signal, inputs: w.inputs };
    });
  }
  return best;
}

function sort(rows) {
  const key = COLUMNS.find(([name]) => name === order.by)[2];
  const sign = order.down ? -1 : 1;
  rows.sort((a, b) => {
    const [x, y] = [key(a) ?? null, key(b) ?? null];
    if (x === null || y === null) return (x === null) - (y === null) || a.rank - b.rank;
    return sign * (x - y) || a.rank - b.rank;
  });
}

// decades returns the range of C_k that strips and charts show.
function decades(rows) {
  const values = rows.flatMap((row) => row.quantiles ?? []).filter((v) => v > FLOOR);
  if (values.length === 0) return [1e-4, 1];
  const low = 10 ** Math.floor(Math.log10(Math.min(...values)));
  const high = 10 ** Math.ceil(Math.log10(Math.max(...values)) + 1e-9);
  return [Math.max(low, FLOOR), Math.max(high, low * 10)];
}

function head([key, text], [low, high]) {
  if (key === "strip") {
    return h("th", { scope: "col", class: "strip minor" }, "C", h("sub", null, "k"), " in nats", h("span", { class: "strip-scale" }, h("span", null, power(low)), h("span", null, power(high))));
  }
  const attributes = { scope: "col", class: key === "class" ? "sticky" : `${key === "drift" ? "" : "number"} ${MINOR.includes(key) ? "minor" : ""}` };
  const on = order.by === key;
  return h(
    "th",
    { ...attributes, "aria-sort": on ? (order.down ? "descending" : "ascending") : null },
    h("button", { type: "button", "data-sort": key }, text, h("span", { class: "arrow", "aria-hidden": "true" }, on ? (order.down ? " ↓" : " ↑") : "")),
  );
}

function body(row, range) {
  const { class: c, quantiles: q } = row;
  const fraction = (x, minor) => h("td", { class: `number meter ${minor ?? ""}`, style: { "--share": x ?? 0 } }, data(share(x), x));
  return h(
    "tr",
    { "data-key": c.name, class: c.critical ? "critical" : null },
    h("th", { scope: "row", class: "sticky name" }, className(c)),
    h("td", { class: "strip minor" }, strip(q, range)),
    [1, 2, 3].map((k) => h("td", { class: `number ${k === 2 ? "" : "minor"}` }, data(quantile(q?.[k]), q?.[k]))),
    h("td", { class: "number minor" }, data(nats(row.mean), row.mean)),
    fraction(row.unreliable, "minor"),
    fraction(row.predicted, "minor"),
    fraction(row.dominant, "minor"),
    fraction(row.deciding),
    h("td", null, driftState(row)),
  );
}

// strip draws p10 to p90, p50 and p99 on one scale for all classes.
function strip(q, [low, high]) {
  if (!q) return h("span", { class: "unseen" }, "none");
  const at = (x) => Math.min(1, Math.max(0, Math.log(Math.max(x, low) / low) / Math.log(high / low))) * 100;
  const [p10, p50, p90, p99] = q.map(at);
  const percent = (x) => `${x.toFixed(1)}%`;
  return h(
    "span",
    { class: "strip-track", role: "img", "aria-label": `C_k: p10 ${quantile(q[0])}, p50 ${quantile(q[1])}, p90 ${quantile(q[2])}, p99 ${quantile(q[3])} nats` },
    h("span", { class: "strip-tail", style: { left: percent(p90), width: percent(p99 - p90) } }),
    h("span", { class: "strip-box", style: { left: percent(p10), width: percent(p90 - p10) } }),
    h("span", { class: "strip-median", style: { left: percent(p50) } }),
  );
}

function driftState(row) {
  if (!row.reference) return h("span", { class: "quiet" }, "–", h("span", { class: "unseen" }, " no reference"));
  if (!row.drift) return h("span", { class: "quiet" }, "not compared");
  const { epistemic, skewness, predicted } = row.drift;
  if (epistemic.alarm || skewness.alarm || predicted.alarm) {
    return h("span", { class: "state alarm" }, h("b", { "aria-hidden": "true" }, "■ "), "alarm ", row.strongest ? data(z(row.strongest.z), row.strongest.z) : null);
  }
  if (!row.filled) return h("span", { class: "quiet" }, "filling");
  return h("span", { class: "state" }, "quiet ", h("span", { class: "quiet" }, z(row.strongest?.z)));
}

const power = (x) => {
  const e = Math.round(Math.log10(x));
  return e === 0 ? "1" : e === 1 ? "10" : `10${e < 0 ? "⁻" : ""}${[...String(Math.abs(e))].map((d) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[d]).join("")}`;
};

let shared = [1e-4, 1];
const kind = logarithmic(104, [series("line2", { width: 0, steps: true }), series("line", { width: 1.75, steps: true }), series("quiet", { width: 1, dash: [2, 3], steps: true })], {
  format: power,
  bands: [[1, 2, "fill"]],
  low: () => shared[0],
  high: () => shared[1],
});

function renderMultiples(model, rows) {
  const shown = rows.slice(0, FIRST);
  const steps = model.history.filter((s) => s.quantiles?.length);
  const values = steps.flatMap((s) => shown.flatMap((row) => s.quantiles[row.i] ?? [])).filter((v) => v > FLOOR);
  shared = values.length ? [10 ** Math.floor(Math.log10(Math.min(...values))), 10 ** Math.ceil(Math.log10(Math.max(...values)) + 1e-9)] : [1e-4, 1];
  if (shared[1] / shared[0] < 10) shared[1] = shared[0] * 10;
  show(
    part("multiples"),
    shown.map((row) =>
      h(
        "figure",
        { class: "chart", "data-key": row.class.name, "aria-label": `C_k of ${row.class.name}` },
        h("figcaption", null, h("span", { class: "name" }, className(row.class)), " ", h("span", { class: "readout" }, row.quantiles ? `p50 ${quantile(row.quantiles[1])}, p90 ${quantile(row.quantiles[2])}` : "no inputs")),
        h("div", { "data-chart": "class", role: "img", "aria-label": `C_k of ${row.class.name} over time` }),
      ),
    ),
  );
  tidy();
  const figures = part("multiples").querySelectorAll("[data-chart]");
  shown.forEach((row, n) => {
    const at = steps.map((s) => s.at / 1000);
    const line = (k) => steps.map((s) => (s.quantiles[row.i] ? Math.max(s.quantiles[row.i][k], shared[0]) : null));
    const said = row.quantiles
      ? `C_k of ${row.class.name} over 15 minutes. Now p50 ${quantile(row.quantiles[1])}, p90 ${quantile(row.quantiles[2])}, p99 ${quantile(row.quantiles[3])} nats.`
      : `C_k of ${row.class.name}: no inputs.`;
    if (steps.length) draw(figures[n], kind, closed(steps, [at, line(2), line(1), line(3)]), said);
    else drop(figures[n]);
  });
}
