// The triage page: the choice of model and span, and how a state becomes the page.
//
// Model and span are in the query of the address, so that a page can be bookmarked and shared.
import { h, part, show, visible } from "./dom.js";
import { lasting, when, zone } from "./format.js";
import { connect } from "./ask.js";
import { notices, renderNotices } from "./notices.js";
import { follow as followReviews } from "./review.js";
import { renderPromise } from "./promise.js";
import { renderTraffic } from "./traffic.js";
import { renderSettling } from "./settling.js";
import { onClasses, renderClasses } from "./classes.js";
import { pointMatrix, renderMatrix, walkMatrix } from "./matrix.js";
import { renderDrift } from "./drift.js";
import { onRecent, renderRecent } from "./recent.js";
import { renderDaemon, renderPolicy } from "./policy.js";

const MINUTES = [1, 5, 15];
const OLD = 20000; // ms after which the page says that its state is old

const chooser = document.getElementById("model");
const span = document.getElementById("span");
const panels = document.getElementById("panels");

let chosen = readAddress();
let state = null;
let arrived = 0; // when the state arrived, by the clock of this page
let connection = { state: "connecting", why: "" };
let disconnect = () => {};
let said = ""; // the last announcement
let connectionSaid = "live";
let toSay = [];
let alarmed = false; // whether there is an alarm

span.addEventListener("change", (event) => choose({ minutes: Number(event.target.value) }));
chooser.addEventListener("change", () => choose({ model: chooser.value }));
window.addEventListener("popstate", () => {
  const before = chosen.model;
  chosen = readAddress();
  if (chosen.model !== before) follow();
  else render();
});
part("classes").addEventListener("click", (event) => onClasses(event, render));
part("recent").addEventListener("click", (event) => onRecent(event, render));
part("confusion").addEventListener("keydown", walkMatrix);
part("confusion").addEventListener("focusin", pointMatrix);
part("confusion").addEventListener("pointerover", pointMatrix);
window.addEventListener("beforeprint", () => {
  const closed = document.querySelectorAll("details:not([open])");
  for (const details of closed) details.open = true;
  window.addEventListener("afterprint", () => closed.forEach((details) => (details.open = false)), { once: true });
});
setInterval(renderConnection, 1000);
// A link to a part that is closed opens it.
document.addEventListener("click", (event) => {
  const part = document.getElementById(event.target.closest('a[href^="#"]')?.hash.slice(1));
  if (part?.matches("details")) part.open = true;
});
followReviews();
// At /review only the list to read is shown, for readers, who must not see the rest.
if (/\/review$/.test(location.pathname)) document.body.dataset.only = "review";
else follow();

function readAddress() {
  const query = new URLSearchParams(location.search);
  const minutes = Number(query.get("span"));
  return { model: query.get("model") ?? "", minutes: MINUTES.includes(minutes) ? minutes : 5 };
}

function choose(change) {
  const before = chosen.model;
  chosen = { ...chosen, ...change };
  const query = new URLSearchParams({ model: chosen.model, span: String(chosen.minutes) });
  history.replaceState(null, "", `?${query}${location.hash}`);
  if (chosen.model !== before) follow();
  else render();
}

function follow() {
  disconnect();
  state = null;
  panels.setAttribute("aria-busy", "true");
  disconnect = connect(
    chosen.model,
    (next) => {
      state = next;
      arrived = performance.now();
      panels.removeAttribute("aria-busy");
      // The first model may change while the page is open. From now on the page stays with this
      // one, by name.
      if (chosen.model === "" && next.models?.length) {
        choose({ model: next.model?.name ?? next.models[0] });
        return;
      }
      render();
    },
    (now, why) => {
      connection = { state: now, why };
      renderConnection();
    },
  );
}

function render() {
  if (!state) return;
  renderConnection();
  renderChoosers();
  renderDaemon(state.daemon, state.at);
  const { model } = state;
  panels.dataset.model = model ? "shown" : "none";
  const now = model?.spans.find((s) => s.minutes === chosen.minutes) ?? model?.spans[0];
  const all = notices(state, now, chosen.model);
  alarmed = all.some((n) => n.level === "alarm");
  renderTitle();
  renderNotices(all, now?.inputs > 0 ? "Nothing needs attention." : "Nothing needs attention, but no inputs came either.", model);
  announce(all);
  if (!model) return;
  renderPromise(model, state.daemon);
  renderTraffic(model, now);
  renderSettling(model, now);
  renderClasses(model, now);
  renderMatrix(model, now);
  renderDrift(model);
  renderRecent(model);
  renderPolicy(model);
}

function renderChoosers() {
  const names = state.models ?? [];
  const wanted = state.model?.name ?? chosen.model;
  const gone = wanted !== "" && !names.includes(wanted);
  chooser.disabled = names.length === 0;
  show(
    chooser,
    names.map((name) => h("option", { value: name, "data-key": name }, visible(name))),
    gone ? h("option", { value: wanted, disabled: true }, `${visible(wanted)} (not served)`) : null,
  );
  chooser.value = wanted;
  for (const input of span.querySelectorAll("input")) input.checked = Number(input.value) === chosen.minutes;
}

function renderConnection() {
  const age = state ? (performance.now() - arrived) / 1000 : 0;
  const old = age * 1000 > OLD;
  const shown = old && connection.state === "live" ? "old" : connection.state;
  const where = document.getElementById("connection");
  where.dataset.state = shown;
  where.title = state ? `As of ${when(state.at)}` : "";
  const word = (shown === "old" ? "no news" : shown) + (connection.why ? `: ${connection.why}` : "");
  show(document.getElementById("connection-word"), word);
  show(document.getElementById("connection-age"), state ? `${lasting(age)} old, in ${zone()}` : "");
  document.body.classList.toggle("old", old);
  if (shown !== "connecting") announceConnection(shown);
}

const SAID = {
  live: "Live again.",
  reconnecting: "Connection lost, reconnecting.",
  old: "No news from the daemon: what is shown is old.",
};

function announceConnection(now) {
  if (now === connectionSaid) return;
  connectionSaid = now;
  renderTitle();
  speak(SAID[now]);
}

// renderTitle shows in the tab what cannot wait until somebody looks at the page.
function renderTitle() {
  const lost = { reconnecting: "(reconnecting) ", old: "(no news) " }[connectionSaid] ?? "";
  document.title = `${alarmed ? "■ " : ""}${lost}${state?.model ? `${visible(state.model.name)}: ` : ""}ckd triage`;
}

// announce tells screen readers what newly needs attention, and none of the changes of every other
// second.
function announce(all) {
  const now = all.map((n) => n.key).join(" ");
  if (now === said) return;
  said = now;
  speak(all.length ? `Needs attention: ${all.map((n) => n.text).join(" ")}` : "Nothing needs attention.");
}

// speak announces all current notices at once.
function speak(text) {
  if (toSay.length === 0) {
    queueMicrotask(() => {
      document.getElementById("announcer").textContent = toSay.join(" ");
      toSay = [];
    });
  }
  toSay.push(text);
}
