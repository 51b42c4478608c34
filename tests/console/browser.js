// One browser, and pages that fail a test for every message, error, foreign request or violation.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export async function launch() {
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

export class Viewer {
  static async open(browser, host, { theme = "light", width = 1280, height = 900, sources } = {}) {
    const viewer = new Viewer();
    const context = await browser.newContext({ colorScheme: theme, viewport: { width, height }, reducedMotion: "reduce", timezoneId: "UTC" });
    const page = await context.newPage();
    Object.assign(viewer, { host, context, page, messages: [], theme, width });
    page.on("console", (it) => viewer.messages.push(`${it.type()}: ${it.text()}`));
    page.on("pageerror", (error) => viewer.messages.push(`error: ${error.message}`));
    page.on("dialog", (it) => {
      viewer.messages.push(`dialog: ${it.message()}`);
      it.dismiss();
    });
    page.on("request", (it) => {
      if (new URL(it.url()).origin !== host.url) viewer.messages.push(`foreign request: ${it.url()}`);
    });
    if (sources) await viewer.serveFrom(sources);
    return viewer;
  }

  // Takes the files of the console from the tree in place of those in the program, under the same policy.
  async serveFrom(folder) {
    const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
    await this.page.route((url) => url.pathname === "/" || url.pathname.startsWith("/console/"), async (route) => {
      const { pathname } = new URL(route.request().url());
      const file = pathname === "/" ? "index.html" : pathname.slice("/console/".length);
      const head = await fetch(`${this.host.url}/`);
      const headers = { ...Object.fromEntries(head.headers), "content-type": `${types[path.extname(file)]}; charset=utf-8` };
      delete headers["content-length"];
      await route.fulfill({ status: 200, headers, body: readFileSync(path.join(folder, file)) });
    });
  }

  async signIn(place = "overview") {
    await this.page.goto(`${this.host.url}/#/${place}`);
    await this.page.getByLabel("Operator token").fill(this.host.token);
    await this.page.getByRole("button", { name: "Sign in" }).click();
    await this.page.getByLabel("Operator token").waitFor({ state: "detached" });
    await this.loaded();
  }

  async go(place) {
    await this.page.evaluate((hash) => (location.hash = hash), `#/${place}`);
    await this.loaded();
  }

  async loaded() {
    await this.page.waitForFunction(() => document.querySelector("#main h1") && !document.querySelector(".loading"));
  }

  // All that was wrong so far but what is expected.
  wrong(expected = []) {
    const found = this.messages.filter((it) => !expected.some((known) => it.includes(known)));
    this.messages = [];
    return found;
  }

  async violations() {
    await this.page.evaluate(AXE);
    const { violations } = await this.page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    return violations.map((it) => `${it.id}: ${it.nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary}`).join(" | ")}`);
  }

  async overflow() {
    return this.page.evaluate(() => {
      const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
      if (wide <= 0) return null;
      const culprit = [...document.querySelectorAll("body *")].find((it) => it.getBoundingClientRect().right > innerWidth + 1);
      return `${wide} px, ${culprit?.tagName}.${culprit?.className?.baseVal ?? culprit?.className}`;
    });
  }

  async close() {
    await this.context.close();
  }
}
