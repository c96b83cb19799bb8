// Creates elements. Text is only ever set as text, so a function's output never becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return element;
}

/** An HTML element. */
export function html(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** An SVG element. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/** The element with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Sets an element's text, if it differs. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
