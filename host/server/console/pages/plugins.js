// The plugins: what each asks for and was granted, how often it was called and failed, and its log.

import { ApiError, optional, query } from "../api.js";
import { count, day, duration, NONE, plural, time, words } from "../format.js";
import { h } from "../h.js";
import { badge, button, code, copied, dialog, empty, facts, field, missing, name, notice, section, table } from "../parts.js";

const LINES = 100;

function state(plugin) {
  if (plugin.held) return badge("warn", `update ${plugin.held.version} held`);
  if (plugin.state.startsWith("compiled")) return badge("ok", plugin.state);
  return badge(plugin.state === "not compiled" ? "" : "warn", plugin.state);
}

function failures(plugin) {
  const kinds = Object.entries(plugin.errors ?? {}).filter(([, number]) => number > 0);
  if (!plugin.errors) return NONE;
  if (!kinds.length) return "0";
  return badge("bad", kinds.map(([kind, number]) => `${count(number)} ${words(kind)}`).join(", "));
}

function busy({ busy_s: s }) {
  return s === undefined || s === 0 ? NONE : duration(Math.round(s * 1_000_000));
}

function reach(it) {
  const parts = [
    it.hosts.length && ["hosts ", list(it.hosts)],
    it.secrets.length && ["secrets ", list(it.secrets)],
    it.imports.length && ["imports ", list(it.imports)],
    it.injections.length && plural(it.injections.length, "injection"),
    it.placeholder_headers.length && ["headers ", list(it.placeholder_headers)],
  ].filter(Boolean);
  return parts.length ? parts.map((part, index) => [index ? "; " : "", part]) : NONE;
}

function list(names) {
  return names.map((it, index) => [index ? ", " : "", name(it)]);
}

function all({ plugins }) {
  const rank = (it) => (it.held ? 0 : Object.keys(it.errors ?? {}).length ? 1 : 2);
  const sorted = [...plugins].sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
  const isCounted = plugins.some((it) => it.calls !== undefined);
  return table("Plugins", [
    { title: "Plugin", cell: (it) => [h("a", { href: `#/plugins/${encodeURIComponent(it.name)}` }, name(it.name)), h("small", {}, `${it.kind}, ${it.version}`)] },
    { title: "State", cell: state },
    isCounted && { title: "Calls", kind: "number", cell: (it) => count(it.calls) },
    isCounted && { title: "Failed calls", cell: failures },
    isCounted && { title: "Busy", kind: "number", cell: busy },
    { title: "Asks", kind: "wide", cell: (it) => reach(it.asks) },
    { title: "Granted", kind: "wide", cell: (it) => reach(it.granted) },
  ].filter(Boolean), sorted, { key: (it) => it.name });
}

function held(plugin, page) {
  if (!plugin.held) return null;
  const accept = () => dialog({
    title: `Accept version ${plugin.held.version}`,
    body: [h("p", {}, name(plugin.name), " will serve with version ", plugin.held.version, " and also get:"),
      h("ul", {}, plugin.held.asks_more.map((line) => h("li", {}, code(line))))],
    verb: "Accept",
    act: async () => {
      await page.change("plugin/grant", { name: plugin.name, accept: true, digest: plugin.held.digest });
    },
  }).then((isDone) => isDone && page.refresh());
  return notice("warn",
    h("p", {}, h("strong", {}, `Version ${plugin.held.version} is held. `), `It asks for more than ${plugin.version}, which goes on serving:`),
    h("ul", {}, plugin.held.asks_more.map((line) => h("li", {}, code(line)))),
    copied(`cofferdam plugin grant ${plugin.name} --accept --digest ${plugin.held.digest}`),
    h("div", { class: "buttons" }, button("Accept", accept, { class: "primary" })));
}

// The version that served before, which the host keeps.
function earlier({ name: plugin, version, previous }, page) {
  const back = () => dialog({
    title: `Go back to version ${previous.version}`,
    body: h("p", {}, name(plugin), ` serves with version ${previous.version}, installed ${day(previous.installed_at)}, at once. Version ${version} is kept in its place.`),
    verb: "Go back",
    act: async () => void await page.change("plugin/rollback", { name: plugin }),
  }).then((isDone) => isDone && page.refresh());
  return [`${previous.version}, installed ${day(previous.installed_at)} `, button("Go back to it…", back, { class: "small" })];
}

