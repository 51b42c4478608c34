// The last requests, and what happened in each of them, without any content.

import { optional, query, records } from "../api.js";
import { count, dollars, duration, NONE, short, time, words } from "../format.js";
import { h } from "../h.js";
import { badge, button, code, empty, facts, field, missing, name, section, table } from "../parts.js";
import { costTable, drawing, stepTable, whereTimeWent } from "../timeline.js";

const PAGE = 50;
const WRONG = { failed: "bad", refused: "bad", interrupted: "bad", cancelled: "warn", incomplete: "warn", running: "" };

function outcome(it) {
  const kind = it.status >= 400 ? "bad" : WRONG[it.outcome] ?? "ok";
  return badge(kind, it.status ? `${it.status} ${words(it.error_type ?? it.outcome)}` : words(it.outcome));
}

// `names` has the workspaces by their ids; without it there is no column for them.
export function requestTable(requests, names) {
  return table("Requests, newest first", [
    { title: "Time", cell: (it) => h("a", { href: `#/requests/${encodeURIComponent(it.request_id)}` }, time(it.started_at)) },
    { title: "Model", cell: (it) => [name(it.model ?? it.requested_model ?? NONE), it.provider && h("small", {}, name(it.provider))] },
    { title: "Outcome", cell: outcome },
    { title: "Took", kind: "number", cell: (it) => duration(it.us) },
    { title: "Attempts", kind: "number", cell: (it) => count(it.attempts) },
    { title: "Tokens", kind: "number", cell: (it) => `${short(it.input_tokens)} / ${short(it.output_tokens)}` },
    { title: "Cost", kind: "number", cell: (it) => dollars((it.cost ?? 0) + (it.byok_cost ?? 0)) },
    names && { title: "Workspace", cell: (it) => name(names[it.workspace_id] ?? it.workspace_id?.slice(0, 8) ?? NONE) },
  ].filter(Boolean), requests, { key: (it) => it.request_id });
}

// What was refused before it ran: wrong keys, limits, malformed requests. Equal ones are one line.
function refusedTable(refused, keys) {
  const named = (id) => keys.find((it) => it.id === id)?.name ?? id;
  return table("Requests that were refused before they ran", [
    { title: "Last", cell: (it) => time(it.last_at) },
    { title: "Why", kind: "wide", cell: (it) => [badge("bad", `${it.status} ${words(it.error_type)}`), h("small", {}, h("bdi", {}, it.message))] },
    { title: "Times", kind: "number", cell: (it) => count(it.count) },
    { title: "Route", cell: (it) => it.route },
    { title: "Key", cell: (it) => (it.key_id ? h("a", { href: `#/keys?key=${encodeURIComponent(it.key_id)}` }, name(named(it.key_id))) : NONE) },
    { title: "From", cell: (it) => name(it.address) },
  ], refused, { key: (it) => `${it.status} ${it.route} ${it.error_type} ${it.key_id} ${it.address}` });
}

// The keys, for their names. They are read again after a while only: this page is drawn anew with each request that ends.
const NAMED_MS = 30_000;
let known = { at: -Infinity, keys: [] };

async function namedKeys(ask) {
  const now = performance.now();
  if (now - known.at > NAMED_MS) known = { at: now, keys: await records(ask, "key") };
  return known.keys;
}

export async function workspaceNames(ask) {
  return Object.fromEntries((await records(ask, "workspace")).map((it) => [it.id, it.name]));
}

function filters(page, models) {
  const set = (members) => page.go(`requests${query({ ...page.query, before: undefined, ...members })}`);
  return h("div", { class: "filters" },
    field("Model", h("select", { onchange: (event) => set({ model: event.target.value }) },
      h("option", { value: "" }, "all"),
      models.map((it) => h("option", { value: it.id, selected: it.id === page.query.model }, it.id)))),
    h("label", { class: "check" }, h("input", { type: "checkbox", checked: page.query.failed === "true", onchange: (event) => set({ failed: event.target.checked ? "true" : "" }) }), "Only failed"),
    h("label", { class: "check" }, h("input", { type: "checkbox", checked: !page.state.isPaused, onchange: (event) => {
      page.state.isPaused = !event.target.checked;
      page.refresh();
    } }), "Follow"),
    page.query.key && button("Of all keys", () => set({ key: "" }), { class: "small" }),
    page.state.isPaused && page.state.newer > 0 && button(`Show ${page.state.newer} newer`, page.refresh, { class: "small" }));
}

