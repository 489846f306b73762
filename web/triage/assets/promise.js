// Shows whether the policy keeps its promise: the verdict, what to do, one line of figures and a curve.
// All else is in details.
import { h, nameOf, part, show, tally, visible } from "./dom.js";
import { draw, drop, lines, series } from "./charts.js";
import { about, count, data, dated, docs, interval, moment, plain, share, term, when, words } from "./format.js";

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

// estimated returns an estimate against the line, then the count that it rests on. The count is not the estimate:
// readers see all of some inputs and few of others.
const estimated = (s, f, [misses, critical], then = "", id = null) => [
  h("b", null, "Estimated ", data(share(s.value), s.value, { id })), ` (${interval(s).replace("%", "")})`, f.line === undefined ? null : [", line ", lineOf(f)],
  `. ${count(Number(misses))} ${Number(misses) === 1 ? "miss was" : "misses were"} seen among ${count(Number(critical))} critical inputs read${then}, which is another share: each audited one stands for those nobody read.`,
];

// outOf returns a share as a number of 100.
const outOf = (x) => `${plain(Number((100 * x).toPrecision(2)))} of 100`;

// rise says for those who answer for the model what the alarm means; null where the rise has no date or rate.
function rise(f) {
  const s = seen(f?.monitor?.since_rate?.share);
  if (!s || !f.monitor.since || f.line === undefined) return null;
  const cases = f.critical_class ? ["cases of ", nameOf(f.critical_class)] : "critical cases";
  return ["Since ", moment(f.monitor.since), " about ", h("b", null, outOf(s.value)), " ", riskOf(f) === MISS_RATE ? [cases, " are called safe and nobody looks"] : [cases, " that nobody looks at were called safe"], ` (promised: at most ${plain(100 * f.line)}).`];
}

// perThousand returns how many of 1,000 inputs are deferred, and how many are with all that is called safe; null
// where that is not known.
function perThousand(p) {
  const part = (...strata) => p.strata.filter((s) => strata.includes(stratumOf(s))).reduce((sum, s) => sum + Number(s.decisions ?? 0), 0);
  const all = part(...Object.keys(STRATA));
  return p.strata.length > 1 && all > 0 ? { now: (1000 * part("deferred")) / all, then: (1000 * part("deferred", "called_safe")) / all } : null;
}

// clearedAt returns when the alarm was cleared, if whether the promise holds since then is not known yet.
export const clearedAt = (p) => (verdictOf(p) === "too_few_outcomes" ? leadOf(p)?.monitor?.cleared_at : null);

// headline returns the verdict in one sentence.
export function headline(p) {
  const f = leadOf(p);
  const raised = f?.monitor?.raised_at;
  const too = ["too many ", f?.critical_class ? ["inputs of ", visible(f.critical_class)] : "critical inputs", " are missed."];
  const text = {
    violated: [`Alarm${raised ? ` since ${when(raised)}` : ""}: `, too],
    in_doubt: ["In doubt: perhaps ", too],
    holding: "The promise holds.",
    too_few_outcomes: clearedAt(p)
      ? `The alarm was cleared ${when(clearedAt(p))}; whether the promise holds since then is not known yet.`
      : (dated(p.promise.statement ?? "").match(/^.*?\.(?= |$)/)?.[0] ?? "Too few outcomes to tell whether the promise holds."),
    no_line: "Nothing is promised: the policy has no line.",
  }[verdictOf(p)];
  return [text ?? words(verdictOf(p))].flat(3).join("");
}

