// Draws the steps of one request, says where its time and money went, and lists them in a table.

import { bar, stack } from "./chart.js";
import { count, dollars, duration, NONE, words } from "./format.js";
import { h } from "./h.js";
import { badge, behind, name, table } from "./parts.js";

const KINDS = { host: "this host", guest: "plugins", net: "network", secret: "vault", pause: "waits" };
// Words before the names of steps that do not say themselves what they are.
const TYPES = { hook: "hook", attempt: "attempt", release: "release", answer: "answer", tool: "tool", http: "HTTP", question: "question" };
const TOLD = ["attempt", "turn", "status", "cause", "action", "host", "purpose", "retry_after_ms", "connect_us", "first_content_us", "audit_seq", "reflections", "count"];

export function isBad(step) {
  return Boolean(step.outcome) && step.outcome !== "ok";
}

// The steps in the order of the tree, each with its depth.
export function inOrder(steps) {
  const below = new Map();
  const known = new Set(steps.map((it) => it.n));
  for (const step of steps) {
    const parent = known.has(step.parent) && step.parent !== step.n ? step.parent : null;
    below.set(parent, [...(below.get(parent) ?? []), step]);
  }
  const found = [];
  const walk = (parent, depth) => {
    for (const step of below.get(parent) ?? []) {
      found.push({ ...step, depth });
      if (depth < 16) walk(step.n, depth + 1);
    }
  };
  walk(null, 0);
  return found;
}

function factText(fact, value) {
  if (fact === "retry_after_ms") return `retry after ${duration(value * 1000)}`;
  if (fact === "first_content_us") return `first content ${duration(value)}`;
  if (fact === "connect_us") return `connecting ${duration(value)}`;
  if (fact === "audit_seq") return `audit ${value}`;
  if (fact === "reflections") return `${value} reflected`;
  if (fact === "count") return value > 1 ? `× ${count(value)}` : null;
  if (fact === "attempt") return `no. ${value}`;
  if (fact === "turn") return value > 1 ? `turn ${value}` : null;
  return fact === "host" || fact === "status" ? String(value) : words(value);
}

export function details(step) {
  const told = TOLD.filter((it) => step[it] !== undefined).map((it) => factText(it, step[it])).filter(Boolean);
  if (step.busy_us !== undefined && step.busy_us !== null) told.push(`${duration(step.busy_us)} busy`);
  if (step.outcome && step.outcome !== "ok") told.unshift(words(step.outcome));
  return told.join(", ");
}

export function title(step) {
  const type = TYPES[step.type];
  return !type || step.name.startsWith(type) ? step.name : `${type} ${step.name}`;
}

// The time of the steps below each step.
function coveredTimes(steps) {
  const covered = new Map();
  for (const step of steps) {
    if (step.parent) covered.set(step.parent, (covered.get(step.parent) ?? 0) + (step.us ?? 0));
  }
  return covered;
}

// What each side took for itself: the time of its steps without that of the steps below them, so
// that nothing counts twice. Steps that ran side by side may sum up to more than the whole.
export function ownTimes(steps) {
  const own = { host: 0, guest: 0, net: 0, secret: 0, pause: 0 };
  const covered = coveredTimes(steps);
  for (const step of steps) own[step.kind] = (own[step.kind] ?? 0) + Math.max(0, (step.us ?? 0) - (covered.get(step.n) ?? 0));
  return own;
}

// The time in which no step ran: waits for the client or for a processor.
function pauses(steps, whole) {
  let until = 0;
  let free = 0;
  for (const { at_us, us } of [...steps].sort((a, b) => a.at_us - b.at_us)) {
    free += Math.max(0, at_us - until);
    until = Math.max(until, at_us + (us ?? whole - at_us));
  }
  return free + Math.max(0, whole - until);
}

// The steps that took longest by themselves, and the pauses between steps if they took long.
function slowest(steps, whole) {
  const covered = coveredTimes(steps);
  const alone = steps.map((it) => ({ what: title(it), us: (it.us ?? 0) - (covered.get(it.n) ?? 0) }));
  alone.push({ what: "between steps", us: pauses(steps, whole) });
  return alone.sort((a, b) => b.us - a.us).slice(0, 3).filter((it) => it.us > whole * 0.05);
}

export function whereTimeWent(steps, whole) {
  if (!steps.length || !whole) return null;
  const own = ownTimes(steps);
  own.pause += pauses(steps, whole);
  const parts = Object.entries(own).filter(([, value]) => value > 0).map(([kind, value]) => ({ kind, value }));
  const text = parts.map(({ kind, value }) => `${KINDS[kind] ?? kind} ${duration(value)}`).join(", ");
  const longest = slowest(steps, whole);
  return h("div", { class: "went" },
    stack(parts, `Time by side: ${text}`),
    h("ul", { class: "legend" }, parts.map(({ kind, value }) => h("li", { class: kind }, `${KINDS[kind] ?? kind} ${duration(value)}`))),
    longest.length > 0 && h("p", {}, "Longest: ", longest.map(({ what, us }, index) => [
      index ? ", " : "", name(what), ` ${duration(us)} (${Math.round((us / whole) * 100)} %)`,
    ])));
}

export function costTable(steps) {
  const paid = steps.filter((it) => it.cost !== undefined || it.input_tokens !== undefined || it.output_tokens !== undefined);
  if (!paid.length) return null;
  return table("Cost by step", [
    { title: "Step", cell: (it) => name(title(it)) },
    { title: "Input", kind: "number", cell: (it) => count(it.input_tokens) },
    { title: "Cached", kind: "number", cell: (it) => count(it.cached_tokens) },
    { title: "Output", kind: "number", cell: (it) => count(it.output_tokens) },
    { title: "Cost", kind: "number", cell: (it) => dollars(it.cost) },
  ], paid, { key: (it) => it.n });
}

export function drawing(steps, whole) {
  const rows = inOrder(steps).map((step) => {
    const us = step.us ?? Math.max(0, whole - step.at_us);
    const isOpen = step.us === null || step.us === undefined;
    return h("li", { "data-key": `s${step.n}`, class: `step depth${Math.min(step.depth, 5)}${isBad(step) ? " failed" : ""}` },
      h("span", { class: "what" }, name(title(step))),
      bar(step.at_us, us, whole, isBad(step) ? "bad" : step.kind),
      h("span", { class: "took" }, isOpen ? "runs" : duration(step.us)),
      h("span", { class: "more" }, h("bdi", { title: details(step) }, details(step))));
  });
  return h("ol", { class: "timeline", "aria-label": "Steps in the order in which they began" }, rows);
}

export function stepTable(steps) {
  return behind("The same as a table", table("Steps", [
    { title: "Step", cell: (it) => name(`${"· ".repeat(it.depth)}${title(it)}`) },
    { title: "Side", cell: (it) => KINDS[it.kind] ?? it.kind },
    { title: "Begins", kind: "number", cell: (it) => duration(it.at_us) },
    { title: "Took", kind: "number", cell: (it) => duration(it.us) },
    { title: "Busy", kind: "number", cell: (it) => duration(it.busy_us) },
    { title: "Outcome", cell: (it) => (isBad(it) ? badge("bad", words(it.outcome)) : it.outcome ?? NONE) },
    { title: "More", kind: "wide", cell: details },
  ], inOrder(steps), { key: (it) => it.n }));
}
