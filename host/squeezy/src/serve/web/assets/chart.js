// A chart over time: lines or a stack of steps, with a legend that shows the values.

import { html, svg, setText } from "./dom.js";
import { ago } from "./format.js";

const HEIGHT = 168;
const LEFT = 58;
const RIGHT = 8;
/** The right margin with an axis in it. */
const WIDE_RIGHT = 44;
const TOP = 8;
const BOTTOM = 22;

export class Chart {
  /**
   * `series`: [{ field, label, kind: "area" | "line" | "stack", always, sparse }]. A series without
   * `always` has no legend entry while it is zero, and a `sparse` one then has no line. One that is
   * `apart` does not flatten the others: if it is larger, it gets its own axis at the right. Colours are
   * classes `c-FIELD` of the style sheet. `format` formats a value, `ticks` computes an axis's values
   * from its maximum.
   */
  constructor(title, series, format, ticks) {
    Object.assign(this, { title, series, format, ticks, points: [], cursor: null, right: RIGHT });
    this.plot = svg("svg", { class: "plot", role: "img", tabindex: "0" });
    this.when = html("span", { class: "when" });
    this.values = new Map();
    const legend = series.map(({ field, label, kind }) => {
      const value = html("b");
      const item = html("li", {}, html("i", { class: `swatch ${kind} c-${field}` }), `${label} `, value);
      this.values.set(field, { item, value });
      return item;
    });
    this.element = html(
      "figure",
      { class: "chart" },
      html("figcaption", {}, html("span", { class: "title" }, title), this.when),
      this.plot,
      html("ul", { class: "legend" }, legend),
    );
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /** Shows these points, which are between the times `from` and `to`. */
  show(points, from, to) {
    Object.assign(this, { points, from, to });
    this.draw();
  }

  listen() {
    const point = (event) => {
      const box = this.plot.getBoundingClientRect();
      this.move(this.from + ((event.clientX - box.left - LEFT) / (box.width - LEFT - this.right)) * (this.to - this.from));
    };
    this.plot.addEventListener("pointermove", point);
    this.plot.addEventListener("pointerdown", point);
    this.plot.addEventListener("pointerleave", () => this.move(null));
    this.plot.addEventListener("blur", () => this.move(null));
    this.plot.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") return this.move(null);
      if (!step) return;
      event.preventDefault();
      this.move((this.cursor ?? this.to) + (step * (this.to - this.from)) / 60);
    });
  }

  move(moment) {
    this.cursor = moment === null ? null : Math.min(this.to, Math.max(this.from, moment));
    this.draw();
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width || this.from === undefined) return;
    this.plot.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const { ticks, most } = this.scale((series) => !series.apart);
    const apart = this.scale((series) => series.apart);
    const own = apart.largest > most;
    this.right = own ? WIDE_RIGHT : RIGHT;
    const x = (at) => LEFT + ((Math.min(this.to, Math.max(this.from, at)) - this.from) / (this.to - this.from)) * (width - LEFT - this.right);
    const height = (most) => (value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - TOP - BOTTOM);
    const [y, right] = [height(most), height(own ? apart.most : most)];
    const parts = [...this.axes(width, ticks, x, y), ...this.curves(x, y, right)];
    if (own) {
      const label = (value) => svg("text", { class: "tick apart", x: width - this.right + 6, y: right(value) + 4 }, this.format(value));
      parts.push(...apart.ticks.map(label));
    }
    if (this.cursor !== null) {
      parts.push(svg("line", { class: "cursor", x1: x(this.cursor), x2: x(this.cursor), y1: TOP, y2: HEIGHT - BOTTOM }));
    }
    this.plot.replaceChildren(...parts);
    this.readOut();
  }

  /** The axis of the selected series. */
  scale(isMeant) {
    const meant = this.series.filter(isMeant);
    const stacked = meant.filter(({ kind }) => kind === "stack");
    const sum = (point) => stacked.reduce((total, { field }) => total + (point[field] ?? 0), 0);
    const each = (point) => meant.filter(({ kind }) => kind !== "stack").map(({ field }) => point[field] ?? 0);
    const largest = Math.max(0, ...this.points.flatMap((point) => [sum(point), ...each(point)]));
    const ticks = this.ticks(largest);
    return { ticks, largest, most: ticks.at(-1) };
  }

  axes(width, ticks, x, y) {
    const parts = ticks.flatMap((value) => [
      svg("line", { class: "grid", x1: LEFT, x2: width - this.right, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, this.format(value)),
    ]);
    const seconds = (this.to - this.from) / 1000;
    for (let part = 0; part <= 2; part += 1) {
      const at = this.from + ((this.to - this.from) * part) / 2;
      const back = seconds * (1 - part / 2);
      const label = back === 0 ? "now" : back < 120 ? `−${Math.round(back)} s` : `−${back / 60} min`;
      const anchor = ["start", "middle", "end"][part];
      parts.push(svg("text", { class: "tick", x: x(at), y: HEIGHT - 6, "text-anchor": anchor }, label));
    }
    return parts;
  }

  curves(x, left, right) {
    const below = new Array(this.points.length).fill(0);
    return this.series.map(({ field, kind, sparse, apart }) => {
      const y = apart ? right : left;
      const runs = [];
      let run = null;
      this.points.forEach((point, index) => {
        const value = point[field];
        if (value === null || (sparse && !value)) return (run = null);
        const low = kind === "stack" ? below[index] : 0;
        if (kind === "stack") below[index] += value;
        if (!run) runs.push((run = []));
        const until = point.breaks ? point.at : (point.until ?? this.to);
        if (until < this.from) return;
        run.push({ left: x(point.at), right: x(until), top: y(low + value), bottom: y(low), value });
        if (point.breaks) run = null;
      });
      const paths = runs.map((steps) => (kind === "line" ? line(steps) : area(steps)));
      return svg("path", { class: `${kind} c-${field}`, d: paths.join("") });
    });
  }

  /** Shows the values at the cursor, or the current ones, in the legend. */
  readOut() {
    const moment = this.cursor ?? this.to;
    const point = this.points.findLast(({ at }) => at <= moment);
    setText(this.when, this.cursor === null ? "" : ago(this.to - this.cursor));
    const said = this.series.map(({ field, label, always }) => {
      const { item, value } = this.values.get(field);
      const text = point && point[field] !== null ? this.format(point[field]) : "–";
      setText(value, text);
      item.hidden = !always && !this.points.some((other) => other[field]);
      return `${label} ${text}`;
    });
    this.plot.setAttribute("aria-label", `${this.title}: ${said.join(", ")}. Arrow keys move through time.`);
  }
}