// acts returns what to do about a verdict, the first thing first, as the runbook has it.
function acts(p, model, ledger) {
  const needed = leadOf(p)?.outcomes_needed;
  const since = leadOf(p)?.monitor?.since;
  const deferring = p.promise.alarm && model.defers_on_alarm;
  const inputs = perThousand(p);
  const cleared = [
    [h("b", null, "Go on reading"), " what is deferred and audited: the evidence began anew, and at 100% the alarm sounds again."],
    [h("code", null, `ckd outcomes export --trail --addr ${ledger}`), " says who cleared the alarm, and why."],
  ];
  const many = inputs ? `: about ${about(inputs.then)} of 1,000 inputs go to them` : "";
  return {
    violated: [
      [h("b", null, "Call the owner of the risk.")],
      !p.promise.alarm ? "Defer every input, 1,000 of 1,000, if the readers can bear it: the alarm is of one class." : deferring ? ["Tell the readers that all that is called safe is deferred", many, "."] : ["Defer all that is called safe, if the readers can bear it", many, inputs ? `, in place of ${about(inputs.now)}.` : "."],
      ["Look again at what was retained and called safe", since ? [" since ", moment(since)] : null, ". ckd keeps no list of it: whoever runs the model server has its inputs and answers."],
      ["Once the cause is mended, the owner clears the alarm, with a reason. ", docs("runbook.md#ckdpromiseviolated", "Runbook")],
    ],
    in_doubt: [h("b", null, "Tell the owner of the risk."), ["Have overdue outcomes and second readings done: they decide it. Never raise the line. ", docs("runbook.md#ckdpromiseindoubt", "Runbook")]],
    too_few_outcomes: clearedAt(p) ? cleared : [[h("b", null, "Enter what was found"), " in the list to read.", needed ? [" About ", data(about(Math.ceil(needed)), needed), " more outcomes would do, if the risk is as it seems."] : null]],
    no_line: [[h("b", null, "State a line,"), " or calibrate again: without one no alarm is ever raised. ", docs("outcomes.md", "More")]],
  }[verdictOf(p)];
}

// renderPromise shows the section on outcomes, and hides it in a daemon without a ledger.
export function renderPromise(model, { ledger }) {
  const off = !model.promises;
  const section = document.getElementById("promise");
  section.hidden = off;
  document.querySelector('nav a[href="#promise"]').hidden = off;
  const p = mainPromise(model);
  section.dataset.tone = (p && (clearedAt(p) ? "warn" : TONES[verdictOf(p)])) ?? "";
  for (const where of ["promise-charts", "promise-all"]) document.getElementById(where).hidden = !p;
  placeEvidence(p);
  if (!p) {
    section.querySelectorAll("[data-chart]").forEach(drop);
    show(part("promise-verdict"), off ? null : h("p", { class: "empty" }, "No outcome of this policy is known yet: nobody can say how many critical inputs it misses."));
    return;
  }
  renderVerdict(p, model, ledger);
  renderCurves(p);
  renderFigures(p, model.promises.length);
  renderDue(p);
  renderYield(p);
}

// placeEvidence puts the curve of the evidence beside that of the share missed where the promise is in doubt
// or violated, or its alarm was cleared, else among the details.
function placeEvidence(p) {
  const evidence = document.getElementById("promise-evidence");
  const open = p && (["violated", "in_doubt"].includes(verdictOf(p)) || clearedAt(p));
  const [where, before] = open ? [document.getElementById("promise-charts"), null] : [document.getElementById("promise-all"), part("promise-notes")];
  if (evidence.parentElement !== where) where.insertBefore(evidence, before);
}

function renderVerdict(p, model, ledger) {
  const verdict = verdictOf(p);
  const todo = acts(p, model, ledger);
  show(
    part("promise-verdict"),
    h("p", { class: "headline", id: "promise-state", "data-verdict": verdict }, h("span", { "aria-hidden": "true" }, SIGNS[verdict] ?? ""), headline(p)),
    verdict === "violated" && rise(leadOf(p)) ? h("p", { class: "rise" }, rise(leadOf(p))) : null,
    todo ? h("ol", { class: "acts", "aria-label": "What to do" }, todo.map((act) => h("li", null, act))) : null,
    verdict === "violated" ? how(p, model, ledger) : null,
    h("p", { class: "said-figures" }, figuresLine(p)),
  );
}

