// What was spent: by day, by model, by key and by workspace, each chart with its table.

import { query, records } from "../api.js";
import { bars } from "../chart.js";
import { count, dollars, failedOf, NONE, plural, short } from "../format.js";
import { h } from "../h.js";
import { behind, code, empty, facts, field, name, section, select, table } from "../parts.js";

// The most groups of a report of usage.
export const GROUPS_MAX = 1000;
const DAYS = [["7", "7 days"], ["30", "30 days"], ["92", "92 days"]];

function columns(title, cell) {
  return [
    { title, cell: (it) => (it.isRest ? othersCell() : cell(it)) },
    { title: "Spend", kind: "number", cell: (it) => dollars(it.cost) },
    { title: "Own credentials", kind: "number", cell: (it) => dollars(it.byok_cost) },
    { title: "Requests", kind: "number", cell: (it) => count(it.requests) },
    { title: "Failed", kind: "number", cell: (it) => count(failedOf(it)) },
    { title: "Attempts", kind: "number", cell: (it) => count(it.attempts) },
    { title: "Input", kind: "number", cell: (it) => short(it.input_tokens) },
    { title: "Cached", kind: "number", cell: (it) => short(it.cached_tokens) },
    { title: "Output", kind: "number", cell: (it) => short(it.output_tokens) },
  ];
}

// The groups of a report, and one more with the sums of those that are not listed.
export function withOthers({ groups, others }) {
  return others.requests > 0 ? [...groups, { ...others, isRest: true }] : groups;
}

export function othersCell() {
  return ["others", h("small", {}, `beyond the first ${count(GROUPS_MAX)}`)];
}

// One group for each day of the period, also where nothing was asked.
export function everyDay(usage) {
  const byDay = new Map(usage.groups.map((it) => [it.day, it]));
  const found = [];
  for (let at = Date.parse(usage.from); at <= Date.parse(usage.to); at += 86_400_000) {
    const day = new Date(at).toISOString().slice(0, 10);
    found.push(byDay.get(day) ?? { day, cost: 0, requests: 0 });
  }
  return found;
}

function shares(groups, id, cell) {
  const most = Math.max(1e-12, ...groups.map((it) => it.cost));
  return h("ul", { class: "shares" }, groups.slice(0, 6).map((it) => h("li", { "data-key": id(it) },
    h("span", {}, cell(it)), h("span", { class: "number" }, dollars(it.cost)),
    h("svg", { class: "meter", height: 6, "aria-hidden": "true" }, h("rect", { class: "track", width: "100%", height: 6, rx: 3 }), h("rect", { class: "bar", width: `${(it.cost / most) * 100}%`, height: 6, rx: 3 })))));
}

// `id` is the member that tells groups apart: names are not unique.
function group(title, usage, id, cell) {
  const key = (it) => (it.isRest ? "others" : `of ${it[id]}`);
  return section(title, shares(usage.groups, key, cell), behind("Table", table(title, columns(title.replace("By ", ""), cell), withOthers(usage), { key })));
}

// A key with its workspace, as far as they are known: each workspace may have a key of this name.
function keyCell({ key_id: id, name: label }, keys, workspaces) {
  const of = keys.find((it) => it.id === id)?.workspace_id;
  return [h("a", { href: `#/keys?key=${encodeURIComponent(id)}` }, name(label ?? id)),
    of && h("small", {}, "in ", name(workspaces.find((it) => it.id === of)?.name ?? of))];
}

function workspaceCell({ workspace_id: id, workspace: label }, workspaces) {
  const isKnown = workspaces.some((it) => it.id === id);
  return [name(label), !isKnown && h("small", {}, code(id))];
}

export default {
  title: "Spend",
  hears: ["state"],
  pauseMs: 15_000,

  async load(page) {
    const days = page.query.days ?? "30";
    const of = (by) => page.ask(`usage${query({ by, days, limit: GROUPS_MAX })}`);
    const [byDay, byModel, byKey, byWorkspace, keys, workspaces] = await Promise.all([of("day"), of("model"), of("key"), of("workspace"), records(page.ask, "key"), records(page.ask, "workspace")]);
    return { byDay, byModel, byKey, byWorkspace, keys, workspaces };
  },

  view({ byDay, byModel, byKey, byWorkspace, keys, workspaces }, page) {
    const { total } = byDay;
    const days = everyDay(byDay);
    return [
      h("div", { class: "filters" }, field("Period", select("days", DAYS, page.query.days ?? "30", { onchange: (event) => page.go(`spend?days=${event.target.value}`) }))),
      facts(["Spend", dollars(total.cost)], ["On own credentials", dollars(total.byok_cost)], ["Requests", `${count(total.requests)}, ${count(failedOf(total))} failed`],
        ["Tokens", `${short(total.input_tokens)} in, ${short(total.output_tokens)} out`]),
      total.requests === 0 && empty("No request in this period", "Usage appears here as soon as a client asks."),
      total.requests > 0 && section("By day",
        bars(days.map((it) => ({ value: it.cost })), `Spend by day over ${plural(days.length, "day")}: ${dollars(total.cost)}`, { height: 140, least: 1e-9 }),
        h("p", { class: "axis" }, h("span", {}, byDay.from), h("span", {}, `most: ${dollars(Math.max(...days.map((it) => it.cost)))} a day, UTC`), h("span", {}, byDay.to)),
        behind("Table", table("Spend by day", columns("Day", (it) => it.day), byDay.groups, { key: (it) => it.day }))),
      total.requests > 0 && h("div", { class: "columns" },
        group("By model", byModel, "model", (it) => name(it.model || NONE)),
        group("By key", byKey, "key_id", (it) => keyCell(it, keys, workspaces)),
        group("By workspace", byWorkspace, "workspace_id", (it) => workspaceCell(it, workspaces))),
    ];
  },
};
