// The samples of the last minutes, as the daemon sends them.

// The order of a point's numbers, as in web/history.rs.
const FIELDS = ["starting", "idle", "frozen", "busy", "ending", "stranded", "queued", "asked", "plugged", "resident"];
const NOTHING = [0, 0, 0, 0, 0, 0, 0, null, null, null];

// Samples come every second; a gap longer than this means that some are missing.
const GAP_MS = 5000;

export class History {
  constructor() {
    this.samples = [];
  }

  /** The time of the last sample. */
  get latest() {
    return this.samples.at(-1)?.at_ms ?? 0;
  }

  add(samples, oldestMs) {
    for (const sample of samples) {
      if (sample.at_ms > this.latest) this.samples.push(sample);
    }
    const first = this.samples.findIndex((sample) => sample.at_ms >= oldestMs);
    this.samples.splice(0, first < 0 ? this.samples.length : first);
  }

  /** The points of a function since a moment, and the last one before it. */
  points(name, sinceMs) {
    let first = this.samples.findIndex((sample) => sample.at_ms >= sinceMs);
    if (first < 0) first = this.samples.length;
    return this.samples.slice(Math.max(0, first - 1)).map((sample, index, all) => {
      const point = { at: sample.at_ms, until: all[index + 1]?.at_ms };
      const values = sample.functions[name] ?? NOTHING;
      FIELDS.forEach((field, place) => (point[field] = values[place]));
      // While nothing runs there are no samples, and the last one still applies.
      point.breaks = point.until - point.at > GAP_MS && Object.keys(sample.functions).length > 0;
      return point;
    });
  }
}
