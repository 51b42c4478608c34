// Answers of every model: whole, streamed, with functions, in a form.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { MODELS, SCRIPTED, WEATHER, all, answered, calls, client, textOf } from './host.mjs';

const QUESTION = 'Where does the Köln train go — 北京?';
const ONE = 'What is the weather in Paris?';
const TWO = 'What is the weather in Paris and London?';
const REASONING = { effort: 'low', summary: 'auto' };

const Party = z.object({
  title: z.string(),
  guests: z.array(z.object({ name: z.string(), mood: z.enum(['calm', 'cross']) })),
  outdoors: z.boolean(),
  note: z.string().nullable(),
});

for (const model of MODELS) {
  describe(model, () => {
    test('an answer repeats what user and system said', async () => {
      const { data: response, response: raw } = await client.responses
        .create({ model, input: QUESTION, instructions: 'Be brief.' })
        .withResponse();
      assert.equal(response.status, 'completed');
      assert.ok(response.output_text.includes(QUESTION) && response.output_text.includes('Be brief.'));
      assert.equal(response.model, model);
      assert.ok(response.usage.input_tokens > 0 && response.usage.output_tokens > 0);
      assert.equal(raw.headers.get('x-generation-id'), response.id);
    });

    test('a stream is numbered and tells the same as the whole answer', async () => {
      const events = await all(await client.responses.create({ model, input: QUESTION, stream: true }));
      assert.deepEqual(
        events.map((event) => event.sequence_number),
        events.map((_, index) => index),
      );
      assert.equal(events.at(-1).type, 'response.completed');
      const whole = await client.responses.create({ model, input: QUESTION });
      assert.equal(textOf(events), whole.output_text);
    });

    test('the stream helper collects the answer', async () => {
      const stream = client.responses.stream({ model, input: QUESTION });
      let snapshot = '';
      stream.on('response.output_text.delta', (event) => (snapshot = event.snapshot));
      const response = await stream.finalResponse();
      assert.equal(response.status, 'completed');
      assert.equal(snapshot, response.output_text);
      assert.ok(snapshot.includes(QUESTION));
    });

    test('the limit makes an incomplete answer', async () => {
      const input = Array.from({ length: 80 }, (_, index) => `word${index}`).join(' ');
      const stream = client.responses.stream({ model, input, max_output_tokens: 16 });
      const response = await stream.finalResponse();
      assert.equal(response.status, 'incomplete');
      assert.equal(response.incomplete_details.reason, 'max_output_tokens');
    });

    test('output is taken back verbatim as input', async () => {
      const first = await client.responses.create({ model, input: 'My name is Ada.' });
      const input = [
        { role: 'user', content: 'My name is Ada.' },
        ...first.output,
        { role: 'user', content: 'Go on.' },
      ];
      const second = await client.responses.create({ model, input });
      assert.ok(second.output_text.includes('Go on.'));
    });

    test('a call, its result and the answer', async () => {
      const first = await client.responses.create({ model, input: ONE, tools: [WEATHER] });
      assert.deepEqual(calls(first), [['get_weather', { city: 'Paris' }]]);
      const second = await client.responses.create({ model, input: answered(ONE, first), tools: [WEATHER] });
      assert.deepEqual(calls(second), []);
      assert.ok(second.output_text.includes('{"sky":"clear","city":"Paris"}'));
    });

    test('parallel calls stream as items of their own', async () => {
      const tools = [
        zodResponsesFunction({
          name: 'get_weather',
          description: WEATHER.description,
          parameters: z.object({ city: z.string() }),
        }),
      ];
      const stream = client.responses.stream({ model, input: TWO, tools });
      const first = await stream.finalResponse();
      assert.deepEqual(
        first.output.map((call) => call.parsed_arguments),
        [{ city: 'Paris' }, { city: 'London' }],
      );
      const events = await all(
        await client.responses.create({ model, input: answered(TWO, first), tools, stream: true }),
      );
      assert.ok(textOf(events).includes('"Paris"') && textOf(events).includes('"London"'));
    });

    test('reasoning stands before the answer and comes back', async () => {
      const settings = {
        model,
        reasoning: REASONING,
        include: ['reasoning.encrypted_content'],
        tools: [WEATHER],
      };
      const first = await client.responses.stream({ ...settings, input: ONE }).finalResponse();
      assert.deepEqual(
        first.output.map((item) => item.type),
        ['reasoning', 'function_call'],
      );
      const second = await client.responses.create({ ...settings, input: answered(ONE, first) });
      assert.ok(second.output_text.includes('"sky":"clear"'));
    });

    test('parse gives the object, streamed or not', async () => {
      const request = {
        model,
        input: 'Plan a party for Ada.',
        text: { format: zodTextFormat(Party, 'party') },
      };
      const response = await client.responses.parse(request);
      assert.deepEqual(Party.parse(response.output_parsed), JSON.parse(response.output_text));
      const streamed = await client.responses.stream(request).finalResponse();
      assert.deepEqual(streamed.output_parsed, response.output_parsed);
    });
  });
}

for (const model of SCRIPTED) {
  test(`a refusal of ${model} is a part of its own`, async () => {
    const response = await client.responses.stream({ model, input: 'script: refuse' }).finalResponse();
    assert.deepEqual(
      response.output.flatMap((item) => item.content.map((part) => [part.type, part.refusal])),
      [['refusal', 'I will not help with that.']],
    );
  });
}
