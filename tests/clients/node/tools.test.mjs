// Server tools: run by the host inside one response, beside functions of the client.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { WEATHER, all, answered, calls, client, textOf } from './host.mjs';

const BOTH = 'Tell me the datetime in Europe/Paris and the weather in Oslo.';
const model = 'local/demo';

for (const prefix of ['service:', 'openrouter:']) {
  describe(`${prefix}datetime`, () => {
    const clock = { type: `${prefix}datetime` };

    test('the stream helper reads over the items of server tools', async () => {
      const input = 'Tell me the datetime in Europe/Paris.';
      const response = await client.responses.stream({ model, input, tools: [clock] }).finalResponse();
      const [item, message] = response.output;
      assert.deepEqual([item.type, item.status, item.timezone], [clock.type, 'completed', 'Europe/Paris']);
      assert.equal(message.type, 'message');
      assert.equal(response.usage.server_tool_use_details.tool_calls_executed, 1);
    });

    test('both kinds are called and the history is sent back', async () => {
      const tools = [WEATHER, clock];
      const first = await client.responses.create({ model, input: BOTH, tools });
      assert.deepEqual(calls(first), [['get_weather', { city: 'Oslo' }]]);
      assert.ok(first.output.some((item) => item.type === clock.type));
      const input = answered(BOTH, first);
      const text = textOf(await all(await client.responses.create({ model, input, tools, stream: true })));
      assert.ok(text.includes('"sky":"clear"') && text.includes('Europe/Paris'), text);
    });
  });
}
