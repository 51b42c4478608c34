// Vectors, as base64 (what the client asks for by itself) and as numbers; the catalog.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EMBEDDERS, MODELS, client } from './host.mjs';

const TEXTS = ['good morning', 'guten Morgen', '早上好'];

for (const model of EMBEDDERS) {
  test(`the default and floats of ${model} are the same vectors`, async () => {
    const decoded = await client.embeddings.create({ model, input: TEXTS });
    const floats = await client.embeddings.create({ model, input: TEXTS, encoding_format: 'float' });
    assert.equal(decoded.data.length, 3);
    for (const [index, row] of decoded.data.entries()) {
      const other = floats.data[index].embedding;
      assert.equal(row.index, index);
      assert.equal(row.embedding.length, other.length);
      assert.ok(row.embedding.every((number, place) => Math.abs(number - other[place]) < 1e-6));
    }
    assert.ok(decoded.usage.prompt_tokens > 0);
  });

  test(`dimensions shorten the vectors of ${model}`, async () => {
    const response = await client.embeddings.create({ model, input: TEXTS[0], dimensions: 8 });
    assert.equal(response.data[0].embedding.length, 8);
  });
}

test('the catalog lists and reads every model', async () => {
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  for (const id of [...MODELS, ...EMBEDDERS]) {
    assert.ok(ids.includes(id), id);
    assert.equal((await client.models.retrieve(id)).id, id);
  }
});
