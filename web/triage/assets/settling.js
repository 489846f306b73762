// Shows early stopping: inputs decided before their last pass, and what full-pass checks say of them.
import { h, part, show, tally } from "./dom.js";
import { count, data, interval, of, rate, share, words } from "./format.js";

const one = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

// renderSettling shows the part on early stopping, and hides it without a rule in force.
export function renderSettling(model, span) {
  const { settling } = model;
  document.getElementById("settling").hidden = !settling;
  document.querySelector('nav a[href="#settling"]').hidden = !settling;
  if (!settling) return;
  show(part("settling-state"), settling.stopped ? "stopped: all passes decide" : "in force");
  renderPasses(model.policy.settle, span);
  renderChecks(model, span.settling);
}

function renderPasses(rule, span) {
  const { inputs, used, saved } = span.settling;
  const mean = of(used, inputs);
  const passes = (key, name, n) => [key, name, rate(span.seconds > 0 ? n / span.seconds : 0), data(count(n), n)];
  show(
    part("settling-passes"),
    h("p", { class: "figure" }, data(mean === null ? "–" : one.format(mean), mean, { id: "passes-used" }), " ", h("small", null, `of ${count(rule.passes)} passes an input`)),
    inputs > 0
      ? h("p", { class: "quiet" }, data(count(inputs), inputs), " inputs might be decided early; ", h("b", null, data(`${one.format((used + saved) / used)} times`, (used + saved) / used)), " as many passes without early stopping")
      : h("p", { class: "empty" }, "No inputs came that might be decided early."),
    tally("Passes, in the time shown", ["Passes", "Per second", "Count"], [passes("saved", "Saved, net of full-pass checks", saved), passes("late", "Late, of all inputs", span.late)]),
    rule.mean_passes > 0 ? h("p", { class: "quiet" }, `When it was certified: ${one.format(rule.mean_passes)} passes an input.`) : null,
  );
}

function renderChecks({ settling, policy: { settle: rule } }, span) {
  const certified = (x) => (x > 0 && x < 1 ? ["≤ ", data(share(x), x)] : "–");
  const disagreed = span.disagreements.reduce((sum, r) => sum + r.count, 0);
  const check = (key, name, n, all) => [key, name, share(of(n, all)), data(count(n), n)];
  show(
    part("settling-watch"),
    h("p", { class: `verdict ${settling.stopped ? "warn" : ""}`, id: "settling-verdict" }, settling.stopped ? [h("b", { "aria-hidden": "true" }, "▲ "), "Stopped: full-pass checks disagreed more often than is certified."] : "In force: full-pass checks do not refute what is certified."),
    h("p", { class: "quiet" }, "Evidence against it: ", data(share(Math.min(1, settling.evidence)), settling.evidence, { id: "settling-evidence" }), "; at 100% early stopping ends."),
    tally("Decided otherwise than by all passes, since the rule is in force: 95% interval, and what is certified", ["Decided otherwise", "95% interval", "Certified"], [
      ["all", "Of all inputs", data(interval(settling.all), settling.all.high), certified(rule.disagreement)],
      ["deferred", "Of deferred ones, retained", data(interval(settling.deferred), settling.deferred.high), certified(rule.released)],
    ]),
    tally("Full-pass checks, in the time shown", ["Full-pass checks", "Share", "Count"], [
      check("audited", "Checked", span.audited, span.inputs),
      check("disagreed", "Disagreed", disagreed, span.audited),
      ...span.disagreements.map((r) => check(r.reason, `– ${words(r.reason)}`, r.count, span.audited)),
      check("lost", "Lost", span.lost, span.audited + span.lost),
    ]),
    settling.halves_differ === null ? null : h("p", { class: "quiet" }, "For comparison: two halves of the passes decide ", data(share(settling.halves_differ), settling.halves_differ), " of the inputs otherwise."),
  );
}
