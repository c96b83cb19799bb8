"use strict";

// Templates: {{name}} is a value, escaped; {{#name}}...{{/name}} is repeated for each entry of a list, or once for a
// value that holds. Names are looked up in the entry first, then around it.

const TAG = /\{\{([#/]?)([a-z_]+)\}\}/g;
const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

const escape = (value) => String(value).replace(/[&<>"']/g, (character) => ESCAPES[character]);

function lookUp(name, scopes) {
  const scope = scopes.find((entry) => Object.hasOwn(entry, name));
  if (!scope) throw new ReferenceError(`the template needs ${name}`);
  return scope[name];
}

const render = (parts, scopes) => parts.map((part) => part(scopes)).join("");

const value = (name) => (scopes) => escape(lookUp(name, scopes));

const section = (name, parts) => (scopes) => {
  const found = lookUp(name, scopes);
  const entries = Array.isArray(found) ? found : found ? [{}] : [];
  return entries.map((entry) => render(parts, [entry, ...scopes])).join("");
};

/** A function that makes a page of an object of values. */
function compile(source) {
  const open = [{ name: null, parts: [] }];
  let end = 0;
  for (const { 0: tag, 1: kind, 2: name, index } of source.matchAll(TAG)) {
    const text = source.slice(end, index);
    end = index + tag.length;
    open[0].parts.push(() => text);
    if (kind === "#") {
      open.unshift({ name, parts: [] });
    } else if (kind === "/") {
      const closed = open.shift();
      if (closed.name !== name) throw new SyntaxError(`the template closes ${name}, which is not open`);
      open[0].parts.push(section(name, closed.parts));
    } else {
      open[0].parts.push(value(name));
    }
  }
  if (open.length > 1) throw new SyntaxError(`the template does not close ${open[0].name}`);
  const rest = source.slice(end);
  const parts = [...open[0].parts, () => rest];
  return (values) => render(parts, [values]);
}

module.exports = { compile };
