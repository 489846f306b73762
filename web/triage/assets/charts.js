// Draws charts over time with uPlot. Each is in an element with a text alternative that says what it
// shows now; the tables have the numbers.
import { h } from "./dom.js";
import { when } from "./format.js";

const uPlot = window.uPlot;
const WINDOW = 15 * 60; // seconds shown at most
const LEAST = 2 * 60; // seconds shown at least
const MOMENT = 0.001; // seconds between values that would have the same time
const charts = new Map(); // by element

let colours = {};
const NAMES = ["ink", "quiet", "grid", "line", "line2", "fill", "band", "alarm", "alarmfill"];

function readColours() {
  const style = getComputedStyle(document.documentElement);
  colours = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--chart-${name}`).trim()]));
}

const resized = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const chart = charts.get(target);
    if (chart && contentRect.width > 0) chart.plot.setSize({ width: contentRect.width, height: chart.height });
  }
});

for (const query of ["(prefers-color-scheme: dark)", "print"]) {
  matchMedia(query).addEventListener("change", () => {
    readColours();
    for (const { plot } of charts.values()) plot.redraw(true, true);
  });
}

// draw shows columns of numbers over time in an element, and describes them in words. Of the kind of a
// chart only the height can change after its first draw.
export function draw(element, kind, columns, alternative) {
  element.setAttribute("aria-label", alternative);
  if (!uPlot || columns[0].length === 0) {
    drop(element);
    return;
  }
  let chart = charts.get(element);
  if (!chart) {
    if (!colours.ink) readColours();
    const width = element.clientWidth || 300;
    chart = { height: kind.height, plot: new uPlot({ ...options(kind), width, height: kind.height }, columns, element) };
    charts.set(element, chart);
    resized.observe(element);
    return;
  }
  if (chart.height !== kind.height) {
    chart.height = kind.height;
    chart.plot.setSize({ width: chart.plot.width, height: kind.height });
  }
  chart.plot.setData(columns);
}

// closed gives each step its width. A value extends to the next one. If none follows, it is
// repeated at the end of its step, and a value that ceases does so a moment later.
export function closed(steps, [at, ...values]) {
  const columns = [[], ...values.map(() => [])];
  const add = (x, row) => [x, ...row].forEach((v, k) => columns[k].push(v));
  let late = 0;
  steps.forEach(({ seconds }, i) => {
    const row = values.map((v) => v[i]);
    add(at[i] + late, row);
    late = 0;
    const end = at[i] + seconds;
    const last = i === steps.length - 1;
    if (last || at[i + 1] - end > 1) {
      add(end, row);
      if (!last) add(end + MOMENT, row.map(() => null));
    } else if (values.some((v) => v[i] !== null && v[i + 1] === null)) {
      add(at[i + 1], row);
      late = MOMENT;
    }
  });
  return columns;
}

// drop removes a chart.
export function drop(element) {
  const chart = charts.get(element);
  if (!chart) return;
  resized.unobserve(element);
  chart.plot.destroy();
  charts.delete(element);
}

// tidy removes the charts whose elements are gone.
export function tidy() {
  for (const element of [...charts.keys()]) if (!element.isConnected) drop(element);
}

const stepped = (u, i, from, to) => uPlot.paths.stepped({ align: 1 })(u, i, from, to);
const colour = (name) => () => colours[name];

// lines returns a kind of chart: series on a scale from 0.
// All of it is shown if it is whole, else the last 15 minutes. Marks are moments with a text. What is over the cap
// is cut off.
export function lines(height, series, { format, bands = [], readout, top = 0, cap = () => Infinity, whole = false, marks }) {
  return { height, series, bands, format, readout, whole, marks, y: { range: (u, low, high) => [0, Math.max(Math.min(high, cap()), top, 1e-9) * 1.1] } };
}

// logarithmic returns a kind of chart: series on a logarithmic scale from low to high.
export function logarithmic(height, series, { format, bands = [], readout, low, high }) {
  return { height, series, bands, format, readout, y: { distr: 3, range: () => [low(), high()] }, decades: true };
}

// series returns one series of a chart.
export const series = (name, { width = 1.5, dash, fill, steps = false } = {}) => ({
  stroke: colour(name),
  width,
  dash,
  fill: fill && colour(fill),
  paths: steps ? stepped : undefined,
  points: { show: false },
  spanGaps: false,
  // Remove the stroke that would rise from before a pause.
  gaps: (u, i, from, to, gaps) => gaps.map(([begin, end]) => [begin, end + uPlot.pxRatio]),
});

function options(kind) {
  const font = "11px system-ui, sans-serif";
  const axis = {
    stroke: colour("quiet"),
    font,
    grid: { stroke: colour("grid"), width: 1 },
    ticks: { show: false },
  };
  return {
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 5 }, dataIdx: stepAt },
    padding: [() => 6 + 16 * (kind.marks?.().length ?? 0), 30, 0, 0],
    scales: {
      x: { time: true, range: (u, low, high) => (kind.whole ? [low, Math.max(high, low + 1)] : [Math.max(high - WINDOW, Math.min(low, high - LEAST)), high]) },
      y: kind.y,
    },
    axes: [
      { ...axis, size: 22, gap: 4, space: 110, ...(kind.whole ? {} : { incrs: [60, 300] }), values: (u, at) => at.map((t) => tick(t * 1000)) },
      {
        ...axis,
        size: 46,
        gap: 4,
        space: 24,
        values: (u, at) => at.map((v) => (v === null || (kind.decades && !decade(v)) ? "" : kind.format(v))),
        ...(kind.decades ? { filter: decades, grid: { ...axis.grid, filter: decades } } : {}),
      },
    ],
    series: [{}, ...kind.series],
    bands: kind.bands.map(([upper, lower, name]) => ({ series: [upper, lower], fill: colour(name) })),
    hooks: {
      ...(kind.readout ? { setCursor: [(u) => kind.readout(u.cursor.idx === null ? null : u.cursor.idxs[0], u.data)] } : {}),
      ...(kind.marks ? { draw: [(u) => mark(u, kind.marks())] } : {}),
    },
  };
}

// mark puts moments over a chart, each with its text in a row of its own above.
function mark(u, marks) {
  u.over.querySelectorAll(".moment").forEach((e) => e.remove());
  const width = u.over.clientWidth;
  marks.forEach(({ at, text, tone }, i) => {
    const x = Math.min(width, Math.max(0, u.valToPos(Date.parse(at) / 1000, "x")));
    const top = `${-16 * (marks.length - i)}px`;
    const label = h("span", null, text);
    u.over.append(h("div", { class: `moment ${tone}`, style: { left: `${x}px`, top } }, label));
    label.style.left = `${Math.min(5, width - x - label.offsetWidth)}px`; // all of it stays over the chart
  });
}

// tick returns a time on an axis: at midnight only its day.
function tick(at) {
  const [last, rest] = when(at).split(", ").reverse();
  return rest && last === "00:00:00" ? rest : last;
}

// stepAt returns the step that is current at a time, not the one that begins nearest to it.
const stepAt = (u, series, nearest, at) => (nearest > 0 && u.data[0][nearest] > at ? nearest - 1 : nearest);

const decades = (u, at) => at.map((v) => (decade(v) ? v : null));
const decade = (v) => Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-9;
