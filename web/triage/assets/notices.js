// Collects what needs attention: all that somebody should act on, in one place, each with a link to
// the part of the page that says more.
import { h, part, show, visible } from "./dom.js";
import { count, known, lasting, of, share, term, when } from "./format.js";
import { mainPromise, riskOf, stratumOf, verdictOf } from "./promise.js";
import { judge } from "./traffic.js";

const DAY = 86400;

// notices returns what to say about a state, given the requested model, alarms first. The key of
// each notice stays while its numbers change.
export function notices(state, span, asked) {
  const all = [];
  const say = (key, level, where, text, more) => all.push({ key, level, where, text, more });
  const { daemon, model } = state;
  const now = Date.parse(state.at) / 1000;

  if (!daemon.reload.ok) {
    say(
      "reload",
      "alarm",
      "policy",
      "The policies could not be loaded again; those before stay in force" +
        (known(daemon.reload.success) ? `, as of ${when(daemon.reload.success)}.` : "."),
      daemon.reload.error,
    );
  }
  if (!daemon.serving) say("serving", "alarm", "policy", "The daemon does not serve: it is starting, or being shut down.");
  if (daemon.certificate_ends) {
    const left = Date.parse(daemon.certificate_ends) / 1000 - now;
    if (left <= 0) say("tls", "alarm", "policy", `The TLS certificate ended ${when(daemon.certificate_ends)}.`);
    else if (left < 14 * DAY) say("tls-soon", "warn", "policy", `The TLS certificate ends in ${lasting(left)}.`);
  }
  if (!model) {
    say("gone", "warn", null, state.models?.length ? `No model "${visible(asked)}" is served. Choose another.` : "No model is served that you may look at.");
    return all.map((notice) => ({ ...notice, where: null })).sort(alarmsFirst); // the part is not on the page
  }

  const { policy, drift } = model;
  const degenerate = span.degenerate - span.saturated;
  if (degenerate >= 8 && of(degenerate, span.inputs) > 0.01) {
    const twice = (span.reasons ?? []).find((r) => r.reason === "softmax_twice")?.count ?? 0;
    const why = 2 * twice > degenerate ? "softmax was taken twice." : "the passes hardly differ; is dropout on?";
    all.unshift({ key: "degenerate", level: "alarm", where: "traffic", text: `What is sent for ${share(of(degenerate, span.inputs))} of the inputs does not look like passes, and says nothing about their uncertainty: ${why}` });
  }
  if (model.changed) {
    say("changed", "alarm", "policy", "The policy is not as it was calibrated. Nothing that its calibration says holds.");
  }
  const promise = mainPromise(model);
  if (promise && verdictOf(promise) === "violated") {
    const raised = (promise.mature?.figures ?? []).filter((f) => f.monitor?.raised);
    const which = raised.map((f) => riskOf(f).replaceAll("_", " ").replace("fnr", "FNR") + (f.critical_class ? ` of ${visible(f.critical_class)}` : "")).join(", ");
    say("promise", "alarm", "promise", `The policy does not keep its promise: outcomes raised the alarm${which ? ` (${which})` : ""}.` +
      (promise.promise.alarm && model.defers_on_alarm ? " All that is called safe is deferred until it is cleared." : ""));
  }
  if (promise && verdictOf(promise) === "in_doubt") say("doubt", "warn", "promise", "Whether the policy keeps its promise is in doubt: look at what stands against it before the alarm does.");
  for (const s of promise?.strata ?? []) {
    if (s.late?.share?.value > 0.05) say(`overdue-${stratumOf(s)}`, "warn", "promise", `${share(s.late.share.value)} of the outcomes of inputs ${stratumOf(s).replaceAll("_", " ")} are overdue. What is missing may be what was missed.`);
  }
  if (drift) {
    const moved = drift.classes.filter((c) => c.epistemic.alarm || c.skewness.alarm || c.predicted.alarm);
    if (moved.length) {
      const names = moved.map((c) => visible(model.classes[c.class]?.name));
      const few = names.slice(0, 6).join(", ") + (names.length > 6 ? ` and ${names.length - 6} more` : "");
      say("drift", "alarm", "drift", `Drift: the inputs are unlike those of the calibration in ${moved.length === 1 ? "class" : `${moved.length} classes:`} ${few}.`);
    }
  }
  if (model.settling?.stopped) {
    say("settling", "warn", "settling", "Early stopping has ended: full-pass checks disagreed more often than is certified. All passes decide, and none are saved.");
  }
  const { state: verdict, expected } = judge(model, span);
  if (verdict === "above" || verdict === "below") {
    say("rate", "warn", "traffic", `The deferral rate, ${share(span.deferred_share.value)}, is ${verdict} what the calibration expects: ${share(expected.low)} to ${share(expected.high)}.`);
  }
  if (span.mismatched > 0) {
    say("mismatched", "warn", "traffic", `${count(span.mismatched)} inputs had another number of passes, or another posterior, than the policy was calibrated with.`);
  }
  const rejected = of(span.rejected, span.inputs + span.rejected);
  if (rejected > 0.01) say("rejected", "warn", "traffic", `${share(rejected)} of the inputs were rejected.`);
  const fallback = of(span.fallback, span.inputs);
  if (!policy.observes && policy.gate !== "GATE_ALWAYS" && fallback > 0.5) {
    say("fallback", "warn", "traffic", `The fallback score, ${term(policy.fallback.score, "SCORE")}, decided ${share(fallback)} of the inputs: C_k of a critical class was too skewed to be trusted in them. Ask whoever owns the policy whether that is meant; ckd calibrate compares other gates.`);
  }
  if (!policy.observes && !model.certificate && !model.changed) {
    say("uncertified", "note", "policy", "Nothing is certified: no statistical test stands behind the thresholds, so nobody can promise how many critical inputs are retained and seen by no one. ckd calibrate can test for it.");
  }
  return all.sort(alarmsFirst);
}

const LEVELS = { alarm: "Alarm", warn: "Warning", note: "Note" };
const SIGNS = { alarm: "■", warn: "▲", note: "○" };
const ORDER = Object.keys(LEVELS);
const alarmsFirst = (a, b) => ORDER.indexOf(a.level) - ORDER.indexOf(b.level);

const PARTS = { promise: "Promise", policy: "Policy", traffic: "Traffic", settling: "Early stopping", drift: "Drift" };

// renderNotices shows the notices.
export function renderNotices(all, quiet) {
  document.getElementById("attention").dataset.level = all[0]?.level ?? "none"; // the first is the most urgent
  if (all.length === 0) {
    show(part("attention"), h("p", { class: "calm" }, quiet));
    return;
  }
  show(
    part("attention"),
    h(
      "ul",
      { class: "notices" },
      all.map((n) =>
        h(
          "li",
          { class: `notice ${n.level}` },
          h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[n.level]),
          h(
            "div",
            null,
            h("p", null, h("b", { class: "unseen" }, `${LEVELS[n.level]}: `), n.text, " ", n.where ? h("a", { href: `#${n.where}` }, PARTS[n.where]) : null),
            n.more ? h("pre", { id: `${n.key}-error` }, n.more) : null,
          ),
        ),
      ),
    ),
  );
}
