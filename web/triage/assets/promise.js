// Shows whether the policy keeps its promise: the verdict, what to do, one line of figures and a curve.
// All else is in details.
import { h, nameOf, part, show, tally, visible } from "./dom.js";
import { draw, drop, lines, series } from "./charts.js";
import { count, data, dated, docs, interval, moment, plain, share, term, when, words } from "./format.js";

const MISS_RATE = "critical_miss_rate";
const RISKS = { [MISS_RATE]: "Critical miss rate", critical_fnr: "Critical FNR" };
const TONES = { violated: "alarm", in_doubt: "warn", no_line: "warn", holding: "calm" };
const SIGNS = { violated: "■ ", in_doubt: "▲ ", no_line: "▲ ", holding: "● " };
const STRATA = { deferred: "Deferred", called_critical: "Retained, called critical", called_safe: "Retained, called safe" };

// mainPromise returns the promise that the page begins with, a PromiseFigures: one that is violated or in
// doubt, or that with the most outcomes. It returns null without one.
export function mainPromise(model) {
  const all = model.promises ?? [];
  const decided = (p) => (p ? Number(p.provisional?.decided ?? 0) : -1);
  const worst = (verdict) => all.find((p) => verdictOf(p) === verdict);
  return worst("violated") ?? worst("in_doubt") ?? all.reduce((most, p) => (decided(p) > decided(most) ? p : most), null);
}

// verdictOf returns the verdict on a promise.
export const verdictOf = (p) => term(p.promise.verdict, "VERDICT");

// stratumOf returns the name of a stratum.
export const stratumOf = (s) => term(s.stratum, "STRATUM");

const riskOf = (f) => term(f.figure, "CERTIFIED_FIGURE");

// seen returns a Share, or null where nothing was seen.
const seen = (s) => ([s?.value, s?.low, s?.high].every(Number.isFinite) ? s : null);

// figuresOf returns the miss rates and whatever else has a line: miss rates first, and pooled ones before
// those of a class.
function figuresOf(p) {
  const rank = (f) => 2 * (riskOf(f) !== MISS_RATE) + (f.critical_class !== "");
  return (p.mature?.figures ?? []).filter((f) => f.line !== undefined || riskOf(f) === MISS_RATE).sort((a, b) => rank(a) - rank(b));
}

// leadOf returns the figure that decides the verdict: the first that raised the alarm, has the most evidence
// against it, or has a line.
function leadOf(p) {
  const evidence = (f) => (f.monitor?.raised ? 2 : (f.monitor?.log_evidence ?? -1));
  const held = figuresOf(p).filter((f) => f.line !== undefined);
  return held.reduce((most, f) => (evidence(f) > evidence(most) ? f : most), held[0]) ?? figuresOf(p)[0];
}

// lineOf returns a line, which somebody chose, with as few digits as it has.
const lineOf = (f) => data(`${plain(100 * f.line)}%`, f.line);

const inputsOf = (f) => [riskOf(f) === MISS_RATE ? "all " : "the retained ", f.critical_class ? ["inputs of ", nameOf(f.critical_class)] : "critical inputs"];

// counted says what a share was read off. Readers see many of some inputs and few of others, so that n of m
// is not the share.
const counted = (n, m) => `${count(Number(n))} of ${count(Number(m))} read, weighted`;

// headline returns the verdict in one sentence.
export function headline(p) {
  const f = leadOf(p);
  const raised = f?.monitor?.raised_at;
  const too = ["too many ", f?.critical_class ? ["inputs of ", visible(f.critical_class)] : "critical inputs", " are missed."];
  const text = {
    violated: [`Alarm${raised ? ` since ${when(raised)}` : ""}: `, too],
    in_doubt: ["In doubt: perhaps ", too],
    holding: "The promise holds.",
    too_few_outcomes: "Too few outcomes to tell whether the promise holds.",
    no_line: "Nothing is promised: the policy has no line.",
  }[verdictOf(p)];
  return [text ?? words(verdictOf(p))].flat(3).join("");
}

