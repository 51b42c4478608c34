// Each page in two themes and two widths, its contents, and what hostile names do to it: nothing.

import path from "node:path";
import { Viewer } from "./browser.js";
import { CANARY, HOSTILE } from "./host.js";

const PAGES = ["overview", "requests", "playground", "models", "plugins", "plugins/tool-http-request", "keys", "spend", "vault"];
const WIDTHS = [1280, 390];

async function shot(viewer, shots, place) {
  const name = `${place.replaceAll("/", "-").slice(0, 40)}-${viewer.theme}-${viewer.width}.png`;
  await viewer.page.screenshot({ path: path.join(shots, name), fullPage: true });
}

// A request of which the host has a timeline, if it has a recorder.
async function recorded(host) {
  const answer = await fetch(`${host.url}/admin/v1/requests?limit=100`, { headers: { authorization: `Bearer ${host.token}` } });
  if (!answer.ok) return [];
  const { data } = await answer.json();
  const wanted = [data.find((it) => it.attempts > 1), data.find((it) => it.model === "local/demo"), data.find((it) => it.outcome === "failed")];
  return wanted.filter(Boolean).map((it) => `requests/${it.request_id}`);
}

async function look(viewer, place, shots) {
  await viewer.go(place);
  await shot(viewer, shots, place);
  const text = await viewer.page.evaluate(() => document.documentElement.outerHTML);
  const overflow = await viewer.overflow();
  return [
    ...viewer.wrong(),
    ...(await viewer.violations()),
    ...(overflow ? [`wider than the screen: ${overflow}`] : []),
    ...([CANARY, "canary-of-a-request", viewer.host.token].filter((it) => text.includes(it)).map((it) => `the page has ${it}`)),
  ].map((it) => `${place}: ${it}`);
}

export async function pageChecks(scene) {
  const { host, browser, check, shots, sources } = scene;
  const places = [...PAGES, ...(await recorded(host))];
  for (const theme of ["light", "dark"]) {
    for (const width of WIDTHS) {
      await check(`each page, ${theme}, ${width} px: silent, axe finds nothing, nothing foreign, no content`, async () => {
        const viewer = await Viewer.open(browser, host, { theme, width, sources });
        await viewer.signIn();
        const wrong = [];
        for (const place of places) wrong.push(...(await look(viewer, place, shots)));
        await viewer.close();
        return wrong;
      });
    }
  }
  await check("updates move nothing that is read", () => shifts(scene));
  await check("pages fit on 360 px", () => narrow(scene));
  await check("hostile names are texts in every table", () => hostile(scene));
  await check("the keyboard alone reaches every page, and focus stays over updates", () => keyboard(scene));
  await check("a key is made, shown once, limited and revoked", () => keyLife(scene));
  await check("the playground shows the steps, the answer and the request", () => play(scene));
  for (const theme of ["light", "dark"]) {
    await check(`a picture of a fallback, a tool call and a release, ${theme}`, () => picture(scene, theme));
  }
  await check("the five questions have their answers on a page", () => questions(scene));
}

async function narrow({ host, browser, sources }) {
  const viewer = await Viewer.open(browser, host, { width: 360, sources });
  await viewer.signIn();
  const wrong = [];
  for (const place of PAGES) {
    await viewer.go(place);
    const overflow = await viewer.overflow();
    if (overflow) wrong.push(`${place}: ${overflow}`);
  }
  await viewer.close();
  return [...wrong, ...viewer.wrong()];
}

// What moves while a page is looked at, without anybody touching it, by the browser's own measure.
// Below 0.1 a page counts as good.
async function shifts({ host, browser, sources }) {
  const viewer = await Viewer.open(browser, host, { sources });
  const { page } = viewer;
  await page.addInitScript(() => {
    globalThis.moved = [];
    new PerformanceObserver((list) => {
      for (const it of list.getEntries()) {
        const what = it.sources.map(({ node }) => node?.parentElement?.className || node?.nodeName).join(" ");
        if (!it.hadRecentInput) globalThis.moved.push({ value: it.value, what });
      }
    }).observe({ type: "layout-shift", buffered: true });
  });
  await viewer.signIn();
  const { key } = await host.command("key", "create", "--workspace", "default", "--name", "shifts");
  const wrong = [];
  for (const place of PAGES) {
    await viewer.go(place);
    await page.evaluate(() => (globalThis.moved = []));
    await host.ask(key, { model: "house/steady", input: "x" });
    await nextAnswer(page);
    const moved = await page.evaluate(() => globalThis.moved);
    const sum = moved.reduce((all, it) => all + it.value, 0);
    if (sum > 0.1) wrong.push(`${place}: ${sum.toFixed(3)}, ${moved.map((it) => `${it.what} ${it.value.toFixed(3)}`).join("; ")}`);
  }
  await viewer.close();
  return [...wrong, ...viewer.wrong()];
}

