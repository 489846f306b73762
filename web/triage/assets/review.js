// Shows the list to read, where outcomes are entered. It does not depend on the rest of the page: at
// /review it stands alone.
//
// Nothing moves under the pointer: rows come and go only if the reader asks, a row that was entered keeps
// its place and height, and what is said has a line of its own.
import { at } from "./ask.js";
import { h, nameOf, part, show, visible } from "./dom.js";
import { count, moment, term, when, words, zone } from "./format.js";

const EVERY = 3000; // ms
const alone = /\/review$/.test(location.pathname);
const PAGE = alone ? 25 : 5; // rows to begin with
const BUTTONS = 8; // most classes with a button each; more are a list to choose from

const WHY = {
  off: "It is not kept: ids may be personal data. The setting recent-inputs says how many are.",
  "not allowed": "It is kept, but not for you: your identity lacks the right recent, or models.",
};
const ENTER_WHY = {
  "no ledger": "Outcomes cannot be entered here: this daemon has no ledger (ledger or ledger-at).",
  "not allowed": "Outcomes cannot be entered by you: that takes the right outcomes, or on a daemon without access file an admin address on loopback.",
};
// The next reader may look at the same screen: no answer says that another reading is wanted.
const ANSWERS = {
  counted: "Counted. Somebody else may read it too.",
  corrected: "Counted in the place of what the same source had said.",
  duplicate: "Nothing new: it was known already, or an equal input counts.",
  second_read_wanted: "Counted. Somebody else may read it too.",
  apart: "Kept, but outside the figures.",
};

let list = null; // the last that came
let rows = []; // as they are shown
let limit = PAGE;
let state = "open";
let model = "";
let search = "";
let saw = false;
let chosen = null; // {key, truth}: waits for the confirmation
let sending = false;
const echoes = new Map(); // by key: what came of outcomes that were entered here
const heights = new Map(); // by key: how high its row was when it was entered
const section = document.getElementById("review");
const names = () => sessionStorage.getItem("ckd-source") ?? "";

// follow keeps the list up to date while the page is seen.
export async function follow() {
  if (!document.hidden) await ask();
  setTimeout(follow, EVERY);
}

async function ask() {
  try {
    const asked = names();
    const query = new URLSearchParams({ since: list?.version ?? "", source: asked });
    const response = await fetch(at(`triage/reviews?${query}`), { cache: "no-store" });
    if (response.status !== 204) {
      if (!response.ok) throw new Error(`the daemon answers ${response.status} ${(await response.text()).slice(0, 200)}`);
      const found = await response.json();
      if (asked !== names()) return; // it is for somebody else
      list = found;
      arrange(held());
      render();
    }
    show(part("review-connection"));
  } catch (error) {
    show(part("review-connection"), `No news of the list: ${error.message}`);
  }
}

// held reports whether rows stay where they are until the reader asks for others.
const held = () => {
  const table = section.querySelector("table");
  return Boolean(table) && (alone || Boolean(chosen) || echoes.size > 0 || table.matches(":hover") || table.contains(document.activeElement));
};

// arrange brings the rows up to date. If they are held, none comes or goes.
function arrange(hold) {
  const now = new Map(list.reviews.map((r) => [r.key, r]));
  if (hold) rows = rows.map((r) => now.get(r.key) ?? { ...r, gone: true });
  else rows = list.reviews.filter(fits);
}

const fits = (r) =>
  (state === "all" || (state === "entered") === (r.state !== "open" || echoes.has(r.key))) &&
  (model === "" || r.model === model) &&
  (search === "" || r.id.toLowerCase().includes(search.toLowerCase()));

function again() {
  limit = PAGE;
  echoes.clear();
  if (!list) return;
  arrange(false);
  render();
}

section.addEventListener("input", (event) => {
  const { name, value } = event.target;
  if (name === "review-search") search = value.trim();
  else if (name === "review-state") state = value;
  else if (name === "review-model") model = value;
  else if (name === "review-source") return named(value.trim());
  else if (name === "review-saw") return (saw = event.target.checked);
  else return;
  again();
});

// named begins anew for another reader, who must not see what the one before was answered.
function named(source) {
  sessionStorage.setItem("ckd-source", source);
  say("");
  again();
  ask();
}

section.addEventListener("change", (event) => {
  const { name, value, dataset } = event.target;
  if (name === "review-truth" && value) choose(dataset.of, value);
});

