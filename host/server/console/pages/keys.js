// Workspaces, members, interns and their keys: who may spend what, and what was spent.

import { optional, query, records, RECORDS_MAX } from "../api.js";
import { meter } from "../chart.js";
import { day, dollars, NONE, words } from "../format.js";
import { h } from "../h.js";
import { badge, button, code, copied, dialog, empty, field, name, notice, onlyNewest, section, select, table } from "../parts.js";

// Reading the credit of all workspaces takes a store in a database a while, so it is read seldom.
const CREDITS_MS = 60_000;
const SPANS = ["day", "week", "month", "total"];

function input(attributes) {
  return h("input", { autocomplete: "off", spellcheck: "false", ...attributes });
}

function limitFields(none) {
  return SPANS.map((it) => field(`Limit per ${it}`.replace("per total", "in all"), input({ name: `limit-${it}`, inputmode: "decimal", pattern: none ? "none|[0-9]+([.][0-9]+)?" : "[0-9]+([.][0-9]+)?" }), none ? "Dollars, or none; empty leaves it" : "Dollars; empty is no limit"));
}

function ask(page, title, body, verb, path, { isDanger, members = {} } = {}) {
  const { state } = page;
  const act = async (given) => {
    // Also a change whose answer is an error may have been made.
    state.changes = (state.changes ?? 0) + 1;
    await page.change(path, { ...members, ...given });
  };
  const before = state.changes;
  return dialog({ title, body, verb, isDanger, act }).then(() => void (state.changes !== before && page.refresh()));
}

// The credit of all listed workspaces. It is read anew after a change, also by a load that began before it.
async function credits(get, state) {
  const { changes } = state;
  if (state.creditsOf !== changes || !(state.creditsAt > Date.now() - CREDITS_MS)) {
    const found = await get(`credits/show${query({ limit: RECORDS_MAX })}`);
    Object.assign(state, { credits: new Map(found.map((it) => [it.workspace_id, it])), creditsAt: Date.now(), creditsOf: changes });
  }
  return state.credits;
}

function createKey(page, { workspaces, members, interns }) {
  const owners = [["", "the workspace's owner"], ...members.map((it) => [`member ${it.id}`, `member ${it.name}`]), ...interns.map((it) => [`intern ${it.id}`, `intern ${it.name}`]), ["provisioning", "none: it manages keys (provisioning)"]];
  return dialog({
    title: "Create a key",
    body: [
      field("Workspace", select("workspace", workspaces.map((it) => [it.id, it.name]), page.query.workspace)),
      field("For", select("owner", owners)),
      field("Label", input({ name: "name", maxlength: 64 }), "To recognise it by"),
      field("Days until it ends", input({ name: "expires-days", inputmode: "numeric", pattern: "[0-9]+" }), "Empty is never"),
      h("details", {}, h("summary", {}, "Limits of spend"), limitFields(false)),
    ],
    verb: "Create",
    act: async ({ owner, ...given }) => {
      if (owner === "provisioning") given.provisioning = true;
      else if (owner) given[owner.split(" ")[0]] = owner.split(" ")[1];
      const made = await page.change("key/create", given);
      return [notice("warn", h("strong", {}, "This key is shown once. "), "The host keeps only its hash: copy it now."), copied(made.key)];
    },
  }).then((isDone) => isDone && page.refresh());
}

function spent(key) {
  const limits = SPANS.filter((it) => key.limits?.[it] !== undefined);
  if (!limits.length) return dollars(key.spent.total);
  return limits.map((it) => {
    const text = `${dollars(key.spent[it])} of ${dollars(key.limits[it])} ${it === "total" ? "in all" : `a ${it}`}`;
    return h("div", { class: "limit" }, text, meter(key.spent[it], key.limits[it], text));
  });
}

function keyState(key) {
  if (key.revoked_at) return badge("", `revoked ${day(key.revoked_at)}`);
  if (key.disabled) return badge("warn", "disabled");
  if (key.expires_at && new Date(key.expires_at) < new Date()) return badge("warn", "expired");
  return badge("ok", key.expires_at ? `until ${day(key.expires_at)}` : "active");
}

