// Creates elements, and updates parts of the page.
//
// Each part renders itself anew from the state; patch then changes only what differs in the
// document, so that focus, selections, open details and scroll positions stay. Text is only ever
// inserted as text. Characters that are invisible or change the direction of text around them are
// written out.

// h returns a new element. The properties class and style (an object, because the content security
// policy forbids style attributes) are special; all others are attributes. Properties that are
// null, undefined or false are left out.
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

const READ = new Set(["aria-label", "title"]); // attributes that people read

// These characters are invisible or change the direction of text: control and format characters,
// separators of lines and paragraphs, and code points without a character. Line breaks and tabs,
// which only separate words, are left alone.
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

// visible returns a text with all hidden characters written out, for places that hold only text.
export const visible = (text) =>
  String(text)
    .split(HIDDEN_IN_NAMES)
    .map((s, i) => (i % 2 ? code(s) : s))
    .join("");

// nameOf returns an element for a name or id that somebody chose. It does not change the direction
// of text beside it, and breaks only if it is long.
export const nameOf = (text) => h("bdi", { class: text.length <= 16 ? "whole" : null }, text);

// tally returns a small table. A row has a key, a name and cells, the last one a number.
export const tally = (caption, heads, rows) =>
  h(
    "table",
    { class: "tally" },
    h("caption", { class: "unseen" }, caption),
    h("thead", null, h("tr", null, heads.map((text, i) => h("th", { scope: "col", class: i ? "number" : null }, text)))),
    h("tbody", null, rows.map(([key, name, ...cells]) => h("tr", { "data-key": key, class: cells.at(-1)?.value === "0" ? "nothing" : null }, h("th", { scope: "row" }, name), cells.map((cell) => (cell?.nodeName === "TD" ? cell : h("td", { class: "number" }, cell)))))),
  );

// part returns the element of the page with that name.
export const part = (name) => document.querySelector(`[data-part="${name}"]`);

// show sets the children of an element.
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
    // Leave details open or closed, as the reader left them.
    if (name !== "style" && name !== "open" && !wanted.hasAttribute(name)) old.removeAttribute(name);
  }
  if (old.style.cssText !== wanted.style.cssText) old.style.cssText = wanted.style.cssText;
  // Charts update their own content.
  if (!("chart" in old.dataset)) patchChildren(old, wanted);
}
