// The AI SDK: its OpenAI provider, which speaks the Responses API, and OpenRouter's provider for it.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createOpenAI } from '@ai-sdk/openai';
import { Output, generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { BOTH, GREETING, MODELS, all, apiKey, baseURL, weather } from './host.mjs';

const openai = createOpenAI({ baseURL, apiKey });

for (const name of MODELS) {
  const model = openai.responses(name);
  const tools = (call) => ({
    get_weather: tool({
      description: 'The current weather of a city',
      inputSchema: z.object({ city: z.string() }),
      execute: call,
    }),
  });
  // Without `store: false` this SDK refers to items of earlier answers instead of sending them.
  const providerOptions = { openai: { store: false } };
  const settings = { model, maxRetries: 0, stopWhen: stepCountIs(4), system: 'Be brief.', providerOptions };

  describe(`AI SDK with ${name}`, () => {
    test('a prompt is answered with its usage', async () => {
      const answer = await generateText({ ...settings, prompt: GREETING });
      assert.ok(answer.text.includes(GREETING), answer.text);
      assert.ok(answer.usage.totalTokens > 0);
      assert.equal(answer.finishReason, 'stop');
    });

    test('a tool is called for each city, whole', async () => {
      const { asked, call } = weather();
      const answer = await generateText({ ...settings, prompt: BOTH, tools: tools(call) });
      assert.deepEqual(asked.sort(), ['London', 'Paris']);
      assert.match(answer.text, /clear/);
    });

    test('a tool is called for each city, streamed', async () => {
      const { asked, call } = weather();
      const answer = streamText({ ...settings, prompt: BOTH, tools: tools(call) });
      const pieces = await all(answer.textStream);
      assert.deepEqual(asked.sort(), ['London', 'Paris']);
      assert.ok(pieces.length > 1 && pieces.join('').includes('clear'), pieces.join('|'));
    });

    test('the history of a run with calls is sent back', async () => {
      const { call } = weather();
      const question = { role: 'user', content: BOTH };
      const first = await generateText({ ...settings, messages: [question], tools: tools(call) });
      const more = { role: 'user', content: 'And what is the weather in Oslo?' };
      const messages = [question, ...first.response.messages, more];
      const second = await generateText({ ...settings, messages, tools: tools(call) });
      assert.match(second.text, /Oslo/);
    });

    test('an object is parsed', async () => {
      const schema = z.object({ city: z.string(), mild: z.boolean() });
      const output = Output.object({ schema });
      const answer = await generateText({ ...settings, prompt: 'Report on Paris.', output });
      assert.equal(typeof answer.output.mild, 'boolean');
    });
  });
}
