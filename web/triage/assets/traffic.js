// Shows traffic: how many inputs there are, how many are deferred, and why.
import { h, part, show, tally } from "./dom.js";
import { closed, draw, lines, series } from "./charts.js";
import { className } from "./classes.js";
import { mainPromise, stratumOf } from "./promise.js";
import { about, count, data, interval, lasting, moment, of, plain, rate, share, when, words } from "./format.js";

// renderTraffic shows a span of a model, and its history.
export function renderTraffic(model, span) {
  show(part("span"), `the last ${lasted(span)}${isYoung(span) ? ": there is no more yet" : ""}`);
  renderRate(model, span);
  renderDeferral(model, span);
  renderShares(span);
  renderReasons(span);
  renderHistory(model);
  drawCharts(model);
}

// judge compares the deferral rate with what the calibration expects.
export function judge({ policy, changed }, span) {
  if (policy.observes) return { state: "observes" };
  const coverage = policy.calibration?.expected_coverage;
  if (!coverage) return { state: "none" };
  const expected = { value: 1 - coverage.value, low: 1 - coverage.high, high: 1 - coverage.low };
  if (changed) return { state: "changed", expected };
  const measured = span.deferred_share;
  if (!measured) return { state: "idle", expected };
  if (measured.low > expected.high) return { state: "above", expected };
  if (measured.high < expected.low) return { state: "below", expected };
  return { state: "agrees", expected };
}

const isYoung = (span) => span.seconds < span.minutes * 60 - 20;

const lasted = (span) => (isYoung(span) ? lasting(span.seconds) : span.minutes === 1 ? "minute" : `${span.minutes} minutes`);

// toRead says how many inputs a day readers get at the rate of the last hour: the deferred ones, and the share of
// the retained ones that is drawn for audits. Before there is an hour, a burst would make a rate absurd.
function toRead(model) {
  const { since, seconds, retained, deferred } = model.last_hour;
  if (model.policy.observes || seconds === 0) return null;
  if (seconds < 3600) return h("p", null, "For readers: ", h("b", null, data(count(deferred), deferred, { id: "deferred-so-far" }), " deferred"), " since ", moment(since), ". A daily rate takes an hour of traffic.");
  const audited = (mainPromise(model)?.strata ?? []).filter((s) => stratumOf(s) !== "deferred");
  const sum = (of) => audited.reduce((all, s) => all + Number(s[of] ?? 0), 0);
  const reads = (86400 / seconds) * (deferred + retained * (of(sum("reviews"), sum("decisions")) ?? 0));
  return h("p", null, "For readers: ", h("b", null, "about ", data(about(reads), reads, { id: "reads-per-day" })), " a day at the rate of the last hour, deferred and audited.");
}

const ENOUGH = 100; // deferred inputs, before the page says which class is in doubt

// inDoubt says which class decided most deferrals.
function inDoubt({ classes }, { deferred, classes: spans }) {
  const most = classes.map((c, i) => [c, spans[i].deciding]).reduce((a, b) => (b[1] > a[1] ? b : a));
  if (deferred < ENOUGH || most[1] === 0) return null;
  return h("p", null, "Class most often in doubt: ", h("b", { id: "in-doubt" }, className(most[0])), ", ", data(share(most[1] / deferred), most[1] / deferred), ` of ${count(deferred)} deferrals.`);
}

function renderRate(model, span) {
  const perSecond = span.seconds > 0 ? span.inputs / span.seconds : 0;
  show(
    part("rate"),
    h("p", { class: "figure" }, data(rate(perSecond), perSecond, { id: "inputs-per-second" }), " ", h("small", null, "/s")),
    h(
      "p",
      { class: "quiet" },
      data(count(span.inputs), span.inputs, { id: "inputs" }),
      ` inputs decided in ${lasted(span)}; `,
      data(count(model.inputs_open), model.inputs_open),
      " open now",
    ),
    toRead(model),
  );
}

const VERDICTS = {
  observes: "The policy observes: it has no thresholds, and defers nothing.",
  none: "The policy does not say what to expect.",
  changed: "The policy was changed since its calibration: what that expected does not hold.",
  idle: "No inputs to compare with what the calibration expects.",
  above: "Above what the calibration expects.",
  below: "Below what the calibration expects.",
  agrees: "In line with the calibration.",
  "just above": "Just above the expected band, by no more than chance would make it.",
  "just below": "Just below the expected band, by no more than chance would make it.",
};

