// Shows the last deferred inputs, if allowed. Ids are whatever clients sent.
import { h, nameOf, part, show } from "./dom.js";
import { SCORES, count, data, moment, nats, value, words } from "./format.js";

const WHY = {
  off: "They are not kept: ids may be personal data. The setting recent-inputs says how many are.",
  "not allowed": "They are kept, but not for you: your identity lacks the right recent.",
};

const UNREAD = "Inputs that wait for a reading are left out: readers must not know which were deferred, or what the model said.";
const phone = matchMedia("(max-width: 640px)");
const first = () => (phone.matches ? 3 : 10); // rows to begin with
let more = 0; // rows asked for beyond these
let shown = ""; // the model that these are of

// COLUMNS are shown if they differ between inputs, or always.
const COLUMNS = [
  { head: "Time", class: "at", always: true, cell: (i) => moment(i.at) },
  { head: "Id", class: "id", always: true, cell: (i) => (i.id === "" ? h("span", { class: "quiet" }, "none") : nameOf(i.id)) },
  { head: "Predicted", class: "name", always: true, cell: (i) => named(i.predicted, i.predicted_critical) },
  { head: "Score", class: "kind", value: (i) => i.score, said: (score) => ["the score is the ", SCORES[score] ?? score] },
  { head: "Over its threshold", class: "score", always: true, cell: (i, end) => against(i, end) },
  { head: "Reason", class: "reason", value: (i) => words(i.reason), said: (reason) => reason },
  { head: "Passes", class: "number", value: (i) => count(i.passes), said: (passes) => `${passes} passes` },
  { head: "Decided by class", class: "name deciding", always: true, cell: (i) => (i.deciding === "" ? h("span", { class: "quiet" }, "none") : named(i.deciding, i.deciding_critical)) },
  { head: "Largest C_k", class: "prints", always: true, cell: (i, end, key) => fingerprint(i, key) },
];

// onRecent shows more inputs if that is asked for.
export function onRecent(event, again) {
  if (event.target.closest("button")?.dataset.act !== "more") return;
  more += 50;
  again();
}

// renderRecent shows the last deferred inputs of a model, or why there are none. What is the same of all is said
// once, above them.
export function renderRecent(model) {
  const { recent } = model;
  if (shown !== model.name) [shown, more] = [model.name, 0];
  const limit = first() + more;
  const inputs = recent?.inputs ?? [];
  if (inputs.length === 0) {
    show(part("recent-note"));
    const why = recent ? (recent.blind ? UNREAD : "No input was deferred yet.") : (WHY[model.recent_why] ?? "They are not shown.");
    show(part("recent"), h("p", { class: "empty", "data-why": model.recent_why }, why));
    return;
  }
  const same = (c) => c.value && inputs.every((i) => c.value(i) === c.value(inputs[0]));
  const columns = COLUMNS.filter((c) => !same(c));
  const common = COLUMNS.filter(same).map((c, i) => [i ? ", " : null, c.said(c.value(inputs[0]))]);
  show(part("recent-note"), common.length ? h("span", { id: "recent-common" }, inputs.length > 1 ? "all: " : null, common) : null);
  const times = new Map();
  const ends = new Map(); // upper end of the scale, by score
  for (const { score, value: x, threshold } of inputs) ends.set(score, Math.max(ends.get(score) ?? 0, x, threshold ?? 0));
  show(
    part("recent"),
    recent.blind ? h("p", { class: "quiet", id: "recent-unread" }, UNREAD) : null,
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": "recent-h" },
      h(
        "table",
        { class: "wide cards recent", role: "table" }, // keeps the roles when a phone shows cards
        h("caption", { class: "unseen" }, "The last deferred inputs, the last one first"),
        h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map((c) => h("th", { scope: "col", role: "columnheader", class: c.class === "number" ? "number" : null }, c.head)))),
        h(
          "tbody",
          { role: "rowgroup" },
          inputs.slice(0, limit).map((input) => {
            const key = `${input.at} ${input.id} ${input.value}`;
            times.set(key, (times.get(key) ?? 0) + 1);
            return body(columns, input, `${key} ${times.get(key)}`, ends.get(input.score));
          }),
        ),
      ),
    ),
    inputs.length > limit ? h("p", null, h("button", { type: "button", class: "toggle more", "data-act": "more" }, `Show more of ${count(inputs.length)}`)) : null,
  );
}

const body = (columns, input, key, end) =>
  h(
    "tr",
    { "data-key": key, role: "row" },
    columns.map((c) => {
      const isID = c.class === "id";
      return h(isID ? "th" : "td", { scope: isID ? "row" : null, role: isID ? "rowheader" : "cell", class: c.class, "data-head": c.head }, c.cell ? c.cell(input, end, key) : c.value(input));
    }),
  );

const named = (name, critical) => [mark(critical), nameOf(name)];

const mark = (critical) => (critical ? [h("span", { class: "mark", "aria-hidden": "true" }, "◆"), h("span", { class: "unseen" }, "critical: ")] : null);

// against draws a score against its threshold, on one scale for all inputs.
function against({ value: x, threshold }, end) {
  if (threshold === null) return [data(value(x), x), h("span", { class: "quiet" }, ", no threshold")];
  const percent = (v) => `${Math.min(100, Math.max(0, (v / (end || 1)) * 100)).toFixed(1)}%`;
  return [
    h("span", { class: "score-text" }, data(value(x), x), h("span", { class: "quiet" }, " over "), data(value(threshold), threshold)),
    h("span", { class: "score-track", "aria-hidden": "true" }, h("span", { class: "score-bar", style: { width: percent(x) } }), h("span", { class: "score-threshold", style: { left: percent(threshold) } })),
  ];
}

function fingerprint({ fingerprint: shares, rest }, key) {
  if (!shares?.length) return h("span", { class: "quiet" }, "none");
  const most = shares[0].c || 1;
  return h(
    "details",
    { class: "fingerprint", "data-key": key },
    h(
      "summary",
      null,
      h("span", { class: "bars", "aria-hidden": "true" }, shares.map((s) => h("span", { class: `${s.critical ? "critical" : ""} ${s.unreliable ? "unreliable" : ""}`, style: { height: `${Math.max(4, (s.c / most) * 100).toFixed(0)}%` } }))),
      h("span", null, named(shares[0].class, shares[0].critical)),
      h("span", { class: "unseen" }, ", C_k of the classes"),
    ),
    h(
      "ol",
      null,
      shares.map((s) => h("li", null, named(s.class, s.critical), " ", data(nats(s.c), s.c), s.unreliable ? h("em", null, " unreliable") : null)),
      rest > 0 ? h("li", { class: "rest" }, "all others ", data(nats(rest), rest)) : null,
    ),
  );
}
