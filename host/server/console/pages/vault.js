// Which secrets there are and where they may go, and the audit log of who used them. No value, and
// no field for one: values are stored by the command line or by clients.

import { query, records } from "../api.js";
import { count, day, dollars, NONE, time, utc, words } from "../format.js";
import { h } from "../h.js";
import { badge, behind, button, code, dialog, empty, field, name, notice, onlyNewest, section, table } from "../parts.js";

const PAGE = 100;
// The most pages that are read for one view.
const TRIES = 5;
const ACTIONS = [
  "secret_released", "release_refused", "secret_reflected", "request_refused", "secret_stored", "secret_deleted", "secrets_copied",
  "key_issued", "key_changed", "key_revoked", "tokens_refused", "workspace_created", "workspace_deleted", "member_created", "member_deleted",
  "intern_created", "intern_deleted", "credit_added", "damage_found",
];
const BAD = new Set(["release_refused", "secret_reflected", "request_refused", "tokens_refused", "damage_found", "rollback_accepted"]);
const ID = /\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/g;
const HIDDEN = new Set(["actor", "action", "name", "host", "hosts", "vault", "fingerprint", "used_by", "request_id"]);

function secretsTable({ secrets, workspaces, interns }, page) {
  const where = (it) => {
    if (it.scope === "operator") return "operator";
    const intern = interns.find((found) => found.id === it.intern_id);
    const workspace = workspaces.find((found) => found.id === it.workspace_id);
    return [name(workspace?.name ?? it.workspace_id ?? NONE), it.intern_id && [", intern ", name(intern?.name ?? it.intern_id)]];
  };
  const remove = (it) => dialog({
    title: `Delete the secret ${it.name}`,
    body: h("p", {}, "Requests that need ", name(it.name), " fail from then on. This cannot be undone."),
    verb: "Delete", isDanger: true,
    act: async () => void await page.change("secret/delete", {
      name: it.name, ...(it.scope === "operator" ? { operator: true } : it.intern_id ? { intern: it.intern_id } : { workspace: it.workspace_id }),
    }),
  }).then((isDone) => isDone && page.refresh());
  return table("Secrets", [
    { title: "Secret", kind: "plain", cell: (it) => name(it.name) },
    { title: "Of", cell: where },
    { title: "May go to", kind: "wide", cell: (it) => (it.hosts ? it.hosts.map((host, index) => [index ? ", " : "", name(host)]) : badge("warn", "no host: never released")) },
    { title: "Fingerprint", cell: (it) => (it.fingerprint ? h("code", { title: it.fingerprint }, it.fingerprint.replace(/^(sha256:)?(.{8}).+$/, "$2…")) : NONE) },
    { title: "Stored", cell: (it) => day(it.created_at) },
    { title: "Actions", kind: "plain", cell: (it) => h("div", { class: "actions" },
      h("a", { class: "button small", href: `#/vault${query({ secret: it.name })}`, "aria-label": `Uses of ${it.name}` }, "Uses"),
      button("Delete", () => remove(it), { class: "small danger", "aria-label": `Delete ${it.name}` })) },
  ], secrets, {
    dense: true,
    key: (it) => `${it.scope} ${it.workspace_id} ${it.intern_id} ${it.name}`,
    empty: empty("No secret", "Store one on the machine of the host: ", code("printf %s \"$TOKEN\" | cofferdam secret put NAME --host HOST --workspace default")),
  });
}

// The records as one row for each entry, newest first.
function rows(records) {
  return records.flatMap(({ seq, position, at, entries }) => entries.map((entry, index) => ({ number: position ?? seq, at, entry, key: `${position ?? seq}.${index}` }))).reverse();
}

function plain(value) {
  if (Array.isArray(value)) return value.map(plain).join(", ");
  if (value && typeof value === "object") return Object.entries(value).map(([key, it]) => pair(key, it)).join(" ");
  return String(value);
}

// A member with its name. Times and amounts are as people read them.
function pair(key, value) {
  if (key.endsWith("_ms") && Number.isFinite(value)) return `${words(key.slice(0, -3))} ${time(value)}`;
  if (key.endsWith("_pico") && Number.isFinite(value)) return `${words(key.slice(0, -5))} ${dollars(value / 1e12)}`;
  return `${words(key)} ${plain(value)}`;
}

function who(actor) {
  return typeof actor === "object" && actor ? plain(actor) : words(actor);
}

// What else an entry says; names stand for the ids that are known, other ids are cut.
function rest(entry, names) {
  return Object.entries(entry).filter(([key, value]) => !HIDDEN.has(key) && value !== null && !(key === "id" && entry.name))
    .map(([key, value]) => pair(key, value).replaceAll(ID, (id) => names.get(id) ?? `${id.slice(0, 8)}…`)).join(", ");
}

