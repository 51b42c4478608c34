// The parts that pages are made of: tables, badges, notices, dialogs and forms.

import { RECORDS_MAX } from "./api.js";
import { count } from "./format.js";
import { h, morph } from "./h.js";

export function section(title, ...children) {
  const id = `s-${title.toLowerCase().replaceAll(/[^a-z]+/g, "-")}`;
  return h("section", { "aria-labelledby": id, "data-key": id }, h("h2", { id }, title), children);
}

export function badge(kind, text) {
  return h("span", { class: `badge ${kind}` }, text);
}

// A name from outside: kept apart from the text around it, whatever its direction, and cut by the
// style sheet when it is long.
export function name(text, attributes) {
  return h("bdi", { class: "name", title: text, ...attributes }, text);
}

export function code(text) {
  return h("code", {}, h("bdi", {}, text));
}

export function notice(kind, ...children) {
  return h("div", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : null }, children);
}

export function empty(title, ...next) {
  return h("div", { class: "empty" }, h("strong", {}, title), h("p", {}, next));
}

export function missing(what) {
  return empty(`${what}: not available in this host`, "This host is older than its console, or the part is switched off.");
}

// `columns` are `{title, cell, kind}`; `kind` is `number` for figures, `wide` for long texts, `plain` for what
// needs no title on a narrow screen. Rows of a `dense` table are paragraphs there.
export function table(caption, columns, rows, { key, empty: none, dense } = {}) {
  if (!rows.length && none) return none;
  const head = columns.map((it) => h("th", { scope: "col", class: it.kind }, it.title));
  const line = (row, index) => h("tr", { "data-key": key ? String(key(row)) : `n${index}` }, columns.map((it, place) => (
    h(place ? "td" : "th", { scope: place ? null : "row", class: it.kind, "data-title": it.title }, h("div", {}, it.cell(row)))
  )));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${caption}, scrolls sideways` }, h("table", { class: dense ? "dense" : null }, h("caption", { class: "unseen" }, caption),
    h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows.map(line))));
}

// Says that a list has only the newest records, and which command lists more.
export function onlyNewest(list, command) {
  return list.length >= RECORDS_MAX && h("p", { class: "hint" }, `The newest ${count(RECORDS_MAX)} are shown. `, code(command), " lists more.");
}

// A table behind a chart.
export function behind(title, ...children) {
  return h("details", { class: "behind" }, h("summary", {}, title), children);
}

export function facts(...pairs) {
  return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))));
}

export function copyButton(text, label = "Copy") {
  const done = (node, said) => {
    node.textContent = said;
    setTimeout(() => (node.textContent = label), 2000);
  };
  return h("button", {
    type: "button", class: "small", "data-own": "copy",
    onclick: async (event) => {
      const node = event.currentTarget;
      try {
        await navigator.clipboard.writeText(text);
        done(node, "Copied");
      } catch {
        done(node, "Select and copy by hand");
      }
    },
  }, label);
}

export function copied(text) {
  return h("div", { class: "copied" }, h("pre", { tabindex: "0" }, text), copyButton(text));
}

export function button(label, onclick, attributes) {
  return h("button", { type: "button", onclick, ...attributes }, label);
}

export function field(label, input, hint) {
  const id = `f-${label.toLowerCase().replaceAll(/[^a-z]+/g, "-")}`;
  input.id = id;
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", { class: "field" }, h("label", { for: id }, label), input, hint && h("small", { id: `${id}-hint` }, hint));
}

export function select(name, options, chosen, attributes) {
  const choices = options.map(([value, label]) => h("option", { value, selected: value === chosen }, label));
  return h("select", { name, ...attributes }, choices);
}

// Messages of the API begin in lower case and have no full stop.
function sentence(text) {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}

export function fault(error) {
  return notice("bad", h("strong", {}, sentence(error.message)), " ", error.advice ?? "This is a fault of the page: reload it.");
}

// A dialog with a form. `act` gets the fields and returns what is shown at the end, or nothing.
export function dialog({ title, body, verb, isDanger, act }) {
  return new Promise((resolve) => {
    const told = h("div", {});
    const submit = h("button", { type: "submit", class: isDanger ? "danger" : "primary" }, verb);
    const cancel = button("Cancel", () => box.close());
    const form = h("form", {
      onsubmit: async (event) => {
        event.preventDefault();
        submit.disabled = true;
        try {
          const shown = await act(fields(form));
          if (!shown) return box.close("done");
          box.returnValue = "done";
          morph(form, h("h2", { id: "dialog-title" }, title), shown, h("div", { class: "buttons" }, button("Done", () => box.close("done"), { class: "primary" })));
        } catch (error) {
          morph(told, fault(error));
          submit.disabled = false;
        }
      },
    }, h("h2", { id: "dialog-title" }, title), body, told, h("div", { class: "buttons" }, cancel, submit));
    const box = h("dialog", {
      "aria-labelledby": "dialog-title",
      onclose: () => {
        box.remove();
        resolve(box.returnValue === "done");
      },
    }, form);
    document.body.append(box);
    box.showModal();
  });
}

// The filled fields of a form. Fields with several values are lists.
export function fields(form) {
  const found = {};
  for (const [name, value] of new FormData(form)) {
    const text = value.trim();
    if (!text) continue;
    const isList = form.elements[name]?.dataset?.list !== undefined;
    found[name] = isList ? text.split(/[\s,]+/).filter(Boolean) : text;
  }
  for (const box of form.querySelectorAll("input[type=checkbox]")) {
    if (box.checked) found[box.name] = true;
    else delete found[box.name];
  }
  return found;
}
