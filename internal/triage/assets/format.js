// Numbers and times as they are written on the page.
import { h } from "./dom.js";

const NONE = "–";
const english = (options) => new Intl.NumberFormat("en", options);
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

// count is a number of things.
export function count(x) {
  if (none(x)) return NONE;
  return x < 1e7 ? whole.format(x) : compact.format(x);
}

// rate is how many per second.
export function rate(x) {
  if (none(x)) return NONE;
  if (x >= 100) return whole.format(x);
  return x === 0 ? "0" : x < 0.01 ? "<0.01" : x < 10 ? hundredths.format(x) : one.format(x);
}

// share is a part of one, in per cent.
export function share(x) {
  if (none(x)) return NONE;
  if (x === 0) return "0%";
  const percent = x * 100;
  if (percent >= 99.95) return x === 1 ? "100%" : ">99.9%";
  if (percent < 0.01) return "<0.01%";
  return (percent < 1 ? hundredths.format(percent) : one.format(percent)) + "%";
}

// interval is a share from low to high.
export const interval = (i) => `${share(Math.max(0, i.low)).replace(/%$/, "")} to ${share(Math.min(1, i.high))}`;

// nats is an amount of information, to two digits.
export const nats = (x) => scientific(x, two);

// quantile is nats read off buckets, whose first is up to 1e-6 and given as 0.
export const quantile = (x) => (x === 0 ? "≤10⁻⁶" : nats(x));

// limit is an amount of information that is round.
export const limit = (x) => scientific(x, three);

// value is a score or a threshold, to three digits.
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

// z is a shift in standard errors.
export const z = (x) => (none(x) ? NONE : (x > 0.05 ? "+" : "") + minus(one.format(x)).replace(/^−0\.0$/, "0.0"));

// shift is a difference of probabilities.
export const shift = (x) =>
  none(x) ? NONE : (x > 0 ? "+" : "") + minus(x.toFixed(3).replace(/^-0\.000$/, "0.000"));

// plain is a setting as it is.
export const plain = (x) => (none(x) ? NONE : three.format(x));

// data is a text that stands for a number.
export const data = (text, x, properties) => h("data", { value: none(x) ? "" : String(x), ...properties }, text);

// of is a share of so many, null if there are none.
export const of = (part, all) => (all > 0 ? part / all : null);

const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
const clock = new Intl.DateTimeFormat("en-GB", CLOCK);
const zoned = new Intl.DateTimeFormat("en-GB", { ...CLOCK, timeZoneName: "short" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

// bare is the time of day, for where the zone stands beside it.
export const bare = (at) => clock.format(new Date(at));

// zone is that of the browser, as it is at a time.
export const zone = (at) => zoned.formatToParts(new Date(at)).find((p) => p.type === "timeZoneName").value;

const onDay = (t) => (t.toDateString() === new Date().toDateString() ? "" : `${day.format(t)}, `);

// when is a time with its zone, and with its day where that is not today.
export function when(at) {
  const t = new Date(at);
  return onDay(t) + zoned.format(t);
}

// whenBare is the same without the zone.
export function whenBare(at) {
  const t = new Date(at);
  return onDay(t) + bare(t);
}

// moment is a time that machines can read too.
export const moment = (at, text = when(at)) => h("time", { datetime: new Date(at).toISOString() }, text);

// known says whether a time is one: the zero time of the daemon is none.
export const known = (at) => Boolean(at) && !at.startsWith("0001-");

// lasting is how long something took, or is still to take.
export function lasting(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} days`;
}

// words is a name of the API as one reads it.
export const words = (name) => name.replaceAll("_", " ");
