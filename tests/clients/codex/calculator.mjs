// An MCP server on standard input and output that adds two numbers.

import { createInterface } from "node:readline";

const add = {
  name: "add",
  description: "Adds two numbers.",
  inputSchema: {
    type: "object",
    properties: { a: { type: "number" }, b: { type: "number" } },
    required: ["a", "b"],
  },
};

function answer({ method, params }) {
  if (method === "initialize") {
    return {
      protocolVersion: params.protocolVersion,
      capabilities: { tools: {} },
      serverInfo: { name: "calculator", version: "1" },
    };
  }
  if (method === "tools/list") return { tools: [add] };
  if (method === "tools/call") {
    const { a, b } = params.arguments;
    return { content: [{ type: "text", text: `The sum is ${a + b}.` }] };
  }
  return undefined;
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  if (request.id === undefined) continue;
  const result = answer(request);
  const said = result ? { result } : { error: { code: -32601, message: "There is no such method." } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id: request.id, ...said }));
}
