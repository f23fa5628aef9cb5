// Builds elements. Texts enter the page as text nodes only: no name, key or value can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element. attributes: `on…` are listeners, true and false set and leave out; `href` stays on this page, or is a file of
 * the console's server.
 */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "href" && !/^(#|\/api\/export\?)/.test(value)) throw new Error("links stay on this page");
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  append(made, children);
  return made;
}

function append(parent, children) {
  for (const child of children.flat(4)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replaces the children. The focus stays on the element with the same `data-key`. */
export function fill(parent, ...children) {
  const held = parent.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const scrolled = [...parent.querySelectorAll("[data-scroll]")].map((each) => [each.dataset.scroll, each.scrollLeft, each.scrollTop]);
  parent.replaceChildren();
  append(parent, children);
  for (const [key, left, top] of scrolled) {
    const found = [...parent.querySelectorAll("[data-scroll]")].find((each) => each.dataset.scroll === key);
    if (found) [found.scrollLeft, found.scrollTop] = [left, top];
  }
  if (held !== undefined) [...parent.querySelectorAll("[data-key]")].find((each) => each.dataset.key === held)?.focus();
}

/** The address of a page: `#/topic?name=orders`. */
export function address(page, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${page}${query ? `?${query}` : ""}`;
}

export function link(text, page, parameters) {
  return el("a", { href: address(page, parameters) }, typeof text === "string" ? breakable(text) : text);
}

/** A name that breaks after its separators, and not within a word. */
export function breakable(name) {
  return String(name).split(/(?<=[._:/,@-])/).flatMap((part, at) => (at ? [el("wbr"), part] : [part]));
}
