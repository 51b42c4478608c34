// Makes elements and puts a new tree in the place of an old one. Texts become text nodes only, so
// no name from a client or a plugin can become markup.

const SVG = new Set(["svg", "g", "rect", "line", "path", "polyline", "text", "circle"]);
const HANDLERS = ["onclick", "onsubmit", "onchange", "oninput", "onkeydown", "onclose"];
// What people change themselves: a new tree leaves it as it is.
const KEPT = new Set(["open", "data-touched"]);

export function h(tag, attributes, ...children) {
  const node = SVG.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (HANDLERS.includes(name)) node[name] = value;
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...nodes(children));
  return node;
}

function nodes(children) {
  return children.flat(Infinity).filter((it) => it !== null && it !== undefined && it !== false)
    .map((it) => (it instanceof Node ? it : document.createTextNode(String(it))));
}

// Makes the children of `parent` equal to `children`. Nodes that stay are changed in place, so
// focus, selection, scrolling and open details stay too.
export function morph(parent, ...children) {
  const wanted = nodes(children);
  const keyed = new Map();
  for (const old of parent.children) {
    const key = old.dataset?.key;
    if (key && !keyed.has(key)) keyed.set(key, old);
  }
  let at = parent.firstChild;
  for (const next of wanted) {
    const key = next.dataset?.key;
    const old = key ? keyed.get(key) : at;
    // Each node takes one place, also where keys are not unique.
    keyed.delete(key);
    if (old && isSame(old, next)) {
      if (old === at) at = at.nextSibling;
      else parent.insertBefore(old, at);
      patch(old, next);
    } else {
      parent.insertBefore(next, at);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function isSame(old, next) {
  return old.nodeName === next.nodeName && old.dataset?.key === next.dataset?.key;
}

function patch(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && !KEPT.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (!KEPT.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const name of HANDLERS) if (old[name] !== next[name]) old[name] = next[name];
  if (old.dataset.own === undefined) morph(old, ...next.childNodes);
}
