// Asks the daemon for the state of one model, again and again.

const PAUSE = 2000; // ms from an answer to the next question
const AGAIN = 3000; // ms until the next attempt after a failure
const PATIENCE = 30000; // ms that an answer may take
const HISTORY = 15 * 60 * 1000; // ms

// at returns the address of a part of the page, without the password that the page's own address may have: with one
// the browser asks for nothing.
export const at = (path) => new URL(path, location.origin + location.pathname);

// connect follows a model and returns a function that stops it. It calls onState with each new state,
// whose history is whole, and onChange with "connecting", "live" or "reconnecting", and the reason.
export function connect(model, onState, onChange) {
  let steps = new Map();
  let shape = "";
  let since = ""; // the time of the last state; empty to ask for the whole history
  let timer = 0;
  let stopped = false;

  const take = (state) => {
    if (state.model) {
      // Quantiles are by class: those of other classes mean nothing here.
      const now = JSON.stringify([state.model.name, state.model.classes.map((c) => c.name)]);
      if (since === "" || now !== shape) steps = new Map();
      shape = now;
      for (const step of state.model.history ?? []) steps.set(step.at, step);
      const newest = Math.max(...steps.keys());
      for (const begun of steps.keys()) if (begun <= newest - HISTORY) steps.delete(begun);
      state.model.history = [...steps.values()].sort((a, b) => a.at - b.at);
    }
    since = state.at;
    onState(state);
  };

  // get returns the state, or why there is none.
  const get = async () => {
    try {
      const query = new URLSearchParams({ model, since });
      const response = await fetch(at(`triage/state?${query}`), { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
      if (response.ok) return { state: await response.json(), why: "" };
      return { why: `the daemon answers ${response.status} ${(await response.text()).trim().slice(0, 200)}` };
    } catch {
      return { why: "" };
    }
  };

  const ask = async () => {
    const { state, why } = await get();
    if (stopped) return;
    timer = setTimeout(ask, state ? PAUSE : AGAIN);
    onChange(state ? "live" : "reconnecting", why);
    if (!state) since = ""; // another daemon may answer next
    else if (state.at !== since) take(state);
  };

  onChange("connecting", "");
  ask();
  return () => {
    stopped = true;
    clearTimeout(timer);
  };
}
