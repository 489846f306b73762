// Elements, and how a part of the page is brought up to date.
//
// Each part renders itself anew from the state; patch then changes in the document
// only what differs, so that focus, selections, open details and scroll positions
// stay. Text is only ever inserted as text, and what cannot be seen of it, or turns
// what stands beside it, is written out.

// h makes an element. Of its properties, class and style (an object, set by script as
// the content security policy wants it) are special; all others are attributes. Those
// that are null, undefined or false are left out.
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") {
      for (const [property, v] of Object.entries(value)) element.style.setProperty(property, v);
    } else {
      element.setAttribute(name, value === true ? "" : READ.has(name) ? visible(value) : value);
    }
  }
  append(element, children);
  return element;
}

const READ = new Set(["aria-label", "title"]); // attributes that are read

// What is not seen, or turns what is: control characters and those of format, separators
// of lines and paragraphs, and what is no character. Lines and tabs that only part words
// are left.
const HIDDEN = /((?![\n\t])[\p{C}\p{Zl}\p{Zp}])/u;
const HIDDEN_IN_NAMES = /([\p{C}\p{Zl}\p{Zp}])/u;

function append(element, children) {
  const hidden = element.nodeName === "BDI" ? HIDDEN_IN_NAMES : HIDDEN;
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    if (child instanceof Node) element.append(child);
    else String(child).split(hidden).forEach((text, i) => element.append(i % 2 ? escaped(text) : text));
  }
}

function escaped(character) {
  const element = document.createElement("span");
  element.className = "escaped";
  element.textContent = code(character);
  return element;
}

function code(character) {
  const hex = character.codePointAt(0).toString(16);
  return { "\n": "\\n", "\r": "\\r", "\t": "\\t" }[character] ?? (hex.length > 4 ? `\\u{${hex}}` : `\\u${hex.padStart(4, "0")}`);
}

// visible is a text with all that is hidden in it written out, for where there is
// nothing but text.
export const visible = (text) =>
  String(text)
    .split(HIDDEN_IN_NAMES)
    .map((s, i) => (i % 2 ? code(s) : s))
    .join("");

// nameOf is a name or id that somebody chose: it does not turn what stands beside it, and
// is in one piece unless it is long.
export const nameOf = (text) => h("bdi", { class: text.length <= 16 ? "whole" : null }, text);

// part is the place in the page of that name.
export const part = (name) => document.querySelector(`[data-part="${name}"]`);

// show makes the children of an element those.
export function show(element, ...children) {
  const wanted = document.createElement(element.nodeName);
  append(wanted, children);
  patchChildren(element, wanted);
}

function patchChildren(old, wanted) {
  const keyed = new Map();
  for (const child of old.children) {
    if (child.dataset.key !== undefined) keyed.set(child.dataset.key, child);
  }
  let at = old.firstChild;
  for (const next of [...wanted.childNodes]) {
    const key = next.dataset?.key;
    let same = null;
    if (key !== undefined) {
      same = keyed.get(key) ?? null;
    } else if (at && at.dataset?.key === undefined) {
      same = at;
    }
    if (same && same.nodeName === next.nodeName) {
      if (same !== at) old.insertBefore(same, at);
      patchNode(same, next);
      at = same.nextSibling;
    } else {
      old.insertBefore(next, at);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function patchNode(old, wanted) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== wanted.nodeValue) old.nodeValue = wanted.nodeValue;
    return;
  }
  for (const { name, value } of [...wanted.attributes]) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    // Details stay as the reader left them.
    if (name !== "style" && name !== "open" && !wanted.hasAttribute(name)) old.removeAttribute(name);
  }
  if (old.style.cssText !== wanted.style.cssText) old.style.cssText = wanted.style.cssText;
  // Charts look after what is in them themselves.
  if (!("chart" in old.dataset)) patchChildren(old, wanted);
}
