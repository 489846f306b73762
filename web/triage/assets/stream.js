// Connects to the daemon: one stream of server-sent events about one model.

const AGAIN = 5000; // ms until the next attempt
const HISTORY = 15 * 60 * 1000; // ms

// connect follows a model and returns a function that stops it. It calls onState with each state,
// whose history is whole, and onChange with "connecting", "live", "polling" (the daemon answers,
// but has no stream for us) or "reconnecting", and the reason.
export function connect(model, onState, onChange) {
  const query = `?model=${encodeURIComponent(model)}`;
  let steps = new Map();
  let shape = "";
  let source = null;
  let timer = 0;
  let stopped = false;
  let first = true;

  const take = (text, whole) => {
    const state = JSON.parse(text);
    if (state.model) {
      // Quantiles are by class: those of other classes mean nothing here.
      const now = JSON.stringify([state.model.name, state.model.classes.map((c) => c.name)]);
      if (whole || now !== shape) steps = new Map();
      shape = now;
      for (const step of state.model.history ?? []) steps.set(step.at, step);
      const newest = Math.max(...steps.keys());
      for (const at of steps.keys()) if (at <= newest - HISTORY) steps.delete(at);
      state.model.history = [...steps.values()].sort((a, b) => a.at - b.at);
    }
    onState(state);
  };

  const open = () => {
    if (stopped) return;
    source = new EventSource(`triage/events${query}`);
    source.onopen = () => {
      first = true;
    };
    source.addEventListener("state", (event) => {
      onChange("live", "");
      take(event.data, first);
      first = false;
    });
    source.onerror = () => {
      if (stopped) return;
      if (source.readyState !== EventSource.CLOSED) {
        onChange("reconnecting", "");
        return;
      }
      // The answer was no stream: there may be too many streams, or we may not look.
      source.close();
      ask();
      timer = setTimeout(open, AGAIN);
    };
  };

  const ask = async () => {
    try {
      const response = await fetch(`triage/state${query}`, { cache: "no-store" });
      const text = await response.text();
      if (stopped) return;
      if (!response.ok) {
        onChange("reconnecting", `the daemon answers ${response.status} ${text.trim().slice(0, 200)}`);
        return;
      }
      onChange("polling", "");
      take(text, true);
    } catch {
      if (!stopped) onChange("reconnecting", "");
    }
  };

  onChange("connecting", "");
  open();
  return () => {
    stopped = true;
    clearTimeout(timer);
    source?.close();
  };
}
