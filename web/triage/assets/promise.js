// Shows what outcomes say: whether the policy keeps its promise, and what deferring was worth.
import { h, nameOf, part, show } from "./dom.js";
import { draw, drop, lines, series } from "./charts.js";
import { count, data, interval, lasting, moment, plain, share, term, when, words } from "./format.js";

const VERDICTS = {
  holding: "Holding: no alarm is up, and the upper limit lies below the line.",
  violated: "Violated: the alarm is up. What was promised no longer holds.",
  too_few_outcomes: "Too few outcomes to tell.",
  no_line: "The policy has no line to hold the risk against: calibrate it again, or state calibration.lines.",
};
const RISKS = { critical_fnr: "Critical FNR of the retained", critical_miss_rate: "Critical miss rate" };
const STRATA = { deferred: "Deferred", called_critical: "Retained, called critical", called_safe: "Retained, called safe" };

// mainPromise returns the promise that the page begins with, a PromiseFigures: one that is violated, or
// that with the most outcomes. It returns null without one.
export function mainPromise(model) {
  const all = model.promises ?? [];
  const decided = (p) => (p ? Number(p.provisional?.decided ?? 0) : -1);
  return all.find((p) => verdictOf(p) === "violated") ?? all.reduce((most, p) => (decided(p) > decided(most) ? p : most), null);
}

// verdictOf returns the verdict on a promise.
export const verdictOf = (p) => term(p.promise.verdict, "VERDICT");

// riskOf returns which risk a figure is.
export const riskOf = (f) => term(f.figure, "CERTIFIED_FIGURE");

// stratumOf returns the name of a stratum.
export const stratumOf = (s) => term(s.stratum, "STRATUM");

// seen returns a Share, or null where nothing was seen.
const seen = (s) => ([s?.value, s?.low, s?.high].every(Number.isFinite) ? s : null);

// figuresOf returns the figures of what is due: the pooled ones, and others that have a line.
const figuresOf = (p) => (p.mature?.figures ?? []).filter((f, i) => i < 2 || f.line !== undefined);

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
  show(part("promise-note"), `model version ${p.promise.model_version || "not stated"}`, p.history.length ? [", since ", moment(p.history[0].start)] : null);
  renderVerdict(p, model);
  renderFigures(p);
  renderDue(p);
  renderYield(p);
  renderChart(p, chart);
}

function renderVerdict(p, { defers_on_alarm: defers, promises: { length: versions } }) {
  const verdict = verdictOf(p);
  const needed = figuresOf(p)[0]?.outcomes_needed;
  const signs = { violated: "■ ", too_few_outcomes: "○ ", no_line: "▲ " };
  show(
    part("promise-verdict"),
    h(
      "p",
      { class: `verdict ${verdict === "violated" ? "alarm" : verdict === "holding" ? "calm" : ""}`, id: "promise-state", "data-verdict": verdict },
      h("b", null, h("span", { "aria-hidden": "true" }, signs[verdict] ?? ""), VERDICTS[verdict] ?? words(verdict)),
      p.promise.alarm && defers ? " All that is called safe is deferred until somebody clears it." : null,
      verdict === "too_few_outcomes" && needed ? [" About ", data(count(Math.ceil(needed)), needed), " more would do, if the risk is as it seems."] : null,
    ),
    p.why.length ? h("ul", { class: "quiet" }, p.why.map((why) => h("li", null, why))) : null,
    versions > 1 ? h("p", { class: "quiet" }, `${versions} model versions have outcomes under this policy; this is the one that ${verdict === "violated" ? "is violated" : "has the most"}.`) : null,
  );
}

function renderFigures(p) {
  const row = (f) => {
    const [average, lately, alarm] = [seen(f.average), seen(f.lately?.share), f.monitor];
    return h(
      "tr",
      { "data-key": `${riskOf(f)} ${f.critical_class}`, class: average ? null : "nothing" },
      h("th", { scope: "row" }, RISKS[riskOf(f)] ?? words(riskOf(f)), f.critical_class ? [", ", nameOf(f.critical_class)] : null),
      h("td", { class: "number" }, average ? [h("b", null, data(share(average.value), average.value)), ` (${interval(average)})`] : "n/a"),
      h("td", { class: "number" }, lately ? [data(share(lately.value), lately.value), ` (${interval(lately)})`] : "n/a"),
      h("td", { class: "number" }, data(share(f.line), f.line)),
      h("td", { class: `number state ${alarm?.raised ? "alarm" : ""}` }, alarm ? data(`${count(100 * alarm.log_evidence)}%`, alarm.log_evidence) : "–", alarm?.raised ? " alarm" : null),
      h("td", { class: "number" }, data(count(Number(f.outcomes)), Number(f.outcomes))),
    );
  };
  const [f, provisional] = [figuresOf(p)[0], seen(p.provisional?.figures[0]?.average)];
  const { run_length: length, run_length_inputs: inputs } = f?.monitor ?? {};
  show(
    part("promise-figures"),
    h(
      "table",
      { class: "wide" },
      h("caption", { class: "unseen" }, "Risks by outcomes that are due, weighted"),
      h("thead", null, h("tr", null, ["Share missed", "Average since (95%, at all times)", "Lately (95%, one look)", "Line", "Evidence lately", "Outcomes"].map((t, i) => h("th", { scope: "col", class: i ? "number" : null }, t)))),
      h("tbody", null, figuresOf(p).map(row)),
    ),
    seen(f?.average) && f.unweighted !== undefined
      ? h("p", { class: "quiet" }, "Without weights the first would read ", data(share(f.unweighted), f.unweighted), ": averages over the labels that came back are no estimate.")
      : null,
    p.strata.some((s) => Number(s.overdue) > 0) && f?.overdue?.high > f?.overdue?.low
      ? h("p", { class: "quiet" }, "If no overdue outcome were a miss it would be ", data(share(f.overdue.low), f.overdue.low), ", if all were ", data(share(f.overdue.high), f.overdue.high), ".")
      : null,
    length ? h("p", { class: "quiet" }, `Evidence: on the scale of its logarithm; 100% raises the alarm, falsely once in ${count(length)} outcomes at most`, inputs ? ` (${count(inputs)} inputs at the present rate)` : null, ", on average, while the risk is on the line.") : null,
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
  const fnr = at.map((point) => ({ ...seen(point.critical_fnr.average), line: point.critical_fnr.line, evidence: point.critical_fnr.log_evidence }));
  const column = (name) => fnr.map((x) => x[name] ?? null);
  const last = fnr.at(-1);
  draw(
    element,
    chartKind,
    [at.map((point) => Date.parse(point.start) / 1000), column("value"), column("low"), column("high"), column("line")],
    last ? `Critical FNR of the retained over ${count(at.length)} cohorts: the last average ${share(last.value)}, from ${share(last.low)} to ${share(last.high)}, line ${share(last.line)}, evidence ${plain(last.evidence)}` : "No cohort is due yet",
  );
}
