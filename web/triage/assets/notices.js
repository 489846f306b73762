// Collects what needs attention: all that somebody should act on, in one place: what is wrong, what to do,
// and where the page or the runbook says more.
import { h, part, show, visible } from "./dom.js";
import { count, docs, interval, known, lasting, of, share, term, when, words } from "./format.js";
import { clearedAt, headline, mainPromise, stratumOf, verdictOf } from "./promise.js";
import { judge } from "./traffic.js";

const DAY = 86400;
const MEASURED = ["holding", "in_doubt", "violated"]; // verdicts by outcomes, which say more than a certificate

// notices returns what to say about a state, given the requested model, alarms first. The key of
// each notice stays while its numbers change. What the promise says of itself is not repeated in the list.
export function notices(state, span, asked) {
  const all = [];
  const say = (key, level, where, text, act, runbook, more) => all.push({ key, level, where, text, act, runbook, more });
  const { daemon, model } = state;
  const now = Date.parse(state.at) / 1000;

  if (!daemon.reload.ok) {
    say("reload", "alarm", "policy", `The policies could not be loaded again; those ${known(daemon.reload.success) ? `of ${when(daemon.reload.success)}` : "before"} stay in force.`, "Mend the files, or put the old ones back. Do not restart: the daemon would not come back.", "ckdpolicyreloadfailed", daemon.reload.error);
  }
  if (!daemon.serving) say("serving", "alarm", "policy", "The daemon does not serve: it is starting, or being shut down.");
  if (daemon.certificate_ends) {
    const left = Date.parse(daemon.certificate_ends) / 1000 - now;
    if (left <= 0) say("tls", "alarm", "policy", `The TLS certificate ended ${when(daemon.certificate_ends)}.`, "Renew it now: without it no client connects.", "ckdcertificateends");
    else if (left < 14 * DAY) say("tls-soon", "warn", "policy", `The TLS certificate ends in ${lasting(left)}.`, "Renew it; it is read when its files change, without a restart.", "ckdcertificateendssoon");
  }
  if (!model) {
    say("gone", "warn", null, state.models?.length ? `No model "${visible(asked)}" is served.` : "No model is served that you may look at.", state.models?.length ? "Choose another." : null);
    return all.map((notice) => ({ ...notice, where: null })).sort(alarmsFirst); // the part is not on the page
  }

  const { policy, drift } = model;
  const degenerate = span.degenerate - span.saturated;
  if (degenerate >= 8 && of(degenerate, span.inputs) > 0.01) {
    const twice = 2 * ((span.reasons ?? []).find((r) => r.reason === "softmax_twice")?.count ?? 0) > degenerate;
    all.unshift({
      key: "degenerate", level: "alarm", where: "traffic", runbook: "ckddegeneratepasses",
      text: `What is sent for ${share(of(degenerate, span.inputs))} of the inputs does not look like passes, and says nothing about their uncertainty${twice ? ": softmax was taken twice." : "."}`,
      act: `Defer such inputs (degenerate: defer in the policy), ${twice ? "have logits sent, or probabilities once" : "have dropout turned on while passes are computed"}, and look again at those retained meanwhile.`,
    });
  }
  const promise = mainPromise(model);
  const verdict = promise && verdictOf(promise);
  if (verdict === "violated" || verdict === "in_doubt" || (promise && clearedAt(promise))) all.push({ key: "promise", level: verdict === "violated" ? "alarm" : "warn", where: "promise", text: headline(promise), own: true });
  if (model.changed) say("changed", "alarm", "policy", "The policy is not as it was calibrated: nothing that its calibration says holds.", "Calibrate again.");
  if (drift) {
    const moved = drift.classes.filter((c) => c.epistemic.alarm || c.skewness.alarm || c.predicted.alarm);
    if (moved.length) {
      const names = moved.map((c) => visible(model.classes[c.class]?.name));
      const few = names.slice(0, 6).join(", ") + (names.length > 6 ? ` and ${names.length - 6} more` : "");
      say("drift", "alarm", "drift", `Drift: the inputs are unlike those of the calibration in ${moved.length === 1 ? "class" : `${moved.length} classes:`} ${few}.`, "Have a sample of what is retained read, and find what changed: device, protocol, preprocessing, patients, model.", "ckddrift");
    }
  }
  for (const s of promise?.strata ?? []) {
    if (s.late?.share?.value > 0.05) say(`overdue-${stratumOf(s)}`, "warn", "review", `${share(s.late.share.value)} of the outcomes of inputs ${words(stratumOf(s))} are overdue: what is missing may be what was missed.`, "Have them read: ckd outcomes missing lists them.", "ckdoutcomesoverdue");
  }
  if (model.settling?.stopped) {
    say("settling", "warn", "settling", "Early stopping has ended: full-pass checks disagreed more often than is certified. Decisions are safe, and no passes are saved.", "See that the model servers can bear all passes, then learn a rule on current ones.", "ckdearlystophalted");
  }
  const { state: compared, expected } = judge(model, span);
  if (compared === "above" || compared === "below") {
    const high = compared === "above";
    say("rate", "warn", "traffic", `${share(span.deferred_share.value)} of the inputs are deferred, ${high ? "more" : "fewer"} than the calibration expects: ${share(expected.low)} to ${share(expected.high)}.`, high ? "Tell the readers that more is coming. If the model or a device changed, go back, or calibrate again." : "Have a sample of what is retained read today. If a new model was released, go back.", high ? "ckddeferralratehigh" : "ckddeferralratelow");
  }
  if (span.mismatched > 0) say("mismatched", "warn", "traffic", `${count(span.mismatched)} inputs had another number of passes, or another posterior, than the policy was calibrated with.`, "Restore the client's number of passes or way of sampling, or calibrate for the new one.", "ckdcalibrationmismatch");
  const rejected = of(span.rejected, span.inputs + span.rejected);
  if (rejected > 0.01) say("rejected", "warn", "traffic", `${share(rejected)} of the inputs were refused with an error, and not cleared.`, "Make sure that a person saw them, then put the client back or mend it.", "ckdinputsrejected");
  const fallback = of(span.fallback, span.inputs);
  if (!policy.observes && term(policy.gate, "GATE") !== "always" && fallback > 0.5) {
    const text = `The fallback score decided ${share(fallback)} of the inputs: C_k of a critical class was too skewed to be trusted in them.`;
    const calibrated = model.calibrated_fallback;
    if (!model.changed && calibrated?.low > 0.5 && fallback <= calibrated.high) say("fallback", "note", "traffic", `${text} The policy was calibrated so: ${calibrated.high < 1 ? interval(calibrated) : `at least ${share(calibrated.low)}`}.`);
    else say("fallback", "warn", "traffic", text, "Ask the owner of the policy whether that is meant.", "ckdfallbackshareup");
  }
  if (!policy.observes && !model.certificate && !model.changed && !MEASURED.includes(verdict)) {
    const expected = policy.calibration?.expected_critical_miss_rate;
    say("uncertified", "note", "policy", `No certificate: ${expected ? `by its calibration the policy misses ${share(expected.value)} (${interval(expected)}) of all critical inputs, which is expected, not guaranteed.` : "how many critical inputs the policy misses is not guaranteed."}`, "If you need a guarantee, have ckd calibrate certify one.");
  }
  return all.sort(alarmsFirst);
}

