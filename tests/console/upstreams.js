// Providers on loopback that answer, refuse with 429, fail, or stall; and a server with TLS for
// requests of tools. All in this process, on free ports.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import path from "node:path";

const listen = (server) => new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server.address().port)));

function answerChat(request, response, body) {
  const asked = JSON.parse(body);
  const usage = { prompt_tokens: 120, completion_tokens: 12, total_tokens: 132, prompt_tokens_details: { cached_tokens: 80 } };
  const common = { id: "c1", created: 1, model: asked.model };
  if (!asked.stream) {
    response.setHeader("content-type", "application/json");
    return response.end(JSON.stringify({ ...common, object: "chat.completion", choices: [{ index: 0, finish_reason: "stop", message: { role: "assistant", content: "All is well." } }], usage }));
  }
  response.setHeader("content-type", "text/event-stream");
  const send = (it) => response.write(`data: ${JSON.stringify({ ...common, object: "chat.completion.chunk", ...it })}\n\n`);
  for (const content of ["All ", "is ", "well."]) send({ choices: [{ index: 0, delta: { content }, finish_reason: null }] });
  send({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] });
  send({ choices: [], usage });
  response.end("data: [DONE]\n\n");
}

const WAYS = {
  answers: answerChat,
  limited(request, response) {
    response.writeHead(429, { "retry-after": "2", "content-type": "application/json" });
    response.end(JSON.stringify({ error: { message: "slow down", type: "rate_limit" } }));
  },
  fails(request, response) {
    response.writeHead(503, { "content-type": "application/json" });
    response.end(JSON.stringify({ error: { message: "overloaded" } }));
  },
  // Never answers; the host gives up after `first_event_ms`.
  stalls() {},
};

export async function startUpstreams(folder) {
  const servers = [];
  const ports = {};
  for (const [name, answer] of Object.entries(WAYS)) {
    const server = http.createServer((request, response) => {
      const parts = [];
      request.on("data", (part) => parts.push(part));
      request.on("end", () => answer(request, response, Buffer.concat(parts).toString()));
    });
    servers.push(server);
    ports[name] = await listen(server);
  }
  const certificate = path.join(folder, "tls.pem");
  const key = path.join(folder, "tls.key");
  execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-keyout", key, "-out", certificate,
    "-subj", "/CN=api.example.test", "-addext", "subjectAltName=DNS:api.example.test", "-addext", "basicConstraints=critical,CA:FALSE"], { stdio: "ignore" });
  const secure = https.createServer({ cert: readFileSync(certificate), key: readFileSync(key) }, (request, response) => {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ login: "octocat", said: request.headers.authorization ?? null }));
  });
  servers.push(secure);
  ports.secure = await listen(secure);
  const stop = () => servers.forEach((server) => {
    server.closeAllConnections();
    server.close();
  });
  return { ports, certificate, stop };
}