// acts returns what to do about a verdict, the first thing first.
function acts(p, model) {
  const needed = leadOf(p)?.outcomes_needed;
  const since = leadOf(p)?.monitor?.since;
  const deferring = p.promise.alarm && model.defers_on_alarm;
  return {
    violated: [
      [h("b", null, deferring ? "Read what comes: all that is called safe is deferred." : "Defer all that is called safe."), " ", docs("runbook.md#ckdpromiseviolated", "How")],
      ["Look again at what was retained", since ? [" since ", moment(since)] : null, "."],
      "Find the cause. Calibrate on current inputs, or clear the alarm and say why.",
    ],
    in_doubt: [[h("b", null, "Have overdue outcomes and second readings done:"), " they decide it. ", docs("runbook.md#ckdpromiseindoubt", "How")], "Tell whoever answers for the model."],
    too_few_outcomes: [[h("b", null, "Enter what was found"), " in the list to review.", needed ? [" About ", data(count(Math.ceil(needed)), needed), " more outcomes would do, if the risk is as it seems."] : null]],
    no_line: [[h("b", null, "State a line,"), " or calibrate again: without one no alarm is ever raised. ", docs("outcomes.md", "How")]],
  }[verdictOf(p)];
}

// renderPromise shows the section on outcomes, and hides it in a daemon without a ledger.
export function renderPromise(model) {
  const off = !model.promises;
  const section = document.getElementById("promise");
  section.hidden = off;
  document.querySelector('nav a[href="#promise"]').hidden = off;
  const p = mainPromise(model);
  section.dataset.tone = (p && TONES[verdictOf(p)]) ?? "";
  for (const where of ["promise-charts", "promise-all"]) document.getElementById(where).hidden = !p;
  placeEvidence(p);
  if (!p) {
    section.querySelectorAll("[data-chart]").forEach(drop);
    show(part("promise-verdict"), off ? null : h("p", { class: "empty" }, "No outcome of this policy is known yet: nobody can say how many critical inputs it misses."));
    return;
  }
  renderVerdict(p, model);
  renderCurves(p);
  renderFigures(p, model.promises.length);
  renderDue(p);
  renderYield(p);
}

// placeEvidence puts the curve of the evidence beside that of the share missed where the promise is in doubt
// or violated, else among the details.
function placeEvidence(p) {
  const evidence = document.getElementById("promise-evidence");
  const open = p && ["violated", "in_doubt"].includes(verdictOf(p));
  const [where, before] = open ? [document.getElementById("promise-charts"), null] : [document.getElementById("promise-all"), part("promise-notes")];
  if (evidence.parentElement !== where) where.insertBefore(evidence, before);
}

function renderVerdict(p, model) {
  const verdict = verdictOf(p);
  const todo = acts(p, model);
  show(
    part("promise-verdict"),
    h("p", { class: "headline", id: "promise-state", "data-verdict": verdict }, h("span", { "aria-hidden": "true" }, SIGNS[verdict] ?? ""), headline(p)),
    todo ? h("ol", { class: "acts", "aria-label": "What to do" }, todo.map((act) => h("li", null, act))) : null,
    h("p", { class: "said-figures" }, figuresLine(p)),
  );
}

// figuresLine returns the one line of figures. An average is left out while an alarm is up: after a long good
// past it looks fine.
function figuresLine(p) {
  const lead = leadOf(p);
  if (!lead) return visible(dated(p.promise.statement ?? ""));
  const line = lead.line === undefined ? null : [", line ", lineOf(lead)];
  if (verdictOf(p) === "violated") {
    const { since, since_rate: rate } = lead.monitor ?? {};
    const s = seen(rate?.share);
    return [
      s ? ["Since it began to rise", since ? [" (", moment(since), ")"] : null, ": ", h("b", null, data(share(s.value), s.value, { id: "since-onset" })), " of ", inputsOf(lead), ` missed (${counted(rate.events, rate.total)})`, line, ". "] : null,
      "It stays until somebody clears it.",
    ];
  }
  const lately = seen(lead.lately?.share);
  if (verdictOf(p) === "in_doubt" && lately) {
    return ["Lately: ", h("b", null, data(share(lately.value), lately.value)), " of ", inputsOf(lead), ` missed (${counted(lead.lately.events, lead.lately.total)})`, line, "."];
  }
  const known = figuresOf(p).filter((f) => f.critical_class === "" && seen(f.average));
  if (known.length === 0) return ["No critical input was read yet", line, "."];
  return known.map((f, i) => [
    i ? " " : "On average ",
    h("b", null, data(share(f.average.value), f.average.value)), ` (95%: ${interval(f.average)}) of `, inputsOf(f), i ? "" : ` ${known.length > 1 || f.line === undefined ? "are " : ""}missed (${counted(f.misses, f.critical)})`, f.line === undefined ? null : [", line ", lineOf(f)], ".",
  ]);
}

const figureName = (f) => [RISKS[riskOf(f)] ?? words(riskOf(f)), f.critical_class ? [" of ", nameOf(f.critical_class)] : null];

