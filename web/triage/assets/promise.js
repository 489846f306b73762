// Shows what outcomes say: whether the policy keeps its promise, and what deferring was worth.
import { h, nameOf, part, show, visible } from "./dom.js";
import { draw, drop, lines, series } from "./charts.js";
import { count, data, interval, lasting, moment, plain, share, term, when, words } from "./format.js";

const SIGNS = { violated: "■ ", in_doubt: "▲ ", too_few_outcomes: "○ ", no_line: "▲ " };
const TONES = { violated: "alarm", in_doubt: "warn", holding: "calm" };
const RISKS = { critical_miss_rate: "Critical miss rate", critical_fnr: "Critical FNR" };
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

// riskOf returns which risk a figure is.
export const riskOf = (f) => term(f.figure, "CERTIFIED_FIGURE");

// stratumOf returns the name of a stratum.
export const stratumOf = (s) => term(s.stratum, "STRATUM");

// seen returns a Share, or null where nothing was seen.
const seen = (s) => ([s?.value, s?.low, s?.high].every(Number.isFinite) ? s : null);

// figuresOf returns the figures of what is due: the critical miss rate, and others that have a line.
const figuresOf = (p) => (p.mature?.figures ?? []).filter((f, i) => i < 1 || f.line !== undefined);

// renderPromise shows the section on outcomes, and hides it in a daemon without a ledger.
export function renderPromise(model) {
  const off = !model.promises;
  document.getElementById("promise").hidden = off;
  document.querySelector('nav a[href="#promise"]').hidden = off;
  const p = mainPromise(model);
  const chart = document.querySelector('[data-chart="promise"]');
  document.getElementById("promise-tiles").hidden = off || !p;
  if (off || !p) {
    drop(chart);
    show(part("promise-note"));
    show(part("promise-verdict"), off ? null : h("p", { class: "empty" }, "No outcome and no audit was told of this policy yet."));
    return;
  }
  show(part("promise-note"), `model version ${p.promise.model_version || "not stated"}`, p.history.length ? [", since ", moment(p.history[0].start)] : null, p.model_since ? ["; all policies since ", moment(p.model_since)] : null);
  renderVerdict(p, model);
  renderFigures(p);
  renderDue(p);
  renderYield(p);
  renderChart(p, chart);
}

function renderVerdict(p, { defers_on_alarm: defers, promises: { length: versions } }) {
  const verdict = verdictOf(p);
  const needed = figuresOf(p)[0]?.outcomes_needed;
  const raised = figuresOf(p).filter((f) => f.monitor?.raised);
  show(
    part("promise-verdict"),
    h(
      "p",
      { class: `verdict ${TONES[verdict] ?? ""}`, id: "promise-state", "data-verdict": verdict },
      h("b", null, h("span", { "aria-hidden": "true" }, SIGNS[verdict] ?? ""), `${capital(words(verdict))}.`),
      p.promise.statement ? ` ${visible(p.promise.statement)}` : null,
      verdict === "too_few_outcomes" && needed ? [" About ", data(count(Math.ceil(needed)), needed), " more outcomes would do, if the risk is as it seems."] : null,
    ),
    raised.length
      ? h(
          "p",
          null,
          "The alarm belongs to the model, under whichever policy and version, until a named person or a successor policy ends it: ",
          raised.map((f, i) => [i ? ", " : null, nameOfRisk(f), f.monitor.raised_at ? [" since ", moment(f.monitor.raised_at)] : null]),
          p.promise.alarm && defers ? ". All that is called safe is deferred until then." : ".",
        )
      : null,
    p.expected?.statement && !p.promise.statement?.endsWith(p.expected.statement) ? h("p", { class: "quiet" }, visible(p.expected.statement)) : null,
    p.why.length ? h("p", null, "Against holding: ", p.why.map(visible).join("; "), ".") : null,
    versions > 1 ? h("p", { class: "quiet" }, `${versions} model versions have outcomes under this policy; this is the one that ${{ violated: "is violated", in_doubt: "is in doubt" }[verdict] ?? "has the most"}.`) : null,
  );
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);
const nameOfRisk = (f) => [RISKS[riskOf(f)] ?? words(riskOf(f)), f.critical_class ? [" of ", nameOf(f.critical_class)] : null];
const wholeOf = (f) => `of ${riskOf(f) === "critical_fnr" ? "the retained" : "all"} ${f.critical_class ? "inputs of this class" : "critical inputs"}`;