function keyActions(key, page) {
  if (key.revoked_at) return NONE;
  const label = key.name ?? key.id;
  return h("div", { class: "actions" },
    button("Limits", () => ask(page, `Limits of ${label}`, limitFields(true), "Set", "key/limit", { members: { id: key.id } }), { class: "small", "aria-label": `Limits of ${label}` }),
    key.disabled
      ? button("Enable", () => page.run(() => page.change("key/enable", { id: key.id }), "Enabled"), { class: "small", "aria-label": `Enable ${label}` })
      : button("Disable", () => page.run(() => page.change("key/disable", { id: key.id }), "Disabled"), { class: "small", "aria-label": `Disable ${label}` }),
    button("Revoke", () => ask(page, `Revoke ${label}`, h("p", {}, "The key ", name(label), " never works again. This cannot be undone; to stop it for a while, disable it."), "Revoke", "key/revoke", { isDanger: true, members: { id: key.id } }), { class: "small danger", "aria-label": `Revoke ${label}` }));
}

function keysTable(data, page) {
  const { workspaces, members, interns } = data;
  const all = [["", "all"], ...workspaces.map((it) => [it.id, it.name])];
  const named = (list, id) => list.find((it) => it.id === id)?.name ?? id;
  const wanted = page.query.key;
  const shown = data.keys.filter((it) => (page.state.all || !it.revoked_at || it.id === wanted));
  shown.sort((a, b) => (b.id === wanted) - (a.id === wanted));
  const columns = [
    { title: "Key", cell: (it) => [name(it.name ?? "no label"), it.id === wanted && [" ", badge("warn", "this one")], h("small", {}, code(it.id), " ", h("a", { href: `#/requests?key=${encodeURIComponent(it.id)}`, "aria-label": `Requests of ${it.name ?? it.id}` }, "Requests"))] },
    { title: "For", cell: (it) => [
      it.intern_id ? ["intern ", name(named(interns, it.intern_id))] : it.member_id ? ["member ", name(named(members, it.member_id))] : words(it.kind),
      h("small", {}, it.workspace_id ? ["in ", name(named(workspaces, it.workspace_id))] : "without a workspace"),
    ] },
    { title: "Spend", kind: "spent", cell: spent },
    { title: "State", cell: keyState },
    { title: "Actions", cell: (it) => keyActions(it, page) },
  ];
  return section("Keys",
    h("div", { class: "filters" },
      button("Create a key…", () => createKey(page, data), { class: "primary" }),
      field("Of workspace", select("of", all, page.query.workspace ?? "", { onchange: (event) => page.go(`keys${query({ workspace: event.target.value })}`) })),
      h("label", { class: "check" }, h("input", { type: "checkbox", onchange: (event) => {
        page.state.all = event.target.checked;
        page.draw();
      } }), "Also revoked ones")),
    table("Keys", columns, shown, { key: (it) => it.id, empty: empty("No key", "Create one; a client sends it as `Authorization: Bearer`.") }),
    onlyNewest(data.keys, "cofferdam key list"));
}

function credit(it) {
  if (!it) return NONE;
  return it.credit === "unlimited" ? "unlimited" : `${dollars(it.left)} of ${dollars(it.added)} left`;
}

