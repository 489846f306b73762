// Drift shows whether live inputs have moved away from those of the calibration.
import { h, part, show } from "./dom.js";
import { MOST, className, criticalFirst } from "./classes.js";
import { count, data, plain, shift, z } from "./format.js";

const SIGNALS = [
  ["epistemic", () => ["C", h("sub", null, "k")]],
  ["skewness", () => "Skewness"],
  ["predicted", () => "Predicted share"],
];

// renderDrift shows the drift of a model.
export function renderDrift(model) {
  const { drift } = model;
  if (!drift) {
    show(part("drift-note"), "not looked for: the policy has no reference");
    show(part("drift"), h("p", { class: "empty" }, "The policy has no reference to compare with, so drift is not looked for. ckd calibrate stores one."));
    return;
  }
  const byClass = new Map(drift.classes.map((c) => [c.class, c]));
  const rows = criticalFirst(model.classes).filter((i) => byClass.has(i)).slice(0, MOST);
  const moved = drift.classes.filter((c) => SIGNALS.some(([signal]) => c[signal].alarm)).length;
  const left = model.classes.filter((c) => !c.shared).length - rows.length;
  show(
    part("drift-note"),
    moved === 0 ? "none" : `${count(moved)} ${moved === 1 ? "class" : "classes"} in alarm`,
    `, against ${count(drift.reference)} calibration inputs. `,
    left + model.classes_cut > 0 ? h("span", { class: "cut", id: "drift-cut" }, left + model.classes_cut === 1 ? "1 class has no row here." : `${count(left + model.classes_cut)} classes have no row here.`) : null,
  );
  show(
    part("drift"),
    h(
      "ul",
      { class: "windows", "aria-label": "Windows" },
      drift.windows.map((w) =>
        h("li", { class: w.full ? null : "filling" }, h("b", null, `${count(w.inputs)} inputs`), `: alarm over ${w.visible.toFixed(2)}`, w.full ? null : h("em", null, " not full yet")),
      ),
    ),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": "drift-h" },
      h(
        "table",
        { class: "wide drift" },
        h("caption", { class: "unseen" }, `Drift by class, signal and window: z, and below it the shift. An alarm is |z| over ${plain(drift.alarm)}.`),
        h("colgroup", null, h("col")),
        SIGNALS.map(() => h("colgroup", { span: drift.windows.length })),
        h(
          "thead",
          null,
          h("tr", null, h("th", { scope: "col", rowspan: "2", class: "sticky" }, "Class"), SIGNALS.map(([, name]) => h("th", { scope: "colgroup", colspan: drift.windows.length, class: "group" }, name()))),
          h("tr", null, SIGNALS.map(() => drift.windows.map((w, i) => h("th", { scope: "col", class: i === 0 ? "first" : null }, count(w.inputs))))),
        ),
        h("tbody", null, rows.map((i) => body(model.classes[i], byClass.get(i), drift))),
      ),
    ),
  );
}

function body(c, moved, drift) {
  return h(
    "tr",
    { "data-key": c.name },
    h("th", { scope: "row", class: "sticky name" }, className(c), alarms(moved)),
    SIGNALS.map(([signal]) => drift.windows.map((w, i) => cell(moved[signal], w, i, drift.alarm))),
  );
}

function alarms(moved) {
  const ever = SIGNALS.reduce((sum, [signal]) => sum + moved[signal].alarms, 0);
  return ever > 0 ? h("span", { class: "ever" }, `${count(ever)} ${ever === 1 ? "alarm" : "alarms"} so far`) : null;
}

function cell(signal, window, i, alarm) {
  const first = i === 0 ? "first" : "";
  if (!window.full) return h("td", { class: `z ${first}` }, h("span", { class: "quiet" }, "not full"));
  const value = signal.z[i];
  const loud = Math.abs(value) > alarm;
  const reach = Math.min(1, Math.abs(value) / (alarm * 1.5)) * 50;
  return h(
    "td",
    { class: `z ${first} ${loud ? "alarm" : ""}` },
    h(
      "span",
      { class: "z-track", "aria-hidden": "true" },
      h("span", { class: "z-bar", style: { left: `${value < 0 ? 50 - reach : 50}%`, width: `${reach}%` } }),
    ),
    h("span", { class: "z-value" }, loud ? [h("b", { "aria-hidden": "true" }, "■ "), h("span", { class: "unseen" }, "alarm ")] : null, data(z(value), value)),
    h("span", { class: "z-shift" }, data(shift(signal.shift[i]), signal.shift[i])),
  );
}
