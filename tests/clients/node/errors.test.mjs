// Errors as the client's classes, and failures after the first word.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import OpenAI from 'openai';
import { SCRIPTED, all, client, settings, textOf, upstreamState } from './host.mjs';

/** The error of this class with this status, and our code in its body. */
async function rejected(promise, kind, status) {
  const error = await promise.then(
    () => assert.fail('it was answered'),
    (error) => error,
  );
  assert.ok(error instanceof kind, `${error}`);
  assert.equal(error.status, status);
  assert.equal(error.code, status);
  return error;
}

test('a bad key is an authentication error', async () => {
  const stranger = new OpenAI({ ...settings, apiKey: 'cfd_0123456789abcdef' });
  const asked = stranger.responses.create({ model: 'local/demo', input: 'Hello!' });
  await rejected(asked, OpenAI.AuthenticationError, 401);
  await rejected(stranger.models.list(), OpenAI.AuthenticationError, 401);
});

// More than sockets hold: the answer meets a client that is still writing.
test('a large request with a bad key is an authentication error', async () => {
  const stranger = new OpenAI({ ...settings, apiKey: 'wrong' });
  for (let turn = 0; turn < 5; turn += 1) {
    const asked = stranger.responses.create({ model: 'local/demo', input: 'x'.repeat(8_000_000) });
    await rejected(asked, OpenAI.AuthenticationError, 401);
  }
});

test('a bad request names the path', async () => {
  const input = [{ role: 'user', content: [{ type: 'input_txt', text: 'x' }] }];
  for (const stream of [false, true]) {
    const asked = client.responses.create({ model: 'local/demo', input, stream });
    const error = await rejected(asked, OpenAI.BadRequestError, 400);
    assert.ok(error.message.includes('input[0].content[0].type'), error.message);
  }
});

test('an unknown model is not found', async () => {
  const asked = client.responses.create({ model: 'house/nobody', input: 'Hello!' });
  const error = await rejected(asked, OpenAI.NotFoundError, 404);
  assert.ok(error.message.includes('house/nobody'));
  await rejected(client.models.retrieve('house/nobody'), OpenAI.NotFoundError, 404);
});

for (const model of SCRIPTED) {
  test(`a limit of ${model} is a rate limit error`, async () => {
    for (const stream of [false, true]) {
      const asked = client.responses.create({ model, input: 'script: error 429', stream });
      const error = await rejected(asked, OpenAI.RateLimitError, 429);
      assert.equal(error.headers.get('retry-after'), '7');
    }
  });

  test(`a failure of ${model} is a bad gateway`, async () => {
    for (const status of [401, 500]) {
      const asked = client.responses.create({ model, input: `script: error ${status}` });
      await rejected(asked, OpenAI.InternalServerError, 502);
    }
  });

  for (const how of ['fail', 'error event', 'cut', 'stop short']) {
    test(`${model} breaking by "${how}" is told in the stream`, async () => {
      const events = await all(
        await client.responses.create({ model, input: `script: ${how}`, stream: true }),
      );
      const last = events.at(-1);
      assert.equal(last.type, 'response.failed');
      assert.equal(last.response.status, 'failed');
      assert.equal(last.response.error.code, 'server_error');
      assert.ok(textOf(events).startsWith('One word follows'));
      const response = await client.responses.stream({ model, input: `script: ${how}` }).finalResponse();
      assert.equal(response.status, 'failed');
    });
  }

  test(`a client that leaves ends the request of ${model} upstream`, async () => {
    const before = (await upstreamState()).abandoned;
    const stream = await client.responses.create({ model, input: 'script: endless', stream: true });
    for await (const event of stream) {
      if (event.type === 'response.output_text.delta') break;
    }
    // The answer of a model that has reasoned lately is read on for its usage, for 10 s.
    const deadline = Date.now() + 18_000;
    while ((await upstreamState()).abandoned === before) {
      assert.ok(Date.now() < deadline, 'the provider still talks to nobody');
      await pause(20);
    }
  });
}