// Waits until the page has asked the host again and drawn the answer; not every page asks.
async function nextAnswer(page) {
  await page.waitForResponse((it) => it.url().includes("/admin/v1/"), { timeout: 6000 }).catch(() => {});
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
}

async function hostile({ host, browser, sources }) {
  const viewer = await Viewer.open(browser, host, { sources });
  await viewer.signIn();
  const wrong = [];
  for (const [place, sections] of [["keys", 4], ["requests", 1], ["overview", 1], ["spend", 1], ["vault", 1]]) {
    await viewer.go(place);
    const found = await viewer.page.evaluate(() => ({
      images: document.querySelectorAll("main img, main script, main iframe").length,
      text: document.querySelector("main").textContent,
    }));
    if (found.images) wrong.push(`${place}: ${found.images} foreign elements`);
    if (sections === 4) wrong.push(...HOSTILE.filter((it) => !found.text.includes(it)).map((it) => `${place}: lacks ${it}`));
  }
  await viewer.close();
  return [...wrong, ...viewer.wrong()];
}

async function keyboard({ host, browser, sources }) {
  const viewer = await Viewer.open(browser, host, { sources });
  await viewer.signIn();
  const { page } = viewer;
  await page.reload();
  await viewer.loaded();
  const wrong = [];
  const focused = () => page.evaluate(() => document.activeElement?.textContent?.trim());
  await page.keyboard.press("Tab");
  if ((await focused()) !== "Skip to the content") wrong.push(`the first stop is ${await focused()}`);
  await page.keyboard.press("Enter");
  if ((await page.evaluate(() => document.activeElement.id)) !== "main") wrong.push("the skip link does not reach the content");
  for (const title of ["Requests", "Playground", "Models", "Plugins", "Keys", "Spend", "Vault"]) {
    await page.getByRole("link", { name: title, exact: true }).first().focus();
    await page.keyboard.press("Enter");
    await viewer.loaded();
    await page.waitForFunction((text) => document.activeElement?.id === "title" && document.querySelector("h1").textContent === text, title);
    const ring = await page.evaluate(() => {
      document.querySelector("main button, main a, main select, main input")?.focus();
      return document.activeElement !== document.body;
    });
    if (!ring) wrong.push(`${title}: nothing takes focus`);
  }
  // A refresh leaves the focus and what was written.
  await viewer.go("playground");
  const input = page.getByLabel("Input");
  if (await input.count()) {
    await input.fill("half a sentence");
    await page.waitForResponse((it) => it.url().includes("/admin/v1/"), { timeout: 12_000 }).catch(() => {});
    if ((await input.inputValue()) !== "half a sentence") wrong.push("an update took what was written");
    if (!(await input.evaluate((it) => it === document.activeElement))) wrong.push("an update took the focus");
  }
  await viewer.close();
  return [...wrong, ...viewer.wrong()];
}