function about(entry, names) {
  const hosts = entry.host ?? entry.hosts?.join(", ");
  const more = rest(entry, names);
  return [entry.name && name(entry.name), hosts && [entry.name ? " for " : "", name(hosts)], more && h("small", {}, h("bdi", {}, more))];
}

function auditTable(data) {
  const names = new Map([...data.workspaces, ...data.interns].map((it) => [it.id, it.name]));
  const shown = rows(data.records);
  return table("Entries of the audit log, newest first", [
    { title: "No.", kind: "number", cell: (it) => String(it.number) },
    { title: "Time, UTC", kind: "plain", cell: (it) => utc(it.at) },
    { title: "What", kind: "plain", cell: (it) => badge(BAD.has(it.entry.action) ? "bad" : "", words(it.entry.action)) },
    { title: "By", cell: (it) => name(it.entry.used_by ?? who(it.entry.actor)) },
    { title: "Request", cell: (it) => (it.entry.request_id ? h("a", { href: `#/requests/${encodeURIComponent(it.entry.request_id)}` }, it.entry.request_id.slice(0, 13)) : NONE) },
    { title: "About", kind: "wide", cell: (it) => about(it.entry, names) },
  ], shown, { dense: true, key: (it) => it.key, empty: empty("No entry fits", data.previous !== null ? "Look at older records, or change the filter." : "Change the filter.") });
}

function filters(page, secrets) {
  const set = (members) => page.go(`vault${query({ ...page.query, before: "", ...members })}`);
  const names = [...new Set(secrets.map((it) => it.name))].sort();
  if (page.query.secret && !names.includes(page.query.secret)) names.unshift(page.query.secret);
  const chosen = (label, value, options, key) => field(label, h("select", { onchange: (event) => set({ [key]: event.target.value }) },
    h("option", { value: "" }, "all"), options.map((it) => h("option", { value: it, selected: it === value }, key === "action" ? words(it) : it))));
  return h("div", { class: "filters" },
    chosen("Secret", page.query.secret, names, "secret"),
    chosen("Action", page.query.action, ACTIONS, "action"),
    field("Day, UTC", h("input", { type: "date", value: page.query.day ?? "", onchange: (event) => set({ day: event.target.value }) })));
}

// What a check found. A damaged store is an error of the host, with the document of the check.
async function verification(ask) {
  try {
    return await ask("vault/verify");
  } catch (error) {
    if (error.details?.problems) return error.details;
    throw error;
  }
}

function verdict(found) {
  if (!found) return null;
  const figures = `${count(found.secrets)} secrets in ${count(found.vaults)} vaults, ${count(found.audit_records)} audit records, ${count(found.usage_rows)} usage rows`;
  if (found.ok) return notice("ok", h("strong", {}, "The store is whole. "), `Checked: ${figures}.`);
  return notice("bad", h("strong", {}, "The store is damaged. "), `Checked: ${figures}.`, h("ul", {}, found.problems.map((it) => h("li", {}, h("bdi", {}, plain(it))))));
}

export default {
  title: "Vault",

  // The log is read from its end: only records before the number `before` are shown.
  async load(page) {
    const [secrets, workspaces, interns] = await Promise.all([records(page.ask, "secret"), records(page.ask, "workspace"), records(page.ask, "intern")]);
    const { action, day: on, secret, before } = page.query;
    let found = [];
    // A text in the address that is no name of a secret has no entries.
    let previous = !secret || /^[a-z][a-z0-9]*(_[a-z0-9]+)*$/.test(secret) ? before : null;
    // With a filter a page may be empty: some further ones are read.
    for (let tries = 0; previous !== null && found.length < PAGE && tries < TRIES; tries += 1) {
      const older = await page.ask(`vault/audit${query({ newest: PAGE - found.length, before: previous, action, day: on, secret })}`);
      found = [...older.records, ...found];
      previous = older.previous;
    }
    return { secrets, workspaces, interns, records: found, previous };
  },

  view(data, page) {
    const verify = () => page.run(async () => {
      page.state.verified = null;
      page.draw();
      page.state.verified = await verification(page.askToEnd);
    }, "The store was checked");
    return [
      section("Secrets", secretsTable(data, page), onlyNewest(data.secrets, "cofferdam secret list"), h("p", { class: "hint" }, "The fingerprint tells whether two values of one vault are equal. No page shows a value or asks for one.")),
      section("Verify", h("p", {}, "Checks every seal, every record and the chain of the audit log."), verdict(page.state.verified),
        h("div", { class: "buttons" }, button("Verify the store", verify))),
      section("Audit log", filters(page, data.secrets), auditTable(data),
        h("div", { class: "buttons" },
          page.query.before && h("a", { class: "button", href: `#/vault${query({ ...page.query, before: "" })}` }, "Newest"),
          data.previous !== null && h("a", { class: "button", href: `#/vault${query({ ...page.query, before: data.previous })}` }, "Older"))),
      behind("What is never here", h("p", {}, "Values of secrets, contents of requests and answers, and keys after they were made.")),
    ];
  },
};
