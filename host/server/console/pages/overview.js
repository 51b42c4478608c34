// What the host does now, what it costs, and what needs attention.

import { optional } from "../api.js";
import { bars } from "../chart.js";
import { count, dollars, failedOf, NONE, plural, span } from "../format.js";
import { h } from "../h.js";
import { badge, behind, code, empty, missing, name, section, table } from "../parts.js";
import { requestTable } from "./requests.js";
import { everyDay } from "./spend.js";

// Some of the checks ask name servers, so they run seldom.
const ATTENTION_MS = 60_000;

function tile(title, value, below, drawing) {
  return h("div", { class: "tile", "data-key": `t-${title}` }, h("h2", {}, title), h("p", { class: "figure" }, value), drawing, h("p", { class: "below" }, below));
}

function trafficTiles(traffic) {
  const minutes = traffic?.minutes ?? [];
  if (!traffic) return tile("Requests per minute", "–", "Not available in this host");
  const sum = (what) => minutes.reduce((all, it) => all + it[what], 0);
  const [requests, failures] = [sum("requests"), sum("failures")];
  const share = requests ? `${((failures / requests) * 100).toFixed(1)} %` : "–";
  const last = minutes.at(-1);
  const points = minutes.map((it) => ({ value: it.requests, bad: it.failures }));
  return [
    tile("Requests", count(requests), `in the last hour, ${count(last?.requests ?? 0)} in this minute`,
      bars(points, `Requests of the last ${minutes.length} minutes: ${requests}, of which ${failures} failed`, { height: 48, least: 4 })),
    tile("Failures", count(failures), `${share} of the last hour`,
      bars(minutes.map((it) => ({ value: it.failures, bad: it.failures })), `Failures of the last hour: ${failures}`, { height: 48, least: 4 })),
  ];
}

function spendTile(usage) {
  const days = everyDay(usage);
  const today = usage.groups.find((it) => it.day === usage.to);
  return tile("Spend today", dollars(today?.cost ?? 0), `${dollars(usage.total.cost)} in ${plural(14, "day")}`,
    bars(days.map((it) => ({ value: it.cost })), `Spend of the last days: ${dollars(usage.total.cost)}`, { height: 48, least: 1e-9 }));
}

function attention(found, held) {
  if (found === null && !held.length) return missing("Attention list");
  const wrong = (found?.findings ?? []).filter((it) => it.severity !== "ok");
  const rank = { bad: 0, warn: 1 };
  wrong.sort((a, b) => (rank[a.severity] ?? 2) - (rank[b.severity] ?? 2));
  const updates = held.map((it) => ({ severity: "warn", subject: it.plugin, text: `${it.version} is held: it asks for more than ${it.serving}`, link: `#/plugins/${encodeURIComponent(it.plugin)}` }));
  if (!wrong.length && !updates.length) return empty("Nothing needs attention", "Checks of the configuration, the store, keys, plugins and listeners are all good.");
  return h("ul", { class: "findings" }, [...updates, ...wrong].map((it) => h("li", { "data-key": `${it.subject} ${it.text}` },
    badge(it.severity, it.severity === "bad" ? "bad" : "look"),
    h("div", {}, h("p", {}, h("strong", {}, name(it.subject)), " ", h("bdi", {}, it.text), it.link && [" ", h("a", { href: it.link }, "Look at it")]),
      it.remedy && h("p", { class: "remedy" }, it.remedy)))));
}

export function breakerBadge(it) {
  if (it.breaker === "open") return badge("bad", it.open_for_s ? `open ${span(it.open_for_s)}` : "open");
  if (it.breaker === "half-open") return badge("warn", "half-open");
  if (it.limited_for_s) return badge("warn", `limited ${span(it.limited_for_s)}`);
  if (it.ejected) return badge("warn", "last resort");
  return badge("ok", it.breaker ?? "unknown");
}