section.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const { of, truth, act } = button.dataset;
  if (act === "choose") choose(of, truth);
  else if (act === "cancel") cancel();
  else if (act === "confirm") confirm();
  else if (act === "more") {
    limit += 50;
    render();
  } else if (act === "fresh") {
    again();
    scrollTo(0, 0);
  }
});

section.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && chosen) cancel();
});

function choose(key, truth) {
  if (list.source === "" && names() === "") {
    say("First give the name that your outcomes are entered under.", true);
    section.querySelector('[name="review-source"]').focus();
    return;
  }
  chosen = { key, truth };
  say("");
  render();
  rowOf(key)?.querySelector('[data-act="confirm"]')?.focus({ preventScroll: true });
}

const rowOf = (key) => [...section.querySelectorAll("tr")].find((e) => e.dataset.key === key);

function cancel() {
  const { key, truth } = chosen;
  chosen = null;
  render();
  const inRow = [...(rowOf(key)?.querySelectorAll("[data-of]") ?? [])];
  const select = inRow.find((e) => e.matches("select"));
  if (select) select.value = "";
  (inRow.find((e) => e.dataset.truth === truth) ?? select)?.focus();
}

async function confirm() {
  if (sending || !chosen) return;
  sending = true;
  render();
  const { key, truth } = chosen;
  const of = rows.find((r) => r.key === key);
  try {
    const response = await fetch(at("triage/outcome"), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ key, truth, source: list.source || names(), saw_model: saw }),
    });
    const text = await response.text();
    if (response.ok) {
      heights.set(key, rowOf(key)?.querySelector(".what")?.getBoundingClientRect().height);
      echoes.set(key, { truth, ...JSON.parse(text) });
      chosen = null;
      say(`${of?.id ? `${visible(of.id)}: ` : ""}${echoed(echoes.get(key))}`);
    } else {
      say(`Not entered: ${text.trim().slice(0, 300)}`, true);
    }
  } catch (error) {
    say(`Not entered: ${error.message}`, true);
  }
  sending = false;
  render();
  const row = rowOf(key);
  (row?.querySelector('[data-act="confirm"]') ?? row?.querySelector("[tabindex]"))?.focus({ preventScroll: true });
  await ask();
}

// echoed returns what the ledger answered, in words.
function echoed(e) {
  const decided = e.decided ? ` at ${when(e.decided)}` : "";
  const model = e.predicted ? ` The model had said ${visible(e.predicted)}${decided}.` : "";
  const status = term(e.status, "OUTCOME_STATUS");
  return `${ANSWERS[status] ?? words(status)}${e.note ? ` (${visible(e.note)})` : ""}${model}`;
}

function say(text, isWrong) {
  const said = part("review-said");
  said.className = isWrong ? "said wrong" : "said";
  said.textContent = text;
}

function render() {
  const { why } = list;
  part("review-tools").hidden = Boolean(why);
  if (why) {
    show(part("review-note"));
    show(part("review"), h("p", { class: "empty", "data-why": why }, WHY[why] ?? "It is not shown."));
    return;
  }
  const open = list.reviews.filter((r) => r.state === "open" && (model === "" || r.model === model));
  show(part("review-note"), open.length ? [`${count(open.length)} ${open.length === 1 ? "waits" : "wait"} here, the oldest since `, moment(open[0].at)] : "none waits", list.lost ? h("b", { class: "warn", id: "review-lost" }, `; ${count(list.lost)} more ${list.lost === 1 ? "is" : "are"} no longer listed`) : null, alone ? `; times in ${zone()}` : null);
  renderTools();
  const fresh = list.reviews.filter((r) => fits(r) && !rows.some((x) => x.key === r.key)).length;
  const done = rows.filter((r) => r.gone || !fits(r)).length;
  show(
    part("review"),
    list.enter ? null : h("p", { class: "quiet", "data-enter": list.enter_why }, ENTER_WHY[list.enter_why]),
    rows.length === 0 ? h("p", { class: "empty" }, empty()) : table(),
    rows.length > limit ? h("p", null, h("button", { type: "button", class: "toggle more", "data-act": "more" }, `Show more of ${count(rows.length)}`)) : null,
  );
  const refresh = section.querySelector('[data-act="fresh"]');
  refresh.classList.toggle("idle", fresh + done === 0);
  refresh.textContent = fresh > 0 ? `Show ${count(fresh)} new` : "Put away what is done";
}

function empty() {
  if (search !== "") return "No input of the list has an id like that.";
  return { open: "Nothing is to be read.", entered: "No outcome was entered yet.", all: "No input is to be read yet." }[state];
}

