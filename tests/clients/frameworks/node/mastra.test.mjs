// Mastra: an agent over the AI SDK's OpenAI provider, in the generation that Mastra for Node 20 takes.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createOpenAI } from '@ai-sdk/openai-v5';
import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { z } from 'zod';
import { BOTH, GREETING, MODELS, all, apiKey, baseURL, weather } from './host.mjs';

const openai = createOpenAI({ baseURL, apiKey });
// Without `store: false` the provider refers to items of earlier answers instead of sending them.
const settings = { providerOptions: { openai: { store: false } } };

for (const name of MODELS) {
  const agent = (call) => {
    const getWeather = createTool({
      id: 'get_weather',
      description: 'The current weather of a city',
      inputSchema: z.object({ city: z.string() }),
      execute: async (input) => call(input.context ?? input),
    });
    return new Agent({
      id: 'guide',
      name: 'guide',
      instructions: 'Be brief.',
      model: openai.responses(name),
      tools: { get_weather: getWeather },
      maxRetries: 0,
    });
  };

  describe(`Mastra with ${name}`, () => {
    test('a message is answered', async () => {
      const answer = await agent(weather().call).generate(GREETING, settings);
      assert.ok(answer.text.includes(GREETING), answer.text);
    });

    test('a tool is called for each city, whole', async () => {
      const { asked, call } = weather();
      const answer = await agent(call).generate(BOTH, settings);
      assert.deepEqual(asked.sort(), ['London', 'Paris']);
      assert.match(answer.text, /clear/);
    });

    test('a tool is called for each city, streamed', async () => {
      const { asked, call } = weather();
      const pieces = await all((await agent(call).stream(BOTH, settings)).textStream);
      assert.deepEqual(asked.sort(), ['London', 'Paris']);
      assert.match(pieces.join(''), /clear/);
    });
  });
}
