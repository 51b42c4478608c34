// The host under test, as the clients see it. Started by ../run.sh.

import OpenAI from 'openai';

export const MODELS = ['local/demo', 'house/responses', 'house/chat', 'house/anthropic'];
export const SCRIPTED = MODELS.slice(1);
export const EMBEDDERS = ['local/embed', 'house/embed', 'house/embed-responses'];

const baseURL = process.env.COFFERDAM_URL;

// A key for each file of tests. Clients that leave a stream without end use most tokens of a minute, and other files
// must not meet that.
async function ownKey() {
  const made = await fetch(`${baseURL}/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${process.env.COFFERDAM_MANAGER_KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'node' }),
  });
  return (await made.json()).key;
}

export const settings = {
  baseURL,
  apiKey: await ownKey(),
  timeout: 30_000,
  maxRetries: 0,
};
export const client = new OpenAI(settings);

export const WEATHER = {
  type: 'function',
  name: 'get_weather',
  description: 'The current weather of a city',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
    additionalProperties: false,
  },
  strict: true,
};

/** All events of a stream. */
export async function all(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

/** The text that was streamed. */
export function textOf(events) {
  return events
    .filter((event) => event.type === 'response.output_text.delta')
    .map((event) => event.delta)
    .join('');
}

/** Name and arguments of every call. */
export function calls(response) {
  return response.output
    .filter((item) => item.type === 'function_call')
    .map((item) => [item.name, JSON.parse(item.arguments)]);
}

/** The conversation with a result for every call, output sent back as it came. */
export function answered(question, response) {
  const results = response.output
    .filter((item) => item.type === 'function_call')
    .map((item) => ({
      type: 'function_call_output',
      call_id: item.call_id,
      output: JSON.stringify({ sky: 'clear', ...JSON.parse(item.arguments) }),
    }));
  return [{ role: 'user', content: question }, ...response.output, ...results];
}

/** What the scripted provider has counted. */
export async function upstreamState() {
  const answer = await fetch(`${process.env.UPSTREAM_URL}/state`);
  return answer.json();
}
