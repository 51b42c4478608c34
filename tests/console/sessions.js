// Signing in, sessions that end, foreign hosts, and a host that restarts under an open page.

import { execFileSync } from "node:child_process";
import http from "node:http";
import path from "node:path";
import { Viewer } from "./browser.js";

// A browser tells of each failed request on its own; these are meant to fail.
const REFUSED = ["401 (Unauthorized)", "429 (Too Many Requests)", "ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE"];

export async function smoke({ host, browser, check, shots, sources }) {
  await check("sign in and look at the overview", async () => {
    const viewer = await Viewer.open(browser, host, { theme: "dark", sources });
    await viewer.signIn();
    await viewer.page.getByRole("heading", { name: "Attention" }).waitFor();
    await viewer.page.screenshot({ path: path.join(shots, "smoke.png"), fullPage: true });
    const wrong = [...viewer.wrong(), ...(await viewer.violations())];
    await viewer.close();
    return wrong;
  });
}

function link(host) {
  const { url } = JSON.parse(execFileSync(host.program, host.arguments("--json", "console"), { encoding: "utf8" }));
  return url;
}

export async function sessionChecks(scene) {
  const { host, browser, check, sources } = scene;
  await check("a link signs in once and leaves no code in the address", async () => {
    const address = link(host);
    const viewer = await Viewer.open(browser, host, { sources });
    await viewer.page.goto(address);
    await viewer.page.getByRole("heading", { name: "Overview" }).waitFor();
    const wrong = viewer.page.url().includes("code") ? [`the address is ${viewer.page.url()}`] : [];
    wrong.push(...viewer.wrong());
    const second = await Viewer.open(browser, host, { sources });
    await second.page.goto(address);
    await second.page.getByText("This link was used already").waitFor();
    wrong.push(...second.wrong(REFUSED));
    await viewer.close();
    await second.close();
    return wrong;
  });
  await check("a wrong token is refused with a reason", async () => {
    const viewer = await Viewer.open(browser, host, { sources });
    await viewer.page.goto(`${host.url}/`);
    await viewer.page.getByLabel("Operator token").fill("wrong");
    await viewer.page.keyboard.press("Enter");
    await viewer.page.getByText("This is not the operator token.").waitFor();
    const wrong = [...viewer.wrong(REFUSED), ...(await viewer.violations())];
    await viewer.close();
    return wrong;
  });
  await check("a session that ended elsewhere asks to sign in and comes back to its page", () => revoked(scene));
  await check("an old bearer is taken for none", () => oldBearer(scene));
  await check("a foreign `Host` gets no file and no answer", () => foreignHost(scene));
  await check("a restart under an open page shows a banner, and the page comes back", () => restart(scene));
}

async function back(viewer) {
  const { page, host } = viewer;
  await page.getByText("Your session has ended").waitFor({ timeout: 60_000 });
  await page.getByLabel("Operator token").fill(host.token);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Keys", level: 1 }).waitFor();
}

async function revoked({ host, browser, sources }) {
  const viewer = await Viewer.open(browser, host, { sources });
  await viewer.signIn("keys");
  await viewer.page.evaluate(() => fetch("/admin/v1/session", { method: "DELETE", headers: { authorization: `Bearer ${sessionStorage.getItem("cofferdam.bearer")}` } }));
  await viewer.page.evaluate(() => (location.hash = "#/keys?key=none"));
  await back(viewer);
  const wrong = viewer.wrong(REFUSED);
  await viewer.close();
  return wrong;
}

async function oldBearer({ host, browser, sources }) {
  const viewer = await Viewer.open(browser, host, { sources });
  await viewer.page.goto(`${host.url}/#/keys`);
  await viewer.page.evaluate(() => sessionStorage.setItem("cofferdam.bearer", "of-another-host"));
  await viewer.page.reload();
  await back(viewer);
  const wrong = viewer.wrong(REFUSED);
  await viewer.close();
  return wrong;
}

async function foreignHost({ host }) {
  const [hostname, port] = host.admin.split(":");
  const status = (where) => new Promise((resolve, reject) => {
    http.get({ hostname, port, path: where, headers: { host: "console.example.com", authorization: `Bearer ${host.token}` } }, (answer) => {
      answer.resume();
      resolve(answer.statusCode);
    }).on("error", reject);
  });
  const wrong = [];
  for (const where of ["/", "/console/main.js", "/admin/v1/status"]) {
    const found = await status(where);
    if (found !== 421) wrong.push(`${where}: ${found}`);
  }
  return wrong;
}

async function restart({ host, browser, sources, shots }) {
  const viewer = await Viewer.open(browser, host, { sources });
  await viewer.signIn("keys");
  await host.stop();
  await viewer.page.getByText("The host does not answer. It may be restarting.").waitFor({ timeout: 60_000 });
  await viewer.page.screenshot({ path: path.join(shots, "banner-light-1280.png") });
  const wrong = await viewer.violations();
  if (!(await viewer.page.locator("main table tbody tr").count())) wrong.push("the page lost what it showed");
  await host.serve();
  await back(viewer);
  await viewer.page.getByText("no connection").waitFor({ state: "detached" });
  wrong.push(...viewer.wrong(REFUSED));
  await viewer.close();
  return wrong;
}