function renderFigures(p) {
  const estimate = (s, extra) => h("td", { class: "number" }, s ? [h("b", null, data(share(s.value), s.value)), ` (${interval(s)})`, extra ?? null] : "n/a");
  const row = (f) => {
    const alarm = f.monitor;
    const onset = alarm?.raised ? seen(alarm.since_rate?.share) : null;
    return h(
      "tr",
      { "data-key": `${riskOf(f)} ${f.critical_class}`, class: seen(f.average) ? null : "nothing" },
      h("th", { scope: "row" }, nameOfRisk(f), h("small", null, wholeOf(f))),
      estimate(seen(f.average)),
      estimate(seen(f.model_average)),
      estimate(onset ?? seen(f.lately?.share), onset ? h("small", null, "since about ", moment(alarm.since), ", chosen by looking") : null),
      h("td", { class: "number" }, data(share(f.line), f.line), f.line_origin ? h("small", null, visible(f.line_origin)) : null),
      h("td", { class: `number state ${alarm?.raised ? "alarm" : ""}` }, alarm ? data(`${count(100 * alarm.log_evidence)}%`, alarm.log_evidence) : "–", alarm?.raised ? " alarm" : null),
      h("td", { class: "number" }, data(count(Number(f.outcomes)), Number(f.outcomes)), h("small", null, `${count(Number(f.critical ?? 0))} critical, ${count(Number(f.misses ?? 0))} missed`)),
    );
  };
  const [f, provisional, readers] = [figuresOf(p)[0], seen(p.provisional?.figures[0]?.average), p.mature?.readers ?? {}];
  const { run_length: length, run_length_inputs: inputs } = f?.monitor ?? {};
  const heads = ["Share missed", "Average (95%)", "Of all policies", "Lately", "Line", "Evidence lately", "Outcomes"];
  show(
    part("promise-figures"),
    h(
      "table",
      { class: "wide" },
      h("caption", { class: "unseen" }, "Risks by outcomes that are due, weighted"),
      h("thead", null, h("tr", null, heads.map((t, i) => h("th", { scope: "col", class: i ? "number" : null }, t)))),
      h("tbody", null, figuresOf(p).map(row)),
    ),
    Number(readers.missed) > 0
      ? h("p", null, `Of ${count(Number(readers.missed))} inputs called safe and read as critical, ${count(Number(readers.unconfirmed))} lack a second source, ${count(Number(readers.withdrawn))} were withdrawn by their source; readers disagree on ${count(Number(readers.disputed))} inputs.`)
      : null,
    seen(f?.average) && f.unweighted !== undefined ? h("p", { class: "quiet" }, "Naive average of the outcomes (wrong): ", data(share(f.unweighted), f.unweighted), ".") : null,
    seen(f?.overdue) ? h("p", { class: "quiet" }, "With overdue outcomes taken as not missed and as missed, it is from ", data(share(f.overdue.low), f.overdue.low), " to ", data(share(f.overdue.high), f.overdue.high), ".") : null,
    length ? h("p", { class: "quiet" }, "Evidence: in doubt above 50%; at 100% the alarm is raised. A false alarm: ", inputs ? `about one in ${count(inputs)} inputs.` : `at most one in ${count(length)} outcomes.`) : null,
    provisional && p.open_cohorts > 0 ? h("p", { class: "quiet" }, "Provisional, with outcomes that are not due yet: ", data(share(provisional.value), provisional.value), ` (${interval(provisional)}).`) : null,
  );
}

