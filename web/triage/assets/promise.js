// Shows what outcomes say: whether the policy keeps its promise, and what deferring was worth.
import { h, nameOf, part, show } from "./dom.js";
import { draw, drop, lines, series } from "./charts.js";
import { count, data, interval, lasting, moment, plain, share, when, words } from "./format.js";

const VERDICTS = {
  holding: "Holding: no alarm is up, and the upper limit lies below the line.",
  violated: "Violated: the alarm is up. What was promised no longer holds.",
  too_few_outcomes: "Too few outcomes to tell.",
  no_line: "The policy has no line to hold the risk against: calibrate it again, or state calibration.lines.",
};
const NAMES = { critical_fnr: "Critical FNR of the retained", critical_miss_rate: "Critical miss rate" };
const STRATA = { deferred: "Deferred", called_critical: "Retained, called critical", called_safe: "Retained, called safe" };

// mainPromise returns the promise that the page begins with: one that is violated, or that with the
// most outcomes. It returns null without one.
export function mainPromise(model) {
  const all = model.promises ?? [];
  return all.find((p) => p.verdict === "violated") ?? all.reduce((most, p) => (p.decided > (most?.decided ?? -1) ? p : most), null);
}

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
  show(part("promise-note"), `model version ${p.model_version || "not stated"}`, p.since ? [", since ", moment(p.since)] : null);
  renderVerdict(p, model.promises.length);
  renderFigures(p);
  renderDue(p);
  renderYield(p);
  renderChart(p, chart);
}

function renderVerdict(p, versions) {
  const f = p.figures[0];
  const signs = { violated: "■ ", too_few_outcomes: "○ ", no_line: "▲ " };
  show(
    part("promise-verdict"),
    h(
      "p",
      { class: `verdict ${p.verdict === "violated" ? "alarm" : p.verdict === "holding" ? "calm" : ""}`, id: "promise-state", "data-verdict": p.verdict },
      h("b", null, h("span", { "aria-hidden": "true" }, signs[p.verdict] ?? ""), VERDICTS[p.verdict] ?? words(p.verdict)),
      p.alarm && p.defers ? " All that is called safe is deferred until somebody clears it." : null,
      p.verdict === "too_few_outcomes" && f?.needed ? [" About ", data(count(Math.ceil(f.needed)), f.needed), " more would do, if the risk is as it seems."] : null,
    ),
    p.why.length ? h("ul", { class: "quiet" }, p.why.map((why) => h("li", null, why))) : null,
    versions > 1 ? h("p", { class: "quiet" }, `${versions} model versions have outcomes under this policy; this is the one that ${p.verdict === "violated" ? "is violated" : "has the most"}.`) : null,
  );
}

function renderFigures(p) {
  const row = (f) =>
    h(
      "tr",
      { "data-key": `${f.name} ${f.class}`, class: f.average ? null : "nothing" },
      h("th", { scope: "row" }, NAMES[f.name] ?? words(f.name), f.class ? [", ", nameOf(f.class)] : null),
      h("td", { class: "number" }, f.average ? [h("b", null, data(share(f.average.value), f.average.value)), ` (${interval(f.average)})`] : "n/a"),
      h("td", { class: "number" }, f.lately ? [data(share(f.lately.value), f.lately.value), ` (${interval(f.lately)})`] : "n/a"),
      h("td", { class: "number" }, data(share(f.line), f.line)),
      h("td", { class: `number state ${f.raised ? "alarm" : ""}` }, f.evidence === null ? "–" : data(`${count(100 * f.evidence)}%`, f.evidence), f.raised ? " alarm" : null),
      h("td", { class: "number" }, data(count(f.outcomes), f.outcomes)),
    );
  const f = p.figures[0];
  show(
    part("promise-figures"),
    h(
      "table",
      { class: "wide" },
      h("caption", { class: "unseen" }, "Risks by outcomes that are due, weighted"),
      h("thead", null, h("tr", null, ["Share missed", "Average since (95%, at all times)", "Lately (95%, one look)", "Line", "Evidence lately", "Outcomes"].map((t, i) => h("th", { scope: "col", class: i ? "number" : null }, t)))),
      h("tbody", null, p.figures.map(row)),
    ),
    f?.average && f.unweighted !== null
      ? h("p", { class: "quiet" }, "Without weights the first would read ", data(share(f.unweighted), f.unweighted), ": averages over the labels that came back are no estimate.")
      : null,
    p.strata.some((s) => s.overdue > 0) && f?.overdue_high > f?.overdue_low
      ? h("p", { class: "quiet" }, "If no overdue outcome were a miss it would be ", data(share(f.overdue_low), f.overdue_low), ", if all were ", data(share(f.overdue_high), f.overdue_high), ".")
      : null,
    f?.run_length ? h("p", { class: "quiet" }, `Evidence: on the scale of its logarithm; 100% raises the alarm, falsely once in ${count(f.run_length)} outcomes at most`, f.run_length_inputs ? ` (${count(f.run_length_inputs)} inputs at the present rate)` : null, ", on average, while the risk is on the line.") : null,
    p.provisional && p.open_cohorts > 0 ? h("p", { class: "quiet" }, "Provisional, with outcomes that are not due yet: ", data(share(p.provisional.value), p.provisional.value), ` (${interval(p.provisional)}).`) : null,
  );
}