function renderFigures(p, versions) {
  const estimate = (s, extra) => h("td", { class: "number" }, s ? [data(share(s.value), s.value), h("small", null, interval(s), extra ?? null)] : "n/a");
  const row = (f) => {
    const alarm = f.monitor;
    const onset = alarm?.raised ? seen(alarm.since_rate?.share) : null;
    return h(
      "tr",
      { "data-key": `${riskOf(f)} ${f.critical_class}`, class: seen(f.average) ? null : "nothing" },
      h("th", { scope: "row" }, figureName(f), h("small", null, "of ", inputsOf(f))),
      estimate(onset ?? seen(f.lately?.share), onset ? ", since the rise" : null),
      estimate(seen(f.average)),
      estimate(seen(f.model_average)),
      h("td", { class: "number" }, f.line === undefined ? "none" : lineOf(f), f.line_origin ? h("small", null, visible(dated(f.line_origin))) : null),
      h("td", { class: `number state ${alarm?.raised ? "alarm" : ""}` }, alarm ? data(`${count(100 * alarm.log_evidence)}%`, alarm.log_evidence) : "–", alarm?.raised ? " alarm" : null),
      h("td", { class: "number" }, data(count(Number(f.outcomes)), Number(f.outcomes)), h("small", null, `${count(Number(f.misses ?? 0))} of ${count(Number(f.critical ?? 0))} critical missed`)),
    );
  };
  const [lead, provisional, readers] = [leadOf(p), seen(p.provisional?.figures?.find((f) => riskOf(f) === MISS_RATE && !f.critical_class)?.average), p.mature?.readers ?? {}];
  const { run_length: length, run_length_inputs: inputs } = lead?.monitor ?? {};
  const before = seen(p.expected?.critical_miss_rate?.share);
  const heads = ["Share missed (95%)", "Lately", "Average", "Of all policies", "Line", "Evidence", "Outcomes"];
  show(
    part("promise-figures"),
    h("table", { class: "wide" }, h("caption", { class: "unseen" }, "Risks by the outcomes that are due, weighted"), h("thead", null, h("tr", null, heads.map((t, i) => h("th", { scope: "col", class: i ? "number" : null }, t)))), h("tbody", null, figuresOf(p).map(row))),
  );
  show(
    part("promise-notes"),
    [
      p.why?.length ? ["Against holding: ", p.why.map(visible).join("; "), "."] : null,
      length ? ["A false alarm: ", inputs ? `about one in ${count(inputs)} inputs.` : `at most one in ${count(length)} outcomes.`] : null,
      before ? ["By what earlier policies had read, it was expected to miss ", data(share(before.value), before.value), ` (${interval(before)}).`] : null,
      Number(readers.missed) > 0
        ? `Of ${count(Number(readers.missed))} misses read, ${count(Number(readers.unconfirmed))} lack a second source and ${count(Number(readers.withdrawn))} were withdrawn; readers disagree on ${count(Number(readers.disputed))} inputs.`
        : null,
      seen(lead?.overdue) ? ["If no overdue outcome is a miss, ", data(share(lead.overdue.low), lead.overdue.low), " are missed; if all are, ", data(share(lead.overdue.high), lead.overdue.high), "."] : null,
      provisional && p.open_cohorts > 0 ? ["With outcomes that are not due yet, the miss rate is ", data(share(provisional.value), provisional.value), ` (${interval(provisional)}).`] : null,
      seen(lead?.average) && lead.unweighted !== undefined ? ["Naive average of the outcomes (wrong): ", data(share(lead.unweighted), lead.unweighted), "."] : null,
      versions > 1 ? `${versions} model versions have outcomes under this policy; shown is ${visible(p.promise.model_version || "the one not stated")}.` : null,
    ].map((note) => (note ? h("li", null, note) : null)),
  );
}

function renderDue(p) {
  const number = (text) => data(count(Number(text)), Number(text));
  const traffic = seen(p.traffic?.share);
  const last = p.history.at(-1);
  show(
    part("promise-due"),
    tally(
      "Reviews and their outcomes",
      ["Inputs", "All", "To read", "Due", "Overdue"],
      p.strata.map((s) => [
        stratumOf(s),
        STRATA[stratumOf(s)] ?? words(stratumOf(s)),
        number(s.decisions),
        [number(s.reviews), s.free || s.expected === undefined ? null : h("span", { class: "quiet" }, ` of ${count(s.expected)}`)],
        number(s.due),
        [number(s.overdue), seen(s.late?.share) && Number(s.overdue) ? ` (${share(s.late.share.value)})` : null],
      ]),
    ),
    h("p", { class: "quiet" }, last ? ["Complete up to ", moment(Date.parse(last.start) + 1000 * parseFloat(p.cohort_period))] : "Nothing is complete yet", `; ${count(p.open_cohorts)} later ${p.open_cohorts === 1 ? "period waits" : "periods wait"} for readers.`),
    traffic && traffic.value < 0.9995 ? h("p", { class: "quiet" }, "Only ", data(share(traffic.value), traffic.value), " of the inputs come from clients that take receipts: nothing is known of the others.") : null,
  );
}