// how says how to defer and to clear, for those whose network has no way to the runbook.
const how = (p, model, ledger) =>
  h(
    "details",
    { "data-key": "how" },
    h("summary", null, "How to defer and how to clear"),
    model.defers_on_alarm
      ? null
      : p.promise.alarm
        ? [
            h("p", { class: "prose" }, "To defer all that is called safe while the alarm is up, write this into the policy's block audit; the daemon takes the file without a restart."),
            h("pre", null, `on_breach: defer\nsurge: ${Math.round(perThousand(p)?.then ?? 1000)} # reviews per 1,000 inputs`),
          ]
        : [
            h("p", { class: "prose" }, "To defer every input, give the policy these rules, with its own name, classes, kind and passes; the daemon takes the file without a restart. To go back, put the old file in its place."),
            h("pre", null, "gate: never # no fallback score\nscope: all\nprimary: {score: entropy, threshold: 0}\ndegenerate: defer\nsaturated: defer"),
          ],
    h("p", { class: "prose" }, "To clear the alarm (with --token-file where there are identities, and --tls-ca beyond this machine):"),
    h("pre", null, `ckd outcomes clear --addr ${ledger} --model ${visible(model.name)} --policy ${model.policy.policy.hash.slice(0, 12)} --by NAME --reason "..."`),
  );

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
      s ? ["Missed of ", inputsOf(lead), since ? [" since ", moment(since)] : " since the rise", ": ", estimated(s, lead, [rate.events, rate.total], " since then", "since-onset"), " "] : null,
      "The alarm stays until somebody clears it.",
    ];
  }
  const lately = seen(lead.lately?.share);
  if (verdictOf(p) === "in_doubt" && lately) {
    return ["Missed of ", inputsOf(lead), " lately: ", estimated(lately, lead, [lead.lately.events, lead.lately.total])];
  }
  const known = figuresOf(p).filter((f) => f.critical_class === "" && seen(f.average));
  if (known.length === 0) return ["No critical input was read yet", line, "."];
  return known.map((f, i) => [i ? " " : "", "Missed of ", inputsOf(f), " on average: ", estimated(f.average, f, [f.misses ?? 0, f.critical ?? 0])]);
}

const figureName = (f) => [RISKS[riskOf(f)] ?? words(riskOf(f)), f.critical_class ? [" of ", nameOf(f.critical_class)] : null];