function top(steps) {
  return steps.map(({ left, right, top }) => `${left.toFixed(1)},${top.toFixed(1)}H${right.toFixed(1)}`).join("L");
}

function line(steps) {
  return steps.length ? `M${top(steps)}` : "";
}

/** An outline for each interval in which there is something. */
function area(steps) {
  const stretches = [[]];
  for (const step of steps) {
    if (step.value > 0) stretches.at(-1).push(step);
    else if (stretches.at(-1).length) stretches.push([]);
  }
  const back = (steps) => steps.toReversed().map(({ left, right, bottom }) => `L${right.toFixed(1)},${bottom.toFixed(1)}H${left.toFixed(1)}`).join("");
  return stretches.filter((stretch) => stretch.length).map((stretch) => `M${top(stretch)}${back(stretch)}Z`).join("");
}

/** Round values from 0 to at least `most`, in steps of `base` times 1, 2, 5 or as powers of two. */
export function byteTicks(most) {
  let step = 64 << 20;
  while (step * 4 < most) step *= 2;
  return upTo(most, step);
}

export function countTicks(most) {
  let step = 1;
  for (const factor of [2, 2.5, 2, 2, 2.5, 2, 2, 2.5, 2]) {
    if (step * 4 >= most) break;
    step *= factor;
  }
  return upTo(Math.max(most, 2), step);
}

function upTo(most, step) {
  const ticks = [0];
  do ticks.push(ticks.at(-1) + step);
  while (ticks.at(-1) < most);
  return ticks;
}
