// A provider that thinks for long: the stream is kept open until it speaks.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SCRIPTED, all, client, textOf } from './host.mjs';

test('a long silence before the first word is bridged', async () => {
  const asked = SCRIPTED.map(async (model) => {
    const stream = await client.responses.create({ model, input: 'script: wait 18 s', stream: true });
    assert.equal(textOf(await all(stream)), 'Here I am.');
  });
  const helped = SCRIPTED.map(async (model) => {
    const response = await client.responses.stream({ model, input: 'script: wait 18 s' }).finalResponse();
    assert.equal(response.output_text, 'Here I am.');
  });
  await Promise.all([...asked, ...helped]);
});
