// What was spent: by day, by model, by key and by workspace, each chart with its table.

import { query, records } from "../api.js";
import { bars } from "../chart.js";
import { count, dollars, plural, short } from "../format.js";
import { h } from "../h.js";
import { behind, empty, facts, field, name, section, select, table } from "../parts.js";

const DAYS = [["7", "7 days"], ["30", "30 days"], ["92", "92 days"]];

function columns(title, cell) {
  return [
    { title, cell },
    { title: "Spend", kind: "number", cell: (it) => dollars(it.cost) },
    { title: "Own credentials", kind: "number", cell: (it) => dollars(it.byok_cost) },
    { title: "Requests", kind: "number", cell: (it) => count(it.requests) },
    { title: "Failed", kind: "number", cell: (it) => count(it.failed) },
    { title: "Attempts", kind: "number", cell: (it) => count(it.attempts) },
    { title: "Input", kind: "number", cell: (it) => short(it.input_tokens) },
    { title: "Cached", kind: "number", cell: (it) => short(it.cached_tokens) },
    { title: "Output", kind: "number", cell: (it) => short(it.output_tokens) },
  ];
}

// One group for each day of the period, also where nothing was asked.
export function everyDay(usage) {
  const byDay = new Map(usage.groups.map((it) => [it.day, it]));
  const found = [];
  for (let at = Date.parse(usage.from); at <= Date.parse(usage.to); at += 86_400_000) {
    const day = new Date(at).toISOString().slice(0, 10);
    found.push(byDay.get(day) ?? { day, cost: 0, requests: 0, failed: 0 });
  }
  return found;
}

function shares(groups, label) {
  const most = Math.max(1e-12, ...groups.map((it) => it.cost));
  return h("ul", { class: "shares" }, groups.slice(0, 6).map((it) => h("li", { "data-key": label(it) },
    h("span", {}, name(label(it))), h("span", { class: "number" }, dollars(it.cost)),
    h("svg", { class: "meter", height: 6, "aria-hidden": "true" }, h("rect", { class: "track", width: "100%", height: 6, rx: 3 }), h("rect", { class: "bar", width: `${(it.cost / most) * 100}%`, height: 6, rx: 3 })))));
}

function group(title, usage, label, cell) {
  return section(title, shares(usage.groups, label), behind("Table", table(title, columns(title.replace("By ", ""), cell), usage.groups, { key: label })));
}

export default {
  title: "Spend",
  hears: ["state"],
  pauseMs: 15_000,

  async load(page) {
    const days = page.query.days ?? "30";
    const of = (by) => page.ask(`usage${query({ by, days, limit: 100 })}`);
    const [byDay, byModel, byKey, byWorkspace, keys, workspaces] = await Promise.all([of("day"), of("model"), of("key"), of("workspace"), records(page.ask, "key"), records(page.ask, "workspace")]);
    return { byDay, byModel, byKey, byWorkspace, keys, workspaces };
  },

  view({ byDay, byModel, byKey, byWorkspace, keys, workspaces }, page) {
    const { total } = byDay;
    const days = everyDay(byDay);
    const keyOf = (it) => it.key_id ?? it.key ?? "";
    const keyName = (it) => keys.find((key) => key.id === keyOf(it))?.name ?? keyOf(it);
    const workspaceName = (it) => workspaces.find((found) => found.id === it.workspace_id)?.name ?? it.workspace ?? it.workspace_id;
    return [
      h("div", { class: "filters" }, field("Period", select("days", DAYS, page.query.days ?? "30", { onchange: (event) => page.go(`spend?days=${event.target.value}`) }))),
      facts(["Spend", dollars(total.cost)], ["On own credentials", dollars(total.byok_cost)], ["Requests", `${count(total.requests)}, ${count(total.failed)} failed`],
        ["Tokens", `${short(total.input_tokens)} in, ${short(total.output_tokens)} out`]),
      total.requests === 0 && empty("No request in this period", "Usage appears here as soon as a client asks."),
      total.requests > 0 && section("By day",
        bars(days.map((it) => ({ value: it.cost })), `Spend by day over ${plural(days.length, "day")}: ${dollars(total.cost)}`, { height: 140, least: 1e-9 }),
        h("p", { class: "axis" }, h("span", {}, byDay.from), h("span", {}, `most: ${dollars(Math.max(...days.map((it) => it.cost)))} a day, UTC`), h("span", {}, byDay.to)),
        behind("Table", table("Spend by day", columns("Day", (it) => it.day), byDay.groups, { key: (it) => it.day }))),
      total.requests > 0 && h("div", { class: "columns" },
        group("By model", byModel, (it) => it.model, (it) => name(it.model)),
        group("By key", byKey, keyName, (it) => h("a", { href: `#/keys?key=${encodeURIComponent(keyOf(it))}` }, name(keyName(it)))),
        group("By workspace", byWorkspace, workspaceName, (it) => name(workspaceName(it)))),
    ];
  },
};