export function failedAgo(it) {
  return it.failed_ago_s === null || it.failed_ago_s === undefined ? NONE : `${span(it.failed_ago_s)} ago`;
}

function sick(endpoints) {
  const found = endpoints.filter((it) => it.ejected || it.limited_for_s || (it.breaker && it.breaker !== "closed"));
  if (!found.length) return null;
  return section("Sick endpoints", table("Endpoints that fail", [
    { title: "Model", cell: (it) => name(it.model) },
    { title: "Provider", cell: (it) => name(it.provider) },
    { title: "State", cell: breakerBadge },
    { title: "Failures", kind: "number", cell: (it) => `${count(it.failures)} of ${count(it.requests)}` },
    { title: "Last failure", cell: failedAgo },
  ], found, { key: (it) => `${it.model} ${it.provider} ${it.upstream} ${it.tier}` }));
}

function spendByModel(usage) {
  const most = Math.max(1e-12, ...usage.groups.map((it) => it.cost));
  return section("Models of the last 14 days", table("Spend by model", [
    { title: "Model", cell: (it) => name(it.model) },
    { title: "Spend", kind: "number", cell: (it) => dollars(it.cost) },
    { title: "Share", kind: "share", cell: (it) => h("svg", { class: "meter", height: 6, "aria-hidden": "true" }, h("rect", { class: "bar", width: `${(it.cost / most) * 100}%`, height: 6, rx: 3 })) },
    { title: "Requests", kind: "number", cell: (it) => count(it.requests) },
    { title: "Failed", kind: "number", cell: (it) => count(failedOf(it)) },
  ], usage.groups.slice(0, 8), {
    key: (it) => it.model,
    empty: empty("No request yet", "Send one from the ", h("a", { href: "#/playground" }, "playground"), ", or make a key under ", h("a", { href: "#/keys" }, "Keys"), " for a client."),
  }));
}

export default {
  title: "Overview",
  hears: ["state", "reload"],
  pauseMs: 5000,

  async load({ ask, state }) {
    if (!(state.foundAt > Date.now() - ATTENTION_MS)) {
      state.found = await optional(ask("attention"));
      state.foundAt = Date.now();
    }
    const [status, byDay, byModel, traffic, endpoints, failed] = await Promise.all([
      ask("status"), ask("usage?by=day&days=14"), ask("usage?by=model&days=14"),
      optional(ask("traffic")), optional(ask("endpoints")), optional(ask("requests?failed=true&limit=5")),
    ]);
    return { status, byDay, byModel, found: state.found, traffic, endpoints, failed };
  },

  view({ status, byDay, byModel, found, traffic, endpoints, failed }) {
    const serving = status.serving ?? {};
    return [
      h("div", { class: "tiles" },
        trafficTiles(traffic),
        spendTile(byDay),
        tile("Running", count(serving.requests_running), `up ${span(serving.uptime_s ?? 0)}, version ${status.version}`)),
      traffic && behind("Requests by minute as a table", table("Requests by minute", [
        { title: "Minute", cell: (it) => new Date(it.at).toTimeString().slice(0, 5) },
        { title: "Requests", kind: "number", cell: (it) => count(it.requests) },
        { title: "Failures", kind: "number", cell: (it) => count(it.failures) },
      ], traffic.minutes.filter((it) => it.requests).reverse(), { empty: h("p", {}, "No request in the last hour.") })),
      serving.reloads_refused > 0 && h("p", {}, badge("warn", "reload refused"), ` ${plural(serving.reloads_refused, "reload")} of the configuration refused since the start. The log has the reason; `, code("cofferdam serve --check"), " tells it too."),
      section("Attention", attention(found, status.held_plugins ?? [])),
      endpoints && sick(endpoints),
      failed && section("Last failed requests", failed.data.length ? requestTable(failed.data) : empty("No failed request", "None of the requests that the host remembers failed.")),
      spendByModel(byModel),
    ];
  },
};
