// The OpenAI Agents SDK for JavaScript.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Agent, OpenAIResponsesModel, Runner, tool } from '@openai/agents';
import OpenAI from 'openai';
import { z } from 'zod';
import { BOTH, MODELS, apiKey, baseURL, weather } from './host.mjs';

const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 30_000 });
const runner = new Runner({ tracingDisabled: true });

for (const model of MODELS) {
  const speaks = new OpenAIResponsesModel(client, model);
  const guide = (call) =>
    new Agent({
      name: 'Guide',
      instructions: 'Be brief.',
      model: speaks,
      tools: [
        tool({
          name: 'get_weather',
          description: 'The current weather of a city',
          parameters: z.object({ city: z.string() }),
          execute: call,
        }),
      ],
    });

  describe(`openai-agents with ${model}`, () => {
    test('a run calls a tool for each city and answers', async () => {
      const { asked, call } = weather();
      const result = await runner.run(guide(call), BOTH);
      assert.deepEqual(asked.sort(), ['London', 'Paris']);
      assert.match(result.finalOutput, /clear/);
      assert.match(result.finalOutput, /Be brief\./);
    });

    test('a streamed run calls a tool and answers in pieces', async () => {
      const { asked, call } = weather();
      const result = await runner.run(guide(call), BOTH, { stream: true });
      let text = '';
      for await (const piece of result.toTextStream()) text += piece;
      await result.completed;
      assert.deepEqual(asked.sort(), ['London', 'Paris']);
      assert.match(text, /clear/);
    });

    test('a second run goes on with the history', async () => {
      const { asked, call } = weather();
      const first = await runner.run(guide(call), 'What is the weather in Paris?');
      const history = [...first.history, { role: 'user', content: 'And what is the weather in Oslo?' }];
      const second = await runner.run(guide(call), history);
      assert.deepEqual(asked, ['Paris', 'Oslo']);
      assert.match(second.finalOutput, /Oslo/);
    });

    test('a run with an output type is parsed', async () => {
      const outputType = z.object({ city: z.string(), mild: z.boolean() });
      const reporter = new Agent({ name: 'Reporter', model: speaks, outputType });
      const result = await runner.run(reporter, 'Report on Paris.');
      assert.equal(typeof result.finalOutput.mild, 'boolean');
    });
  });
}