function renderYield(p) {
  const cell = (s) => (seen(s?.share) ? [data(share(s.share.value), s.share.value), h("small", null, interval(s.share))] : "n/a");
  const reasons = p.mature?.yield_by_reason ?? [];
  const row = (key, name, wrong, critical) => [key, name, cell(wrong), cell(critical)];
  show(
    part("promise-yield"),
    tally("Of the deferred with an outcome, the share that was worth a look", ["Deferred", "Predicted wrong", "Critical, called safe"], [
      row("all", "All", p.mature?.yield_wrong, p.mature?.yield_critical),
      ...(reasons.length > 1 ? reasons.map((y) => row(y.reason, `– ${words(term(y.reason, "DECISION_REASON"))}`, y.wrong, y.critical)) : []),
    ]),
  );
}

let marks = []; // moments on the curves
let shareCap = Infinity; // the largest share drawn: intervals of the first outcomes would flatten the rest
const curve = { whole: true, marks: () => marks };
const shareCurve = lines(
  150,
  [series("quiet", { width: 2 }), series("fill", { width: 1 }), series("fill", { width: 1 }), series("ink", { dash: [4, 3] }), series("alarm", { width: 3 }), series("alarmfill", { width: 0 }), series("alarmfill", { width: 0 })],
  { ...curve, cap: () => shareCap, format: (v) => `${plain(100 * v)}%`, bands: [[3, 2, "fill"], [7, 6, "alarmfill"]] },
);
const evidenceCurve = lines(110, [series("line2", { width: 2 }), series("ink", { dash: [4, 3] })], { ...curve, format: (v) => `${plain(v)}%`, top: 100 });

// renderCurves draws the share missed and the evidence, with the moments at which the risk began to rise and
// the alarm was raised.
function renderCurves(p) {
  const [chart, evidence] = ["promise", "evidence"].map((name) => document.querySelector(`[data-chart="${name}"]`));
  const lead = leadOf(p);
  const risk = lead ? riskOf(lead) : MISS_RATE;
  const history = p.history.slice(-400);
  const points = history.map((point) => ({ start: Date.parse(point.start), ...seen(point[risk]?.average), line: point[risk]?.line, evidence: point[risk]?.log_evidence }));
  const alarm = lead?.monitor?.raised ? lead.monitor : {};
  const onset = seen(alarm.since_rate?.share) && alarm.since ? Date.parse(alarm.since) : Infinity;
  const since = (name) => points.map((x) => (x.start >= onset ? alarm.since_rate.share[name] : null));
  const column = (name, scale = 1) => points.map((x) => (x[name] === undefined ? null : scale * x[name]));
  const at = points.map((x) => x.start / 1000);
  marks = [alarm.since ? { at: alarm.since, text: `began to rise ${when(alarm.since)}`, tone: "warn" } : null, alarm.raised_at ? { at: alarm.raised_at, text: `alarm ${when(alarm.raised_at)}`, tone: "alarm" } : null].filter(Boolean);
  const last = points.at(-1);
  const shown = [column("value"), column("line"), since("high"), [last?.high]].flat().filter(Number.isFinite);
  shareCap = shown.length ? 1.3 * Math.max(...shown) : Infinity;
  const moments = marks.length ? `; ${marks.map((m) => m.text).join(", ")}` : "";
  show(part("promise-curve"), h("b", null, lead ? ["Missed of ", inputsOf(lead)] : "Missed"));
  document.getElementById("since-key").hidden = onset === Infinity;
  draw(
    chart,
    marks.length ? shareCurve : { ...shareCurve, height: 110 },
    [at, column("value"), column("low"), column("high"), column("line"), since("value"), since("low"), since("high")],
    last ? `Share missed: the last average ${share(last.value)}, from ${share(last.low)} to ${share(last.high)}, line ${share(last.line)}${onset < Infinity ? `, since it began to rise ${share(alarm.since_rate.share.value)}` : ""}${moments}` : "No outcome is due yet",
  );
  draw(evidence, evidenceCurve, [at, column("evidence", 100), points.map(() => 100)], last ? `Evidence: ${count(100 * (last.evidence ?? NaN))}% of an alarm${moments}` : "No outcome is due yet");
}
