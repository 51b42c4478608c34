// A plugin whose update is held, and the form for grants.

import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { Viewer } from "./browser.js";

const HELD = "tool-clockwork";

export async function pluginChecks(scene) {
  await scene.check("a held update shows what it asks for, and is accepted", () => held(scene));
  await scene.check("the form for grants shows its lines, adds them, and tells a mistake", () => grant(scene));
}

// A tool of another name, made of the built-in one that tells the time.
async function install(host, verb, version, hosts) {
  const built = new URL("../../plugins/tool-datetime.wasm", import.meta.url);
  const file = path.join(host.folder, `${HELD}.wasm`);
  writeFileSync(file, readFileSync(built));
  writeFileSync(path.join(host.folder, `${HELD}.toml`),
    `name = "${HELD}"\nkind = "tool"\nversion = "${version}"\nimports = ["clock", "http"]\nhosts = ${JSON.stringify(hosts)}\n\n[tool]\ntype = "clockwork"\n`);
  return host.command("plugin", verb, file);
}

async function held({ host, browser, sources, shots }) {
  await install(host, "install", "0.1.0", []);
  await install(host, "update", "0.2.0", ["clock.example.com"]);
  const viewer = await Viewer.open(browser, host, { theme: "dark", sources });
  await viewer.signIn();
  const { page } = viewer;
  await page.getByText("0.2.0 is held: it asks for more than 0.1.0").waitFor();
  await page.getByRole("link", { name: "Look at it" }).click();
  await page.getByText("Version 0.2.0 is held.").waitFor();
  await page.screenshot({ path: path.join(shots, "plugin-held-dark-1280.png"), fullPage: true });
  const wrong = await viewer.violations();
  await page.getByRole("button", { name: "Accept" }).click();
  const box = page.locator("dialog");
  await box.getByText("host clock.example.com").waitFor();
  wrong.push(...(await viewer.violations()));
  await box.getByRole("button", { name: "Accept" }).click();
  await box.waitFor({ state: "detached" });
  await page.getByText("0.2.0, line").waitFor();
  if (await page.getByText("is held.").count()) wrong.push("the update is still shown as held");
  const listed = async () => (await host.command("plugin", "list")).find((it) => it.name === HELD);
  const { version, held: more } = await listed();
  if (version !== "0.2.0" || more) wrong.push(`${HELD} is ${version}, held: ${JSON.stringify(more)}`);
  // The version before is one step back, and so is the one that it takes the place of.
  for (const [to, from] of [["0.1.0", "0.2.0"], ["0.2.0", "0.1.0"]]) {
    await page.getByText(`${to}, installed`).waitFor();
    await page.screenshot({ path: path.join(shots, `plugin-before-${to}.png`), fullPage: true });
    await page.getByRole("button", { name: "Go back to it…" }).click();
    await box.getByText(`serves with version ${to}`).waitFor();
    wrong.push(...(await viewer.violations()));
    await box.getByRole("button", { name: "Go back" }).click();
    await box.waitFor({ state: "detached" });
    await page.getByText(`${to}, line`).waitFor();
    const { version: now, previous } = await listed();
    if (now !== to || previous.version !== from) wrong.push(`${HELD} is ${now}, before ${previous?.version}`);
  }
  await viewer.go("plugins/tool-web-fetch");
  if (await page.getByRole("button", { name: "Go back to it…" }).count()) wrong.push("a plugin that was never updated goes back");
  await viewer.close();
  return [...wrong, ...viewer.wrong()];
}

async function grant({ host, browser, sources, shots }) {
  const viewer = await Viewer.open(browser, host, { sources });
  await viewer.signIn("plugins/tool-web-fetch");
  const { page } = viewer;
  const box = page.locator("dialog");
  const open = () => page.getByRole("button", { name: "Grant…" }).click();
  const before = readFileSync(host.file, "utf8");
  await open();
  await box.getByRole("button", { name: "Grant" }).click();
  await box.getByText("Name at least one host").waitFor();
  await box.getByLabel("Hosts").fill("pages.example.com docs.example.com");
  await box.getByLabel("Only show the lines").check();
  await page.screenshot({ path: path.join(shots, "dialog-grant-light-1280.png") });
  const wrong = await viewer.violations();
  await box.getByRole("button", { name: "Grant" }).click();
  await box.getByText("These lines would be added:").waitFor();
  const lines = await box.locator("pre").textContent();
  if (!lines.includes("pages.example.com")) wrong.push(`the lines are ${lines}`);
  if (readFileSync(host.file, "utf8") !== before) wrong.push("showing the lines changed the file");
  await box.getByRole("button", { name: "Done" }).click();
  await open();
  await box.getByLabel("Hosts").fill("pages.example.com docs.example.com");
  await box.getByRole("button", { name: "Grant" }).click();
  await box.getByText("Granted.").waitFor();
  await box.getByRole("button", { name: "Done" }).click();
  await page.locator("dl").getByText("pages.example.com").waitFor();
  if (!readFileSync(host.file, "utf8").includes("docs.example.com")) wrong.push("the file lacks the grant");
  // A value that the host refuses is told in the dialog, which stays open.
  await open();
  await box.getByLabel("Hosts").fill("https://pages.example.com/x");
  await box.getByRole("button", { name: "Grant" }).click();
  await box.locator(".notice.bad").waitFor();
  await page.keyboard.press("Escape");
  await box.waitFor({ state: "detached" });
  await viewer.close();
  return [...wrong, ...viewer.wrong(["422", "400"])];
}
