// Starts the built program in a directory of its own, with providers of every kind of health, and
// fills it with data: hostile names, keys, secrets, usage and failures.

import { execFile, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { promisify } from "node:util";
import { startUpstreams } from "./upstreams.js";

// Names that break a page which takes texts for markup, or which cannot hold long ones.
export const HOSTILE = ["<img src=x onerror=alert(1)>", "\"quoted' & 'name\"", "\u202eright to left \u05e9\u05dc\u05d5\u05dd", "w".repeat(64)];
// A value that no page may ever show.
export const CANARY = "canary-5f1d0c77-value-of-a-secret";
const START_MS = 120_000;

function configuration({ ports, certificate }, admin, client) {
  const provider = (name, way) => `[[providers]]\nname = ${JSON.stringify(name)}\nadapter = "openai-chat"\nbase_url = "http://localhost:${ports[way]}/v1"\nkey = "operator:provider_key"\n`;
  const model = (id, endpoints) => `[[models]]\nid = ${JSON.stringify(id)}\nendpoints = [${endpoints.map(([name, more = ""]) => `{ provider = ${JSON.stringify(name)}, model = "m", input = 1.0, output = 4.0${more} }`).join(", ")}]\n`;
  // The cheap endpoint is tried first, and is limited.
  const assistant = (theme) => `[[models]]\nid = "house/assistant-${theme}"\nendpoints = [{ provider = "limited", model = "m", input = 0.001, output = 0.001 }, { provider = "demo", model = "demo", input = 1.0, output = 4.0 }]\n`;
  const long = `long/${"m".repeat(59)}`;
  return `[server]
listen = "${client}"
admin = "${admin}"
[egress]
allow_plaintext_loopback = true
allow_private = ["127.0.0.0/8", "::1/128"]
ports = [${ports.secure}]
roots = [${JSON.stringify(certificate)}]
resolve = { localhost = ["127.0.0.1"], "api.example.test" = ["127.0.0.1"] }
[store]
free_bytes_min = 0
[plugins.tool-http-request]
hosts = ["api.example.test"]
secrets = ["github_token"]
[[providers]]
name = "demo"
adapter = "demo"
[[models]]
id = "local/demo"
endpoints = [{ provider = "demo", model = "demo" }]
${["light", "dark"].map(assistant).join("")}${provider("steady", "answers")}${provider("limited", "limited")}${provider("failing", "fails")}${provider("stalling", "stalls")}${provider("p".repeat(64), "answers")}
${model("house/steady", [["steady"]])}${model("house/fallback", [["limited"], ["steady"]])}${model("house/failing", [["failing"]])}
${model("house/slow", [["stalling", ", first_event_ms = 400"], ["steady"]])}${model(long, [["p".repeat(64)], ["steady"]])}`;
}

async function freePort() {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export class Host {
  static async start(program) {
    const host = new Host();
    host.program = path.resolve(program);
    host.folder = mkdtempSync(path.join(os.tmpdir(), "cofferdam-console-"));
    host.upstreams = await startUpstreams(host.folder);
    // Kept over a restart, so that an open page finds the host again.
    host.admin = `127.0.0.1:${await freePort()}`;
    host.client = `127.0.0.1:${await freePort()}`;
    host.file = path.join(host.folder, "cofferdam.toml");
    mkdirSync(path.join(host.folder, "data"), { mode: 0o700 });
    writeFileSync(host.file, configuration(host.upstreams, host.admin, host.client), { mode: 0o600 });
    await host.put("provider_key", ["--operator", "--host", "localhost"]);
    await host.serve();
    await host.put("github_token", ["--workspace", "default", "--host", "api.example.test"]);
    return host;
  }

  get url() {
    return `http://${this.admin}`;
  }

  get token() {
    return readFileSync(path.join(this.folder, "data", "operator.token"), "utf8").trim();
  }

  arguments(...words) {
    return ["--data", path.join(this.folder, "data"), "--config", this.file, ...words];
  }

  async command(...words) {
    const { stdout } = await promisify(execFile)(this.program, this.arguments("--json", ...words));
    return JSON.parse(stdout);
  }

  async put(name, words) {
    const child = execFile(this.program, this.arguments("secret", "put", name, ...words));
    child.stdin.end(CANARY);
    const code = await new Promise((resolve) => child.on("exit", resolve));
    if (code !== 0) throw new Error(`secret put ${name} ended with ${code}`);
  }

  async serve() {
    const log = openSync(path.join(this.folder, "log.jsonl"), "a");
    this.process = spawn(this.program, this.arguments("serve"), { stdio: ["ignore", log, log] });
    const ended = new Promise((_, reject) => this.process.once("exit", (code) => reject(new Error(`the host ended with ${code}: ${this.log.slice(-2000)}`))));
    ended.catch(() => {});
    await Promise.race([ended, this.untilReady()]);
  }

  get log() {
    return readFileSync(path.join(this.folder, "log.jsonl"), "utf8");
  }

  async untilReady() {
    const end = Date.now() + START_MS;
    for (;;) {
      const ready = await fetch(`${this.url}/readyz`).catch(() => null);
      if (ready?.ok) return;
      if (Date.now() > end) throw new Error("the host is not ready in time");
      await pause(100);
    }
  }

  async stop() {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill("SIGTERM");
    const killer = setTimeout(() => this.process.kill("SIGKILL"), 20_000);
    await ended;
    clearTimeout(killer);
  }

  async end() {
    await this.stop();
    this.upstreams.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  async ask(key, body) {
    const answer = await fetch(`http://${this.client}/v1/responses`, {
      method: "POST", headers: { authorization: `Bearer ${key}`, "content-type": "application/json" }, body: JSON.stringify(body),
    });
    return { status: answer.status, text: await answer.text() };
  }

  // Names, keys and usage of every kind.
  async fill() {
    for (const name of HOSTILE) {
      await this.command("workspace", "create", "--", name);
      await this.command("member", "create", "--workspace", name, "--", name);
      await this.command("intern", "create", "--workspace", name, "--", name);
      await this.command("key", "create", `--workspace=${name}`, `--name=${name}`);
    }
    const { key } = await this.command("key", "create", "--workspace", "default", "--name", "ci", "--limit-day", "0.01", "--expires-days", "30");
    const revoked = await this.command("key", "create", "--workspace", "default", "--name", "left");
    await this.command("key", "revoke", revoked.id);
    const shy = await this.command("key", "create", "--workspace", "default", "--name", "laptop");
    await this.command("key", "disable", shy.id);
    const own = (await this.command("key", "create", "--workspace", "default", "--name", "backend")).key;
    const input = "canary-of-a-request";
    const { secure } = this.upstreams.ports;
    const tool = { model: "local/demo", input: `Send an HTTP request to https://api.example.test:${secure}/user and tell me what came back.`, tools: [{ type: "service:http_request" }] };
    const bodies = [
      ...Array(4).fill({ model: "house/steady", input }), { model: "house/fallback", input, stream: true }, { model: "house/slow", input },
      ...Array(6).fill({ model: "house/failing", input }), { model: `long/${"m".repeat(59)}`, input }, { model: "local/demo", input }, tool,
      { model: "<img src=x onerror=alert(1)>", input }, { model: "house/steady", input: 7 },
    ];
    const statuses = [];
    for (const body of bodies) statuses.push((await this.ask(body === tool ? own : key, body)).status);
    return statuses;
  }
}