function workspacesTable({ workspaces, credits }, page) {
  const remove = (it) => ask(page, `Delete the workspace ${it.name}`, h("p", {}, "All its members, interns, keys and secrets go with ", name(it.name), ". This cannot be undone."), "Delete", "workspace/delete", { isDanger: true, members: { workspace: it.id, yes: true } });
  const pay = (it) => ask(page, `Add credit to ${it.name}`, field("Dollars", input({ name: "dollars", required: true, inputmode: "decimal" }), "The workspace is prepaid from then on"), "Add", "credits/add", { members: { workspace: it.id } });
  return section("Workspaces", table("Workspaces", [
    { title: "Workspace", cell: (it) => [name(it.name), h("small", {}, code(it.id.slice(0, 8)))] },
    { title: "Credit", cell: (it) => credit(credits.get(it.id)) },
    { title: "Spent", kind: "number", cell: (it) => dollars(credits.get(it.id)?.spent) },
    { title: "Vault", cell: (it) => (it.vault_writes ? "clients may write" : "read only") },
    { title: "Created", cell: (it) => day(it.created_at) },
    { title: "Actions", cell: (it) => h("div", { class: "actions" },
      button("Add credit", () => pay(it), { class: "small", "aria-label": `Add credit to ${it.name}` }),
      button("Delete", () => remove(it), { class: "small danger", "aria-label": `Delete ${it.name}` })) },
  ], workspaces, { key: (it) => it.id }), onlyNewest(workspaces, "cofferdam workspace list"),
  h("div", { class: "buttons" }, button("Create a workspace…", () => ask(page, "Create a workspace", field("Name", input({ name: "name", required: true, maxlength: 64 })), "Create", "workspace/create"))));
}

function people({ workspaces, members, interns }, page) {
  const workspace = (id) => workspaces.find((it) => it.id === id)?.name ?? id;
  const choose = () => field("Workspace", select("workspace", workspaces.map((it) => [it.id, it.name]), page.query.workspace));
  const remove = (kind, it) => ask(page, `Delete the ${kind} ${it.name}`, h("p", {}, "The keys of ", name(it.name), " stop working. This cannot be undone."), "Delete", `${kind}/delete`, { isDanger: true, members: { [kind]: it.id } });
  const actions = (kind) => ({ title: "Actions", cell: (it) => h("div", { class: "actions" }, button("Delete", () => remove(kind, it), { class: "small danger", "aria-label": `Delete ${it.name}` })) });
  const common = [
    { title: "Name", cell: (it) => [name(it.name), h("small", {}, code(it.id.slice(0, 8)))] },
    { title: "Workspace", cell: (it) => name(workspace(it.workspace_id)) },
  ];
  const create = (kind) => button(`Create ${kind === "intern" ? "an intern" : "a member"}…`, () => ask(page, `Create ${kind === "intern" ? "an intern" : "a member"}`, [
    choose(), field("Name", input({ name: "name", required: true, maxlength: 64 })),
    kind === "member" && field("Role", select("role", [["member", "member: sees its own interns"], ["admin", "admin: sees all interns"]])),
  ], "Create", `${kind}/create`));
  return [
    section("Members", table("Members", [...common, { title: "Role", cell: (it) => it.role }, { title: "Created", cell: (it) => day(it.created_at) }, actions("member")], members, { key: (it) => it.id, empty: empty("No member", "Create one, then a key for it.") }),
      onlyNewest(members, "cofferdam member list"),
      h("div", { class: "buttons" }, create("member"))),
    section("Interns", table("Interns", [...common, { title: "Created", cell: (it) => day(it.created_at) }, actions("intern")], interns, { key: (it) => it.id, empty: empty("No intern", "An intern is an identity inside a workspace with its own keys and secrets.") }),
      onlyNewest(interns, "cofferdam intern list"),
      h("div", { class: "buttons" }, create("intern"))),
  ];
}

export default {
  title: "Keys",
  hears: ["state"],
  pauseMs: 15_000,

  async load({ ask: get, query: { workspace, key }, state }) {
    // A workspace that was deleted meanwhile has none of these.
    const of = async (kind) => (await optional(records(get, kind, workspace))) ?? [];
    const lists = [records(get, "workspace"), of("member"), of("intern"), of("key")];
    const [workspaces, members, interns, keys, credit] = await Promise.all([...lists, credits(get, state)]);
    // A link to a key may name an old one.
    if (key && !keys.some((it) => it.id === key)) keys.push(...[await optional(get(`key/show${query({ id: key })}`))].filter(Boolean));
    return { workspaces, members, interns, keys, credits: credit };
  },

  view: (data, page) => [keysTable(data, page), workspacesTable(data, page), people(data, page)],
};