function renderDeferral(model, span) {
  const { policy } = model;
  const measured = span.deferred_share;
  const { state, expected } = judge(model, span);
  const off = state === "above" || state === "below";
  const beside = state !== "agrees" ? state : measured.value > expected.high ? "just above" : measured.value < expected.low ? "just below" : state;
  show(
    part("deferral"),
    h(
      "p",
      { class: "figure" },
      policy.observes
        ? data("observing", null, { id: "deferral-rate" })
        : data(share(measured?.value), measured?.value, { id: "deferral-rate" }),
      " ",
      measured && !policy.observes ? h("small", null, `95%: ${interval(measured)}`) : null,
    ),
    h(
      "p",
      { class: `verdict ${off || state === "changed" ? "warn" : ""}`, "data-verdict": state },
      off || state === "changed" ? h("b", { "aria-hidden": "true" }, "▲ ") : null,
      VERDICTS[beside],
      expected && state !== "changed" ? h("span", { class: "quiet" }, ` Expected ${share(expected.value)} (${interval(expected)}).`) : null,
    ),
    policy.observes ? null : gauge(measured, state === "changed" ? null : expected),
    inDoubt(model, span),
    misses(model, span),
  );
  part("band-key").hidden = !expected || state === "changed";
}

// misses says how many critical inputs to expect among the retained. It is no measurement, so it never
// says that all is well.
function misses({ policy, drift }, span) {
  if (policy.risk_prevalence === undefined || policy.observes) return null;
  const alarm = drift?.classes.some((c) => c.epistemic.alarm || c.skewness.alarm || c.predicted.alarm);
  const perThousand = span.expected_misses === null ? null : of(1000 * span.expected_misses, span.retained);
  return h(
    "p",
    { class: "quiet" },
    "Expected misses per 1,000 retained, if the recording still holds: ",
    alarm ? h("b", { id: "expected-misses" }, "withheld, drift is in alarm") : data(perThousand === null ? "n/a" : plain(perThousand), perThousand, { id: "expected-misses" }),
    alarm || drift ? null : " (the policy has no reference, so drift is not looked for)",
    ".",
  );
}

// gauge draws the rate with its interval over the expected band.
function gauge(measured, expected) {
  const most = Math.max(measured?.high ?? 0, expected?.high ?? 0, 0.04) * 1.15;
  const step = [0.02, 0.05, 0.1, 0.2, 0.25, 0.5].find((s) => most / s <= 5) ?? 0.5;
  const end = Math.min(1, Math.ceil(most / step) * step);
  const at = (x) => `${((Math.min(Math.max(x, 0), end) / end) * 100).toFixed(2)}%`;
  const between = (i) => ({ left: at(i.low), width: `${((Math.min(i.high, end) - Math.max(i.low, 0)) / end * 100).toFixed(2)}%` });
  const said = [
    measured ? `Deferral rate ${share(measured.value)}, 95% interval ${interval(measured)}` : "No deferral rate",
    expected ? `expected ${share(expected.value)}, ${interval(expected)}` : "nothing is expected",
  ].join("; ");
  const ticks = [];
  for (let x = 0; x <= end + 1e-9; x += step) ticks.push(x);
  return h(
    "div",
    { class: "gauge", role: "img", "aria-label": said },
    h(
      "div",
      { class: "gauge-track" },
      expected ? h("span", { class: "gauge-band", style: between(expected) }) : null,
      expected ? h("span", { class: "gauge-expected", style: { left: at(expected.value) } }) : null,
      measured ? h("span", { class: "gauge-interval", style: between(measured) }) : null,
      measured ? h("span", { class: "gauge-point", style: { left: at(measured.value) } }) : null,
    ),
    h(
      "div",
      { class: "gauge-scale" },
      ticks.map((x) => h("span", { style: { left: at(x) } }, `${Math.round(x * 100)}%`)),
    ),
  );
}

