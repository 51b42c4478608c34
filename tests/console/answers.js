// Pages for answers and connections that a small host on loopback does not have by itself: equal names, more groups
// than are listed, a damaged store, a full house, silence.

import path from "node:path";
import { Viewer } from "./browser.js";

// A browser tells of each failed request on its own; these are meant to fail.
const REFUSED = ["500 (Internal Server Error)", "503 (Service Unavailable)", "ERR_INCOMPLETE_CHUNKED_ENCODING"];
const STREAMS_MAX = 16;

export async function answerChecks(scene) {
  await scene.check("rows of equal keys stay apart, and rows keep their nodes", () => morphing(scene));
  await scene.check("keys and workspaces of one name have a row each, also after an update", () => equalNames(scene));
  await scene.check("what is beyond the listed groups is summed, and not told as nothing", () => others(scene));
  await scene.check("a damaged store is told with the list of its problems", () => damaged(scene));
  await scene.check("the line for curl has the scheme and an address to reach", () => curl(scene));
  await scene.check("the tools of the playground are those that the host has", () => tools(scene));
  await scene.check("each listed workspace has its credit, asked for at once", () => credits(scene));
  await scene.check("a list of secrets that was cut says so", () => manySecrets(scene));
  await scene.check("the console beyond the most streams asks instead, says so, and follows later", () => crowded(scene));
  await scene.check("a connection that is silent is told and mended", () => silent(scene));
}

async function open({ host, browser, sources }, place) {
  const viewer = await Viewer.open(browser, host, { sources });
  await viewer.signIn(place);
  return viewer;
}

// Answers a path of the API in place of the host.
async function answer(viewer, wanted, given, status = 200) {
  await viewer.page.route((url) => url.pathname === `/admin/v1/${wanted}`, (route) => {
    const { searchParams } = new URL(route.request().url());
    return route.fulfill({ status, contentType: "application/json", body: JSON.stringify(given(searchParams)) });
  });
}

// Draws the page once more, as an event of the host does.
async function redraw(viewer, asked) {
  const answered = viewer.page.waitForResponse((it) => it.url().includes(`/admin/v1/${asked}`));
  await viewer.page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await answered;
  await viewer.page.waitForTimeout(500);
}

async function shot(viewer, { shots }, name) {
  await viewer.page.screenshot({ path: path.join(shots, `${name}.png`), fullPage: true });
}

async function morphing(scene) {
  const viewer = await open(scene, "overview");
  const wrong = await viewer.page.evaluate(async () => {
    const { h, morph } = await import("/console/h.js");
    const box = h("ul", {});
    const draw = (...keys) => morph(box, keys.map((key, index) => h("li", { "data-key": key }, `${key}${index}`)));
    const shown = () => [...box.children].map((it) => it.textContent).join(" ");
    const found = [];
    const expect = (text) => shown() !== text && found.push(`${shown()} in place of ${text}`);
    draw("a", "b", "c");
    const [a, b, c] = box.children;
    draw("c", "a", "b");
    expect("c0 a1 b2");
    if (box.children[0] !== c || box.children[1] !== a || box.children[2] !== b) found.push("a row lost its node");
    for (const keys of [["a", "a", "b"], ["a", "a", "b"], ["b", "a", "a", "a"], ["a"], []]) {
      draw(...keys);
      expect(keys.map((key, index) => `${key}${index}`).join(" "));
    }
    return found;
  });
  await viewer.close();
  return [...wrong, ...viewer.wrong()];
}

const SUMS = {
  requests: 1, completed: 1, incomplete: 0, failed: 0, cancelled: 0, interrupted: 0, attempts: 1, input_tokens: 10, cached_tokens: 0,
  output_tokens: 1, reasoning_tokens: 0, cost: 0, byok_cost: 0,
};
const id = (number) => `01990000-0000-7000-8000-${String(number).padStart(12, "0")}`;

// A report of usage; `groups` has those of each kind.
function report(groups, others = {}) {
  return (query) => {
    const by = query.get("by") ?? "day";
    const sums = { ...SUMS, requests: 100, failed: 3, interrupted: 4, cost: 9 };
    return { from: "2026-01-01", to: "2026-01-30", by, groups: groups[by] ?? [], others: { ...SUMS, requests: 0, ...others[by] }, total: sums };
  };
}

