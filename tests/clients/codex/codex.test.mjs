// The Codex agent, unmodified, against the host: `codex exec` with tools, MCP, resumed sessions and compaction.
// CLIENT_SUITES=all runs every test, otherwise only the first.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

const run = promisify(execFile);
const here = import.meta.dirname;
const codex = join(here, "node_modules", ".bin", "codex");
const all = process.env.CLIENT_SUITES === "all" ? {} : { skip: "only with all suites" };

// A home and a workspace of their own for one test.
async function agent(t, model, name = "cofferdam") {
  const folder = await mkdtemp(join(tmpdir(), "codex-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const [home, work] = [join(folder, "home"), join(folder, "work")];
  await Promise.all([mkdir(home), mkdir(work)]);
  const config = `
model = "${model}"
model_provider = "host"
[model_providers.host]
name = "${name}"
base_url = "${process.env.COFFERDAM_URL}"
env_key = "COFFERDAM_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[mcp_servers.calc]
command = "${process.execPath}"
args = ["${join(here, "calculator.mjs")}"]
`;
  await writeFile(join(home, "config.toml"), config);
  // Nothing of the machine's own settings counts, and nothing but the host is asked.
  const env = { PATH: process.env.PATH, HOME: home, CODEX_HOME: home, COFFERDAM_KEY: process.env.COFFERDAM_KEY };
  const exec = async (...words) => {
    const free = ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"];
    const running = run(codex, [...free, ...words], { cwd: work, env, timeout: 120_000 });
    running.child.stdin.end();
    const { stdout } = await running.catch((failed) => {
      const events = failed.stdout?.trim().split("\n").filter(Boolean).map((line) => JSON.parse(line)) ?? [];
      throw new Error(events.at(-1)?.error?.message ?? failed.message);
    });
    return stdout.trim().split("\n").map((line) => JSON.parse(line));
  };
  return { exec, work };
}

const items = (events, type) =>
  events.filter((event) => event.type === "item.completed" && event.item.type === type).map((event) => event.item);
const said = (events) => items(events, "agent_message").map((item) => item.text).join("\n");
const made = ({ work }) => readFile(join(work, "made.txt"), "utf8");

test("an agent edits a file, reads it and uses a tool of an MCP server, in the chat dialect", async (t) => {
  const own = await agent(t, "openai/gpt-5.5");
  const events = await own.exec("script: agent");
  assert.equal(await made(own), "one line\n");
  const [call] = items(events, "mcp_tool_call");
  assert.equal(call.tool, "add");
  assert.match(said(events), /The sum is 42\./);
});

for (const model of ["house/chat", "house/anthropic", "house/responses"]) {
  test(`an agent works and resumes its session with ${model}`, all, async (t) => {
    const own = await agent(t, model);
    const first = await own.exec("script: agent");
    assert.equal(await made(own), "one line\n");
    assert.match(said(first), /one line/);
    const second = await own.exec("resume", "--last", "How is it?");
    assert.match(said(second), /How is it\?/);
  });
}

for (const model of ["local/demo", "openai/gpt-5.6-sol"]) {
  test(`an agent is answered by the demonstration as ${model}`, all, async (t) => {
    const own = await agent(t, model);
    assert.notEqual(said(await own.exec("Good morning")), "");
  });
}

for (const [model, name] of [["openai/gpt-5.5", "OpenAI"], ["house/anthropic", "OpenAI"], ["house/chat", "cofferdam"]]) {
  test(`a session of ${model} is compacted by ${name}`, all, async (t) => {
    const own = await agent(t, model, name);
    const events = await own.exec("-c", "model_auto_compact_token_limit=20", "script: agent");
    assert.equal(await made(own), "one line\n");
    assert.equal(events.at(-1).type, "turn.completed");
    const again = await own.exec("resume", "--last", "How is it?");
    assert.match(said(again), /How is it\?/);
  });
}
