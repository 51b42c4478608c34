// Charts of SVG elements. Each is decoration for figures that stand beside it as text or in a table.

import { h } from "./h.js";

const round = (number) => Math.round(number * 100) / 100;

// Bars over time; `points` are `{value, bad}`, where `bad` is the part of the value that failed.
export function bars(points, label, { height = 64, least = 1 } = {}) {
  const most = Math.max(least, ...points.map((it) => it.value));
  const width = 100 / Math.max(1, points.length);
  const drawn = points.flatMap(({ value, bad = 0 }, index) => {
    const place = { x: `${round(index * width + width * 0.12)}%`, width: `${round(width * 0.76)}%` };
    const tall = round((value / most) * height);
    const red = round((bad / most) * height);
    return [
      h("rect", { ...place, y: height - Math.max(tall, value ? 2 : 1), height: Math.max(tall, value ? 2 : 1), class: value ? "bar" : "bar none" }),
      bad > 0 && h("rect", { ...place, y: height - Math.max(red, 2), height: Math.max(red, 2), class: "bar bad" }),
    ];
  });
  return h("svg", { class: "bars", height, role: "img", "aria-label": label }, drawn);
}

// One bar that shows a part of a whole.
export function meter(part, whole, label) {
  const share = whole > 0 ? Math.min(1, part / whole) : 0;
  const kind = share >= 1 ? "bad" : share >= 0.8 ? "warn" : "";
  return h("svg", { class: "meter", height: 6, role: "img", "aria-label": label },
    h("rect", { class: "track", width: "100%", height: 6, rx: 3 }),
    h("rect", { class: `bar ${kind}`, width: `${round(share * 100)}%`, height: 6, rx: 3 }));
}

// One bar of several parts, `{kind, value}`.
export function stack(parts, label) {
  const whole = parts.reduce((sum, it) => sum + it.value, 0) || 1;
  let at = 0;
  const drawn = parts.map(({ kind, value }) => {
    const x = at;
    at += (value / whole) * 100;
    return h("rect", { class: `bar ${kind}`, x: `${round(x)}%`, width: `${round((value / whole) * 100)}%`, height: 12 });
  });
  return h("svg", { class: "stack", height: 12, role: "img", "aria-label": label }, drawn);
}

// One row of a timeline: a bar between two times of the whole.
export function bar(at, length, whole, kind) {
  const from = whole > 0 ? (at / whole) * 100 : 0;
  const wide = whole > 0 ? Math.max(0.4, (length / whole) * 100) : 100;
  return h("svg", { class: "span", height: 14, "aria-hidden": "true" },
    h("rect", { class: "track", width: "100%", height: 14 }),
    h("rect", { class: `bar ${kind}`, x: `${round(Math.min(from, 99.6))}%`, width: `${round(Math.min(wide, 100 - Math.min(from, 99.6)))}%`, height: 14, rx: 2 }));
}