function renderShares(span) {
  const offered = span.inputs + span.rejected;
  show(
    part("shares"),
    tally("Shares of the inputs", ["What", "Share", "Count"], [
      row("fallback", "Fallback", span.fallback, span.inputs),
      row("degenerate", "Degenerate", span.degenerate, span.inputs),
      row("saturated", "Saturated, among them", span.saturated, span.inputs),
      row("rejected", "Rejected", span.rejected, offered),
      row("abandoned", "Abandoned by the client", span.abandoned, null),
      row("late", "Late passes", span.late, null),
      row("mismatched", "Unlike the calibration", span.mismatched, span.inputs),
    ]),
  );
}

function renderReasons(span) {
  const rows = (reasons, all) => (reasons ?? []).map((r) => row(r.reason, words(r.reason), r.count, all));
  const [decided, refused] = [rows(span.reasons, span.inputs), rows(span.rejections, span.rejected)];
  show(
    part("reasons"),
    decided.length ? tally("Reasons of the decisions", ["Decided because", "Share", "Count"], decided) : h("p", { class: "empty" }, "No inputs were decided."),
    refused.length ? tally("Reasons of the refusals", ["Rejected because", "Share", "Count"], refused) : null,
  );
}

// row returns a row of a count and its share of all, if it is of them.
function row(key, name, n, all) {
  const s = all === null ? null : of(n, all);
  return [key, name, h("td", { class: "number meter", style: { "--share": s ?? 0 } }, all === null ? "" : data(share(s), s)), data(count(n), n)];
}

function renderHistory(model) {
  const steps = [...model.history].reverse();
  show(
    part("history"),
    tally(
      "Traffic in steps of 15 seconds, the last one first",
      ["From", "Inputs per s", "Deferral rate", "Fallback", "Degenerate", "Rejected"],
      steps.map((s) => [s.at, when(s.at), rate(s.seconds > 0 ? s.inputs / s.seconds : null), share(of(s.deferred, s.retained + s.deferred)), share(of(s.fallback, s.inputs)), share(of(s.degenerate, s.inputs)), count(s.rejected)]),
    ),
  );
}

const chart = (name) => document.querySelector(`[data-chart="${name}"]`);
const readout = (name) => document.querySelector(`[data-readout="${name}"]`);

const rateChart = lines(132, [series("line", { fill: "fill", steps: true }), series("line2", { steps: true })], {
  format: plain,
  top: 1,
  readout: (i, [at, all, deferred]) =>
    (readout("rate").textContent = i === null || at[i] === undefined ? "" : `${when(at[i] * 1000)}: ${rate(all[i])}/s, ${rate(deferred[i])}/s deferred`),
});

const deferralChart = lines(
  132,
  [series("band", { width: 0 }), series("band", { width: 0 }), series("line2", { steps: true })],
  {
    format: (x) => `${plain(x * 100)}%`,
    bands: [[1, 2, "band"]],
    top: 0.05,
    readout: (i, [at, , , value]) =>
      (readout("deferral").textContent = i === null || at[i] === undefined ? "" : `${when(at[i] * 1000)}: ${share(value[i])}`),
  },
);

function drawCharts(model) {
  // A step that has just begun says little.
  const steps = model.history.filter((s, i, all) => i < all.length - 1 || i === 0 || s.seconds >= 4);
  const at = steps.map((s) => s.at / 1000);
  const rates = steps.map((s) => (s.seconds > 0 ? s.inputs / s.seconds : null));
  const deferred = steps.map((s) => (s.seconds > 0 ? s.deferred / s.seconds : null));
  const last = rates.length - 1;
  draw(
    chart("rate"),
    rateChart,
    closed(steps, [at, rates, deferred]),
    last < 0 ? "No inputs yet" : `Inputs per second over 15 minutes: last ${rate(rates[last])}, least ${rate(Math.min(...rates))}, most ${rate(Math.max(...rates))}. The table below has the values.`,
  );
  const coverage = model.changed ? null : model.policy.calibration?.expected_coverage;
  const shares = steps.map((s) => of(s.deferred, s.retained + s.deferred));
  const known = shares.filter((s) => s !== null);
  draw(
    chart("deferral"),
    deferralChart,
    closed(steps, [at, at.map(() => (coverage ? 1 - coverage.low : null)), at.map(() => (coverage ? 1 - coverage.high : null)), shares]),
    known.length === 0 ? "No deferral rate yet" : `Deferral rate over 15 minutes: last ${share(known.at(-1))}, least ${share(Math.min(...known))}, most ${share(Math.max(...known))}. The table below has the values.`,
  );
}