function renderTools() {
  const chooser = part("review-model");
  chooser.hidden = list.models.length < 2;
  const select = chooser.querySelector("select");
  show(select, h("option", { value: "" }, "all"), list.models.map((name) => h("option", { value: name, "data-key": name }, visible(name))));
  select.value = model;
  const query = new URLSearchParams({ model, state: state === "all" ? "" : state, source: names() });
  part("review-export").setAttribute("href", `triage/reviews.csv?${query}`);
  part("review-enter").hidden = !list.enter;
  const input = section.querySelector('[name="review-source"]');
  input.closest("label").hidden = list.source !== "";
  if (document.activeElement !== input) input.value = names();
  show(part("review-as"), list.source ? ["You enter outcomes as ", h("b", null, nameOf(list.source)), "."] : null);
}

function table() {
  const several = list.models.length > 1;
  const heads = ["Decided", "Id", several ? "Model" : null, "What is it?"].filter(Boolean);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": "review-h" },
    h(
      "table",
      { class: "wide cards review", role: "table" },
      h("caption", { class: "unseen" }, "Inputs to read, the one that waits longest first"),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads.map((t, i) => h("th", { scope: "col", role: "columnheader", class: i === heads.length - 1 ? "what-head" : null }, t)))),
      h("tbody", { role: "rowgroup" }, rows.slice(0, limit).map((r) => row(r, several, heads))),
    ),
  );
}

function row(r, several, heads) {
  const id = r.id === "" ? h("span", { class: "quiet" }, "none") : nameOf(r.id);
  const height = heights.get(r.key);
  const cells = [
    moment(r.at),
    r.url ? h("a", { href: r.url, target: "_blank", rel: "noopener noreferrer" }, id, h("span", { class: "unseen" }, " opens a new tab")) : id,
    several ? nameOf(r.model) : null,
    h("div", { class: "what", style: echoes.has(r.key) && height ? { height: `${height}px` } : {} }, what(r)),
  ].filter((cell) => cell !== null);
  const classes = ["at", "id", several ? "model" : "entry", "entry"];
  return h(
    "tr",
    { "data-key": r.key, "data-state": echoes.has(r.key) ? "entered" : r.state, role: "row", class: chosen?.key === r.key ? "chosen" : null },
    cells.map((cell, i) => h(i === 1 ? "th" : "td", { scope: i === 1 ? "row" : null, role: i === 1 ? "rowheader" : "cell", class: classes[i], "data-head": heads[i] }, cell)),
  );
}

// Whoever has not read an input is not told what others found, or what the model said.
const NOT_SHOWN = { entered: "entered", "read by another": "read by another" };

// what shows the outcome of a row, or how to enter it. The confirmation has its place before it is asked for.
function what(r) {
  const echo = echoes.get(r.key);
  if (echo) return h("span", { class: "echo", tabindex: "-1" }, h("b", null, nameOf(echo.truth)), ` ${echoed(echo)}`);
  if (r.outcome) return h("span", { class: "echo" }, h("b", null, nameOf(r.outcome.truth)), h("span", { class: "quiet" }, ", the model had said "), nameOf(r.outcome.predicted));
  if (!list.enter || r.gone || r.state !== "open") return h("span", { class: "quiet" }, r.gone ? "no longer kept" : (NOT_SHOWN[r.state] ?? "to read"));
  const mine = chosen?.key === r.key ? chosen.truth : null;
  const classes = list.classes[r.policy] ?? [];
  const label = `Outcome of ${r.id ? visible(r.id) : "the input without an id"}`;
  const choice =
    classes.length > BUTTONS
      ? h("select", { name: "review-truth", "aria-label": label, "data-of": r.key }, h("option", { value: "" }, "choose"), classes.map((name) => h("option", { value: name }, visible(name))))
      : h(
          "span",
          { role: "group", class: "truths", "aria-label": label },
          classes.map((name) => h("button", { type: "button", class: "toggle", "data-act": "choose", "data-of": r.key, "data-truth": name, "aria-pressed": String(mine === name) }, nameOf(name))),
        );
  return [
    choice,
    h(
      "span",
      { class: mine === null ? "confirming idle" : "confirming", role: "group", "aria-label": "Confirm" },
      h("button", { type: "button", class: "confirm", "data-act": "confirm", disabled: sending || mine === null }, "Confirm", h("span", { class: "which" }, mine === null ? "" : ` ${visible(mine)}`)),
      h("button", { type: "button", class: "toggle", "data-act": "cancel", disabled: sending || mine === null }, "Cancel"),
    ),
  ];
}
