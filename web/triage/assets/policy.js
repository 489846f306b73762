// Shows the policy in force, what it was calibrated from, and the daemon itself.
import { h, nameOf, part, show } from "./dom.js";
import { SCORES, count, data, interval, known, lasting, moment, plain, share, term, value } from "./format.js";

// renderPolicy shows the policy of a model.
export function renderPolicy(model) {
  const { policy } = model;
  const [gate, scope] = [term(policy.gate, "GATE"), term(policy.scope, "SCOPE")];
  const { fewest_passes: fewest, expected_passes: passes } = policy;
  show(
    part("policy"),
    policy.observes ? h("p", { class: "verdict" }, "Observes: it has no thresholds, so every input is answered and none deferred.") : null,
    pairs(
      ["Model", nameOf(model.name)],
      ["Version", policy.policy.version || "none"],
      gate === "always" ? null : ["Defers if", rule(policy.primary)],
      gate === "never" ? null : [gate === "always" ? "Defers if" : "Fallback", [rule(policy.fallback), gate === "always" ? null : h("small", null, `decides instead where the skewness of a critical class is over ${plain(policy.reliability_threshold)}`)]],
      policy.guard ? ["Unfamiliar if", rule(policy.guard)] : null,
      ["Never defers", scope === "all" ? "nothing is exempt" : "inputs called critical"],
      policy.risk_prevalence === undefined ? null : ["Risk", [`for traffic of which ${share(policy.risk_prevalence)} is critical`, suggestion(policy.risk_prevalence, model.suggested_prevalence)]],
      ["Passes", policy.kind === "KIND_DIRICHLET" ? "concentrations of a Dirichlet" : passes > 0 ? `${passes} expected, ${fewest} at least` : `${fewest} at least`],
      ["Pairs", pairsOf(model)],
      ["Hash", h("code", { title: policy.policy.hash }, policy.policy.hash.slice(0, 12))],
    ),
    model.warnings?.length ? h("details", null, h("summary", null, `Warnings (${model.warnings.length})`), h("ul", { class: "warnings" }, model.warnings.map((w) => h("li", null, w)))) : null,
  );
  renderCalibration(model);
}

function pairsOf({ pairs, classes, pairs_cut: cut }) {
  if (pairs === "all") return "all";
  const [critical, safe] = [classes.some((c) => c.critical), classes.some((c) => c.safe)];
  return (critical && safe) || cut > 0 ? "safe and critical" : `none: no class is ${critical ? "safe" : "critical"}`;
}

// suggestion says which share of critical inputs the last priorities suggest, and what to do where the
// policy's is not among what that may be.
function suggestion(prevalence, s) {
  if (!s) return null;
  const off = prevalence > s.high ? "high" : prevalence < s.low ? "low" : null;
  return h(
    "span",
    { id: "suggested-prevalence" },
    "; live traffic looks like ",
    data(share(s.value), s.value),
    ` (${interval(s)}), by the last ${count(s.inputs)} inputs at most, without labels: a suggestion`,
    off ? [`. If it is so, risks are too ${off}: `, h("code", null, "ckd calibrate --prevalence"), " fits them to it"] : null,
  );
}

// renderDaemon shows the state of the daemon.
export function renderDaemon(daemon, at) {
  const now = Date.parse(at);
  const { reload } = daemon;
  show(
    part("daemon"),
    pairs(
      ["Serving", daemon.serving ? "yes" : h("b", { class: "warn" }, "no")],
      ["Reload", [h("span", { id: "reload" }, reload.ok ? "succeeded" : h("b", { class: "alarm" }, "■ failed")), known(reload.at) ? [", ", moment(reload.at)] : ""]],
      reload.ok || !known(reload.success) ? null : ["In force since", moment(reload.success)],
      ["TLS certificate", daemon.certificate_ends ? [Date.parse(daemon.certificate_ends) > now ? "ends " : "ended ", moment(daemon.certificate_ends)] : "no TLS"],
      ["Up for", lasting((now - Date.parse(daemon.started)) / 1000)],
      ["Version", [daemon.version, daemon.revision ? h("span", { class: "quiet" }, ` ${daemon.revision.slice(0, 12)}`) : null]],
      daemon.arithmetic ? ["Arithmetic", daemon.arithmetic] : null,
    ),
  );
}

function renderCalibration({ policy: { calibration }, changed, certificate, inputs, critical_inputs: critical }) {
  if (!calibration) {
    show(part("calibration"), h("p", { class: "empty" }, "The policy does not tell what its thresholds were chosen from."));
    return;
  }
  const expected = (i) => (i ? [data(share(i.value), i.value), h("span", { class: "quiet" }, ` ${interval(i)}`)] : "not told");
  show(
    part("calibration"),
    changed ? h("div", { class: "notice alarm" }, h("span", { class: "sign", "aria-hidden": "true" }, "■"), h("div", null, h("p", null, h("b", null, "The policy was changed since it was calibrated. "), "Nothing of the following holds."))) : null,
    certificate ? h("blockquote", { class: changed ? "void" : null, cite: null }, certificate) : h("p", { class: "quiet" }, "No certificate: what follows is expected, not guaranteed."),
    pairs(
      calibration.objective ? ["Objective", calibration.objective] : null,
      ["Coverage", expected(calibration.expected_coverage)],
      ["Critical miss rate", expected(calibration.expected_critical_miss_rate)],
      calibration.posterior ? ["Posterior", calibration.posterior] : null,
      inputs > 0 ? ["Inputs", [data(count(inputs), inputs), critical > 0 ? `, ${count(critical)} of them critical` : ""]] : null,
      calibration.passes > 0 ? ["Passes", count(calibration.passes)] : null,
    ),
  );
}

// rule returns what a score measures with its threshold, and the name of the score.
function rule({ score, threshold }) {
  const name = term(score, "SCORE");
  return [SCORES[name] ?? name, threshold === undefined ? h("span", { class: "quiet" }, ", no threshold") : [" over ", h("b", null, data(value(threshold), threshold))], SCORES[name] ? h("small", null, h("code", null, name)) : null];
}

const pairs = (...rows) => h("dl", { class: "pairs" }, rows.filter(Boolean).map(([name, said]) => h("div", null, h("dt", null, name), h("dd", null, said))));