async function equalNames(scene) {
  const viewer = await open(scene, "overview");
  const of = (number, name) => ({ key_id: id(number), name, ...SUMS, cost: number / 100 });
  const gone = (number) => ({ workspace_id: id(number), workspace: "-", ...SUMS, cost: number / 100 });
  await answer(viewer, "usage", report({ key: [of(3, "console"), of(2, "console"), of(1, null)], workspace: [gone(6), gone(5)] }));
  await answer(viewer, "key/list", () => [3, 2].map((number) => ({ id: id(number), name: "console", workspace_id: id(number + 10), limits: {}, spent: {} })));
  await answer(viewer, "workspace/list", () => [[13, "blue"], [12, "red"]].map(([number, name]) => ({ id: id(number), name })));
  await viewer.go("spend");
  await redraw(viewer, "usage");
  await viewer.page.evaluate(() => document.querySelectorAll("details").forEach((it) => (it.open = true)));
  await shot(viewer, scene, "spend-equal-names");
  const wrong = [];
  for (const [title, rows, texts] of [["By key", 3, ["$0.03", "$0.02", "$0.01", "blue", "red"]], ["By workspace", 2, ["$0.06", "$0.05"]]]) {
    const part = viewer.page.locator("section", { has: viewer.page.getByRole("heading", { name: title }) });
    const [lines, bars] = [await part.locator("tbody tr").count(), await part.locator(".shares li").count()];
    if (lines !== rows || bars !== rows) wrong.push(`${title}: ${lines} rows and ${bars} bars in place of ${rows}`);
    const text = await part.textContent();
    wrong.push(...texts.filter((it) => !text.includes(it)).map((it) => `${title} lacks ${it}`));
  }
  wrong.push(...(await viewer.violations()));
  await viewer.close();
  return [...wrong, ...viewer.wrong()];
}

async function others(scene) {
  const viewer = await open(scene, "requests");
  const asked = [];
  const beyond = { requests: 77, failed: 5, interrupted: 6, cost: 3 };
  const given = report({ model: [{ model: "house/steady", ...SUMS, failed: 1, interrupted: 1 }] }, { model: beyond, key: beyond });
  await answer(viewer, "usage", (query) => {
    if (query.get("by") === "model") asked.push(query.get("limit"));
    return given(query);
  });
  const wrong = [];
  const rows = async () => {
    await viewer.page.evaluate(() => document.querySelectorAll("details").forEach((it) => (it.open = true)));
    return viewer.page.evaluate(() => [...document.querySelectorAll("tbody tr")].map((it) => [...it.children].map((cell) => cell.textContent.trim())));
  };
  const expect = (found, place, cells) => {
    const text = found?.join(" | ");
    if (!cells.every((it) => found?.includes(it))) wrong.push(`${place}: ${text} lacks one of ${cells.join(", ")}`);
  };
  await viewer.go("models");
  await shot(viewer, scene, "models-others");
  const models = await rows();
  expect(models.find((it) => it[0]?.startsWith("house/steady") && it.length === 6), "models, used", ["1", "2"]);
  const unknown = models.find((it) => it[0]?.startsWith("local/demo") && it.length === 6);
  if (unknown?.slice(3).join("") !== "–––") wrong.push(`models, beyond the listed: ${unknown?.join(" | ")}`);
  expect(models.find((it) => it[0]?.startsWith("others")), "models, others", ["77", "11", "$3.00"]);
  await viewer.go("spend");
  await shot(viewer, scene, "spend-others");
  const spend = await rows();
  const rest = spend.filter((it) => it[0]?.startsWith("others"));
  if (rest.length !== 2) wrong.push(`spend: ${rest.length} rows of others`);
  rest.forEach((row) => expect(row, "spend, others", ["77", "11", "$3.00"]));
  const text = await viewer.page.locator(".facts").textContent();
  if (!text.includes("7 failed")) wrong.push(`spend counts otherwise than the command: ${text}`);
  if (asked.some((it) => it !== "1000")) wrong.push(`the limits are ${asked}`);
  await viewer.close();
  return [...wrong, ...viewer.wrong()];
}

