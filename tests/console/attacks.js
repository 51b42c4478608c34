// What a foreign page, a guesser and a reader of logs try, each against the running host.

import http from "node:http";
import { Viewer } from "./browser.js";

const REFUSED = ["401 (Unauthorized)", "429 (Too Many Requests)"];

export async function attackChecks(scene) {
  await scene.check("a foreign page cannot show the console in a frame, read it, or change the host", () => foreignPage(scene));
  await scene.check("texts of clients and of the address stay texts", () => scripts(scene));
  await scene.check("no credential is in the log, in an address or in a cookie", () => credentials(scene));
  await scene.check("guessing is slowed down, and locks neither the page nor a right credential out", () => guessing(scene));
}

// A page of another origin, in the same browser as a signed-in console.
async function foreignPage({ host, browser, sources }) {
  const viewer = await Viewer.open(browser, host, { sources });
  await viewer.signIn();
  const server = http.createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<h1>elsewhere</h1>"));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const wrong = [];
  try {
    const page = await viewer.context.newPage();
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    const told = await page.evaluate(async ({ url, token }) => {
      const framed = await new Promise((resolve) => {
        const frame = document.createElement("iframe");
        frame.onload = () => {
          try {
            resolve(frame.contentDocument === null ? "blocked" : frame.contentDocument.body.innerHTML);
          } catch {
            resolve("blocked");
          }
        };
        frame.src = url;
        document.body.append(frame);
      });
      const tries = {};
      const attempt = async (name, init) => {
        tries[name] = await fetch(`${url}/admin/v1/${init.path}`, init).then((it) => `read ${it.status}`, () => "refused");
      };
      await attempt("read", { path: "status" });
      await attempt("with the token", { path: "status", headers: { authorization: `Bearer ${token}` } });
      await attempt("with cookies", { path: "status", credentials: "include" });
      // A request that needs no permission beforehand: the host gets it, and must not carry it out.
      await attempt("a form", { path: "workspace/create", method: "POST", mode: "no-cors", headers: { "content-type": "text/plain" }, body: JSON.stringify({ name: "made-by-a-foreign-page" }) });
      return { framed, tries };
    }, { url: host.url, token: host.token });
    if (told.framed !== "blocked") wrong.push(`the frame shows ${told.framed}`);
    for (const name of ["read", "with the token", "with cookies"]) {
      if (told.tries[name] !== "refused") wrong.push(`${name}: ${told.tries[name]}`);
    }
    const workspaces = await host.command("workspace", "list");
    if (workspaces.some((it) => it.name === "made-by-a-foreign-page")) wrong.push("a foreign page made a workspace");
  } finally {
    server.close();
  }
  const { headers } = await fetch(`${host.url}/`);
  for (const [name, value] of [["content-security-policy", "frame-ancestors 'none'"], ["cross-origin-opener-policy", "same-origin"],
    ["cross-origin-resource-policy", "same-origin"], ["x-content-type-options", "nosniff"], ["referrer-policy", "no-referrer"]]) {
    if (!headers.get(name)?.includes(value)) wrong.push(`${name} is ${headers.get(name)}`);
  }
  await viewer.close();
  return wrong;
}

async function scripts({ host, browser, sources }) {
  const evil = "<img src=x onerror=alert(1)>";
  // Members and headers of a client that the host keeps or logs.
  await fetch(`http://${host.client}/v1/responses`, {
    method: "POST",
    headers: { authorization: "Bearer cfd_wrong", "user-agent": evil, "x-title": evil, "content-type": "application/json" },
    body: JSON.stringify({ model: evil, input: evil, user: evil, session_id: evil }),
  });
  const viewer = await Viewer.open(browser, host, { sources });
  await viewer.signIn();
  const wrong = [];
  for (const place of [`requests/${encodeURIComponent(evil)}`, `plugins/${encodeURIComponent(evil)}`, `requests?model=${encodeURIComponent(evil)}`,
    `vault?secret=${encodeURIComponent(evil)}`, "constructor", "__proto__/x", "requests?before=%00", "requests"]) {
    await viewer.go(place);
    const foreign = await viewer.page.locator("main img, main script, main iframe").count();
    if (foreign) wrong.push(`${place}: ${foreign} foreign elements`);
  }
  await viewer.page.getByRole("heading", { name: "Refused before they ran" }).waitFor();
  // The policy itself stops a page that takes a text for markup.
  const stopped = await viewer.page.evaluate(() => {
    try {
      document.querySelector("main").innerHTML = "<b>x</b>";
      return false;
    } catch (error) {
      return error instanceof TypeError;
    }
  });
  if (!stopped) wrong.push("a text became markup");
  await viewer.close();
  return [...wrong, ...viewer.wrong(["404 (Not Found)", "400 (Bad Request)", "TrustedHTML"])];
}

async function credentials({ host, browser, sources }) {
  const viewer = await Viewer.open(browser, host, { sources });
  const addresses = [];
  viewer.page.on("request", (it) => addresses.push(it.url()));
  await viewer.signIn();
  for (const place of ["requests", "keys", "vault"]) await viewer.go(place);
  const bearer = await viewer.page.evaluate(() => sessionStorage.getItem("cofferdam.bearer"));
  const wrong = [];
  for (const [what, value] of [["the token", host.token], ["the bearer", bearer]]) {
    if (!value) wrong.push(`${what} is missing`);
    else if (host.log.includes(value)) wrong.push(`the log has ${what}`);
    else if (addresses.some((it) => it.includes(value))) wrong.push(`an address has ${what}`);
  }
  if ((await viewer.context.cookies()).length) wrong.push("there is a cookie");
  if (await viewer.page.evaluate(() => localStorage.length)) wrong.push("something is kept beyond the tab");
  await viewer.close();
  return [...wrong, ...viewer.wrong()];
}

async function guessing({ host, browser, sources, shots }) {
  const viewer = await Viewer.open(browser, host, { sources });
  await viewer.signIn("keys");
  const guess = (token) => fetch(`${host.url}/admin/v1/session`, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ token }),
  });
  let status = 0;
  let tries = 0;
  for (; status !== 429 && tries < 10; tries += 1) ({ status } = await guess(`guess ${tries}`));
  const wrong = status === 429 ? [] : [`${tries} guesses were answered ${status}`];
  if ((await guess(host.token)).status !== 200) wrong.push("the right token is refused");
  // The session goes on while others guess.
  await viewer.go("vault");
  await viewer.go("keys");
  if (await viewer.page.getByLabel("Operator token").count()) wrong.push("the page was signed out");
  // An answer that asks to wait leaves the page and the session as they are.
  await viewer.page.route("**/admin/v1/**", (route) => route.fulfill({
    status: 429, headers: { "retry-after": "2", "content-type": "application/json" },
    body: JSON.stringify({ error: { code: 429, type: "rate_limit_exceeded", message: "too many wrong bearers; wait" } }),
  }));
  await viewer.go("spend");
  await viewer.page.getByText("Try again in 2 s.").waitFor();
  await viewer.page.screenshot({ path: `${shots}/waits-light-1280.png` });
  if (await viewer.page.getByLabel("Operator token").count()) wrong.push("a 429 ended the session");
  await viewer.page.unroute("**/admin/v1/**");
  await viewer.page.getByRole("heading", { name: "By key" }).waitFor({ timeout: 30_000 });
  await viewer.close();
  return [...wrong, ...viewer.wrong(REFUSED)];
}