async function keyLife({ host, browser, sources, shots }) {
  const viewer = await Viewer.open(browser, host, { sources });
  await viewer.signIn("keys");
  const { page } = viewer;
  await page.getByRole("button", { name: "Create a key…" }).click();
  await page.getByLabel("Label").fill("made here");
  await shot(viewer, shots, "dialog-key");
  const wrong = await viewer.violations();
  await page.locator("dialog").getByRole("button", { name: "Create" }).click();
  const made = await page.locator("dialog pre").textContent();
  if (!made.startsWith("cfd_")) wrong.push(`no key but ${made}`);
  await shot(viewer, shots, "dialog-key-made");
  await page.getByRole("button", { name: "Done" }).click();
  await page.getByRole("button", { name: "Limits of made here" }).click();
  await page.getByLabel("Limit per day").fill("5");
  await page.getByRole("button", { name: "Set", exact: true }).click();
  await page.locator("dialog").waitFor({ state: "detached" });
  await page.getByText("$0 of $5.00 a day").waitFor();
  if ((await page.content()).includes(made)) wrong.push("the key is still on the page");
  const status = async () => (await host.ask(made, { model: "local/demo", input: "x" })).status;
  if ((await status()) !== 200) wrong.push("the key does not work");
  await page.getByRole("button", { name: "Revoke made here" }).click();
  await page.keyboard.press("Escape");
  if ((await status()) !== 200) wrong.push("a dialog that was left revoked the key");
  await page.getByRole("button", { name: "Revoke made here" }).click();
  await page.locator("dialog").getByRole("button", { name: "Revoke" }).click();
  await page.locator("dialog").waitFor({ state: "detached" });
  if ((await status()) !== 401) wrong.push("the key still works");
  await viewer.close();
  return [...wrong, ...viewer.wrong()];
}

async function play({ host, browser, sources, shots }) {
  const viewer = await Viewer.open(browser, host, { theme: "dark", sources });
  await viewer.signIn("playground");
  const { page } = viewer;
  await page.getByLabel("Model", { exact: true }).selectOption("house/fallback");
  await page.getByLabel("Input").fill("Say that all is well.");
  await page.keyboard.press("Control+Enter");
  await page.getByText("All is well.").waitFor();
  await page.getByRole("tab", { name: "curl" }).click();
  await page.getByText("curl -N").waitFor();
  await page.getByRole("tab", { name: "Sent upstream" }).click();
  await shot(viewer, shots, "playground-run");
  const wrong = await viewer.violations();
  const isRecording = (await recorded(host)).length > 0;
  if (isRecording && !(await page.locator(".timeline .step").count())) wrong.push("no step");
  await viewer.close();
  return [...wrong, ...viewer.wrong()];
}

// A fallback, a tool call and a release in one run, as the README shows it.
async function picture(scene, theme) {
  const { host, browser, sources, shots, pictures } = scene;
  const viewer = await Viewer.open(browser, host, { theme, sources });
  await viewer.signIn("playground");
  const { page } = viewer;
  // An endpoint that was limited is avoided for a while, so each theme has a model of its own.
  await page.getByLabel("Model", { exact: true }).selectOption(`house/assistant-${theme}`);
  await page.getByText("Tools", { exact: true }).click();
  await page.getByLabel("http_request").check();
  await page.getByLabel("Input").fill(`Send an HTTP request to https://api.example.test:${host.upstreams.ports.secure}/user and tell me what came back.`);
  await page.keyboard.press("Control+Enter");
  await page.locator(".outcome").getByText("completed").waitFor();
  const wrong = await viewer.violations();
  const text = await page.locator(".timeline").first().textContent();
  for (const step of ["attempt limited", "attempt demo", "release github_token", "api.example.test"]) {
    if (!text.includes(step)) wrong.push(`the timeline lacks ${step}: ${text}`);
  }
  await page.getByRole("heading", { name: "Playground" }).click();
  await page.screenshot({ path: path.join(pictures ?? shots, `console-${theme}.png`), fullPage: true });
  await viewer.close();
  return [...wrong, ...viewer.wrong()];
}

async function questions({ host, browser, sources }) {
  const viewer = await Viewer.open(browser, host, { sources });
  await viewer.signIn("models");
  const wrong = [];
  const has = async (place, ...texts) => {
    await viewer.go(place);
    const text = await viewer.page.locator("main").textContent();
    wrong.push(...texts.filter((it) => !text.includes(it)).map((it) => `${place} lacks "${it}"`));
  };
  await has("models", "What happens if a provider goes down", "house/fallback at steady", "no other provider");
  await has("vault?secret=github_token", "secret released", "api.example.test", "tool-http-request");
  await has("spend", "house/steady", "By key", "ci");
  const [timeline] = await recorded(host);
  if (timeline) await has(timeline, "Where the time went", "Longest:", "Timeline", "What it cost");
  await viewer.close();
  return [...wrong, ...viewer.wrong()];
}