async function damaged(scene) {
  const viewer = await open(scene, "vault");
  const { page } = viewer;
  await page.getByRole("button", { name: "Verify the store" }).click();
  await page.getByText("The store is whole.").waitFor();
  const problems = ["secret `a` of workspace x: the seal is broken", "audit record 12: the chain is broken"];
  const details = { ok: false, seq: 9, vaults: 2, orphans: 0, secrets: 3, audit_records: 4, usage_rows: 5, usage_dropped_before: null, problems };
  const message = `Checked up to commit 9: much.\n2 problems:\n  ${problems.join("\n  ")}`;
  await answer(viewer, "vault/verify", () => ({ error: { code: 500, type: "server", message, details } }), 500);
  await page.getByRole("button", { name: "Verify the store" }).click();
  await page.getByText("The store is damaged.").waitFor({ timeout: 5000 });
  await shot(viewer, scene, "vault-damaged");
  const wrong = await viewer.violations();
  const listed = await page.locator(".notice.bad li").allTextContents();
  if (listed.join() !== problems.join()) wrong.push(`the problems are ${listed}`);
  if (await page.getByText("The store is whole.").count()) wrong.push("the store is whole and damaged");
  // A check that fails for another reason leaves no verdict.
  await answer(viewer, "vault/verify", () => ({ error: { code: 500, type: "server", message: "the disk is gone" } }), 500);
  await page.getByRole("button", { name: "Verify the store" }).click();
  await page.getByText("The disk is gone.").waitFor();
  if (await page.getByText("The store is damaged.").count()) wrong.push("the verdict before is still there");
  await viewer.close();
  return [...wrong, ...viewer.wrong(REFUSED)];
}

async function curl(scene) {
  const wrong = [];
  const { host } = scene;
  for (const [tls, listen, url] of [
    [false, host.client, `http://${host.client}/v1/responses`], [true, "10.1.2.3:8443", "https://10.1.2.3:8443/v1/responses"],
    [false, "0.0.0.0:8080", "http://127.0.0.1:8080/v1/responses"], [true, "[::]:8443", "https://[::1]:8443/v1/responses"],
  ]) {
    const viewer = await open(scene, "overview");
    await answer(viewer, "status", () => ({ version: "0", serving: { listen, tls, ready: true }, store: null, held_plugins: [] }));
    await viewer.go("playground");
    await viewer.page.getByLabel("Model", { exact: true }).selectOption("local/demo");
    await viewer.page.keyboard.press("Escape");
    await viewer.page.getByRole("button", { name: "Send" }).click();
    await viewer.page.getByRole("tab", { name: "curl" }).click();
    const text = await viewer.page.locator("#panel pre").textContent();
    if (!text.startsWith(`curl -N ${url} `)) wrong.push(`${text.split("\n")[0]} in place of ${url}`);
    await viewer.page.locator(".outcome").getByText("completed").waitFor();
    await viewer.close();
    wrong.push(...viewer.wrong());
  }
  return wrong;
}

async function tools(scene) {
  const viewer = await open(scene, "playground");
  const { page } = viewer;
  await page.getByText("Tools", { exact: true }).click();
  const types = await page.locator("input[name=tools]").evaluateAll((all) => all.map((it) => it.value));
  const wrong = ["service:experimental__search_models", "service:http_request", "service:datetime"].filter((it) => !types.includes(it)).map((it) => `no ${it} in ${types}`);
  await page.getByLabel("Model", { exact: true }).selectOption("house/steady");
  await page.getByLabel("search_models").check();
  await page.getByRole("button", { name: "Send" }).click();
  await page.locator(".outcome").getByText("completed").waitFor({ timeout: 10_000 });
  await shot(viewer, scene, "playground-tools");
  await viewer.close();
  return [...wrong, ...viewer.wrong()];
}

async function credits(scene) {
  const viewer = await open(scene, "overview");
  const numbers = [...Array(120).keys()];
  const paid = (number) => ({ workspace_id: id(number), workspace: `w${number}`, credit: "prepaid", added: 200, left: number, spent: 200 - number, reserved: 0 });
  const asked = [];
  viewer.page.on("request", (it) => it.url().includes("/admin/v1/credits/") && asked.push(it.url()));
  await answer(viewer, "workspace/list", () => numbers.map((number) => ({ id: id(number), name: `w${number}`, vault_writes: true, created_at: "2026-01-01T00:00:00.000Z" })));
  await answer(viewer, "credits/show", () => numbers.map(paid));
  await viewer.go("keys");
  await shot(viewer, scene, "keys-credits");
  const text = await viewer.page.locator("section", { has: viewer.page.getByRole("heading", { name: "Workspaces" }) }).textContent();
  const wrong = numbers.slice(1).filter((number) => !text.includes(`$${number}.00 of $200.00 left`)).map((number) => `no credit of w${number}`);
  if (asked.length !== 1) wrong.push(`${asked.length} requests for credit`);
  await viewer.close();
  const real = await open(scene, "keys");
  if (!(await real.page.getByText("unlimited").count())) wrong.push("the host's own workspaces have no credit");
  await real.close();
  return [...wrong, ...viewer.wrong(), ...real.wrong()];
}

