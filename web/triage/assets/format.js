// Formats numbers and times as the page shows them.
import { h } from "./dom.js";

const NONE = "–";
const english = (options) => new Intl.NumberFormat("en", options);
const round = english({ notation: "compact", compactDisplay: "long", maximumFractionDigits: 0 });
const whole = english({ maximumFractionDigits: 0 });
const compact = english({ notation: "compact", maximumSignificantDigits: 3 });
const three = english({ maximumSignificantDigits: 3 });
const two = english({ minimumSignificantDigits: 2, maximumSignificantDigits: 2 });
const threeFull = english({ minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
const one = english({ minimumFractionDigits: 1, maximumFractionDigits: 1 });
const hundredths = english({ minimumFractionDigits: 2, maximumFractionDigits: 2 });
const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

const none = (x) => x === null || x === undefined || !Number.isFinite(x);
const minus = (text) => text.replace("-", "−");

// count returns a number of things as text.
export function count(x) {
  if (none(x)) return NONE;
  return x < 1e7 ? whole.format(x) : compact.format(x);
}

// about returns a round number: 69,000 or 9 million.
export const about = (x) => (none(x) ? NONE : x < 100 ? whole.format(x) : x < 1e6 ? whole.format(Number(x.toPrecision(2))) : round.format(x));

// rate returns a number per second.
export function rate(x) {
  if (none(x)) return NONE;
  if (x >= 100) return whole.format(x);
  return x === 0 ? "0" : x < 0.01 ? "<0.01" : x < 10 ? hundredths.format(x) : one.format(x);
}

// share returns a part of 1 in per cent.
export function share(x) {
  if (none(x)) return NONE;
  if (x === 0) return "0%";
  const percent = x * 100;
  if (percent >= 99.95) return x === 1 ? "100%" : ">99.9%";
  if (percent < 0.01) return "<0.01%";
  return (percent < 1 ? hundredths.format(percent) : one.format(percent)) + "%";
}

// interval returns a share from low to high.
export const interval = (i) => `${share(Math.max(0, i.low)).replace(/%$/, "")} to ${share(Math.min(1, i.high))}`;

// nats returns an amount of information with two digits.
export const nats = (x) => scientific(x, two);

// quantile returns nats read off buckets. The first bucket, up to 1e-6, is given as 0.
export const quantile = (x) => (x === 0 ? "≤10⁻⁶" : nats(x));

// value returns a score or a threshold with three digits.
export const value = (x) => scientific(x, threeFull);

function scientific(x, format) {
  if (none(x)) return NONE;
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 0.0001) return minus(format.format(x));
  let exponent = Math.floor(Math.log10(size));
  let mantissa = format.format(size / 10 ** exponent);
  if (mantissa.startsWith("10")) {
    mantissa = format.format(1);
    exponent += 1;
  }
  return `${x < 0 ? "−" : ""}${mantissa}·10⁻${[...String(-exponent)].map((d) => SUPERSCRIPTS[d]).join("")}`;
}

// z returns a shift in standard errors.
export const z = (x) => (none(x) ? NONE : (x > 0.05 ? "+" : "") + minus(one.format(x)).replace(/^−0\.0$/, "0.0"));

// shift returns a difference of probabilities.
export const shift = (x) =>
  none(x) ? NONE : (x > 0 ? "+" : "") + minus(x.toFixed(3).replace(/^-0\.000$/, "0.000"));

// plain returns a setting as it is.
export const plain = (x) => (none(x) ? NONE : three.format(x));

// data returns a text that stands for a number.
export const data = (text, x, properties) => h("data", { value: none(x) ? "" : String(x), ...properties }, text);

// of returns a share of a total, or null if the total is 0.
export const of = (part, all) => (all > 0 ? part / all : null);

const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
const clock = new Intl.DateTimeFormat("en-GB", CLOCK);
const zoned = new Intl.DateTimeFormat("en-GB", { ...CLOCK, timeZoneName: "short" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

// zone returns the browser's time zone, which the page says once.
export const zone = () => zoned.formatToParts(new Date()).find((p) => p.type === "timeZoneName").value;

// when returns a time of day, with its day unless that is today: the one form of time of the page.
export function when(at) {
  const t = new Date(at);
  return (t.toDateString() === new Date().toDateString() ? "" : `${day.format(t)}, `) + clock.format(t);
}

// moment returns a time that machines can read, too.
export const moment = (at) => h("time", { datetime: new Date(at).toISOString() }, when(at));

// dated returns a text of the daemon with its dates in the page's form.
export const dated = (text) => text.replace(/\b\d{4}-\d\d-\d\d\b/g, (date) => day.format(new Date(`${date}T12:00`)));

// known reports whether a time is set: the daemon sends its zero time for none.
export const known = (at) => Boolean(at) && !at.startsWith("0001-");

// lasting returns how long something took, or will take.
export function lasting(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} days`;
}

// words returns a name of the API in readable form.
export const words = (name) => WORDS[name] ?? name.replaceAll("_", " ");

const WORDS = {
  above_threshold: "score over the threshold",
  under_threshold: "score not over the threshold",
  predicted_critical: "called critical",
  degenerate: "passes hardly differ",
  saturated: "all passes the same",
  observing: "the policy only observes",
  unfamiliar: "unlike anything learned",
  violated: "an alarm is up",
  softmax_twice: "softmax taken twice",
  called_critical: "retained, called critical",
  called_safe: "retained, called safe",
  other_side: "retained, but called otherwise",
};

// SCORES says what each score is, in plain words.
export const SCORES = {
  entropy: "predictive entropy",
  mi: "mutual information",
  maxprob: "1 less the largest probability",
  eu_var: "variance over all classes",
  var_crit: "variance over critical classes",
  eu_var_crit: "variance over critical classes",
  ova_mi: "mutual information of critical or not",
  c_crit_sum: "sum of C_k over critical classes",
  c_crit_max: "largest C_k of a critical class",
  cbec: "confusion of safe with critical classes",
  p_critical: "probability of a critical class",
  risk: "risk that it is critical and called safe",
};

// docs returns a link to the documentation.
export const docs = (page, text) => h("a", { href: `https://github.com/ckd-project/ckd/blob/main/docs/${page}`, target: "_blank", rel: "noopener noreferrer" }, text, h("span", { class: "unseen" }, " opens a new tab"));

// term returns a value of an enum of the API without its prefix, in lower case: called_safe for
// STRATUM_CALLED_SAFE.
export const term = (name, prefix) => name.slice(prefix.length + 1).toLowerCase();
