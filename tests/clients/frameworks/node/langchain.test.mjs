// LangChain for JavaScript through its OpenAI integration, with the Responses API.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ChatOpenAI } from '@langchain/openai';
import { createAgent, tool } from 'langchain';
import { z } from 'zod';
import { BOTH, GREETING, MODELS, all, apiKey, baseURL, weather } from './host.mjs';

for (const model of MODELS) {
  const chat = new ChatOpenAI({
    model,
    apiKey,
    configuration: { baseURL },
    useResponsesApi: true,
    maxRetries: 0,
    timeout: 30_000,
  });
  const agent = (call) =>
    createAgent({
      model: chat,
      systemPrompt: 'Be brief.',
      tools: [
        tool(call, {
          name: 'get_weather',
          description: 'The current weather of a city',
          schema: z.object({ city: z.string() }),
        }),
      ],
    });

  describe(`LangChain with ${model}`, () => {
    test('a message is answered with its usage', async () => {
      const answer = await chat.invoke(GREETING);
      assert.ok(answer.text.includes(GREETING), answer.text);
      assert.ok(answer.usage_metadata.total_tokens > 0);
    });

    test('a message is answered in pieces', async () => {
      const pieces = (await all(await chat.stream(GREETING))).map((piece) => piece.text).filter(Boolean);
      assert.ok(pieces.length > 1 && pieces.join('').includes(GREETING), pieces.join('|'));
    });

    test('structured output is parsed', async () => {
      const report = z.object({ city: z.string(), mild: z.boolean() });
      const parsed = await chat.withStructuredOutput(report, { name: 'report' }).invoke('Report on Paris.');
      assert.equal(typeof parsed.mild, 'boolean');
    });

    test('an agent calls a tool for each city and goes on with its history', async () => {
      const { asked, call } = weather();
      const first = await agent(call).invoke({ messages: [{ role: 'user', content: BOTH }] });
      assert.deepEqual(asked.sort(), ['London', 'Paris']);
      assert.match(first.messages.at(-1).text, /clear/);
      const more = { role: 'user', content: 'And what is the weather in Oslo?' };
      const second = await agent(call).invoke({ messages: [...first.messages, more] });
      assert.match(second.messages.at(-1).text, /Oslo/);
    });
  });
}