async function manySecrets(scene) {
  const viewer = await open(scene, "overview");
  const secrets = [...Array(1000).keys()].map((number) => ({
    name: `s${number}`, hosts: ["api.example.com"], fingerprint: null, created_at: "2026-01-01T00:00:00.000Z", scope: "operator", workspace_id: null, intern_id: null,
  }));
  const limits = [];
  await answer(viewer, "secret/list", (query) => {
    limits.push(query.get("limit"));
    return secrets;
  });
  await viewer.go("vault");
  const wrong = [];
  if (!(await viewer.page.getByText("The newest 1,000 are shown. cofferdam secret list lists more.").count())) wrong.push("nothing says that there may be more");
  if (limits.some((it) => it !== "1000")) wrong.push(`the limits are ${limits}`);
  await viewer.close();
  return [...wrong, ...viewer.wrong()];
}

async function crowded(scene) {
  const { host } = scene;
  const stop = new AbortController();
  const streams = [];
  for (let tries = 0; streams.length < STREAMS_MAX && tries < 200; tries += 1) {
    const answered = await fetch(`${host.url}/admin/v1/events`, { headers: { authorization: `Bearer ${host.token}` }, signal: stop.signal });
    if (answered.ok) streams.push(answered);
    else await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const wrong = streams.length === STREAMS_MAX ? [] : [`${streams.length} streams`];
  const viewer = await open(scene, "requests");
  const { page } = viewer;
  try {
    await page.getByText("Too many consoles are open.").waitFor({ timeout: 10_000 });
    await page.getByText("running", { exact: false }).first().waitFor();
    await shot(viewer, scene, "crowded");
    wrong.push(...(await viewer.violations()));
    if (await page.getByText("no connection").count()) wrong.push("the host is taken for one that does not answer");
    // The list of requests has no event of its own, and is asked for too.
    const model = "house/steady";
    const { key } = await host.command("key", "create", "--workspace", "default", "--name", "crowd");
    // A list under the pointer stays as it is.
    await page.mouse.move(0, 0);
    const before = await page.locator("main table").first().locator("tbody tr").count();
    await host.ask(key, { model, input: "x" });
    await page.waitForFunction((rows) => document.querySelector("main table tbody").children.length > rows, before, { timeout: 15_000 });
  } finally {
    stop.abort();
  }
  await page.getByText("Too many consoles are open.").waitFor({ state: "detached", timeout: 60_000 });
  await viewer.close();
  return [...wrong, ...viewer.wrong(REFUSED)];
}

// A process that is stopped keeps its connections, as a network that is gone does.
async function silent(scene) {
  const { host } = scene;
  const viewer = await open(scene, "overview");
  const { page } = viewer;
  await page.getByText("ready", { exact: true }).waitFor();
  const wrong = [];
  // One question of the page is lost with the connection.
  await page.route("**/admin/v1/traffic", () => {}, { times: 1 });
  await page.waitForRequest("**/admin/v1/traffic", { timeout: 15_000 });
  host.process.kill("SIGSTOP");
  try {
    await page.getByText("The host does not answer.").waitFor({ timeout: 15_000 });
    await shot(viewer, scene, "silent");
    if (!(await page.getByRole("heading", { name: "Attention" }).count())) wrong.push("the page lost what it showed");
  } finally {
    host.process.kill("SIGCONT");
  }
  await page.getByText("The host does not answer.").waitFor({ state: "detached", timeout: 30_000 });
  await page.getByText("ready", { exact: true }).waitFor();
  // What the page asked for over the dead connection is not waited for.
  await page.waitForResponse((it) => it.url().includes("/admin/v1/traffic"), { timeout: 15_000 });
  await viewer.close();
  return [...wrong, ...viewer.wrong(REFUSED)];
}
