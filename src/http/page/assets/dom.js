// Builds elements. Data becomes only text, or values of attributes with fixed names. No function
// accepts markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

// Replaces the content of a node. Restores the focus if the new content has an element with the
// same id.
export function replace(node, ...children) {
  const focused = node.contains(document.activeElement) ? document.activeElement.id : "";
  const fragment = document.createDocumentFragment();
  append(fragment, children);
  node.replaceChildren(fragment);
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

// Links to parts of this page, and to runbooks.
export const toNamespace = (name) => `#/namespace/${encodeURIComponent(name)}`;
export const toLock = (key) => `#/lock/${encodeURIComponent(key)}`;
export const toRunbook = (name) => `runbooks/${name.split("/").map(encodeURIComponent).join("/")}`;

// Name and shape of each level. The shape exists so that color is never the only sign.
const LEVELS = {
  critical: ["wrong", "M8 1 15 14H1Z M8 5.5v4 M8 11.6v.4"],
  warning: ["watch", "M8 1.5 14.5 8 8 14.5 1.5 8Z M8 5v3.6 M8 10.8v.3"],
  blind: ["not seen", "M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13Z M6 6.2a2 2 0 1 1 2.6 1.9c-.4.2-.6.5-.6 1 M8 11.4v.3"],
  well: ["well", "M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13Z M5 8.2l2.1 2.1L11 6"],
};

export const levelWord = (level) => LEVELS[level]?.[0] ?? level;

export function levelIcon(level) {
  const path = svg("path", { d: LEVELS[level]?.[1] ?? LEVELS.blind[1] });
  return svg("svg", { class: `icon ${level}`, viewBox: "0 0 16 16", "aria-hidden": "true" }, path);
}

export function badge(level) {
  return h("span", { class: `badge ${level}` }, levelIcon(level), levelWord(level));
}

export function runbookLink(name) {
  const words = name.replace(/^RedisLock/, "").replace(/^common\//, "").replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
  return h("a", { class: "runbook", href: toRunbook(name) }, `runbook: ${words}`);
}
