// OpenRouter's SDK for TypeScript, which refuses an answer for one member that is missing or of another type.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { OpenRouter } from '@openrouter/sdk';
import { GREETING, MODELS, all, apiKey, baseURL } from './host.mjs';

const sdk = new OpenRouter({ apiKey, serverURL: baseURL, retryConfig: { strategy: 'none' } });

for (const model of MODELS) {
  describe(`OpenRouter SDK with ${model}`, () => {
    test('an answer is read whole', async () => {
      const answer = await sdk.beta.responses.send({ responsesRequest: { model, input: GREETING } });
      assert.equal(answer.status, 'completed');
      assert.ok(answer.usage.totalTokens > 0);
    });

    test('an answer is read as a stream', async () => {
      const request = { model, input: GREETING, stream: true };
      const events = await all(await sdk.beta.responses.send({ responsesRequest: request }));
      assert.equal(events[0].type, 'response.created');
      assert.equal(events.at(-1).type, 'response.completed');
    });
  });
}

test('the list of models is read', async () => {
  const listed = await sdk.models.list();
  const ids = (listed.result ?? listed).data.map((model) => model.id);
  assert.ok(MODELS.every((model) => ids.includes(model)), ids.join(' '));
});