function list({ found, models, names, keys }, page) {
  if (!found) return missing("List of requests");
  if (found.keeps === 0) return empty("The host remembers no requests", "Its configuration has ", code("server.recorder = 0"), ".");
  const last = found.data.at(-1);
  const isFiltered = page.query.failed || page.query.model || page.query.key;
  const refused = (found.refused ?? []).filter((it) => !page.query.key || it.key_id === page.query.key);
  const shown = [...(isFiltered || page.query.before ? [] : found.running ?? []), ...found.data];
  return [
    filters(page, models),
    shown.length ? requestTable(shown, names) : empty(isFiltered ? "No request fits the filter" : "No request yet",
      "The host remembers its last requests since its start. Send one from the ", h("a", { href: "#/playground" }, "playground"), " and it appears here."),
    h("div", { class: "buttons" },
      page.query.before && h("a", { class: "button", href: `#/requests${query({ ...page.query, before: "" })}` }, "Newest"),
      found.has_more && last?.number && h("a", { class: "button", href: `#/requests${query({ ...page.query, before: last.number })}` }, "Older")),
    refused.length > 0 && !page.query.before && section("Refused before they ran",
      h("p", {}, "Requests with a wrong key, without the right, beyond a limit, or malformed. They are kept apart, so they push out none of those above."),
      refusedTable(refused, keys)),
  ];
}

function one({ request, names, keys }) {
  if (!request) return empty("The host does not remember this request", "It keeps the last ones since its start, as ", code("server.recorder"), " says. The audit log and usage stay.");
  const { steps } = request;
  const key = keys.find((it) => it.id === request.key_id);
  const cost = costTable(steps);
  return [
    facts(
      ["Outcome", outcome(request)],
      ["Time taken", duration(request.us)],
      ["Cost", `${dollars(request.cost)}${request.byok_cost ? ` and ${dollars(request.byok_cost)} on own credentials` : ""}${request.estimated ? ", estimated" : ""}`],
      ["Model", [name(request.model ?? NONE), request.requested_model && request.requested_model !== request.model && [", asked for ", name(request.requested_model)]]],
      ["Provider", name(request.provider ?? NONE)],
      ["Attempts", count(request.attempts)],
      ["Tokens", `${count(request.input_tokens)} in, ${count(request.cached_tokens)} of them cached; ${count(request.output_tokens)} out, ${count(request.reasoning_tokens)} of them reasoning`],
      ["Began", time(request.started_at)],
      ["Workspace", name(names[request.workspace_id] ?? request.workspace_id)],
      ["Key", h("a", { href: `#/keys?key=${encodeURIComponent(request.key_id)}` }, name(key?.name ?? request.key_id))],
      ["Size", `${count(request.request_bytes)} bytes asked, ${count(request.response_bytes)} answered${request.streamed ? ", streamed" : ""}`],
      ["Id", code(request.request_id)],
      request.log_id && ["Id in the log", code(request.log_id)],
    ),
    section("Where the time went", whereTimeWent(steps, request.us) ?? h("p", {}, "No step was recorded.")),
    section("Timeline", steps.length ? drawing(steps, request.us) : h("p", {}, "No step was recorded."),
      request.steps_lost > 0 && h("p", {}, `${count(request.steps_lost)} further steps were not kept.`), steps.length > 0 && stepTable(steps)),
    cost && section("What it cost", cost),
    h("p", {}, h("a", { class: "button", href: "#/requests" }, "All requests")),
  ];
}

export default {
  title: "Requests",
  hears: ["request"],
  heading: (page) => (page.rest ? `Request ${page.rest.slice(0, 40)}` : "Requests"),

  // Whether the list stays as it is: it is paused, an older part of it is shown, or an operator reads it.
  isHeld(page, event, data) {
    if (page.rest) return !page.data?.request || page.data.request.outcome !== "running";
    if (event === "request" && data) page.state.newer = (page.state.newer ?? 0) + 1;
    if (page.state.isPaused) page.draw();
    return page.state.isPaused || Boolean(page.query.before) || document.activeElement?.closest("main table") || document.querySelector("main tbody:hover");
  },

  async load(page) {
    page.state.newer = 0;
    const names = await workspaceNames(page.ask);
    if (page.rest) {
      const [request, keys] = await Promise.all([optional(page.ask(`requests/${encodeURIComponent(page.rest)}`)), namedKeys(page.ask)]);
      return { request, names, keys };
    }
    const { before, model, failed, key } = page.query;
    const [found, models, keys] = await Promise.all([
      optional(page.ask(`requests${query({ limit: PAGE, before, model, failed, key })}`)), page.ask("models"), namedKeys(page.ask),
    ]);
    return { found, models, names, keys };
  },

  view: (data, page) => (page.rest ? one(data, page) : list(data, page)),
};