function renderDue(p) {
  const cell = (text) => h("td", { class: "number" }, data(count(Number(text)), Number(text)));
  const row = (s) =>
    h(
      "tr",
      { "data-key": stratumOf(s), class: Number(s.decisions) ? null : "nothing" },
      h("th", { scope: "row" }, STRATA[stratumOf(s)] ?? words(stratumOf(s))),
      cell(s.decisions),
      h("td", { class: "number" }, data(count(Number(s.reviews)), Number(s.reviews)), s.free || s.expected === undefined ? null : h("span", { class: "quiet" }, ` of ${count(s.expected)}`)),
      cell(s.due),
      cell(s.arrived),
      h("td", { class: "number" }, data(count(Number(s.overdue)), Number(s.overdue)), seen(s.late?.share) && Number(s.overdue) ? ` (${share(s.late.share.value)})` : null),
    );
  const [due, period, traffic] = [seconds(p.due), seconds(p.cohort_period), seen(p.traffic?.share)];
  show(
    part("promise-due"),
    h(
      "table",
      { class: "tally" },
      h("caption", { class: "unseen" }, "Reviews and their outcomes"),
      h("thead", null, h("tr", null, ["Stratum", "Inputs", "Reviews", "Due", "Came", "Overdue"].map((t, i) => h("th", { scope: "col", class: i ? "number" : null }, t)))),
      h("tbody", null, p.strata.map(row)),
    ),
    h("p", { class: "quiet" }, `Outcomes are due ${lasting(due)} after the end of ${period === 86400 ? "a day" : lasting(period)}; ${count(p.mature_cohorts)} such cohorts are due, ${count(p.open_cohorts)} are not`, p.next_mature ? `: the next ${when(p.next_mature)}.` : "."),
    traffic && traffic.value < 0.9995 ? h("p", { class: "quiet" }, "Only ", data(share(traffic.value), traffic.value), " of the inputs come from clients that take receipts: nothing is known of the others.") : null,
  );
}

// seconds returns the number in a duration such as 86400s.
const seconds = (duration) => parseFloat(duration ?? 0);

function renderYield(p) {
  const cell = (s) => h("td", { class: "number" }, s ? [data(share(s.value), s.value), h("span", { class: "quiet" }, ` (${interval(s)})`)] : "n/a");
  const row = (key, name, wrong, critical) => h("tr", { "data-key": key }, h("th", { scope: "row" }, name), cell(seen(wrong?.share)), cell(seen(critical?.share)));
  const reasons = (p.mature?.yield_by_reason ?? []).map((y) => ({ ...y, reason: term(y.reason, "DECISION_REASON") }));
  show(
    part("promise-yield"),
    h(
      "table",
      { class: "tally" },
      h("caption", { class: "unseen" }, "Of the deferred with an outcome, the share that was worth a look"),
      h("thead", null, h("tr", null, ["Deferred", "Predicted wrong", "Critical, called safe"].map((t, i) => h("th", { scope: "col", class: i ? "number" : null }, t)))),
      h("tbody", null, row("all", "All", p.mature?.yield_wrong, p.mature?.yield_critical), reasons.map((y) => row(y.reason, `– ${words(y.reason)}`, y.wrong, y.critical))),
    ),
  );
}

const chartKind = lines(110, [series("line", { width: 2 }), series("fill", { width: 1 }), series("fill", { width: 1 }), series("line2", { dash: [4, 3] })], {
  format: (v) => share(v),
  bands: [[3, 2, "fill"]],
  whole: true,
});

function renderChart(p, element) {
  const at = p.history.slice(-400);
  const rate = at.map(({ critical_miss_rate: r }) => ({ ...seen(r?.average), line: r?.line, evidence: r?.log_evidence }));
  const column = (name) => rate.map((x) => x[name] ?? null);
  const last = rate.at(-1);
  draw(
    element,
    chartKind,
    [at.map((point) => Date.parse(point.start) / 1000), column("value"), column("low"), column("high"), column("line")],
    last ? `Critical miss rate over ${count(at.length)} cohorts: the last average ${share(last.value)}, from ${share(last.low)} to ${share(last.high)}, line ${share(last.line)}, evidence ${plain(last.evidence)}` : "No cohort is due yet",
  );
}
