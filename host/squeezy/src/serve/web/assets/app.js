// Polls the daemon's state every second, and shows it.

import { Activations } from "./activations.js";
import { byId, html, setText } from "./dom.js";
import { bytes, median, time } from "./format.js";
import { FunctionCard } from "./function.js";
import { History } from "./history.js";
import { reclaims } from "./reclaims.js";

const PAUSE_MS = 1000;

const history = new History();
const activations = new Activations();
const cards = new Map();
let state = null;
let reclaimsShown = "";

/** How much time to show: the selected span, but little from before the daemon started. */
function spanMs() {
  const chosen = 1000 * Number(document.querySelector("#span input:checked").value);
  return Math.min(chosen, 60_000 * Math.ceil(state.age_ms / 60_000));
}

async function refresh() {
  const hadKey = activations.hasKey();
  const answer = await activations.ask(`/ui/state.json?since_ms=${history.latest}`);
  if (answer.status === 401) {
    activations.needsKey(hadKey);
    throw new Error("not known", { cause: "needs a key" });
  }
  if (!answer.ok) throw new Error(`the daemon responded with status ${answer.status}`);
  state = await answer.json();
  history.add(state.samples, state.now_ms - 1000 * state.history_seconds);
  show();
  await activations.refresh();
}

function show() {
  if (!state) return;
  setText(byId("version"), state.version);
  showTiles();
  const names = state.functions.map(({ name }) => name);
  for (const [name, card] of cards) {
    if (names.includes(name)) continue;
    card.element.remove();
    cards.delete(name);
  }
  const from = state.now_ms - spanMs();
  for (const data of state.functions) {
    let card = cards.get(data.name);
    if (!card) {
      card = new FunctionCard(data.name);
      cards.set(data.name, card);
      byId("functions").append(card.element);
    }
    card.show(data, history.points(data.name, from), from, state.now_ms);
  }
  const list = byId("reclaims");
  // Their ages are updated only once a minute, so that a text selection is kept.
  const shown = JSON.stringify([state.reclaims, Math.floor(state.now_ms / 5000)]);
  if (shown !== reclaimsShown) list.replaceChildren(reclaims(state.reclaims, state.now_ms));
  reclaimsShown = shown;
}

function showTiles() {
  const total = (what) => state.functions.reduce((sum, data) => sum + (what(data) ?? 0), 0);
  const [starting, idle, frozen, busy, ending, stranded, queued] = [0, 1, 2, 3, 4, 5, 6].map((place) => total(({ point }) => point[place]));
  const resident = total(({ point }) => point[9]);
  const limit = state.memory_limit_bytes;
  const calls = total(({ starts }) => starts.warm + starts.cold + starts.recreated);
  const unplugs = state.reclaims.filter(({ error, unplug_ms }) => error === null && unplug_ms !== null).map(({ unplug_ms }) => unplug_ms);
  const stalled = state.reclaims.filter(({ error, settled }) => error !== null && !settled).length;
  byId("tiles").replaceChildren(
    tile("Resident", bytes(resident), `${bytes(state.memory_committed_bytes)} promised of ${bytes(limit)}`, meter(resident, state.memory_committed_bytes, limit)),
    tile("Instances", String(starting + idle + frozen + busy + ending + stranded), parts([[busy, "busy"], [idle, "idle"], [frozen, "frozen"], [starting, "starting"], [ending, "ending"], [stranded, "stranded"]])),
    tile("Calls taken", String(calls), queued ? `${queued} waiting` : "none waiting"),
    tile("Reclaim, median", unplugs.length ? time(median(unplugs)) : "–", stalled ? `${stalled} not back` : `${bytes(total((data) => data.reclaimed_bytes))} back so far`, null, stalled > 0),
  );
}

function parts(counts) {
  const shown = counts.filter(([count]) => count).map(([count, label]) => `${count} ${label}`);
  return shown.length ? shown.join(" · ") : "none is needed";
}

function tile(title, value, below, extra = null, bad = false) {
  return html("div", { class: "card tile" }, html("h2", {}, title), html("p", { class: "value" }, value), extra, html("p", { class: bad ? "below bad" : "below" }, below));
}

function meter(resident, committed, limit) {
  const bar = html("div", { class: "bar meter", "aria-hidden": "true" });
  const shown = Math.min(resident, limit);
  for (const [kind, size] of [["resident", shown], ["promised", Math.max(0, Math.min(committed, limit) - shown)]]) {
    const part = html("span", { class: `c-${kind}` });
    part.style.width = `${(100 * size) / limit}%`;
    bar.append(part);
  }
  return bar;
}

async function loop() {
  for (;;) {
    if (!document.hidden) {
      const connection = byId("connection");
      try {
        await refresh();
        setText(connection, "live");
        connection.className = "live";
      } catch (error) {
        setText(connection, error.cause ?? "the daemon does not answer");
        connection.className = "lost";
      }
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

byId("span").addEventListener("change", show);
document.addEventListener("visibilitychange", () => document.hidden || show());
loop();