function renderFigures(p, versions) {
  const onsetOf = (f) => (f.monitor?.raised ? seen(f.monitor.since_rate?.share) : null);
  const risen = figuresOf(p).some(onsetOf); // then one column, of the time since the rise
  const estimate = (s) => h("td", { class: "number" }, s ? [data(share(s.value), s.value), " ", h("small", null, interval(s))] : "n/a");
  const row = (f) => {
    const alarm = f.monitor;
    return h(
      "tr",
      { "data-key": `${riskOf(f)} ${f.critical_class}`, class: seen(f.average) ? null : "nothing" },
      h("th", { scope: "row" }, figureName(f), " ", h("small", null, "of ", inputsOf(f))),
      risen && !onsetOf(f) ? h("td", { class: "number quiet" }, "no rise dated") : estimate(risen ? onsetOf(f) : seen(f.lately?.share)),
      estimate(seen(f.average)),
      estimate(seen(f.model_average)),
      h("td", { class: "number" }, f.line === undefined ? "none" : lineOf(f), " ", f.line_origin ? h("small", null, visible(dated(f.line_origin))) : null),
      h("td", { class: `number state ${alarm?.raised ? "alarm" : ""}` }, alarm ? data(`${count(100 * alarm.log_evidence)}%`, alarm.log_evidence) : "–", alarm?.raised ? " alarm" : null),
      h("td", { class: "number" }, data(count(Number(f.outcomes)), Number(f.outcomes)), " ", h("small", null, `${count(Number(f.misses ?? 0))} of ${count(Number(f.critical ?? 0))} critical missed, without weights`)),
    );
  };
  const [lead, provisional, readers] = [leadOf(p), seen(p.provisional?.figures?.find((f) => riskOf(f) === MISS_RATE && !f.critical_class)?.average), p.mature?.readers ?? {}];
  const { run_length: length, run_length_inputs: inputs } = lead?.monitor ?? {};
  const before = seen(p.expected?.critical_miss_rate?.share);
  const heads = ["Share missed (95%)", risen ? "Since the rise" : "Lately", "Average", "Of all policies", "Line", "Evidence", "Read since the start"];
  show(
    part("promise-figures"),
    h("table", { class: "wide" }, h("caption", { class: "unseen" }, "Risks by the outcomes that are due, weighted"), h("thead", null, h("tr", null, heads.map((t, i) => h("th", { scope: "col", class: i ? "number" : null }, t)))), h("tbody", null, figuresOf(p).map(row))),
  );
  show(
    part("promise-notes"),
    [
      p.why?.length ? ["Against holding: ", p.why.map(visible).join("; "), "."] : null,
      length ? `If all were well, one alarm in ${inputs ? `about ${about(inputs)} inputs` : `at least ${about(length)} outcomes`}.` : null,
      before ? ["By what earlier policies had read, it was expected to miss ", data(share(before.value), before.value), ` (${interval(before)}).`] : null,
      Number(readers.missed) > 0
        ? `Of ${count(Number(readers.missed))} inputs that the model called safe and readers critical, deferred or not, ${count(Number(readers.unconfirmed))} lack a second source and ${count(Number(readers.withdrawn))} were withdrawn; readers disagree on ${count(Number(readers.disputed))} inputs.`
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
      ["Inputs", "All", "Reviews", "Due", "Overdue"],
      p.strata.map((s) => [
        stratumOf(s),
        STRATA[stratumOf(s)] ?? words(stratumOf(s)),
        number(s.decisions),
        [number(s.reviews), s.free || s.expected === undefined ? null : [" drawn ", h("small", null, `(${count(s.expected)} expected)`)]],
        number(s.due),
        [number(s.overdue), seen(s.late?.share) && Number(s.overdue) ? ` (${share(s.late.share.value)})` : null],
      ]),
    ),
    h("p", { class: "quiet" }, last ? ["Complete up to ", moment(Date.parse(last.start) + 1000 * parseFloat(p.cohort_period))] : "Nothing is complete yet", `; ${count(p.open_cohorts)} later ${p.open_cohorts === 1 ? "period waits" : "periods wait"} for readers.`),
    traffic && traffic.value < 0.9995 ? h("p", { class: "quiet" }, "Only ", data(share(traffic.value), traffic.value), " of the inputs come from clients that take receipts: nothing is known of the others.") : null,
  );
}

function renderYield(p) {
  const cell = (s) => (seen(s?.share) ? [data(share(s.share.value), s.share.value), " ", h("small", null, interval(s.share))] : "n/a");
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

// past returns the moments of the alarm that was last cleared.
function past(points, cleared) {
  if (!cleared) return [];
  const raised = points.findLast((x, i) => x.evidence >= 1 && !(points[i - 1]?.evidence >= 1) && x.start < Date.parse(cleared));
  return [...(raised ? [{ at: raised.start, text: `evidence reached 100% ${when(raised.start)}`, tone: "alarm" }] : []), { at: cleared, text: `cleared ${when(cleared)}`, tone: "warn" }];
}

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
  marks = [alarm.since ? { at: alarm.since, text: `began to rise ${when(alarm.since)}`, tone: "warn" } : null, alarm.raised_at ? { at: alarm.raised_at, text: `alarm ${when(alarm.raised_at)}`, tone: "alarm" } : null, ...past(points, lead?.monitor?.cleared_at)].filter(Boolean);
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
