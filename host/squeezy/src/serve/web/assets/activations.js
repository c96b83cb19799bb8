// Results and logs of calls, for users with the key.

import { byId, html, setText } from "./dom.js";
import { ago, time } from "./format.js";

const STORED = "squeezy-key";
const API = "/api/v1/namespaces/_/activations";

// By OpenWhisk's status code.
const OUTCOMES = ["success", "function returned an error", "function failed", "could not be called"];

export class Activations {
  constructor() {
    this.list = byId("activations");
    this.form = byId("key-form");
    this.entries = new Map();
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem(STORED, byId("key").value.trim());
      byId("key").value = "";
      this.refresh();
    });
    byId("forget").addEventListener("click", () => this.forget(""));
    if (!sessionStorage.getItem(STORED)) this.forget("");
  }

  /** Prompts for the key, and shows nothing until it is entered. */
  forget(reason) {
    sessionStorage.removeItem(STORED);
    this.entries.clear();
    this.list.replaceChildren();
    this.form.hidden = false;
    byId("forget").hidden = true;
    setText(byId("key-error"), reason);
  }

  hasKey() {
    return sessionStorage.getItem(STORED) !== null;
  }

  /** Prompts for a key because nothing is shown without one; one that was just sent is not known. */
  needsKey(hadKey) {
    if (hadKey) this.forget("This key is not known here.");
    else if (!this.hasKey()) setText(byId("key-error"), "There are several namespaces: their numbers need a key, too.");
  }

  /** Sends a request to the daemon, with the key if there is one. */
  ask(path) {
    const stored = sessionStorage.getItem(STORED);
    const key = new TextEncoder().encode(stored ?? "");
    const encoded = btoa(String.fromCharCode(...key));
    const headers = stored ? { Authorization: `Basic ${encoded}` } : {};
    // Without the browser's own credentials, so that it does not prompt for any either.
    return fetch(path, { credentials: "omit", headers });
  }

  async refresh() {
    if (!sessionStorage.getItem(STORED)) return;
    const answer = await this.ask(`${API}?limit=25`);
    if (answer.status === 401) return this.forget("This is not the daemon's key.");
    if (!answer.ok) return;
    this.form.hidden = true;
    byId("forget").hidden = false;
    setText(byId("key-error"), "");
    this.show(await answer.json());
  }

  show(activations) {
    const now = Date.now();
    const entries = new Map();
    for (const activation of activations) {
      const entry = this.entries.get(activation.activationId) ?? this.entry(activation);
      setText(entry.when, ago(now - activation.start));
      entries.set(activation.activationId, entry);
    }
    const before = [...this.entries.keys()].join();
    this.entries = entries;
    // Only new entries are inserted, so that an open one stays open and keeps the focus.
    if (before === [...entries.keys()].join() && entries.size) return;
    for (const child of Array.from(this.list.children)) {
      if (![...entries.values()].some(({ element }) => element === child)) child.remove();
    }
    [...entries.values()].forEach(({ element }, index) => {
      if (this.list.children[index] !== element) this.list.insertBefore(element, this.list.children[index] ?? null);
    });
    if (!entries.size) this.list.replaceChildren(html("p", { class: "none" }, "Nothing has been called yet."));
  }

  entry(activation) {
    const good = activation.statusCode === 0;
    const noted = Object.fromEntries(activation.annotations.map(({ key, value }) => [key, value]));
    const when = html("span", { class: "when" });
    const body = html("div", { class: "body" });
    const warm = noted.initTime === undefined;
    const taken = activation.statusCode === 3 ? "" : "warm";
    const start = warm ? taken : `new instance, init ${time(noted.initTime)}`;
    const element = html(
      "details",
      {},
      html(
        "summary",
        {},
        html("b", {}, activation.name),
        html("span", { class: good ? "outcome good" : "outcome bad" }, `${good ? "✓" : "✗"} ${OUTCOMES[activation.statusCode]}`),
        html("span", { class: "split" }, `waited ${time(noted.waitTime)} · run ${time(activation.duration)}`),
        html("span", { class: warm ? "start warm" : "start" }, start),
        when,
      ),
      body,
    );
    element.addEventListener("toggle", () => {
      if (element.open && !body.childElementCount) this.open(activation.activationId, body);
    });
    return { element, when };
  }

  /** Loads the result and the logs of an entry that is opened. */
  async open(id, body) {
    const part = (title, text) => [html("h3", {}, title), html("pre", { tabindex: "0", "aria-label": title }, text)];
    const answer = await this.ask(`${API}/${encodeURIComponent(id)}`);
    if (!answer.ok) return body.replaceChildren(html("p", { class: "bad" }, "The daemon does not have it any more."));
    const { logs, response } = await answer.json();
    const result = JSON.stringify(response.result, null, 2);
    const shortened = result.length > 20_000 ? `${result.slice(0, 20_000)}\n… ${result.length - 20_000} more characters` : result;
    body.replaceChildren(
      html("p", { class: "id" }, `activation ${id}`),
      ...part("Logs", logs.length ? logs.join("\n") : "No output."),
      ...part("Result", shortened),
    );
  }
}