function renderDue(p) {
  const row = (s) =>
    h(
      "tr",
      { "data-key": s.name, class: s.decisions ? null : "nothing" },
      h("th", { scope: "row" }, STRATA[s.name] ?? words(s.name)),
      h("td", { class: "number" }, data(count(s.decisions), s.decisions)),
      h("td", { class: "number" }, data(count(s.reviews), s.reviews), s.expected === null ? null : h("span", { class: "quiet" }, ` of ${count(s.expected)}`)),
      h("td", { class: "number" }, data(count(s.due), s.due)),
      h("td", { class: "number" }, data(count(s.arrived), s.arrived)),
      h("td", { class: "number" }, data(count(s.overdue), s.overdue), s.late && s.overdue ? ` (${share(s.late.value)})` : null),
    );
  show(
    part("promise-due"),
    h(
      "table",
      { class: "tally" },
      h("caption", { class: "unseen" }, "Reviews and their outcomes"),
      h("thead", null, h("tr", null, ["Stratum", "Inputs", "Reviews", "Due", "Came", "Overdue"].map((t, i) => h("th", { scope: "col", class: i ? "number" : null }, t)))),
      h("tbody", null, p.strata.map(row)),
    ),
    h("p", { class: "quiet" }, `Outcomes are due ${lasting(p.due)} after the end of ${p.period === 86400 ? "a day" : lasting(p.period)}; ${count(p.mature_cohorts)} such cohorts are due, ${count(p.open_cohorts)} are not`, p.next_mature ? `: the next ${when(p.next_mature)}.` : "."),
    p.traffic && p.traffic.value < 0.9995 ? h("p", { class: "quiet" }, "Only ", data(share(p.traffic.value), p.traffic.value), " of the inputs come from clients that take receipts: nothing is known of the others.") : null,
  );
}

function renderYield(p) {
  const cell = (s) => h("td", { class: "number" }, s ? [data(share(s.value), s.value), h("span", { class: "quiet" }, ` (${interval(s)})`)] : "n/a");
  const row = (key, name, worth, critical) => h("tr", { "data-key": key }, h("th", { scope: "row" }, name), cell(worth), cell(critical));
  show(
    part("promise-yield"),
    h(
      "table",
      { class: "tally" },
      h("caption", { class: "unseen" }, "Of the deferred with an outcome, the share that was worth a look"),
      h("thead", null, h("tr", null, ["Deferred", "Predicted wrong", "Critical, called safe"].map((t, i) => h("th", { scope: "col", class: i ? "number" : null }, t)))),
      h("tbody", null, row("all", "All", p.yield_worth, p.yield_critical), p.yield.map((y) => row(y.reason, `– ${words(y.reason)}`, y.worth, y.critical))),
    ),
  );
}

const chartKind = lines(110, [series("line", { width: 2 }), series("fill", { width: 1 }), series("fill", { width: 1 }), series("line2", { dash: [4, 3] })], {
  format: (v) => share(v),
  bands: [[3, 2, "fill"]],
  whole: true,
});

function renderChart(p, element) {
  const at = p.history;
  const column = (of) => at.map((point) => of(point));
  const last = at.at(-1);
  draw(
    element,
    chartKind,
    [column((x) => x.at / 1000), column((x) => x.value), column((x) => x.low), column((x) => x.high), column((x) => x.line)],
    last ? `Critical FNR of the retained over ${count(at.length)} cohorts: the last average ${share(last.value)}, from ${share(last.low)} to ${share(last.high)}, line ${share(last.line)}, evidence ${plain(last.evidence)}` : "No cohort is due yet",
  );
}