function grantForm(plugin, page) {
  const listed = (label, key, hint) => field(label, h("input", { name: key, "data-list": "", autocomplete: "off", spellcheck: "false" }), hint);
  return () => dialog({
    title: `Grant to ${plugin.name}`,
    body: [
      h("p", { class: "hint" }, "Added to the configuration file of the host. Several values are separated by spaces. To take a grant back, edit the file."),
      listed("Hosts", "host", "Such as api.example.com; * is every public host, without secrets"),
      listed("Secrets", "secret", "Names of secrets that go along to hosts they are bound to"),
      listed("Imports", "import", "model, tool-call or request: they cost money or show content"),
      listed("Placeholder headers", "placeholder-header", "Headers in which it may name a secret"),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "print" }), "Only show the lines, change nothing"),
    ],
    verb: "Grant",
    act: async (members) => {
      if (!Object.keys(members).some((it) => it !== "print")) throw new ApiError(400, "empty", "Name at least one host, secret, import or header.");
      const made = await page.change("plugin/grant", { name: plugin.name, ...members });
      const lines = made.lines ?? made.added ?? made.text;
      return h("div", {}, h("p", {}, members.print ? "These lines would be added:" : "Granted."), lines && copied(Array.isArray(lines) ? lines.join("\n") : String(lines)));
    },
  }).then((isDone) => isDone && page.refresh());
}

function level(text) {
  return badge({ ERROR: "bad", WARN: "warn" }[text] ?? "", text.toLowerCase());
}

function logs(found) {
  if (!found) return missing("Log of one plugin");
  return [
    found.earlier > 0 && h("p", { class: "hint" }, `${plural(found.earlier, "earlier line")} not shown.`),
    table("Last lines about the plugin, newest first", [
      { title: "Time", cell: (it) => time(it.time) },
      { title: "Level", cell: (it) => level(it.level) },
      { title: "Line", kind: "wide", cell: (it) => h("bdi", { class: "log" }, it.text) },
      { title: "Request", cell: (it) => (it.generation ? h("a", { href: `#/requests/${encodeURIComponent(it.generation)}` }, it.generation.slice(0, 13)) : it.request_id?.slice(0, 8) ?? NONE) },
    ], [...found.lines].reverse(), { empty: empty("No line yet", "Lines that the plugin writes and lines of the host about it appear here.") }),
  ];
}

function one({ plugins, found }, page) {
  const plugin = plugins.find((it) => it.name === page.rest);
  if (!plugin) return empty("No such plugin", h("a", { href: "#/plugins" }, "All plugins"));
  return [
    held(plugin, page),
    facts(
      ["State", state(plugin)], ["Kind", plugin.kind], ["Version", `${plugin.version}, line ${plugin.line}`], plugin.previous && ["Version before", earlier(plugin, page)], ["From", h("bdi", {}, plugin.origin)],
      plugin.calls !== undefined && ["Calls", count(plugin.calls)],
      plugin.errors && ["Failed calls", failures(plugin)],
      plugin.busy_s !== undefined && ["Busy", busy(plugin)],
      ["Digest", code(plugin.digest.slice(0, 16))],
    ),
    section("Reach", facts(["Asks for", reach(plugin.asks)], ["Granted", reach(plugin.granted)]),
      plugin.denied.length > 0 && [h("p", {}, "Asked for and not granted. To grant it:"), copied(plugin.denied.join("\n"))],
      plugin.idle.length > 0 && [h("p", {}, "Granted, and its manifest does not ask for it:"), h("ul", {}, plugin.idle.map((it) => h("li", {}, code(it))))],
      h("div", { class: "buttons" }, button("Grant…", grantForm(plugin, page)))),
    section("Log", logs(found)),
    h("p", {}, h("a", { class: "button", href: "#/plugins" }, "All plugins")),
  ];
}

export default {
  title: "Plugins",
  hears: ["state", "reload"],
  pauseMs: 5000,
  heading: (page) => page.rest || "Plugins",

  async load(page) {
    const [plugins, found] = await Promise.all([
      page.ask("plugin/list"),
      page.rest ? optional(page.ask(`plugin/logs${query({ name: page.rest, lines: LINES })}`)) : null,
    ]);
    return { plugins, found };
  },

  view: (data, page) => (page.rest ? one(data, page) : all(data)),
};
