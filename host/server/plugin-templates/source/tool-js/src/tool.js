// The server tool `{{type}}`: writes a text backwards.
//
// QuickJS has no TextEncoder, URL, console or timers; kit.js has what a tool needs of them. A u64 is a number: a
// BigInt ends the call. The only exceptions that the host understands are { tag, val }.

import { fromJson, toJson } from './kit.js';

export const tools = {
  // The functions that the model may call. `settings` are the `parameters` of the request's entry for this tool.
  functions(settings, context) {
    const parameters = {
      type: 'object',
      properties: { text: { type: 'string', description: 'The text' } },
      required: ['text'],
    };
    return [{ name: 'backwards', description: 'Writes a text backwards.', parameters: toJson(parameters) }];
  },

  // One call of a model.
  invoke(name, args, settings, context) {
    const text = fromJson(args)?.text;
    if (typeof text !== 'string') {
      throw { tag: 'invalid-arguments', val: '`text` must be a string' };
    }
    const backwards = [...text].reverse().join('');
    return { forModel: backwards, item: toJson({ backwards }), annotations: [], costPico: 0 };
  },
};
