// One function: its chart, durations, and how calls got their instances.

import { Chart, byteTicks, countTicks } from "./chart.js";
import { html, setText } from "./dom.js";
import { ago, bytes, time } from "./format.js";

const MEMORY = [
  { field: "resident", label: "resident", kind: "area", always: true },
  { field: "plugged", label: "plugged", kind: "line", always: true },
  { field: "asked", label: "asked", kind: "line", always: true },
];

const INSTANCES = [
  { field: "busy", label: "busy", kind: "stack", always: true },
  { field: "idle", label: "idle", kind: "stack", always: true },
  { field: "frozen", label: "frozen", kind: "stack" },
  { field: "starting", label: "starting", kind: "stack" },
  { field: "ending", label: "ending", kind: "stack" },
  { field: "stranded", label: "stranded", kind: "stack" },
  { field: "queued", label: "calls waiting", kind: "line", sparse: true, apart: true },
];

const TIMES = [
  ["total", "call", "from its arrival to its answer"],
  ["queue", "· wait", "for an instance"],
  ["run", "· run", "in the instance"],
  ["init", "init", "of a new instance"],
  ["plug", "plug", "of an instance's memory"],
  ["unplug", "unplug", "of an instance's memory"],
  ["take", "take", "of free memory, by the host alone"],
  ["condemn", "condemn", "of an instance of its paused VM"],
];

const STARTS = [
  ["warm", "found an instance"],
  ["cold", "waited for a new instance"],
  ["recreated", "likewise, after earlier ones had ended"],
];

/** What the host has taken by itself, if anything. */
function taken({ taken_bytes, condemned_bytes, taking_ms }) {
  if (!taken_bytes && !condemned_bytes) return "";
  const condemned = condemned_bytes ? ` and ${bytes(condemned_bytes)} condemned` : "";
  return ` · ${bytes(taken_bytes)} taken${condemned} in ${time(taking_ms)}`;
}

export class FunctionCard {
  constructor(name) {
    this.state = html("span", { class: "chip" });
    this.now = html("p", { class: "now" });
    this.problem = html("p", { class: "problem", hidden: true });
    this.memory = new Chart("Memory of its VM", MEMORY, bytes, byteTicks);
    this.instances = new Chart("Instances", INSTANCES, (count) => String(count), countTicks);
    this.rows = html("tbody");
    this.starts = html("div", { class: "starts" });
    this.element = html(
      "article",
      { class: "card function", "aria-label": `Function ${name}` },
      html("div", { class: "head" }, html("h2", {}, name), this.state, this.now),
      this.problem,
      html("div", { class: "charts" }, this.memory.element, this.instances.element),
      html(
        "div",
        { class: "facts" },
        html(
          "table",
          { class: "times" },
          html("caption", {}, "Latency, last 15 min"),
          html("thead", {}, html("tr", {}, ["", "p50", "p90", "p99", "count"].map((title) => html("th", { scope: "col" }, title)))),
          this.rows,
        ),
        html("div", {}, html("h3", {}, "Starts since the daemon started"), this.starts),
      ),
    );
  }

  show(data, points, from, to) {
    this.memory.show(points, from, to);
    this.instances.show(points, from, to);
    setText(this.state, { up: "VM runs", booting: "VM boots", ending: "VM ends" }[data.vm] ?? "no VM");
    this.state.className = `chip ${data.vm ?? "none"}`;
    setText(this.now, `${bytes(data.instance_bytes)} an instance · ${bytes(data.reclaimed_bytes)} reclaimed${taken(data)}`);
    this.showProblem(data.problem, to);
    const rows = TIMES.filter(([kind]) => data.times_ms[kind]).map(([kind, label, meaning]) => {
      const { p50, p90, p99, count } = data.times_ms[kind];
      const cells = [time(p50), time(p90), time(p99), String(count)];
      return html("tr", {}, html("th", { scope: "row" }, label, " ", html("small", {}, meaning)), cells.map((cell) => html("td", {}, cell)));
    });
    if (!rows.length) rows.push(html("tr", {}, html("td", { colspan: "5", class: "none" }, "no calls yet")));
    this.rows.replaceChildren(...rows);
    this.showStarts(data);
  }

  /** Why calls are refused, as far as the user may know. */
  showProblem(problem, now) {
    this.problem.hidden = !problem;
    if (!problem) return;
    const why = problem.why ?? "the key, below, shows why";
    setText(this.problem, `${problem.what}: ${why} (${ago(now - problem.at_ms)})`);
  }

  showStarts({ starts, failed }) {
    const sum = STARTS.reduce((total, [kind]) => total + starts[kind], 0);
    const bar = html("div", { class: "bar", "aria-hidden": "true" });
    const list = STARTS.map(([kind, meaning]) => {
      const part = html("span", { class: `c-${kind}` });
      part.style.flexGrow = String(starts[kind]);
      if (starts[kind]) bar.append(part);
      return html("li", {}, html("i", { class: `swatch stack c-${kind}` }), html("b", {}, String(starts[kind])), ` ${kind} `, html("small", {}, meaning));
    });
    if (failed) list.push(html("li", { class: "bad" }, html("b", {}, String(failed)), " failed"));
    this.starts.replaceChildren(...(sum ? [bar] : []), html("ul", { class: "legend column" }, list));
  }
}
