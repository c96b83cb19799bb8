// Recent reclaims, and where their time went.

import { html } from "./dom.js";
import { ago, bytes, time } from "./format.js";

const SHOWN = 12;

const REASONS = {
  keep_alive_over: "keep-alive over",
  evicted: "others need the memory",
  broken: "takes no more calls",
  retired: "function changed or removed",
  draining: "daemon is shutting down",
  overdrawn: "it or its VM held too much",
  died: "ended on its own",
};

/** A list of recent reclaims, or a line that says there are none. */
export function reclaims(list, now) {
  if (!list.length) {
    return html("p", { class: "none" }, "Nothing has been reclaimed yet. An instance's memory goes back when its keep-alive is over.");
  }
  const shown = list.slice(0, SHOWN);
  const longest = Math.max(...shown.map((reclaim) => (reclaim.stop_ms ?? 0) + (reclaim.unplug_ms ?? 0)), 1);
  return html(
    "div",
    {},
    html(
      "ul",
      { class: "legend" },
      html("li", {}, html("i", { class: "swatch stack c-stop" }), "its processes end"),
      html("li", {}, html("i", { class: "swatch stack c-unplug" }), "the guest gives the memory back"),
    ),
    html("ol", { class: "reclaims" }, shown.map((reclaim) => entry(reclaim, longest, now))),
  );
}

function entry(reclaim, longest, now) {
  const bar = html("div", { class: "bar", "aria-hidden": "true" });
  for (const [field, kind] of [["stop_ms", "stop"], ["unplug_ms", "unplug"]]) {
    const part = html("span", { class: `c-${kind}` });
    part.style.width = `${(100 * (reclaim[field] ?? 0)) / longest}%`;
    bar.append(part);
  }
  const late = reclaim.error !== null;
  const outcome = late ? (reclaim.settled ? "came back late" : "not back") : `${bytes(reclaim.size_bytes)} back`;
  return html(
    "li",
    { class: late ? "late" : "" },
    html("b", {}, reclaim.function),
    html("span", { class: late ? "outcome bad" : "outcome good" }, outcome),
    html("span", { class: "split" }, `stop ${time(reclaim.stop_ms)} · unplug ${time(reclaim.unplug_ms)}`),
    bar,
    html("span", { class: "drop" }, `host −${bytes(reclaim.resident_drop_bytes)}`),
    html("span", { class: "why" }, `${REASONS[reclaim.reason] ?? reclaim.reason}, ${ago(now - reclaim.at_ms)}`),
    late ? html("span", { class: "error" }, reclaim.error) : null,
  );
}
