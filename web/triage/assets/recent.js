// Shows the last deferred inputs, if allowed. Ids are whatever clients sent.
import { h, nameOf, part, show } from "./dom.js";
import { count, data, moment, nats, share, value, whenBare, words, zone } from "./format.js";

const WHY = {
  off: "They are not kept: ids may be personal data. The setting recent-inputs says how many are.",
  "not allowed": "They are kept, but not for you: your identity lacks the right recent.",
};

const UNREAD = "Inputs that nobody has read yet are left out: the policy has audits, and readers must not know which inputs were deferred.";

const HEADS = ["Time", "Id", "Predicted", "Score over threshold", "Reason", "Deciding", "Passes", "Fingerprint", "Largest C_k"];

// renderRecent shows the last deferred inputs of a model, or why there are none.
export function renderRecent(model) {
  const { recent } = model;
  if (!recent) {
    show(part("recent-note"));
    show(part("recent"), h("p", { class: "empty", "data-why": model.recent_why }, WHY[model.recent_why] ?? "They are not shown."));
    return;
  }
  const inputs = recent.inputs ?? [];
  show(part("recent-note"), `the last ${count(recent.kept)} at most`);
  if (inputs.length === 0) {
    show(part("recent"), h("p", { class: "empty" }, recent.blind ? UNREAD : "No input was deferred yet."));
    return;
  }
  const unread = recent.blind ? h("p", { class: "quiet", id: "recent-unread" }, UNREAD) : null;
  const seen = new Map();
  const ends = new Map(); // upper end of the scale, by score
  for (const { score, value: x, threshold } of inputs) ends.set(score, Math.max(ends.get(score) ?? 0, x, threshold ?? 0));
  show(
    part("recent"),
    unread,
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": "recent-h" },
      h(
        "table",
        { class: "wide recent", role: "table" }, // keeps the roles when a phone shows cards
        h("caption", { class: "unseen" }, "The last deferred inputs, the last one first"),
        h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, HEADS.map((t) => h("th", { scope: "col", role: "columnheader", class: t === "Passes" ? "number" : null }, headed(t))))),
        h(
          "tbody",
          { role: "rowgroup" },
          inputs.map((input) => {
            const key = `${input.at} ${input.id} ${input.value}`;
            const again = seen.get(key) ?? 0;
            seen.set(key, again + 1);
            return body(model, input, `${key} ${again}`, ends.get(input.score));
          }),
        ),
      ),
    ),
  );
}

function body(model, input, key, end) {
  const largest = input.fingerprint?.[0];
  const cells = [
    moment(input.at, whenBare(input.at)),
    input.id === "" ? h("span", { class: "quiet" }, "none") : nameOf(input.id),
    named(input.predicted, input.predicted_critical),
    against(input, end),
    [words(input.reason), input.priority_percentile === null ? null : [h("span", { class: "quiet" }, ", priority "), data(share(input.priority_percentile), input.priority_percentile)]],
    input.deciding ? named(input.deciding, input.deciding_critical) : h("span", { class: "quiet" }, "none"),
    count(input.passes),
    fingerprint(input, key),
    largest ? named(largest.class, largest.critical) : h("span", { class: "quiet" }, "none"),
  ];
  return h(
    "tr",
    { "data-key": key, role: "row" },
    cells.map((cell, i) =>
      h(i === ID ? "th" : "td", { scope: i === ID ? "row" : null, role: i === ID ? "rowheader" : "cell", class: CLASSES[i], "data-head": headed(HEADS[i]) }, cell),
    ),
  );
}

const headed = (t) => (t === "Time" ? `Time, ${zone(Date.now())}` : t);
const ID = HEADS.indexOf("Id");
const CLASSES = ["at", "id", "name", "score", "reason", "name deciding", "number", "prints", "name largest"];

const named = (name, critical) => [mark(critical), nameOf(name)];

const mark = (critical) => (critical ? [h("span", { class: "mark", "aria-hidden": "true" }, "◆"), h("span", { class: "unseen" }, "critical: ")] : null);

// against draws a score against its threshold, on one scale for all inputs.
function against({ score, value: x, threshold }, end) {
  if (threshold === null) return [h("span", { class: "quiet" }, `${score} `), data(value(x), x), h("span", { class: "quiet" }, ", no threshold")];
  const percent = (v) => `${Math.min(100, Math.max(0, (v / (end || 1)) * 100)).toFixed(1)}%`;
  return [
    h("span", { class: "score-text" }, h("span", { class: "quiet" }, `${score} `), data(value(x), x), h("span", { class: "quiet" }, " over "), data(value(threshold), threshold)),
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
      h("span", { class: "unseen" }, "C_k of the classes"),
    ),
    h(
      "ol",
      null,
      shares.map((s) => h("li", null, named(s.class, s.critical), " ", data(nats(s.c), s.c), s.unreliable ? h("em", null, " unreliable") : null)),
      rest > 0 ? h("li", { class: "rest" }, "all others ", data(nats(rest), rest)) : null,
    ),
  );
}