const LEVELS = { alarm: "Alarm", warn: "Warning", note: "Note" };
const SIGNS = { alarm: "■", warn: "▲", note: "○" };
const ORDER = Object.keys(LEVELS);
const alarmsFirst = (a, b) => ORDER.indexOf(a.level) - ORDER.indexOf(b.level);

const PARTS = { policy: "Policy", traffic: "Deferral rate", review: "To read", settling: "Early stopping", drift: "Drift" };

// renderNotices shows the notices, and puts the promise before them if it is what matters most: it is in
// alarm, or it holds and nothing but notes is left to say.
export function renderNotices(all, quiet, model) {
  const [attention, promise] = ["attention", "promise"].map((id) => document.getElementById(id));
  const [own] = all.filter((n) => n.own);
  const listed = all.filter((n) => !n.own);
  const leads = own && (listed.length === 0 || (ORDER.indexOf(own.level) <= ORDER.indexOf(listed[0].level) && listed[0].key !== "degenerate"));
  const calm = listed[0]?.level === "note" && Boolean(model && mainPromise(model));
  const first = leads || calm ? promise : attention;
  if (first.parentElement.firstElementChild !== first) first.parentElement.prepend(first);
  attention.dataset.level = listed[0]?.level ?? "none"; // the first is the most urgent
  attention.hidden = listed.length === 0 && Boolean(own);
  // Nothing competes with an alarm of the promise: what is no alarm takes one line below.
  const minor = own?.level === "alarm" ? listed.filter((n) => n.level !== "alarm") : [];
  if (listed.length === 0) {
    show(part("attention"), h("p", { class: "calm" }, quiet));
    return;
  }
  show(
    part("attention"),
    listed.length > minor.length ? list(listed.filter((n) => !minor.includes(n))) : null,
    minor.length ? h("details", { "data-key": "minor" }, h("summary", null, `Less urgent: ${[...new Set(minor.map((n) => PARTS[n.where]))].join(", ")}`), list(minor)) : null,
  );
}

const list = (all) =>
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
          h("p", null, h("b", { class: "unseen" }, `${LEVELS[n.level]}: `), n.text, n.act ? [" ", h("b", null, n.act)] : null, n.runbook ? [" ", docs(`runbook.md#${n.runbook}`, "Runbook")] : null, n.where ? [" ", h("a", { href: `#${n.where}` }, PARTS[n.where])] : null),
          n.more ? h("pre", { id: `${n.key}-error` }, n.more) : null,
        ),
      ),
    ),
  );
