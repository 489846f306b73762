// Shows early stopping: inputs decided before their last pass, and what full-pass checks say of them.
import { h, part, show } from "./dom.js";
import { count, data, interval, of, rate, share, words } from "./format.js";

// renderSettling shows the section on early stopping, and hides it without a rule in force.
export function renderSettling(model, span) {
  const { settling } = model;
  document.getElementById("settling").hidden = !settling;
  document.querySelector('nav a[href="#settling"]').hidden = !settling;
  if (!settling) return;
  show(part("settling-state"), settling.stopped ? "stopped" : "in force");
  renderPasses(model.policy.settle, span);
  renderWatch(settling);
  renderChecks(model, span.settling);
}

const perInput = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

function renderPasses(rule, span) {
  const { inputs, used, saved } = span.settling;
  const mean = of(used, inputs);
  const per = (n) => (span.seconds > 0 ? n / span.seconds : 0);
  show(
    part("settling-passes"),
    h(
      "p",
      { class: "figure" },
      data(mean === null ? "–" : perInput.format(mean), mean, { id: "passes-used" }),
      " ",
      h("small", null, `of ${count(rule.passes)} passes an input`),
    ),
    inputs > 0
      ? h("p", { class: "quiet" }, data(count(inputs), inputs), " inputs might be decided early; ", h("b", null, data(`${perInput.format((used + saved) / used)} times`, (used + saved) / used)), " as many passes without early stopping")
      : h("p", { class: "empty" }, "No inputs came that might be decided early."),
    table(
      "Passes, in the time shown",
      ["Passes", "Per second", "Count"],
      [
        ["saved", "Saved, net of full-pass checks", rate(per(saved)), saved],
        ["late", "Late, of all inputs", rate(per(span.late)), span.late],
      ],
    ),
    rule.mean_passes > 0 ? h("p", { class: "quiet" }, `When it was certified${rule.groups > 0 ? `, on ${count(Number(rule.groups))} groups of inputs` : ""}: ${perInput.format(rule.mean_passes)} passes an input.`) : null,
  );
}

function renderWatch(settling) {
  show(
    part("settling-watch"),
    h(
      "p",
      { class: `verdict ${settling.stopped ? "warn" : ""}`, id: "settling-verdict" },
      settling.stopped
        ? [h("b", { "aria-hidden": "true" }, "▲ "), "Stopped: full-pass checks disagreed more often than is certified. All passes decide."]
        : "In force: full-pass checks do not refute what is certified.",
    ),
    h("p", { class: "quiet" }, "Evidence against it: ", data(share(Math.min(1, settling.evidence)), settling.evidence, { id: "settling-evidence" }), " of what ends early stopping."),
  );
}

function renderChecks({ settling, policy: { settle: rule } }, span) {
  const row = (key, name, s, certified) =>
    h(
      "tr",
      { "data-key": key },
      h("th", { scope: "row" }, name),
      h("td", { class: "number" }, data(interval(s), s.high)),
      h("td", { class: "number" }, certified > 0 && certified < 1 ? ["≤ ", data(share(certified), certified)] : "–"),
    );
  const disagreed = span.disagreements.reduce((sum, r) => sum + r.count, 0);
  show(
    part("settling-audits"),
    h(
      "table",
      { class: "tally" },
      h("caption", { class: "unseen" }, "Decided otherwise than by all passes, since the rule is in force: 95% interval, and what is certified"),
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "Decided otherwise"), h("th", { scope: "col", class: "number" }, "95% interval"), h("th", { scope: "col", class: "number" }, "Certified"))),
      h("tbody", null, row("all", "Of all inputs", settling.all, rule.disagreement), row("deferred", "Of deferred ones, retained", settling.deferred, rule.released)),
    ),
    table(
      "Full-pass checks, in the time shown",
      ["Full-pass checks", "Share", "Count"],
      [
        ["audited", "Checked", share(of(span.audited, span.inputs)), span.audited],
        ["disagreed", "Disagreed", share(of(disagreed, span.audited)), disagreed],
        ...span.disagreements.map((r) => [r.reason, `– ${words(r.reason)}`, share(of(r.count, span.audited)), r.count]),
        ["lost", "Lost", share(of(span.lost, span.audited + span.lost)), span.lost],
      ],
    ),
    settling.halves_differ === null ? null : h("p", { class: "quiet" }, "For comparison: two halves of the passes decide ", data(share(settling.halves_differ), settling.halves_differ), " of the inputs otherwise."),
  );
}

// table returns a table of counts, each with a number beside it.
function table(caption, heads, rows) {
  return h(
    "table",
    { class: "tally" },
    h("caption", { class: "unseen" }, caption),
    h("thead", null, h("tr", null, heads.map((head, i) => h("th", { scope: "col", class: i ? "number" : null }, head)))),
    h("tbody", null, rows.map(([key, name, beside, n]) => h("tr", { "data-key": key, class: n === 0 ? "nothing" : null }, h("th", { scope: "row" }, name), h("td", { class: "number" }, beside), h("td", { class: "number" }, data(count(n), n))))),
  );
}
